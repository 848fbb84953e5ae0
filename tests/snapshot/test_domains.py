"""Domains, and sums over them, are what the labels and the pods of the nodes say."""

from __future__ import annotations

from functools import partial
from random import Random

import numpy as np
import pytest

from rayched.snapshot import change_log, domains
from rayched.snapshot.domains import BlockedDomains, DomainSums
from rayched.snapshot.pod_selection import PodSelector
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from tests.snapshot.objects import a_node, a_pod

EVERYBODY = (PodSelector(None, ()),)


class World:
    """Nodes with and without a zone, and pods on them."""

    def __init__(self, seed: int) -> None:
        self.random, self.snapshot, self.templates = Random(seed), Snapshot(), TemplateTable()
        self.zones: dict[str, str] = {}
        self.pods: dict[str, str] = {}
        self.number = 0
        for number in range(8):
            self.put(f"n{number}")

    def put(self, name: str) -> None:
        zone = self.random.choice(("a", "b", "c", f"own-{self.random.randrange(6)}", ""))
        self.zones[name] = zone
        self.snapshot.add_node(a_node(name, labels={"zone": zone} if zone else {"other": "label"}))

    def step(self) -> None:
        random = self.random
        match random.randrange(8):
            case 0 | 1:
                self.put(f"n{random.randrange(14)}")
            case 2 if len(self.zones) > 3:
                name = random.choice(sorted(self.zones))
                del self.zones[name]
                self.snapshot.remove_node(name)
            case 3 if self.pods:
                uid = random.choice(sorted(self.pods))
                del self.pods[uid]
                self.snapshot.unbind(uid)
            case _:
                self.number += 1
                self.pods[str(self.number)] = name = f"n{random.randrange(14)}"
                self.snapshot.bind(str(self.number), self.templates.intern(a_pod()), name)

    def pods_in(self, zone: str, names: set[str]) -> int:
        return sum(self.zones.get(name) == zone and name in names for name in self.pods.values())


@pytest.mark.parametrize("changes_max", [0, 2, 256])
@pytest.mark.parametrize("seed", range(4))
def test_sums_are_those_of_the_pods_in_each_domain(seed: int, changes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "CHANGES_MAX", changes_max)
    monkeypatch.setattr(domains, "SPARE_DOMAINS", 3)
    monkeypatch.setattr(change_log, "ENTRIES_MAX", 20)
    world = World(seed)
    snapshot = world.snapshot
    topology = snapshot.topology("zone")
    sums = DomainSums(partial(snapshot.pod_counts.counter, EVERYBODY), topology)
    sums.refresh()
    version, before = topology.version, topology.column.copy()
    for step in range(250):
        for _ in range(world.random.choice((0, 1, 1, 2, 5))):
            world.step()
        topology = snapshot.topology("zone")
        what = f"seed {seed}, step {step}"
        earlier, known = sums.sums.copy(), sums._version == topology.version
        changed = sums.refresh()
        assert not sums.refresh(), "nothing more"
        assert changed or (np.array_equal(earlier, sums.sums) and known), what
        if sums.touched is not None and changed:
            assert set((earlier != sums.sums).nonzero()[0].tolist()) <= set(sums.touched), what
        for name, zone in world.zones.items():
            row = snapshot.rows_by_name[name]
            domain = topology.domain_of(zone) if zone else -1
            assert topology.column[row] == domain, what
            if zone:
                assert sums.sums[domain] == world.pods_in(zone, set(world.zones)), what
        assert sums.sums[-1] == 0 and len(sums.sums) == topology.n_domains + 1, what
        assert sums.total == sums.sums.sum() == sum(bool(world.zones.get(name)) for name in world.pods.values()), what
        assert topology.n_domains <= 2 * snapshot.n_rows + 3 + len(world.zones), what
        assert np.array_equal(before, topology.column) or topology.version > version, what
        version, before = topology.version, topology.column.copy()
        everywhere = []
        for domain in range(-1, topology.n_domains):
            rows = topology.rows_of(domain)
            found = [] if rows is None else np.arange(snapshot.capacity)[rows].tolist()
            assert all(topology.column[row] == domain for row in found), what
            everywhere += found
        assert sorted(everywhere) == list(range(snapshot.capacity)), what


@pytest.mark.parametrize("seed", range(3))
def test_only_eligible_rows_count_where_these_are_given(seed: int) -> None:
    world = World(seed)
    snapshot, random = world.snapshot, world.random
    for _ in range(40):
        world.step()
        topology = snapshot.topology("zone")
        eligible = np.array([random.random() < 0.5 for _ in range(snapshot.n_rows)])
        sums = DomainSums(partial(snapshot.pod_counts.counter, EVERYBODY), topology, eligible)
        for _ in range(4):
            sums.refresh()
            names = {name for name, row in snapshot.rows_by_name.items() if row < len(eligible) and eligible[row]}
            for zone in set(world.zones.values()) - {""}:
                assert sums.sums[topology.domain_of(zone)] == world.pods_in(zone, names)
            there = random.choice(sorted(world.zones))
            world.number += 1
            world.pods[str(world.number)] = there
            snapshot.bind(str(world.number), world.templates.intern(a_pod()), there)


def test_a_sum_that_nothing_happened_to_is_not_added_up_anew() -> None:
    world = World(0)
    asked: list[int] = []

    def source() -> object:
        asked.append(1)
        return world.snapshot.pod_counts.counter(EVERYBODY)

    sums = DomainSums(source, world.snapshot.topology("zone"))  # type: ignore[arg-type]
    assert sums.refresh() and not sums.refresh() and asked == [1]
    name = next(name for name, zone in world.zones.items() if zone)
    world.snapshot.bind("one", world.templates.intern(a_pod()), name)
    array = sums.sums
    assert sums.refresh() and sums.sums is array, "one number of it changed"
    assert sums.touched == [world.snapshot.topology("zone").domain_of(world.zones[name])] and asked == [1]


@pytest.mark.parametrize("changes_max", [0, 1, 256])
def test_refusals_log_each_domain_that_came_to_be_refused_or_no_longer_is(
    changes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domains, "CHANGES_MAX", changes_max)
    random, world = Random(changes_max), World(1)
    refusals = BlockedDomains(world.snapshot.topology("zone"))
    refusals.set_all(np.zeros(6, np.bool_))
    for _ in range(100):
        before, position = refusals.refused.copy(), refusals.log.end
        if random.random() < 0.5:
            domain = random.randrange(5)
            refusals.set(domain, random.random() < 0.5)
        else:
            refusals.set_all(np.array([random.random() < 0.5 for _ in range(6)]))
        changed = [place if place < 5 else -1 for place in (before != refusals.refused).nonzero()[0].tolist()]
        logged = refusals.log.since(position)
        assert logged == changed or (logged is None and len(changed) > changes_max)
        assert refusals.n_refused == refusals.refused.sum()
