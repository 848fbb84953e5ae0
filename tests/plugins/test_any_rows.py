"""A plugin's answer for a row depends on nothing but its key and that row's aspects that it reads.

So the whole table, shards of it, any rows in any order, rows as they would be with more pods, and a cluster that reached the same
state on another way all give the same columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rayched.framework.accelerated import StackingPlugin
from rayched.framework.plugin import ColumnPlugin, CountingPlugin, FilterPlugin, ScorePlugin
from rayched.framework.profile import Profile
from rayched.snapshot.columns import Log
from rayched.snapshot.rows import Rows, WhatIfRows
from rayched.v1.core_pb2 import Pod
from tests.plugins.clusters import World, random_pod, tweaked
from tests.plugins.random_worlds import seeds, world_of
from tests.sampling import part_of

Column = NDArray[Any] | None
Evaluate = Callable[[Any, Rows], Column]


def evaluations(profile: Profile, pod: Pod) -> list[tuple[ColumnPlugin, Any, Evaluate]]:
    """(plugin, its state for the pod, filter or score), for each that is not skipped and looks at single rows."""
    found: list[tuple[ColumnPlugin, Any, Evaluate]] = []
    for plugin in dict.fromkeys((*profile.filter, *profile.score)):
        if plugin.key(pod) is None or isinstance(plugin, CountingPlugin):
            continue
        state = plugin.prepare(pod)
        if isinstance(plugin, FilterPlugin):
            found.append((plugin, state, plugin.filter))
            found.append((plugin, state, _reasons_of(plugin)))
        if isinstance(plugin, ScorePlugin):
            found.append((plugin, state, plugin.score))
    return found


def _reasons_of(plugin: FilterPlugin) -> Evaluate:
    """The sorted reasons of each row, as a column of texts."""

    def evaluate(state: Any, rows: Rows) -> Column:
        codes = plugin.filter(state, rows)
        if codes is None:
            return None
        reasons = plugin.reasons(state, rows, codes)
        texts = ["; ".join(sorted(text for text, where in reasons if where[place])) for place in range(rows.n)]
        return np.array(texts, dtype=object)

    return evaluate


def whole(world: World) -> Rows:
    return Rows(world.snapshot, slice(0, world.snapshot.n_rows))


def assert_equal(found: Column, expected: Column, where: str) -> None:
    if found is None or expected is None:
        assert found is None and expected is None, where
    else:
        assert found.tolist() == expected.tolist(), where


@pytest.mark.sampled
@pytest.mark.row("F6")
@given(seed=seeds, pieces=st.integers(1, 5))
@settings(max_examples=part_of(30), deadline=None, derandomize=True)
def test_shards_and_any_rows_give_what_the_whole_table_gives(seed: int, pieces: int) -> None:
    world, profile = world_of(seed)
    n_rows = world.snapshot.n_rows
    cuts = [n_rows * piece // pieces for piece in range(pieces + 1)]
    some = np.array([world.random.randrange(n_rows) for _ in range(7)] if n_rows else [], np.intp)
    for _ in range(3):
        _, template = world.incoming()
        for plugin, state, evaluate in evaluations(profile, template.pod):
            where = f"seed {seed}, {plugin.name}"
            column = evaluate(state, whole(world))
            shards = [evaluate(state, Rows(world.snapshot, slice(a, b))) for a, b in itertools.pairwise(cuts)]
            picked = evaluate(state, Rows(world.snapshot, some))
            if column is None:
                assert picked is None and all(shard is None for shard in shards), where
            else:
                assert_equal(np.concatenate([shard for shard in shards if shard is not None]), column, where)
                assert_equal(picked, column[some], where)


@pytest.mark.sampled
@given(seed=seeds)
@settings(max_examples=part_of(30), deadline=None, derandomize=True)
def test_rows_as_they_would_be_give_what_the_changed_cluster_gives(seed: int) -> None:
    world, profile = world_of(seed)
    snapshot = world.snapshot
    added = world.templates.intern(random_pod(world.random))
    _, template = world.incoming()
    asked = evaluations(profile, template.pod)
    what_if = WhatIfRows(snapshot, slice(0, snapshot.n_rows), (added, 2))
    expected = [evaluate(state, what_if) for _, state, evaluate in asked]
    for name in list(world.naive.nodes):
        for copy in range(2):
            snapshot.bind(f"{name}-{copy}", added, name)
    alive = snapshot.alive
    for (plugin, state, evaluate), column in zip(asked, expected, strict=True):
        found = evaluate(state, whole(world))
        if column is not None and found is not None:
            assert_equal(found[alive], column[alive], f"seed {seed}, {plugin.name}")


@pytest.mark.sampled
@given(seed=seeds)
@settings(max_examples=part_of(60), deadline=None, derandomize=True)
def test_a_state_that_stands_for_many_answers_for_each_of_them(seed: int) -> None:
    world, profile = world_of(seed)
    snapshot = world.snapshot
    pods = [random_pod(world.random) for _ in range(world.random.choice((1, 5)))]
    for plugin in dict.fromkeys((*profile.filter, *profile.score)):
        if not isinstance(plugin, StackingPlugin):
            continue
        states = [plugin.prepare(pod) for pod in pods if plugin.key(pod) is not None]
        stacked = plugin.stack(states) if states else None
        if stacked is None:
            continue
        methods: list[Callable[[Any, Rows], NDArray[Any]]] = [
            getattr(plugin, name) for name in ("filter", "score") if hasattr(plugin, name)
        ]
        for evaluate in methods:
            for row in range(snapshot.n_rows):
                one = Rows(snapshot, slice(row, row + 1))
                alone = [evaluate(state, one).item(0) for state in states]
                assert evaluate(stacked, one).tolist() == alone, f"seed {seed}, {plugin.name}, row {row}"


ASPECTS = (Log.USAGE, Log.LABELS, Log.TAINTS, Log.UNSCHEDULABLE, Log.IMAGES, Log.PORTS)


@pytest.mark.sampled
@given(seed=seeds)
@settings(max_examples=part_of(60), deadline=None, derandomize=True)
def test_a_column_changes_only_when_an_aspect_changes_that_the_plugin_declares(seed: int) -> None:
    world, profile = world_of(seed)
    snapshot = world.snapshot
    _, template = world.incoming()
    asked = evaluations(profile, template.pod)
    for _ in range(6):
        before = [evaluate(state, whole(world)) for _, state, evaluate in asked]
        positions = {aspect: snapshot.log(aspect).end for aspect in ASPECTS}
        n_rows = snapshot.n_rows
        world.random.choice((world.update_one_aspect, world.update_one_aspect, world.bind, world.unbind))()
        changed = {aspect: snapshot.log(aspect).since(positions[aspect]) for aspect in ASPECTS}
        for (plugin, state, evaluate), column in zip(asked, before, strict=True):
            found = evaluate(state, whole(world))
            if column is None or found is None:
                continue
            rows_of = [changed[aspect] for aspect in ASPECTS if aspect & plugin.reads]
            if any(rows is None for rows in rows_of):
                continue
            stale = {row for rows in rows_of for row in rows or ()}
            for row in range(n_rows):
                if row not in stale:
                    assert found[row] == column[row], f"seed {seed}, {plugin.name}, row {row}"


@pytest.mark.sampled
@given(seed=seeds)
@settings(max_examples=part_of(40), deadline=None, derandomize=True)
def test_pods_with_equal_keys_get_equal_columns(seed: int) -> None:
    """What does not matter is left out of the keys: the order of tolerations, preferences and containers' images."""
    world, profile = world_of(seed)
    pod, template = world.incoming()
    other = Pod()
    other.CopyFrom(template.pod)
    tolerations = list(reversed(pod.spec.tolerations))
    del other.spec.tolerations[:]
    other.spec.tolerations.extend([*tolerations, *tolerations])
    preferred = list(reversed(pod.spec.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution))
    if preferred:
        del other.spec.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution[:]
        other.spec.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution.extend(preferred)
    for plugin in dict.fromkeys((*profile.filter, *profile.score)):
        assert plugin.key(other) == plugin.key(template.pod), plugin.name
        assert plugin.key(other) is None or hash(plugin.key(other)) == hash(plugin.key(template.pod))
    mine, others = evaluations(profile, template.pod), evaluations(profile, other)
    for (plugin, state, evaluate), (_, other_state, other_evaluate) in zip(mine, others, strict=True):
        assert_equal(other_evaluate(other_state, whole(world)), evaluate(state, whole(world)), f"seed {seed}, {plugin.name}")


@pytest.mark.sampled
@pytest.mark.slow
@given(seed=seeds)
@settings(max_examples=part_of(80), deadline=None, derandomize=True)
def test_pods_with_different_columns_have_different_keys(seed: int) -> None:
    world, profile = world_of(seed)
    pod = random_pod(world.random)
    for _ in range(5):
        other = tweaked(world.random, pod)
        for plugin in dict.fromkeys((*profile.filter, *profile.score)):
            if plugin.key(pod) == plugin.key(other):
                mine = [e(state, whole(world)) for p, state, e in evaluations(profile, pod) if p is plugin]
                others = [e(state, whole(world)) for p, state, e in evaluations(profile, other) if p is plugin]
                for column, other_column in zip(mine, others, strict=True):
                    assert_equal(other_column, column, f"seed {seed}, {plugin.name}")


def test_an_empty_table_gives_empty_columns() -> None:
    world = World(1, n_nodes=0, n_pods=3)
    _, profile = world_of(1)
    _, template = world.incoming()
    for plugin, state, evaluate in evaluations(profile, template.pod):
        column = evaluate(state, whole(world))
        assert column is None or len(column) == 0, plugin.name
