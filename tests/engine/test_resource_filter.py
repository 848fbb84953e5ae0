"""Filters in plain integers say what the same filters say in columns: of rows, of nominated pods, of dry runs, to the reason."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from rayched.configuration.profile_building import default_profile
from rayched.engine import engine as engine_module
from rayched.engine.cached_columns import BuildColumns
from rayched.engine.engine import Engine
from rayched.engine.evaluation import Evaluation
from rayched.engine.nominations import Nomination, rejected_with_nominated
from rayched.engine.resource_trials import PodsOfRows, Together
from rayched.engine.score_caps import RowSet
from rayched.engine.totals import KeptTotal
from rayched.framework import names
from rayched.framework.plugin_args import NodeResourcesFitArgs
from rayched.framework.profile import Profile
from rayched.plugins.in_tree import IN_TREE
from rayched.plugins.node_resources.fit import NodeResourcesFit
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.v1.core_pb2 import Node, Pod
from tests.core.builders import a_node, a_pod

STEPS = 60
SEEDS = 6


class InColumns(NodeResourcesFit):
    """The same without its numbers."""

    needs: Any = None


def in_columns() -> Profile:
    profile = default_profile(IN_TREE)
    fit = InColumns(NodeResourcesFitArgs())
    filters = tuple(fit if one.name == names.NODE_RESOURCES_FIT else one for one in profile.filter)
    return replace(profile, filter=filters, score=tuple(fit if one.name == fit.name else one for one in profile.score))


class World:
    """Nodes and pods that change at random, and two engines over them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        # One pod with terms of its own is enough for counting filters to have a say.
        self.has_terms = seed % 3 == 2
        self.in_numbers = 0
        self.snapshot, self.templates = Snapshot(), TemplateTable()
        self.number = 0
        for number in range(9):
            self.snapshot.add_node(self.node(f"n{number}"))
        self.plain = Engine(self.snapshot, default_profile(IN_TREE))
        self.columns = Engine(self.snapshot, in_columns())
        self.incoming = [self.pod("vip", priority=10) for _ in range(4)]
        self.nominated: list[Nomination] = []
        for _ in range(14):
            self.bind()

    def node(self, name: str) -> Node:
        random = self.random
        node = a_node(name, cpu=str(random.choice((0, 2, 4))), labels={"zone": random.choice("ab")})
        node.status.allocatable["pods"].string = str(random.choice((0, 2, 5)))
        if random.random() < 0.5:
            node.status.allocatable["example.com/gpu"].string = str(random.choice((1, 2)))
        node.spec.unschedulable = random.random() < 0.1
        if random.random() < 0.15:
            node.spec.taints.add(key="kept", value="for", effect="NoSchedule")
        return node

    def pod(self, name: str, *, priority: int) -> Pod:
        random = self.random
        pod = a_pod(name, cpu=str(random.randint(0, 3)), priority=priority, labels={"app": random.choice("xy")})
        if random.random() < 0.4:
            pod.spec.containers[0].resources.requests["example.com/gpu"].string = "1"
        if random.random() < 0.1:
            pod.spec.containers[0].resources.requests["example.com/nobody-has"].string = "1"
        if random.random() < 0.2:
            pod.spec.tolerations.add(key="kept", operator="Exists")
        if random.random() < 0.1:
            pod.spec.containers[0].ports.add(container_port=80, host_port=80, protocol="TCP")
        if self.has_terms and random.random() < 0.05:
            term = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add(
                topology_key="zone"
            )
            term.label_selector.match_labels["app"] = "y"
        return pod

    def bind(self) -> None:
        self.number += 1
        pod = self.pod("low", priority=self.random.randint(0, 5))
        self.snapshot.bind(f"p{self.number}", self.templates.intern(pod), self.random.choice(self.names()))

    def names(self) -> list[str]:
        return self.snapshot.node_names()

    def change(self) -> None:
        random, snapshot = self.random, self.snapshot
        match random.randrange(12):
            case 0:
                snapshot.add_node(self.node(f"n{random.randrange(12)}"))
            case 1 if len(self.names()) > 4:
                snapshot.remove_node(random.choice(self.names()))
                self.nominated = [one for one in self.nominated if snapshot.alive_rows[one[1]]]
            case 2 | 3 | 4:
                self.bind()
            case 5 | 6 | 7:
                there = [uid for name in self.names() for uid in snapshot.pods_on(name)]
                if there:
                    snapshot.unbind(random.choice(there))
            case 8 if self.nominated:
                self.nominated.pop(random.randrange(len(self.nominated)))
            case _:
                row = random.choice([snapshot.rows_by_name[name] for name in self.names()])
                self.nominated.append((self.templates.intern(self.pod("hoping", priority=20)), row))

    def compare(self) -> None:
        template = self.templates.intern(self.random.choice(self.incoming))
        rows = self.snapshot.alive.nonzero()[0].tolist()
        plain, columns, nominated = self.plain, self.columns, self.nominated
        one, other = plain.evaluate(template, nominated=nominated), columns.evaluate(template, nominated=nominated)
        assert (one.n_feasible, one.best_rows.tolist()) == (other.n_feasible, other.best_rows.tolist())
        assert one.best == other.best or one.n_feasible == 1
        assert (one.feasible == other.feasible).all()
        self.compare_with_rows_left_out(template)
        for row in rows:
            assert plain.fits(template, row, nominated) == columns.fits(template, row, nominated)
        said, expected = plain.diagnose(template, nominated), columns.diagnose(template, nominated)
        assert (said.codes == expected.codes).all() and (said.failing == expected.failing).all()
        for name in ("n_nodes", "pre_filter", "reasons", "unschedulable_plugins", "pending_plugins", "filters", "rejections"):
            assert getattr(said, name) == getattr(expected, name), name
        pods = [self.lower(row) for row in rows]
        tried, wanted = (engine.dry_run(template, nominated).run(rows, pods) for engine in (plain, columns))
        assert [None if stay is None else tuple(map(bool, stay)) for stay in wanted.stay] == list(tried.stay)
        assert tried.refusals() == wanted.refusals()
        in_one_go = plain.dry_run(template, nominated)
        if in_one_go.has_together:
            assert stay_of(in_one_go.together(rows, self.in_slots(pods)), pods) == list(tried.stay)
        room = plain._rooms[plain._plan(template).number]
        self.in_numbers += room is not None and room.holds(plain._builder.build)

    def compare_with_rows_left_out(self, template: PodTemplate) -> None:
        """What nominated pods keep free is left out from the beginning, by an engine that knows nothing yet."""
        fresh = Engine(self.snapshot, default_profile(IN_TREE))
        rejected = rejected_with_nominated(self.snapshot, fresh._plan(template, self.nominated).filters, self.nominated)
        expected = fresh.evaluate(template, without=rejected)
        for _ in range(2):
            said = self.plain.evaluate(template, nominated=self.nominated)
            assert (said.n_feasible, said.is_feasible) == (expected.n_feasible, expected.is_feasible)
            if said.n_feasible > 1:
                assert (said.best, said.best_rows.tolist()) == (expected.best, expected.best_rows.tolist())
                assert (np.maximum(said.total, -1) == np.maximum(expected.total, -1)).all()

    def in_slots(self, pods: list[list[PodTemplate]]) -> PodsOfRows:
        there = np.arange(max(map(len, pods))) < np.array([len(of_row) for of_row in pods])[:, None]
        numbers = np.zeros(there.shape, np.intp)
        numbers[there] = self.snapshot.template_amounts.numbers([template for of_row in pods for template in of_row])
        return PodsOfRows(there, numbers)

    def lower(self, row: int) -> list[PodTemplate]:
        there = list(self.snapshot.pods_on(self.snapshot.name_of(row)).values())
        self.random.shuffle(there)
        return there


def stay_of(found: Together, pods: list[list[PodTemplate]]) -> list[tuple[bool, ...] | None]:
    """Row by row; a slot without a pod is never gone."""
    assert not any(gone[len(of_row) :].any() for gone, of_row in zip(found.gone, pods, strict=True))
    assert not found.gone[~found.fits].any()
    return [
        tuple((~gone[: len(of_row)]).tolist()) if fits else None
        for fits, gone, of_row in zip(found.fits.tolist(), found.gone, pods, strict=True)
    ]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_filters_in_numbers_say_what_they_say_in_columns(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.change()
        world.compare()
    assert world.in_numbers > (0 if world.has_terms else STEPS // 4)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_equal_pods_follow_each_other_beside_pods_that_are_nominated(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation, write_all = KeptTotal.evaluation, KeptTotal._write_all
    followed: list[bool] = []

    def noted(total: KeptTotal, build: BuildColumns, kept_free: RowSet) -> Evaluation:
        followed.append(len(kept_free) > 0)
        return evaluation(total, build, kept_free)

    def noted_all(total: KeptTotal) -> None:
        followed[-1] = False
        write_all(total)

    monkeypatch.setattr(KeptTotal, "evaluation", noted)
    monkeypatch.setattr(KeptTotal, "_write_all", noted_all)
    world = World(3 * seed)
    # Most of the time no node goes, and the same pod comes again and again.
    for number in range(20, 26):
        world.snapshot.add_node(a_node(f"n{number}", cpu="8"))
    template = world.templates.intern(a_pod("low", cpu="1"))
    for _ in range(3 * STEPS):
        if world.random.random() < 0.8:
            there = [uid for name in world.names() for uid in world.snapshot.pods_on(name)]
            if len(there) > 10 and world.random.random() < 0.5:
                world.snapshot.unbind(world.random.choice(there))
            else:
                world.bind()
        else:
            world.change()
        world.compare_with_rows_left_out(template)
    assert sum(followed) > STEPS


@pytest.mark.parametrize("kept_free", ["n1", "n2"])
def test_rows_that_nominated_pods_keep_free_are_not_feasible(kept_free: str) -> None:
    """Also where the others' scores are other ones without them: the most avoided taints of a feasible node count."""
    world = World(0)
    for name in world.names():
        world.snapshot.remove_node(name)
    for name, avoided in (("n0", 0), ("n1", 1), ("n2", 2), ("n3", 1)):
        node = a_node(name, cpu="4" if avoided else "16")
        for number in range(avoided):
            node.spec.taints.add(key=f"avoided-{number}", value="", effect="PreferNoSchedule")
        world.snapshot.add_node(node)
    template = world.templates.intern(a_pod("low", cpu="1"))
    world.nominated = [(world.templates.intern(a_pod("hoping", cpu="4", priority=20)), world.snapshot.rows_by_name[kept_free])]
    world.compare_with_rows_left_out(template)
    expected = world.plain.evaluate(template, nominated=world.nominated)
    assert expected.total[world.snapshot.rows_by_name[kept_free]] < 0


@pytest.mark.parametrize(("most", "bytes_max", "kept"), [(4, 1 << 20, 4), (40, 1 << 20, 9), (40, 0, 2)])
def test_so_many_plans_are_kept_in_numbers(most: int, bytes_max: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than allowed, and above the least no more than their bytes allow."""
    monkeypatch.setattr(engine_module, "ROOMS_MIN", 2)
    monkeypatch.setattr(engine_module, "ROOMS_MAX", most)
    monkeypatch.setattr(engine_module, "ROOMS_BYTES_MAX", bytes_max)
    world = World(0)
    for number in range(9):
        world.plain.diagnose(world.templates.intern(a_pod("one", cpu=f"{number + 1}m")))
    assert len(world.plain._rooms) == kept


def test_a_diagnosis_that_was_given_out_stays_as_it_was() -> None:
    world = World(3)
    template = world.templates.intern(a_pod("vip", cpu="4", priority=10))
    before = world.plain.diagnose(template)
    codes = before.codes.copy()
    for _ in range(40):
        world.bind()
        world.plain.diagnose(template)
    assert np.array_equal(before.codes, codes) and not np.array_equal(world.plain.diagnose(template).codes, codes)


def test_a_filter_without_numbers_is_asked_in_columns() -> None:
    world = World(1)
    template = world.templates.intern(a_pod("vip", cpu="4", priority=10))
    world.plain.diagnose(template)
    world.columns.diagnose(template)
    assert world.plain._rooms[world.plain._plan(template).number] is not None
    assert world.columns._rooms[world.columns._plan(template).number] is None
