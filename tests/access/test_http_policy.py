"""What is read over HTTP by whom, typed once more by hand; and that nothing but the table says so."""

from __future__ import annotations

import pytest

from rayched.access.authorizing import Authorizer
from rayched.access.http_policy import HTTP_POLICY, check_paths
from rayched.access.identity import Identity
from rayched.access.policy import POLICY, AccessRole, PolicyError
from tests.access.matrix import IDENTITIES, binding, bindings, table_of

MATRIX = """
path           nobody  viewer  submitter  operator  admin  node  replica  everywhere  monitor
/livez         Y       Y       Y          Y         Y      Y     Y        Y           Y
/readyz        Y       Y       Y          Y         Y      Y     Y        Y           Y
/healthz       Y       Y       Y          Y         Y      Y     Y        Y           Y
?verbose       n       n       n          Y         Y      n     n        n           Y
/metrics       n       n       n          Y         Y      n     n        n           Y
/metrics/slis  n       n       n          Y         Y      n     n        n           Y
/statusz       n       n       n          Y         Y      n     n        n           n
/configz       n       n       n          Y         Y      n     n        n           n
/version       n       n       n          Y         Y      n     n        n           n
/elsewhere     n       n       n          n         n      n     n        n           n
"""
MONITOR = "monitor"


def authorizer() -> Authorizer:
    return Authorizer(table_of(*bindings(), binding("nobody", "monitor")))


def of(column: str) -> Identity:
    """The column `monitor` is the one of nobody else's, who has that role in this world."""
    return Identity.parse(IDENTITIES["nobody" if column == MONITOR else column])


@pytest.mark.row("B107")
def test_each_cell_answers_as_it_is_written() -> None:
    head, *rows = [line.split() for line in MATRIX.strip().splitlines()]
    assert {row[0] for row in rows} == {*HTTP_POLICY, "/elsewhere"}
    with_monitor, without = authorizer(), Authorizer(table_of(*bindings()))
    for path, *letters in rows:
        for column, letter in zip(head[1:], letters, strict=True):
            judged = with_monitor if column == MONITOR else without
            assert (judged.begin_reading(of(column), path) is None) == (letter == "Y"), (path, column)


def test_a_refusal_says_which_role_is_needed_and_which_there_is() -> None:
    refusal = authorizer().begin_reading(of("viewer"), "/metrics")
    assert refusal is not None
    assert refusal.message == (
        f"{IDENTITIES['viewer']} may not read /metrics: that needs the role monitor or operator; it has viewer in team-a"
    )


def test_who_monitors_makes_no_call() -> None:
    judged = authorizer()
    for call, kinds in POLICY.items():
        everybodys = any(AccessRole.ANY in cells for cells in kinds.values())
        assert (judged.begin(of(MONITOR), call) is None) == everybodys, call
    assert not any(AccessRole.MONITOR in cells for kinds in POLICY.values() for cells in kinds.values())


def test_a_path_without_a_row_is_a_fault() -> None:
    check_paths(HTTP_POLICY)
    with pytest.raises(PolicyError, match=r"^the path /debug has no row in the policy: nobody may read it$"):
        check_paths(["/metrics", "/debug"])
