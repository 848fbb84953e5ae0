"""Which toleration covers which taint."""

from __future__ import annotations

import pytest

from rayched.api.tolerations import first_untolerated, tolerates
from rayched.v1.core_pb2 import Taint, Toleration

TAINT = Taint(key="k", value="v", effect="NoSchedule")


@pytest.mark.row("K5.2")
@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="k", operator="Equal", value="v", effect="NoSchedule"), True),
        (Toleration(key="k", value="v", effect="NoSchedule"), True),
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", value="w"), False),
        (Toleration(key="k"), False),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(key="k", operator="Exists", value="w"), True),
        (Toleration(key="k", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="j", operator="Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoSchedule"), True),
        (Toleration(operator="Exists", effect="PreferNoSchedule"), False),
        (Toleration(operator="Equal", value="v"), True),
        (Toleration(key="k", operator="Gt", value="v"), False),
    ],
)
def test_key_operator_value_and_effect_decide(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


def test_the_first_hard_taint_that_nothing_covers_is_named() -> None:
    soft = Taint(key="s", effect="PreferNoSchedule")
    hard = Taint(key="h", effect="NoExecute")
    covered = [Toleration(key="k", operator="Exists")]
    assert first_untolerated([], [soft, TAINT, hard]) == TAINT
    assert first_untolerated(covered, [soft, TAINT, hard]) == hard
    assert first_untolerated(covered, [soft, TAINT]) is None
    assert first_untolerated(covered, [soft, TAINT], effects=("PreferNoSchedule",)) == soft
