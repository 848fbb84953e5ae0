"""What PodTopologySpread and InterPodAffinity promise of what they count, asked without an engine between.

Whatever is kept from count to count says what counting anew says; domains that are refused say what the filter says, and groups
what the scores of rows say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from rayched.framework.plugin import CountingPlugin
from rayched.framework.profile import Profile
from rayched.plugins.inter_pod_affinity import groups as inter_pod_affinity_groups
from rayched.plugins.pod_topology_spread import groups as pod_topology_spread_groups
from rayched.snapshot import pod_counts
from rayched.snapshot import snapshot as whole_snapshot
from rayched.snapshot.columns import BoolColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.work_budget import AttemptOverBudget
from rayched.v1.core_pb2 import Pod
from tests.plugins.clusters import World
from tests.plugins.random_worlds import seeds
from tests.plugins.test_topology_against_naive import roomy
from tests.plugins.topology_parts import random_constraint

STEPS = 10


class Asked:
    """One plugin about one pod, kept from step to step as an engine keeps it."""

    def __init__(self, plugin: Any, pod: Pod, world: World) -> None:
        self.plugin, self.pod, self.world = plugin, pod, world
        self.prepared = plugin.prepare(pod)
        self.kept: Any = None
        self.before: tuple[Any, ...] | None = None

    def step(self, where: str) -> None:
        plugin, snapshot = self.plugin, self.world.snapshot
        self.kept = self._counted()
        fresh = plugin.count(plugin.prepare(self.pod), snapshot, None)
        rows = Rows(snapshot, snapshot.alive.nonzero()[0])
        if not rows.n:
            return
        codes, raw = _listed(plugin.filter(self.kept, rows)), _listed(plugin.score(self.kept, rows))
        assert codes == _listed(plugin.filter(fresh, rows)), where
        assert raw == _listed(plugin.score(fresh, rows)), where
        assert self.kept.adds_nothing is (raw is None), where
        index = rows.index.tolist()
        self._tells_what_changed(dict(zip(index, codes or [0] * rows.n, strict=True)), (index, raw), where)
        for state, shares in ((self.kept, (1.0, 0.5)), (fresh, (0.7,))):
            self._refuses_what_the_filter_rejects(state, rows, codes, where)
            for share in shares:
                self._scores_groups_as_rows(state, self._some_rows(rows, share), where)

    def _counted(self) -> Any:
        """Now and then attempts take too long, and the next one goes on from there."""
        work, last, steps = self.world.snapshot.work, self.kept, self.world.random.choice((2, 2, 3, 1_000))
        while True:
            work.begin(steps)
            try:
                return self.plugin.count(self.prepared, self.world.snapshot, last)
            except AttemptOverBudget:
                last, steps = None, steps + 1
            finally:
                work.end()

    def _tells_what_changed(self, codes: dict[int, int], scores: tuple[list[int], Sequence[int] | None], where: str) -> None:
        """Scores may depend on which rows there are."""
        revision, verdict = self.kept.revision, self.kept.verdict
        if self.before is not None:
            last_revision, last_verdict, last_codes, last_scores = self.before
            is_same = all(codes.get(row, code) == code for row, code in last_codes.items())
            assert verdict != last_verdict or is_same, where
            assert revision != last_revision or (is_same and (scores[0] != last_scores[0] or scores == last_scores)), where
        again = self.plugin.count(self.prepared, self.world.snapshot, self.kept)
        assert again is self.kept and (again.revision, again.verdict) == (revision, verdict), f"{where}: nothing changed"
        self.before = revision, verdict, codes, scores

    def _refuses_what_the_filter_rejects(self, state: Any, rows: Rows, codes: Any, where: str) -> None:
        refused = np.zeros(rows.n, np.bool_)
        for one in self.plugin.refusals(state):
            refused |= one.refused[one.topology.column[rows.selection]]
            assert one.n_refused == int(np.count_nonzero(one.refused)), where
        assert refused.tolist() == [bool(code) for code in codes or [0] * rows.n], where

    def _some_rows(self, rows: Rows, share: float) -> BoolColumn:
        """One at least. Shape (n_rows,)."""
        feasible = np.zeros(self.world.snapshot.n_rows, np.bool_)
        feasible[[row for row in rows.index.tolist() if self.world.random.random() < share] or rows.index[:1]] = True
        return feasible

    def _scores_groups_as_rows(self, state: Any, feasible: BoolColumn, where: str) -> None:
        plugin, rows = self.plugin, Rows(self.world.snapshot, feasible.nonzero()[0])
        raw, groups = plugin.score(state, rows), plugin.groups(state)
        if raw is None:
            assert groups is None, where
            return
        assert groups is not None and groups is plugin.groups(state), where
        expected = plugin.normalize_rows(state, rows, raw).tolist()
        present = sorted(set(groups.ids[rows.selection].tolist()))
        for _ in range(2):
            scores = dict(zip(present, plugin.score_groups(state, groups, present, feasible), strict=True))
            assert [scores[group] for group in groups.ids[rows.selection].tolist()] == expected, where


def _listed(column: Any) -> Sequence[int] | None:
    return None if column is None else column.tolist()


def softly_spread(world: World) -> Pod:
    """With one to three soft constraints, now and then a hard one, and other things at random."""
    random, pod = world.random, world.draw_pod()
    del pod.spec.topology_spread_constraints[:]
    found = {}
    for number in range(random.choice((1, 2, 2, 3))):
        constraint = random_constraint(random)
        constraint.when_unsatisfiable = "ScheduleAnyway" if number or random.random() < 0.8 else "DoNotSchedule"
        found[constraint.topology_key, constraint.when_unsatisfiable] = constraint
    pod.spec.topology_spread_constraints.extend(found.values())
    return pod


def spread_by_default(world: World) -> Pod:
    pod = world.draw_pod()
    del pod.spec.topology_spread_constraints[:]
    return pod


def plugin_of(profile: Profile, name: str) -> CountingPlugin:
    (found,) = [plugin for plugin in profile.filter if plugin.name == name]
    assert isinstance(found, CountingPlugin)
    return found


def play(seed: int, name: str, draws: Sequence[Callable[[World], Pod]]) -> None:
    world, profile = roomy(seed)
    steps = count()
    world.snapshot.work.use(lambda: float(next(steps)), lambda: None)
    plugin = plugin_of(profile, name)
    pods = [draw(world) for draw in draws]
    asked = [Asked(plugin, pod, world) for pod in pods if plugin.key(pod) is not None]
    for step in range(STEPS):
        for number, one in enumerate(asked):
            one.step(f"seed {seed}, step {step}, pod {number}")
        for _ in range(Random(seed + step).choice((1, 1, 2, 4))):
            world.change()


@pytest.mark.slow
@given(seed=seeds)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_spread_counts_say_what_counting_anew_says(seed: int) -> None:
    play(seed, "PodTopologySpread", (World.draw_pod, softly_spread, softly_spread, spread_by_default))


@pytest.mark.slow
@given(seed=seeds)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_affinity_counts_say_what_counting_anew_says(seed: int) -> None:
    play(seed, "InterPodAffinity", (World.draw_pod, World.draw_pod, World.draw_pod))


@pytest.mark.parametrize("seed", range(8))
def test_groups_are_made_anew_where_more_pods_changed_than_are_followed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_topology_spread_groups, "CHANGES_MAX", 1)
    play(seed, "PodTopologySpread", (softly_spread, softly_spread))


@pytest.mark.parametrize("name", ["PodTopologySpread", "InterPodAffinity"])
@pytest.mark.parametrize("seed", range(8))
def test_counters_and_topologies_that_were_let_go_meanwhile_come_back(
    seed: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster keeps so many of each; whoever holds one that was let go goes on with it, or with another one.

    In half of the worlds all keys are told apart by what is preferred.
    """
    monkeypatch.setattr(inter_pod_affinity_groups, "FEW", seed % 2 * 16)
    monkeypatch.setattr(pod_counts, "FOLLOWED_MAX", 2)
    monkeypatch.setattr(whole_snapshot, "TOPOLOGIES_MAX", 1)
    play(seed, name, (World.draw_pod, World.draw_pod, softly_spread))
