"""Guarded transactions, in tables: what a write weighs, where a batch ends, what is taken apart, and what is known afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leader.etcd_shim import kv, rpc
from rayched.api import kinds
from rayched.store import transactions
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.errors import (
    Compacted,
    FutureRevision,
    LeaseNotFound,
    RequestRefused,
    RequestTooLarge,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from rayched.store.transactions import (
    ALSO_MAX,
    Committed,
    Conflict,
    Fenced,
    Guard,
    GuardedDelete,
    GuardedPut,
    Outcome,
    OutcomeUnknown,
    TransactionRefused,
    Write,
    bare_deletions,
    build,
    bytes_of,
    halves,
    halves_of_refused,
    is_refused_as_it_stands,
    keys_to_settle,
    read,
    settle,
    split,
)
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite

GUARD = Guard(b"/epoch", 5)
LENGTHS = st.sampled_from([1, 10, 40, 126])
REVISIONS = st.sampled_from([0, 1, 1 << 40, (1 << 63) - 1])
FURTHER = st.lists(st.tuples(LENGTHS.map(bytes), REVISIONS), max_size=3).map(tuple)
PUTS = st.lists(st.tuples(LENGTHS.map(bytes), st.sampled_from([b"", bytes(10), bytes(500)])), max_size=2).map(tuple)
VALUES, MARKS = st.sampled_from([b"", bytes(5), bytes(300), bytes(5000)]), st.sampled_from([b"", b"m", bytes(40), bytes(126)])
LEASES, NO_TEXT = st.sampled_from([0, (1 << 63) - 1]), st.just("")
WRITES = st.builds(
    GuardedPut, LENGTHS.map(bytes), REVISIONS, VALUES, FURTHER, PUTS, attempt=NO_TEXT, lease=LEASES, mark=MARKS
) | st.builds(GuardedDelete, LENGTHS.map(bytes), REVISIONS, FURTHER, PUTS, spare=st.just(b""))


def a_value(attempt: str = "") -> bytes:
    pod = Pod()
    pod.metadata.name = "p"
    return encode(kinds.wrap(pod), LeaderWrite(op="bind", epoch=5, attempt=attempt) if attempt else None)


def a_put(number: int, size: int = 10) -> GuardedPut:
    return GuardedPut(b"/k%03d" % number, 0, bytes(size))


# ------------------------------------------------------------------------------------------------------------------- sizes


@given(WRITES)
def test_a_write_is_reckoned_with_what_it_takes_and_little_more(write: Write) -> None:
    mark = write.mark if isinstance(write, GuardedPut) else b""
    more = bytes_of(write) - len(build(None, [write]))
    assert 0 <= more <= 40 + 50 * len(write.also) + 24 * len(write.with_puts) + len(mark)


@pytest.mark.parametrize(("less", "sizes"), [(0, [2, 2]), (1, [1, 1, 1, 1])])
def test_a_batch_has_all_the_bytes_that_are_allowed(less: int, sizes: list[int]) -> None:
    writes = [a_put(number) for number in range(4)]
    bytes_max = bytes_of(writes[0]) + bytes_of(writes[1]) - less
    assert [len(batch) for batch in split(writes, bytes_max=bytes_max)] == sizes


def test_a_single_write_may_be_larger_than_a_batch_and_nothing_is_no_batch() -> None:
    writes = [a_put(0), a_put(1, 5000), a_put(2)]
    assert [len(batch) for batch in split(writes, bytes_max=1000)] == [1, 1, 1]
    assert [*split([])] == []


@pytest.mark.parametrize(("writes_max", "sizes"), [(4, [4]), (3, [3, 1]), (2, [2, 2]), (1, [1, 1, 1, 1])])
def test_a_batch_has_as_many_writes_as_are_allowed(writes_max: int, sizes: list[int]) -> None:
    batches = [*split([a_put(number) for number in range(4)], writes_max=writes_max)]
    assert [len(batch) for batch in batches] == sizes


@pytest.mark.parametrize(("marks", "sizes"), [(7, [100, 1]), (8, [99, 2]), (27, [80, 21])])
def test_marks_count_among_the_operations_of_each_of_several_batches(marks: int, sizes: list[int]) -> None:
    writes = [a_put(number)._replace(mark=b"/mark/%d" % (number % marks)) for number in range(101)]
    assert [len(batch) for batch in split(writes)] == sizes


A, B, C = b"/a", b"/b", b"/c"


@pytest.mark.parametrize(
    ("writes", "sizes"),
    [
        ([GuardedPut(A, 0, b""), GuardedPut(B, 0, b"")], [2]),
        ([GuardedPut(A, 0, b""), GuardedPut(A, 1, b"")], [1, 1]),
        ([GuardedPut(A, 0, b""), GuardedPut(B, 0, b"", ((A, 1),))], [1, 1]),
        ([GuardedPut(A, 0, b"", ((B, 1),)), GuardedPut(B, 0, b"")], [1, 1]),
        ([GuardedPut(A, 0, b"", ((C, 1),)), GuardedPut(B, 0, b"", ((C, 1),))], [2]),
        ([GuardedPut(A, 0, b"", ((C, 0),), ((C, b""),)), GuardedPut(B, 0, b"")], [2]),
        ([GuardedPut(A, 0, b"", ((C, 0),), ((C, b""),)), GuardedPut(B, 0, b"", ((C, 0),))], [1, 1]),
        ([GuardedPut(A, 0, b"", (), ((C, b""),)), GuardedPut(B, 0, b"", (), ((C, b""),))], [1, 1]),
        ([GuardedPut(A, 0, b"", (), ((C, b""),)), GuardedDelete(C, 1)], [1, 1]),
        ([GuardedPut(A, 0, b""), GuardedPut(A, 1, b""), GuardedPut(B, 0, b"", ((C, 1),)), GuardedPut(C, 0, b"")], [1, 2, 1]),
    ],
)
def test_writes_that_meet_are_kept_apart_and_others_are_not(writes: list[Write], sizes: list[int]) -> None:
    """Also behind others, where it takes a closer look."""
    assert [len(batch) for batch in split(writes)] == sizes
    behind = [len(batch) for batch in split([GuardedDelete(b"/z", 1), GuardedDelete(b"/z", 1), *writes])]
    assert behind == [1, 1 + sizes[0], *sizes[1:]]


@pytest.mark.parametrize("field", ["also", "with_puts"])
def test_a_write_with_too_many_further_keys_or_puts_is_refused(field: str) -> None:
    def write(count: int) -> GuardedDelete:
        keys = [b"/k%d" % number for number in range(count)]
        pairs = tuple((key, 1) for key in keys) if field == "also" else tuple((key, b"") for key in keys)
        return GuardedDelete(A, 1)._replace(**{field: pairs})

    assert build(None, [write(ALSO_MAX)])
    with pytest.raises(RequestTooLarge, match=f"{ALSO_MAX + 1} .*want at most {ALSO_MAX}"):
        build(None, [write(ALSO_MAX + 1)])


# ----------------------------------------------------------------------------------------------------------- taking apart


@pytest.mark.parametrize(
    ("error", "stands"),
    [
        (RequestTooLarge("large"), True),
        (RequestRefused("wrong"), True),
        (LeaseNotFound("gone"), True),
        (StoreBusy("busy"), False),
        (StoreFull("full"), False),
        (StoreUnavailable("away"), False),
        (Compacted("gone"), False),
        (FutureRevision("not yet"), False),
    ],
)
def test_a_request_is_refused_as_it_stands_where_no_time_and_no_space_would_help(error: StoreError, stands: bool) -> None:
    assert is_refused_as_it_stands(error) is stands
    batch = [a_put(number) for number in range(3)]
    outcomes: list[Outcome] = [TransactionRefused(error)] * 3  # type: ignore[arg-type]
    in_two = (batch[:2], batch[2:]) if stands and not isinstance(error, LeaseNotFound) else ()
    assert halves_of_refused(batch, outcomes) == in_two


@pytest.mark.parametrize(("count", "sizes"), [(1, ()), (2, (1, 1)), (3, (2, 1)), (4, (2, 2)), (5, (3, 2)), (100, (50, 50))])
def test_a_batch_is_taken_apart_in_the_middle_down_to_single_writes(count: int, sizes: tuple[int, ...]) -> None:
    writes = [a_put(number) for number in range(count)]
    parts = halves(writes, RequestTooLarge("large"))
    assert tuple(map(len, parts)) == sizes
    assert not parts or [write for part in parts for write in part] == writes


@pytest.mark.parametrize("outcome", [Committed(7), Conflict(None, (), 7), Fenced(6), OutcomeUnknown("no answer")])
def test_what_was_not_refused_is_not_taken_apart(outcome: Outcome) -> None:
    assert halves_of_refused([a_put(0), a_put(1)], [outcome, outcome]) == ()


# ------------------------------------------------------------------------------------------------------------- a full etcd

FULL: Outcome = TransactionRefused(StoreFull("full"))
SPARING = GuardedDelete(A, 3, ((B, 4), (C, 5)), ((B, b"later"),), spare=B)
PLAIN = GuardedDelete(C, 6, ((B, 1),))
PUTTING = GuardedDelete(C, 6, (), ((B, b"needed"),))
PUTTING_MORE = GuardedDelete(A, 3, (), ((B, b"later"), (C, b"needed")), spare=B)


def test_a_deletion_goes_without_what_it_may_spare() -> None:
    assert SPARING.bare() == GuardedDelete(A, 3, ((C, 5),))
    assert GuardedDelete(A, 3, (), (), spare=B).bare() == GuardedDelete(A, 3)
    assert [one.bare() for one in (PLAIN, PUTTING, PUTTING_MORE)] == [None, None, None]


@pytest.mark.parametrize(
    ("writes", "sent"),
    [
        ([SPARING], {0: GuardedDelete(A, 3, ((C, 5),))}),
        ([PLAIN], {}),
        ([PLAIN, PLAIN], {}),
        ([PUTTING], {}),
        ([PUTTING_MORE], {}),
        ([a_put(0)], {}),
        ([a_put(0), PLAIN], {1: PLAIN}),
        ([PLAIN, PUTTING], {0: PLAIN}),
        ([PLAIN, SPARING], {0: PLAIN, 1: GuardedDelete(A, 3, ((C, 5),))}),
        ([SPARING, PLAIN, a_put(0)], {0: GuardedDelete(A, 3, ((C, 5),)), 1: PLAIN}),
    ],
)
def test_what_is_sent_once_more_to_a_full_etcd_are_the_deletions_that_need_no_put(
    writes: Sequence[Write], sent: dict[int, GuardedDelete]
) -> None:
    """Not where it would be the very batch that was refused."""
    assert bare_deletions(writes, [FULL] * len(writes)) == sent


@pytest.mark.parametrize(
    "outcome", [Committed(7), Conflict(None, (), 7), OutcomeUnknown("no answer"), TransactionRefused(StoreBusy("busy"))]
)
def test_only_what_was_refused_for_want_of_space_is_sent_once_more(outcome: Outcome) -> None:
    assert bare_deletions([SPARING], [outcome]) == {}


# ---------------------------------------------------------------------------------------------------------------- settling


def entry(key: bytes, revision: int, attempt: str = "") -> Entry:
    return Entry(key, a_value(attempt), 1, revision)


@pytest.mark.parametrize(
    ("write", "current", "expected"),
    [
        (GuardedPut(A, 0, b"v"), None, OutcomeUnknown),
        (GuardedPut(A, 0, b"v"), entry(A, 9), Conflict),
        (GuardedPut(A, 7, b"v"), entry(A, 7), OutcomeUnknown),
        (GuardedPut(A, 7, b"v"), entry(A, 9), Conflict),
        (GuardedPut(A, 7, b"v", attempt="mine"), entry(A, 9, "mine"), Committed),
        (GuardedPut(A, 7, b"v", attempt="mine"), entry(A, 9, "another"), Conflict),
        (GuardedPut(A, 7, b"v", attempt="mine"), None, Conflict),
        (GuardedDelete(A, 7), entry(A, 7), OutcomeUnknown),
        (GuardedDelete(A, 7), None, Conflict),
        (GuardedDelete(A, 7), entry(A, 9, "another"), Conflict),
    ],
)
def test_what_is_known_of_a_write_without_a_guard(write: Write, current: Entry | None, expected: type[Outcome]) -> None:
    assert keys_to_settle(None, [write]) == [A]
    (outcome,) = settle({A: current}, 20, None, [write])
    assert type(outcome) is expected
    if isinstance(outcome, Conflict):
        assert (outcome.current, outcome.also, outcome.revision) == (current, (), 20)


def test_each_key_is_read_once_to_settle_and_the_epoch_first() -> None:
    writes = [GuardedPut(A, 7, b"v", ((B, 1), (C, 2))), GuardedDelete(B, 1, ((C, 2),))]
    assert keys_to_settle(GUARD, writes) == [b"/epoch", A, B, C]
    entries = {A: entry(A, 7), B: entry(B, 1), C: entry(C, 2), b"/epoch": None}
    assert settle(entries, 20, GUARD, writes) == [Fenced(0), Fenced(0)]
    assert type(settle({**entries, b"/epoch": Entry(b"/epoch", b"", 1, 5)}, 20, GUARD, writes)[0]) is OutcomeUnknown


def refused(*currents: Entry | None) -> rpc.TxnResponse:
    """The answer to one write whose conditions do not hold."""
    answer = rpc.TxnResponse(succeeded=True, header=rpc.ResponseHeader(revision=20))
    nested = answer.responses.add().response_txn
    for current in currents:
        found = nested.responses.add().response_range
        found.SetInParent()
        if current is not None:
            pair = kv.KeyValue(key=current.key, value=current.value, create_revision=1, mod_revision=current.mod_revision)
            found.kvs.append(pair)
    return answer


def test_an_answer_says_for_each_write_what_became_of_it() -> None:
    put = GuardedPut(A, 7, a_value("mine"), ((B, 1),), attempt="mine")
    assert read(refused(entry(A, 9, "another"), None), [put]) == [Conflict(entry(A, 9, "another"), (None,), 20)]
    assert read(refused(entry(A, 9, "mine"), None), [put]) == [Committed(9)], "an earlier sending of it was committed"
    done = rpc.TxnResponse(succeeded=True, header=rpc.ResponseHeader(revision=21))
    for _ in range(2):
        done.responses.add().response_txn.succeeded = True
    assert read(done, [put, put]) == [Committed(21), Committed(21)]
    fenced = rpc.TxnResponse(succeeded=False)
    fenced.responses.add().response_range.kvs.append(kv.KeyValue(key=b"/epoch", mod_revision=6))
    assert read(fenced, [put, put, put]) == [Fenced(6)] * 3
    gone = rpc.TxnResponse(succeeded=False)
    gone.responses.add().response_range.SetInParent()
    assert read(gone, [put]) == [Fenced(0)]


# ---------------------------------------------------------------------------------------------------------------- the rules


def without(rule: str, patch: pytest.MonkeyPatch, module: ModuleType = transactions) -> None:
    patch.setattr(module, rule, False)


def test_where_the_rule_of_guards_is_broken_a_transaction_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.key for one in rpc.TxnRequest.FromString(build(GUARD, [a_put(0)])).compare] == [b"/epoch"]
    without("RULE_WRITES_ARE_GUARDED", monkeypatch)
    assert not rpc.TxnRequest.FromString(build(GUARD, [a_put(0)])).compare


def test_where_the_rule_of_attempts_is_broken_an_own_write_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    put = GuardedPut(A, 7, a_value("mine"), attempt="mine")
    without("RULE_ATTEMPTS_ARE_RECOGNISED", monkeypatch)
    assert type(read(refused(entry(A, 9, "mine")), [put])[0]) is Conflict
