"""Guarded transactions: what is built, how it is split, and what becomes of writes without an answer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leader.etcd_shim import kv, rpc
from rayched.api import kinds
from rayched.store.codec import encode
from rayched.store.entries import Entry, Reading
from rayched.store.errors import RequestTooLarge, StoreFull, StoreUnavailable
from rayched.store.readings import read_many
from rayched.store.transactions import (
    ALSO_MAX,
    WRITE_BYTES_MAX,
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
    build,
    create,
    keys_to_settle,
    read,
    settle,
    split,
    without_answer,
)
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite

GUARD = Guard(b"/epoch", 5)
POD, NODE = b"/pods/p", b"/nodes/n"


def a_value(attempt: str) -> bytes:
    pod = Pod()
    pod.metadata.name = "p"
    return encode(kinds.wrap(pod), LeaderWrite(op="bind", epoch=5, attempt=attempt))


def requested(guard: Guard | None, writes: Sequence[Write]) -> rpc.TxnRequest:
    return rpc.TxnRequest.FromString(build(guard, writes))


def an_entry(key: bytes, revision: int, attempt: str = "") -> Entry:
    return Entry(key, a_value(attempt), 1, revision)


def test_a_bind_compares_epoch_pod_and_node_and_reads_pod_and_node_when_refused() -> None:
    request = requested(GUARD, [GuardedPut(POD, 7, b"bound", also=((NODE, 9),))])
    (epoch,) = request.compare
    assert (epoch.key, epoch.mod_revision, epoch.target, epoch.result) == (b"/epoch", 5, rpc.Compare.MOD, rpc.Compare.EQUAL)
    assert [operation.request_range.key for operation in request.failure] == [b"/epoch"]
    (nested,) = [operation.request_txn for operation in request.success]
    assert [(compare.key, compare.mod_revision) for compare in nested.compare] == [(POD, 7), (NODE, 9)]
    assert [(o.request_put.key, o.request_put.value) for o in nested.success] == [(POD, b"bound")]
    assert [operation.request_range.key for operation in nested.failure] == [POD, NODE]


def test_a_creation_needs_object_and_record_absent_and_puts_both() -> None:
    (operation,) = requested(None, [create(b"/pods/p", b"pod", b"/submissions/u", b"record")]).success
    nested = operation.request_txn
    assert [(compare.key, compare.mod_revision) for compare in nested.compare] == [(b"/pods/p", 0), (b"/submissions/u", 0)]
    puts = [(o.request_put.key, o.request_put.value) for o in nested.success]
    assert puts == [(b"/pods/p", b"pod"), (b"/submissions/u", b"record")]


def test_what_one_transaction_cannot_hold_is_refused_before_it_is_sent() -> None:
    with pytest.raises(RequestTooLarge, match="101 writes"):
        build(None, [GuardedDelete(b"k%d" % number, 1) for number in range(101)])
    with pytest.raises(RequestTooLarge, match="0 writes"):
        build(None, [])
    with pytest.raises(RequestTooLarge, match="21 further keys"):
        build(None, [GuardedDelete(b"k", 1, also=tuple((b"a%d" % number, 1) for number in range(21)))])


some_keys = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"])
some_writes = st.builds(
    GuardedPut,
    some_keys,
    st.integers(0, 3),
    st.binary(max_size=30),
    also=st.lists(st.tuples(some_keys, st.integers(0, 3)), max_size=2).map(tuple),
    with_puts=st.lists(st.tuples(some_keys, st.binary(max_size=5)), max_size=1).map(tuple),
) | st.builds(GuardedDelete, some_keys, st.integers(0, 3))


@given(st.lists(some_writes, max_size=30), st.integers(1, 5), st.integers(100, 1000))
def test_batches_keep_the_order_the_limits_and_writes_that_meet_apart(
    writes: list[Write], writes_max: int, bytes_max: int
) -> None:
    batches = list(split(writes, writes_max=writes_max, bytes_max=bytes_max))
    assert [write for batch in batches for write in batch] == writes
    for batch in batches:
        assert 1 <= len(batch) <= writes_max
        for index, write in enumerate(batch):
            touched = {write.key} | {key for key, _ in write.with_puts}
            for other in batch[:index] + batch[index + 1 :]:
                assert other.key not in touched
                assert touched.isdisjoint(key for key, _ in other.with_puts)
                assert touched.isdisjoint(key for key, _ in other.also)


@given(st.lists(st.integers(0, 400_000), min_size=1, max_size=20))
def test_a_batch_stays_within_one_mebibyte_on_the_wire_unless_a_single_write_does_not(sizes: list[int]) -> None:
    writes = [GuardedPut(b"/rayched/cluster/pods/ns/%d" % n, 5, bytes(size), also=((NODE, 9),)) for n, size in enumerate(sizes)]
    batches = list(split(writes))
    assert all(len(batch) == 1 or len(build(GUARD, batch)) <= 1 << 20 for batch in batches)
    # Not wastefully small: two neighbours never fit into one.
    for one, other in itertools.pairwise(batches):
        assert len(build(GUARD, [*one, *other])) > 1_000_000


def nested_operations(request: rpc.TxnRequest) -> int:
    """What etcd counts: those of the transaction, and those of the largest one within."""
    within = [one.request_txn for one in (*request.success, *request.failure) if one.WhichOneof("request") == "request_txn"]
    own = max(len(request.compare), len(request.success), len(request.failure))
    return own + max(map(nested_operations, within), default=0)


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 100, 40_000, 600_000, WRITE_BYTES_MAX - 8_192]), st.integers(0, ALSO_MAX)), max_size=150
    )
)
def test_whatever_is_written_each_transaction_has_at_most_128_operations_and_a_mebibyte_and_a_half(
    shapes: list[tuple[int, int]],
) -> None:
    writes = []
    for number, (size, others) in enumerate(shapes):
        keys = [b"/rayched/cluster/pods/ns/%d/%d" % (number, other) for other in range(others)]
        also, puts = tuple((key, 1 << 40) for key in keys), tuple((key, b"v") for key in keys)
        writes.append(GuardedPut(b"/rayched/cluster/pods/ns/%d" % number, 5, bytes(size), also, puts))
    marked = [write._replace(mark=b"/mark/%d" % (number % 70)) if number % 3 else write for number, write in enumerate(writes)]
    for batch in [*split(writes), *split(marked)]:
        content = build(GUARD, batch)
        assert len(content) <= 3 << 19 and nested_operations(rpc.TxnRequest.FromString(content)) <= 128


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(2000, 8000))
def test_keys_and_comparisons_count_towards_the_size_of_a_batch(lengths: list[int], bytes_max: int) -> None:
    writes = [
        GuardedPut(b"/%d/" % n + b"k" * length, 5, b"", also=tuple((b"/also%d" % i + b"a" * length, 1 << 50) for i in range(4)))
        for n, length in enumerate(lengths)
    ]
    for batch in split(writes, bytes_max=bytes_max):
        assert len(build(None, batch)) <= bytes_max


def test_a_mark_is_put_once_for_all_that_leave_it_and_outcomes_are_those_of_the_writes() -> None:
    writes = [GuardedPut(b"/pods/%d" % number, 0, b"", mark=b"/mark/%d" % (number % 2)) for number in range(4)]
    request = requested(None, writes)
    assert [operation.request_put.key for operation in request.success[4:]] == [b"/mark/0", b"/mark/1"]
    answer = rpc.TxnResponse(succeeded=True)
    for number in range(4):
        answer.responses.add().response_txn.succeeded = number != 2
    answer.responses[2].response_txn.responses.add().response_range.SetInParent()
    for _ in range(2):
        answer.responses.add().response_put.SetInParent()
    assert [type(outcome) for outcome in read(answer, writes)] == [Committed, Committed, Conflict, Committed]


@pytest.mark.parametrize(("marks", "sizes"), [(1, [100]), (7, [100]), (8, [99, 1]), (100, [53, 47])])
def test_marks_take_the_place_of_writes(marks: int, sizes: list[int]) -> None:
    also = tuple((b"/also/%d" % number, 1) for number in range(ALSO_MAX))
    writes = [GuardedPut(b"/pods/%d" % number, 0, b"", also, mark=b"/mark/%d" % (number % marks)) for number in range(100)]
    batches = list(split(writes))
    assert [len(batch) for batch in batches] == sizes
    assert max(nested_operations(requested(GUARD, batch)) for batch in batches) <= 128


def test_a_hundred_objects_are_one_transaction_and_the_next_begins_another() -> None:
    sizes = [len(batch) for batch in split(GuardedDelete(b"k%d" % number, 1) for number in range(250))]
    assert sizes == [100, 100, 50]


BIND = GuardedPut(POD, 7, a_value("mine"), also=((NODE, 9),), attempt="mine")


@pytest.mark.parametrize(
    ("pod", "node", "epoch", "expected"),
    [
        (an_entry(POD, 12, "mine"), an_entry(NODE, 9), 5, Committed),
        (an_entry(POD, 12, "mine"), an_entry(NODE, 9), 6, Committed),
        (an_entry(POD, 12, "another"), an_entry(NODE, 9), 5, Conflict),
        (None, an_entry(NODE, 9), 5, Conflict),
        (an_entry(POD, 7), an_entry(NODE, 10), 5, Conflict),
        (an_entry(POD, 7), None, 5, Conflict),
        (an_entry(POD, 7), an_entry(NODE, 9), 6, Fenced),
        (an_entry(POD, 7), an_entry(NODE, 9), 5, OutcomeUnknown),
    ],
)
def test_an_unknown_outcome_is_settled_only_where_nothing_can_change_it_any_more(
    pod: Entry | None, node: Entry | None, epoch: int, expected: type[Outcome]
) -> None:
    entries: Mapping[bytes, Entry | None] = {POD: pod, NODE: node, b"/epoch": Entry(b"/epoch", b"{}", 1, epoch)}
    assert set(keys_to_settle(GUARD, [BIND])) == set(entries)
    (outcome,) = settle(entries, 20, GUARD, [BIND])
    assert isinstance(outcome, expected)
    match outcome:
        case Committed(revision=revision):
            assert revision == 12
        case Conflict():
            assert (outcome.current, outcome.also, outcome.revision) == (pod, (node,), 20)
        case Fenced():
            assert outcome.epoch == 6


def test_a_failed_call_is_unknown_unless_etcd_said_that_it_did_nothing() -> None:
    assert without_answer(StoreUnavailable("gone"), [BIND, BIND]) == [OutcomeUnknown("gone"), OutcomeUnknown("gone")]
    full = StoreFull("no space")
    assert without_answer(full, [BIND]) == [TransactionRefused(full)]


KEYS_WRITTEN = st.binary(min_size=1, max_size=200).filter(
    lambda key: not key.endswith(b"/")
)  # that is a prefix: test_range_conditions.py
REVISIONS = st.integers(min_value=0, max_value=(1 << 63) - 1)
FURTHER_KEYS = st.lists(st.tuples(KEYS_WRITTEN, REVISIONS), max_size=3).map(tuple)
FURTHER_PUTS = st.lists(st.tuples(KEYS_WRITTEN, st.binary(max_size=20)), max_size=2).map(tuple)
PUTS = st.builds(
    GuardedPut,
    KEYS_WRITTEN,
    REVISIONS,
    st.binary(max_size=300),
    FURTHER_KEYS,
    FURTHER_PUTS,
    attempt=st.just(""),
    lease=REVISIONS,
    mark=st.sampled_from([b"", b"mark/1", b"mark/2"]),
)
DELETES = st.builds(GuardedDelete, KEYS_WRITTEN, REVISIONS, FURTHER_KEYS, FURTHER_PUTS)


@given(st.none() | st.builds(Guard, KEYS_WRITTEN, REVISIONS), st.lists(PUTS | DELETES, min_size=1, max_size=5))
def test_a_request_is_the_one_whose_fields_are_set_one_by_one(guard: Guard | None, writes: list[Write]) -> None:
    expected = rpc.TxnRequest()

    def unchanged(request: Any, key: bytes, mod_revision: int) -> None:
        request.compare.add(key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=mod_revision)
        request.failure.add(request_range=rpc.RangeRequest(key=key))

    if guard is not None:
        unchanged(expected, guard.epoch_key, guard.epoch)
    marks = [write.mark for write in writes if isinstance(write, GuardedPut) and write.mark]
    for write in writes:
        nested = rpc.TxnRequest()
        for key, mod_revision in ((write.key, write.mod_revision), *write.also):
            unchanged(nested, key, mod_revision)
        if isinstance(write, GuardedPut):
            put = rpc.PutRequest(key=write.key, value=write.value, lease=write.lease)
            nested.success.add(request_put=put)
        else:
            nested.success.add(request_delete_range=rpc.DeleteRangeRequest(key=write.key))
        for key, value in write.with_puts:
            nested.success.add(request_put=rpc.PutRequest(key=key, value=value))
        if isinstance(write, GuardedPut) and marks.count(write.mark) == 1:
            nested.success.add(request_put=rpc.PutRequest(key=write.mark))
        expected.success.add(request_txn=nested)
    for mark in sorted({mark for mark in marks if marks.count(mark) > 1}):
        expected.success.add(request_put=rpc.PutRequest(key=mark))
    assert requested(guard, writes) == expected


@given(st.integers(1, 9), st.integers(1, 4))
def test_what_is_too_much_for_one_request_is_read_in_two_halves(n_keys: int, taken_max: int) -> None:
    keys = [b"/k/%d" % number for number in range(n_keys)]
    reads, asked = read_many(keys), list[list[bytes]]()
    wanted = next(reads)
    found: Reading | None = None
    while found is None:
        part = [operation.request_range.key for operation in wanted.request.success]
        asked.append(part)
        try:
            if len(part) > taken_max:
                wanted = reads.throw(RequestTooLarge("too large"))
                first = [operation.request_range.key for operation in wanted.request.success]
                assert first == part[: (len(part) + 1) // 2]
                continue
            values = [rpc.RangeResponse(kvs=[kv.KeyValue(key=key, value=key, mod_revision=1)]) for key in part]
            header = rpc.ResponseHeader(revision=7)
            responses = [rpc.ResponseOp(response_range=value) for value in values]
            wanted = reads.send(rpc.TxnResponse(header=header, succeeded=True, responses=responses))
        except StopIteration as done:
            found = done.value
    assert [entry and entry.key for entry in found.entries] == keys and found.revision == 7
    assert [key for part in asked if len(part) <= taken_max for key in part] == keys
