"""Each cell of the matrix that was typed by hand is what the guard says: B46, without a server."""

from __future__ import annotations

from collections import Counter

import grpc
import pytest

from rayched.access.authorizing import Authorizer
from rayched.access.policy import POLICY, PolicyError, check_policy, read_table
from rayched.access.requests import REQUESTS
from rayched.api.kinds import KINDS
from rayched.server.call_guard import CallGuard
from rayched.server.edge.caller import Caller
from rayched.server.errors import ApiFailure
from rayched.server.server_parts import SERVED
from rayched.v1.streams_pb2 import DESCRIPTOR as STREAMS
from tests.access.matrix import COLUMNS, IDENTITIES, MatrixCell, bindings, cells, identity, request_of, table_of

CELLS = tuple(cells())
CALLS = {f"{service.name}.{method.name}" for service in SERVED.values() for method in service.methods}
OF_ANY_KIND = (
    "Submission.Submit",
    "Submission.SubmitMany",
    "Submission.Apply",
    "Submission.Get",
    "Submission.List",
    "Submission.Delete",
    "Watch.Watch",
    "Admin.Label",
    "Admin.Scale",
)


@pytest.fixture(scope="module")
def guard() -> CallGuard:
    return CallGuard(Authorizer(table_of(*bindings())))


class ContextOf:
    """What gRPC tells of a call."""

    def __init__(self, **metadata: str) -> None:
        self._metadata = tuple(metadata.items())

    def peer(self) -> str:
        return "ipv4:127.0.0.1:40000"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata


def refusal_of(guard: CallGuard, cell: MatrixCell) -> ApiFailure | None:
    """As the edge judges a call: before its request, and with it."""
    mine = identity(cell.column)
    bound = CallGuard(guard.authorizer, lambda context: mine)
    try:
        caller = bound.identify(ContextOf())
        bound.authorize(caller, cell.call)
        bound.judge(caller, cell.call, request_of(cell))
    except ApiFailure as failure:
        return failure
    return None


@pytest.mark.row("B46")
@pytest.mark.parametrize("call", sorted(CALLS))
def test_each_cell_answers_as_it_is_written(guard: CallGuard, call: str) -> None:
    asked = [cell for cell in CELLS if cell.call == call]
    for cell in asked:
        failure = refusal_of(guard, cell)
        assert (failure is None) == (cell.letter in "Ya"), f"{cell}: {failure}"
        assert failure is None or failure.code is grpc.StatusCode.PERMISSION_DENIED, f"{cell}: {failure}"
    assert asked


@pytest.mark.row("B46", "B47")
def test_the_matrix_has_every_call_and_every_kind() -> None:
    assert {cell.call for cell in CELLS} == CALLS == set(POLICY) == set(REQUESTS)
    for call in OF_ANY_KIND:
        assert {cell.kind for cell in CELLS if cell.call == call} - {"any"} == {kind.name for kind in KINDS}, call
    assert Counter(cell.column for cell in CELLS).keys() == set(COLUMNS) == set(IDENTITIES)
    twice = [cell for cell, count in Counter(cell[:4] for cell in CELLS).items() if count > 1]
    assert not twice
    assert len(CELLS) > 1000


@pytest.mark.row("B47")
def test_a_call_without_a_row_keeps_the_server_from_starting() -> None:
    check_policy(SERVED.values())
    for call in ("Submission.Submit", "Exec.Stream"):
        rest = {name: rows for name, rows in POLICY.items() if name != call}
        with pytest.raises(PolicyError, match=f"the call {call} has no row in the policy: nobody may make it"):
            check_policy(SERVED.values(), rest)
    with pytest.raises(PolicyError, match=r"the policy has a row for Submission\.Submit, which is no call"):
        check_policy(STREAMS.services_by_name.values())


HEAD = "call kinds any viewer submitter operator admin node replica\n"


@pytest.mark.row("B47")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("call kinds any\n", "the policy's first line is call kinds any"),
        (HEAD + "A.B Pod - - own - all -\n", r"the policy's row A\.B Pod has 6 cells, want 7"),
        (HEAD + "A.B Pod - - mine - all - -\n", r"the policy's row A\.B: mine is none of -, own, star, all, node, self"),
        (HEAD + "A.B Pot - - own - all - -\n", r"the policy's row A\.B: Pot is no kind"),
        (HEAD + "A.B Pod - - own - all - -\nA.B workloads - - own - all - -\n", r"two rows for A\.B of Pod"),
    ],
)
def test_a_table_with_a_slip_is_not_read(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        read_table(text)


@pytest.mark.row("B48")
def test_what_is_no_call_is_nobodys(guard: CallGuard) -> None:
    for column in COLUMNS:
        mine = identity(column)
        with pytest.raises(ApiFailure) as raised:
            guard.authorize(Caller(mine), "Submission.Steal")
        assert raised.value.code is grpc.StatusCode.PERMISSION_DENIED
        assert f"{mine.name} may not Submission.Steal: " in raised.value.message


def test_the_caller_is_told_to_be_allowed_by_what(guard: CallGuard) -> None:
    caller = Caller(identity("submitter"))
    cell = next(cell for cell in CELLS if str(cell) == "submitter Submission.Submit Pod own")
    guard.judge(caller, cell.call, request_of(cell))
    assert caller.allowed is not None and not guard.is_admin(caller)
    assert [str(binding) for binding in caller.allowed.bindings] == ["submitter in team-a"]
