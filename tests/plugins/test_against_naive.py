"""Every plugin, and the whole default profile in the engine, against the naive scheduler on random clusters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from rayched.engine.engine import Engine
from rayched.framework.plugin import CountingScorePlugin, NarrowingPlugin, NormalizingPlugin
from rayched.framework.status import Code, Status
from rayched.snapshot.rows import Rows
from tests.oracle.naive import GOOD, NEVER, NO, Attempt
from tests.plugins.clusters import World
from tests.plugins.random_worlds import seeds, state_of, world_of
from tests.sampling import part_of

CODES = {GOOD: Code.SUCCESS, NO: Code.UNSCHEDULABLE, NEVER: Code.UNSCHEDULABLE_AND_UNRESOLVABLE}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.row("K2.2", "K2.3", "K5.2")
@given(seed=seeds)
@settings(max_examples=part_of(60), deadline=None, derandomize=True)
def test_each_filter_gives_the_naive_code_and_reasons_on_every_node(seed: int) -> None:
    world, profile = world_of(seed)
    snapshot = world.snapshot
    for _ in range(4):
        pod, template = world.incoming()
        expected = world.naive.attempt(pod)
        rows = Rows(snapshot, slice(0, snapshot.n_rows))
        for plugin in profile.filter:
            codes, reasons = None, []
            if plugin.key(template.pod) is not None:
                state = state_of(plugin, template.pod, snapshot)
                codes = plugin.filter(state, rows)
                reasons = [] if codes is None else list(plugin.reasons(state, rows, codes))
            for name, verdicts in expected.verdicts.items():
                row = snapshot.row_of(name)
                code = Code.SUCCESS if codes is None else Code(int(codes[row]))
                found = (code, sorted(reason for reason, where in reasons if where[row]))
                wanted, why = verdicts[plugin.name]
                assert found == (CODES[wanted], why), f"seed {seed}, {plugin.name}, {name}"


@pytest.mark.sampled
@pytest.mark.row("K2.4", "K8.1", "K8.3")
@given(seed=seeds)
@settings(max_examples=part_of(60), deadline=None, derandomize=True)
def test_each_score_plugin_gives_the_naive_raw_and_normalised_scores(seed: int) -> None:
    world, profile = world_of(seed)
    for _ in range(4):
        pod, template = world.incoming()
        expected = world.naive.attempt(pod)
        if not expected.feasible:
            continue
        rows = Rows(world.snapshot, np.array([world.snapshot.row_of(name) for name in expected.feasible], np.intp))
        for plugin in profile.score:
            skipped = plugin.key(template.pod) is None
            state = None if skipped else state_of(plugin, template.pod, world.snapshot)
            raw = None if skipped else plugin.score(state, rows)
            if raw is None:
                assert plugin.name not in expected.raw, f"seed {seed}, {plugin.name}"
                continue
            assert raw.dtype == np.int64
            normalized = raw
            if isinstance(plugin, NormalizingPlugin):
                normalized = plugin.normalize(raw, int(raw.min()), int(raw.max()))
            elif isinstance(plugin, CountingScorePlugin):
                normalized = plugin.normalize_rows(state, rows, raw)
            where = f"seed {seed}, {plugin.name}"
            assert raw.tolist() == list(expected.raw[plugin.name].values()), where
            assert normalized.tolist() == list(expected.normalized[plugin.name].values()), where


@pytest.mark.sampled
@pytest.mark.slow
@given(seed=seeds)
@settings(max_examples=part_of(60), deadline=None, derandomize=True)
def test_prefilter_narrows_as_the_naive_one(seed: int) -> None:
    world, profile = world_of(seed)
    for _ in range(10):
        pod, template = world.incoming()
        expected = world.naive.attempt(pod)
        (plugin,) = profile.pre_filter
        assert isinstance(plugin, NarrowingPlugin)
        answer = None if plugin.key(template.pod) is None else plugin.narrow(plugin.prepare(template.pod))
        if isinstance(answer, Status):
            assert (answer.code, list(answer.reasons)) == (CODES[expected.prefilter[0]], expected.prefilter[1])
        else:
            assert answer == expected.narrowed and expected.prefilter[0] == GOOD, f"seed {seed}"


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.row("K6.4")
@given(seed=seeds)
@settings(max_examples=part_of(40), deadline=None, derandomize=True)
def test_the_default_profile_in_the_engine_equals_the_naive_scheduler_while_the_cluster_changes(seed: int) -> None:
    world, profile = world_of(seed)
    engine = Engine(world.snapshot, profile)
    pods = [world.incoming() for _ in range(3)]
    for step in range(8):
        for pod, template in pods:
            _compare(engine, world, world.naive.attempt(pod), template, f"seed {seed}, step {step}")
        world.change()


def _compare(engine: Engine, world: World, expected: Attempt, template: object, where: str) -> None:
    evaluation = engine.evaluate(template)  # type: ignore[arg-type]
    total = evaluation.total.tolist()
    found = {name: total[world.snapshot.rows_by_name[name]] for name in world.naive.nodes}
    assert {name for name, score in found.items() if score >= 0} == set(expected.feasible), where
    if len(expected.feasible) > 1:
        assert {name: score for name, score in found.items() if score >= 0} == expected.total, where
