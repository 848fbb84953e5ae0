"""When pods leave tainted nodes: a table of the rule, and the rule against a clock that is advanced second by second."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.controllers.taint_eviction import AT_ONCE, NEVER, leaves_at, no_execute_taints
from rayched.v1.core_pb2 import Node, Taint, Toleration

SET_AT = 1_000


def a_taint(key: str = "down", value: str = "", effect: str = "NoExecute", at: int = SET_AT) -> Taint:
    taint = Taint(key=key, value=value, effect=effect)
    taint.time_added.seconds = at
    return taint


def tolerates(key: str = "down", seconds: int | None = None, **more: Any) -> Toleration:
    return Toleration(key=key, operator=more.pop("operator", "Exists"), toleration_seconds=seconds, **more)


def when(taints: list[Taint], tolerations: list[Toleration], on_node_since: float = 0) -> float:
    node = Node()
    node.spec.taints.extend(taints)
    together = [(taint, max(float(taint.time_added.seconds), on_node_since)) for taint in no_execute_taints(node)]
    return leaves_at(together, tolerations)


@pytest.mark.row("K5.4")
@pytest.mark.parametrize(
    ("taints", "tolerations", "expected"),
    [
        ([], [], NEVER),
        ([a_taint()], [], AT_ONCE),
        ([a_taint()], [tolerates()], NEVER),
        ([a_taint()], [tolerates(seconds=60)], SET_AT + 60),
        ([a_taint()], [tolerates(seconds=0)], AT_ONCE),
        ([a_taint()], [tolerates(seconds=-5)], AT_ONCE),
        ([a_taint()], [tolerates("other")], AT_ONCE),
        ([a_taint()], [tolerates(effect="NoSchedule")], AT_ONCE),
        ([a_taint(value="x")], [tolerates(operator="Equal", value="y")], AT_ONCE),
        ([a_taint(value="x")], [tolerates(operator="Equal", value="x", seconds=9)], SET_AT + 9),
        ([a_taint(effect="NoSchedule"), a_taint(effect="PreferNoSchedule")], [], NEVER),
        # Of several tolerations of a taint the first one counts, of several taints the one that is over first.
        ([a_taint()], [tolerates(seconds=60), tolerates()], SET_AT + 60),
        ([a_taint()], [tolerates(), tolerates(seconds=60)], NEVER),
        ([a_taint("a"), a_taint("b")], [tolerates("a", 90), tolerates("b", 60)], SET_AT + 60),
        ([a_taint("a"), a_taint("b", at=SET_AT + 50)], [tolerates("a", 90), tolerates("b", 60)], SET_AT + 90),
        ([a_taint("a"), a_taint("b")], [tolerates("a")], AT_ONCE),
        ([a_taint("a"), a_taint("b")], [tolerates("a"), tolerates("b", 60)], SET_AT + 60),
    ],
)
def test_a_pod_leaves_at_once_after_its_time_or_never(
    taints: list[Taint], tolerations: list[Toleration], expected: float
) -> None:
    assert when(taints, tolerations) == expected


def test_a_pod_that_came_after_the_taint_has_its_time_from_then_on() -> None:
    assert when([a_taint()], [tolerates(seconds=60)], on_node_since=SET_AT + 500) == SET_AT + 560


times = st.integers(0, 30)
a_tolerated_taint = st.sampled_from(("a", "b", "c"))


@given(
    taints=st.dictionaries(a_tolerated_taint, times, max_size=3),
    tolerations=st.lists(st.tuples(a_tolerated_taint | st.just(""), st.none() | st.integers(-1, 30)), max_size=4),
    since=times,
)
def test_second_by_second_a_pod_stays_exactly_as_long_as_every_taint_bears_it(
    taints: dict[str, int], tolerations: list[tuple[str, int | None]], since: int
) -> None:
    leaves = when([a_taint(key, at=at) for key, at in taints.items()], [tolerates(*one) for one in tolerations], since)

    def borne(key: str, set_at: int, now: int) -> bool:
        for name, seconds in tolerations:
            if name in ("", key):
                together = now - max(set_at, since)
                return seconds is None or (seconds > 0 and together < seconds)
        return False

    for now in range(max([since, *taints.values()]), 100):
        assert (leaves > now) is all(borne(key, at, now) for key, at in taints.items()), now
