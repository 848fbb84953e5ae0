"""Which numbered conditions hold, against each of them asked by itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayched.api.selectors import Operator, Requirement
from rayched.snapshot import condition_index
from rayched.snapshot.condition_index import ConditionIndex
from rayched.snapshot.pod_selection import LabelConditions, hold

KEYS = ("app", "own", "zone")
VALUES = ("a", "b", "c", "d")


def requirement(key: str, operator: Operator, values: list[str]) -> Requirement:
    return Requirement(key, operator, frozenset(values) if operator in (Operator.IN, Operator.NOT_IN) else frozenset())


CONDITION = st.builds(
    requirement,
    st.sampled_from(KEYS),
    st.sampled_from((Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)),
    st.lists(st.sampled_from(VALUES), min_size=1),
)
CONDITIONS = st.one_of(st.none(), st.lists(CONDITION, max_size=4).map(tuple))
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from((*VALUES, "nobody names it")))


@pytest.mark.parametrize(
    ("conditions", "labels", "holds"),
    [
        (None, {}, False),
        ((), {}, True),
        ((requirement("app", Operator.IN, ["a", "b"]),), {"app": "b"}, True),
        ((requirement("app", Operator.IN, ["a", "b"]),), {"app": "c"}, False),
        ((requirement("app", Operator.IN, ["a"]),), {}, False),
        ((requirement("app", Operator.NOT_IN, ["a"]),), {}, True),
        ((requirement("app", Operator.NOT_IN, ["a"]),), {"app": "a"}, False),
        ((requirement("app", Operator.EXISTS, []),), {"app": ""}, True),
        ((requirement("app", Operator.DOES_NOT_EXIST, []),), {"app": ""}, False),
        ((requirement("app", Operator.IN, ["a"]), requirement("own", Operator.DOES_NOT_EXIST, [])), {"app": "a"}, True),
        ((requirement("app", Operator.IN, ["a"]), requirement("app", Operator.NOT_IN, ["a"])), {"app": "a"}, False),
    ],
)
def test_conditions_hold_where_each_of_them_does(conditions: LabelConditions, labels: dict[str, str], holds: bool) -> None:
    index = ConditionIndex()
    assert index.add(conditions) == 0
    assert index.holding(labels).tolist() == [holds]


def test_what_compares_numbers_is_no_condition_on_labels_of_pods() -> None:
    with pytest.raises(ValueError, match="operator Gt"):
        ConditionIndex().add((Requirement("app", Operator.GT, bound=3),))


STEP = st.one_of(
    st.tuples(st.just("add"), CONDITIONS),
    st.tuples(st.just("ask"), LABELS),
    st.tuples(st.just("keep"), st.integers(0, 99)),
)


@settings(deadline=None)
@given(st.lists(STEP, max_size=60), st.sampled_from((0, 2, 1_000)))
def test_the_index_says_what_each_condition_says(steps: list[tuple[str, object]], unsorted: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(condition_index, "UNSORTED_MAX", unsorted)
        index, known = ConditionIndex(), list[LabelConditions]()
        for step, what in steps:
            if step == "add":
                assert index.add(what) == len(known)  # type: ignore[arg-type]
                known.append(what)  # type: ignore[arg-type]
            elif step == "ask":
                assert isinstance(what, Mapping)
                for since in {0, len(known) // 2, len(known)}:
                    assert index.holding(what, since).tolist() == [hold(one, what) for one in known[since:]]
            else:
                assert isinstance(what, int)
                stay = [number for number in range(len(known)) if (number + what) % 3]
                numbers = np.full(len(known), -1, np.int32)
                numbers[stay] = np.arange(len(stay), dtype=np.int32)
                index.keep(numbers)
                known = [known[number] for number in stay]
            assert len(index) == len(known)
