"""Why a pod fits nowhere: the diagnosis and its message, against reasons that the naive scheduler counts node by node."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from rayched.engine.engine import Engine
from rayched.framework.diagnosis import Diagnosis
from rayched.framework.status import Code
from tests.conformance.sharded import Shards
from tests.oracle.naive import GOOD, NEVER, NO, Attempt
from tests.plugins.clusters import World
from tests.plugins.random_worlds import seeds, world_of
from tests.plugins.test_topology_against_naive import roomy
from tests.sampling import part_of

CODES = {GOOD: Code.SUCCESS, NO: Code.UNSCHEDULABLE, NEVER: Code.UNSCHEDULABLE_AND_UNRESOLVABLE}
NARROWED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.row("F8")
@pytest.mark.parametrize("draw", [world_of, roomy], ids=["full", "roomy"])
def test_the_message_counts_each_nodes_reasons_and_the_first_plugin_that_rejects_decides(draw: object) -> None:
    messages = set()

    @given(seed=seeds)
    @settings(max_examples=part_of(30), deadline=None, derandomize=True, database=None)
    def play(seed: int) -> None:
        world, profile = draw(seed)  # type: ignore[operator]
        kept, sharded = Engine(world.snapshot, profile), Engine(world.snapshot, profile, Shards(world.snapshot, profile, 3))
        for _ in range(3):
            for _ in range(4):
                pod, template = world.incoming()
                expected = world.naive.attempt(pod)
                if expected.feasible or not world.naive.nodes:
                    continue
                for engine in (kept, sharded):
                    engine.evaluate(template)
                    found = engine.diagnose(template)
                    assert found.message() == message_of(world, expected), f"seed {seed}"
                    compare_nodes(found, world, expected, f"seed {seed}")
                messages.add(found.message())
            world.change()

    play()
    assert len(messages) > 10


def message_of(world: World, expected: Attempt) -> str:
    n_nodes = len(world.naive.nodes)
    if expected.prefilter[0] != GOOD:
        return f"0/{n_nodes} nodes are available: {expected.prefilter[1][0]}."
    reasons: Counter[str] = Counter()
    for name in world.naive.nodes:
        is_left = expected.narrowed is None or name in expected.narrowed
        reasons.update(expected.verdicts[name][expected.rejected_by[name]][1] if is_left else [NARROWED])
    return f"0/{n_nodes} nodes are available: {', '.join(sorted(f'{count} {text}' for text, count in reasons.items()))}."


def compare_nodes(found: Diagnosis, world: World, expected: Attempt, where: str) -> None:
    if expected.prefilter[0] != GOOD:
        return
    for name, plugin in expected.rejected_by.items():
        if expected.narrowed is not None and name not in expected.narrowed:
            continue
        row = world.snapshot.rows_by_name[name]
        assert found.filters[int(found.failing[row])] == plugin, f"{where}, {name}"
        assert Code(int(found.codes[row])) is CODES[expected.verdicts[name][plugin][0]], f"{where}, {name}"
