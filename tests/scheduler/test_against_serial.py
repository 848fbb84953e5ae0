"""Random sequences of arrivals and departures: every pod goes where a plain serial evaluation puts it.

The serial scheduler keeps nothing: for each pod it has a new engine, which asks every plugin about every node. Both draw among
the best nodes with the same generator, so the placements themselves are compared, not only their scores.
"""

from __future__ import annotations

from random import Random

import pytest

from rayched.configuration.profile_building import default_profile
from rayched.engine.engine import Engine
from rayched.framework.profile import Profile
from rayched.plugins.in_tree import IN_TREE
from rayched.scheduler.attempt import Attempt
from rayched.scheduler.scheduler import PodToSchedule, Scheduler
from rayched.scheduler.selection import choose
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Node, Pod, PodAffinityTerm
from tests.plugins.clusters import random_node, random_pod
from tests.sampling import part_of

SEQUENCES = part_of(200)
SEQUENCES_A_TEST = 25
STEPS = 24
SEED = 7
ZONE, HOST, APP = "topology.kubernetes.io/zone", "kubernetes.io/hostname", ("web", "db", "cache")


class Serial:
    """Places pods by asking every plugin anew."""

    def __init__(self, profile: Profile) -> None:
        self.snapshot, self._templates, self._profile, self._decisions = Snapshot(), TemplateTable(), profile, 0

    def place(self, uid: str, pod: Pod) -> str:
        """The node's name; empty where no node is feasible."""
        template = self._templates.intern(pod)
        rows = Engine(self.snapshot, self._profile).explain(template).rows
        number, self._decisions = self._decisions, self._decisions + 1
        total = {int(row): int(rows.total[i]) for i, row in enumerate(rows.index) if rows.feasible[i]}
        if not total:
            return ""
        best = rows.index[rows.feasible & (rows.total == max(total.values()))]
        node = self.snapshot.name_of(choose(best, SEED, number))
        self.snapshot.bind(uid, template, node)
        return node


class Memoised:
    """Places pods with the scheduler of production."""

    def __init__(self, profile: Profile) -> None:
        self.snapshot, self._templates = Snapshot(), TemplateTable()
        self.scheduler = Scheduler(self.snapshot, {profile.scheduler_name: profile}, SEED)

    def place(self, uid: str, pod: Pod) -> str:
        template = self._templates.intern(pod)
        found = self.scheduler.schedule(PodToSchedule(uid, uid, template, pod), 0, 0.0)
        if not isinstance(found, Attempt):
            return ""
        self.scheduler.bound(found)
        self.scheduler.occupancy.observe(uid, template, found.node_name)
        return found.node_name


def a_random_node(random: Random, name: str) -> Node:
    node = random_node(random, name)
    node.metadata.labels[HOST] = name
    if random.random() < 0.9:
        node.metadata.labels[ZONE] = random.choice("abc")
    return node


def a_random_pod(random: Random) -> Pod:
    """One of few shapes, some of which care for where others are."""
    pod = random_pod(random)
    pod.spec.scheduler_name = "default-scheduler"
    if random.random() < 0.6:
        # Otherwise hardly a node would be feasible for anybody.
        pod.spec.node_selector.clear()
        pod.spec.affinity.Clear()
        pod.spec.tolerations.add(operator="Exists")
    pod.metadata.labels["app"] = random.choice(APP)
    affinity = pod.spec.affinity
    if random.random() < 0.25:
        term = affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add()
        _fill(term, random)
    if random.random() < 0.25:
        term = affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add()
        _fill(term, random)
    if random.random() < 0.25:
        weighted = affinity.pod_affinity.preferred_during_scheduling_ignored_during_execution.add(weight=random.choice((1, 50)))
        _fill(weighted.pod_affinity_term, random)
    for _ in range(random.choice((0, 0, 1, 2))):
        constraint = pod.spec.topology_spread_constraints.add(
            max_skew=random.choice((1, 2)),
            topology_key=random.choice((ZONE, HOST)),
            when_unsatisfiable=random.choice(("DoNotSchedule", "ScheduleAnyway")),
        )
        constraint.label_selector.match_labels["app"] = random.choice(APP)
    return pod


def _fill(term: PodAffinityTerm, random: Random) -> None:
    term.topology_key = random.choice((ZONE, HOST))
    term.label_selector.match_labels["app"] = random.choice(APP)


def play(seed: int) -> tuple[int, int]:
    """(pods placed, pods that fitted nowhere) of one sequence that agrees step by step."""
    random = Random(seed)
    profile = default_profile(IN_TREE)
    memoised, serial = Memoised(profile), Serial(profile)
    for number in range(random.choice((1, 4, 8, 12))):
        node = a_random_node(random, f"n{number}")
        memoised.snapshot.add_node(node)
        serial.snapshot.add_node(node)
    shapes = [a_random_pod(random) for _ in range(5)]
    there: list[str] = []
    refused = placed = 0
    for step in range(STEPS):
        if there and random.random() < 0.3:
            gone = there.pop(random.randrange(len(there)))
            memoised.scheduler.occupancy.remove(gone)
            serial.snapshot.unbind(gone)
            continue
        pod, uid = random.choice(shapes), f"u{step}"
        found, expected = memoised.place(uid, pod), serial.place(uid, pod)
        assert found == expected, f"seed {seed}, step {step}"
        if expected:
            there.append(uid)
            placed += 1
        else:
            refused += 1
    return placed, refused


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.row("F6")
@pytest.mark.parametrize("first", range(0, SEQUENCES, SEQUENCES_A_TEST))
def test_pods_go_where_a_plain_serial_evaluation_puts_them(first: int) -> None:
    results = [play(seed) for seed in range(first, first + SEQUENCES_A_TEST)]
    placed, refused = (sum(numbers) for numbers in zip(*results, strict=True))
    assert placed > 4 * SEQUENCES_A_TEST and refused > SEQUENCES_A_TEST
