"""Requests to etcd and what their answers and errors say, without an etcd; and reads of several calls, step by step."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from leader.belief import BeliefCell
from leader.etcd_shim import kv, rpc
from rayched.api import kinds
from rayched.store.calls import Deadlines, page_of, page_request, status_of_member, weight_of
from rayched.store.codec import PoisonedObject, decode, decode_unversioned, encode
from rayched.store.entries import Entry, Page, Reading, first_entry
from rayched.store.errors import (
    Compacted,
    FutureRevision,
    LeaseNotFound,
    RequestRefused,
    RequestTooLarge,
    StoreBusy,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreUnavailable,
    status_of,
    store_error,
)
from rayched.store.fencing import Fence
from rayched.store.keys import TAKEN_KEYS, Keys, KeyTextError, ObjectKey, prefix_end
from rayched.store.page_size import FIRST, PageSize
from rayched.store.readings import LIST_PAGE_LIMIT, Reads, WantedRead, list_pages, read_many
from rayched.store.refusals import count_fenced_among
from rayched.store.transactions import Committed, Fenced
from rayched.v1.core_pb2 import Pod


def pair(key: bytes, value: bytes = b"v", revision: int = 3) -> Any:
    return kv.KeyValue(key=key, value=value, create_revision=1, mod_revision=revision)


def a_page(revision: int, *keys: bytes, more: bool = False, value: bytes = b"v") -> Any:
    return rpc.RangeResponse(header=rpc.ResponseHeader(revision=revision), kvs=[pair(key, value) for key in keys], more=more)


# ------------------------------------------------------------------------------------------------------------------- pages


@pytest.mark.parametrize(
    ("start", "end", "key", "range_end"),
    [(b"", b"", b"/a/", b"/a0"), (b"/a/5", b"", b"/a/5", b"/a0"), (b"/A", b"", b"/a/", b"/a0"), (b"", b"/a/7", b"/a/", b"/a/7")],
)
def test_a_page_begins_at_its_prefix_or_behind_it_and_ends_with_it_or_before(
    start: bytes, end: bytes, key: bytes, range_end: bytes
) -> None:
    request = page_request(b"/a/", 7, 5, start, True, end)
    assert (request.key, request.range_end, request.limit, request.revision, request.keys_only) == (key, range_end, 7, 5, True)


@pytest.mark.parametrize(
    ("answer", "asked", "revision", "next_key"),
    [
        (a_page(9, b"/a/1", b"/a/2", b"/a/3", more=True), 0, 9, b"/a/3\0"),
        (a_page(9, b"/a/1", b"/a/2", more=True), 5, 5, b"/a/2\0"),
        (a_page(9, b"/a/1"), 0, 9, None),
        (a_page(9), 0, 9, None),
        (a_page(9, more=True), 0, 9, None),
    ],
)
def test_a_page_says_as_of_when_it_is_and_where_the_next_one_begins(
    answer: Any, asked: int, revision: int, next_key: bytes | None
) -> None:
    page = page_of(answer, asked)
    assert (page.revision, page.next_key, len(page.entries)) == (revision, next_key, len(answer.kvs))


def test_a_page_weighs_its_keys_and_values() -> None:
    assert weight_of(page_of(a_page(9, b"/a/1", b"/a/22", value=b"xyz"), 0)) == 4 + 5 + 6
    assert first_entry(a_page(9)) is None and first_entry(a_page(9, b"/a", b"/b")) == Entry(b"/a", b"v", 1, 3)


def test_a_page_size_goes_by_bytes_also_where_they_are_few() -> None:
    size = PageSize(100, size=10)
    size.arrived(5, 1)
    assert size.wanted == 50
    size.arrived(5, 0)
    assert size.wanted == 50
    size.failed()
    assert size.wanted == 25


@pytest.mark.parametrize(("in_use", "told"), [(30, 30), (0, 100)])
def test_a_member_that_does_not_say_how_much_is_in_use_counts_as_full_of_use(in_use: int, told: int) -> None:
    header = rpc.ResponseHeader(member_id=4, revision=17)
    answer = rpc.StatusResponse(header=header, version="3.5.1", dbSize=100, dbSizeInUse=in_use, leader=6)
    answer.errors.extend(["memberID:1 alarm:NOSPACE ", "memberID:2 alarm:CORRUPT ", "memberID:3 alarm:NOSPACE "])
    status = status_of_member(answer)
    assert (status.member_id, status.version, status.leader_id, status.revision) == (4, "3.5.1", 6, 17)
    assert (status.database_bytes, status.in_use_bytes, status.alarms) == (100, told, ("CORRUPT", "NOSPACE"))


# ------------------------------------------------------------------------------------------------------------------ errors


def aio_error(code: Any, details: str | None) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (aio_error(grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader"), grpc.StatusCode.UNAVAILABLE, "no leader"),
        (aio_error(grpc.StatusCode.UNKNOWN, "two\n lines"), grpc.StatusCode.UNKNOWN, "two lines"),
        (aio_error(grpc.StatusCode.INTERNAL, None), grpc.StatusCode.INTERNAL, ""),
        (aio_error(None, "odd"), grpc.StatusCode.UNKNOWN, "odd"),
        (grpc.RpcError("bare"), grpc.StatusCode.CANCELLED, "bare"),
        (grpc.FutureCancelledError(), grpc.StatusCode.CANCELLED, ""),
        (ValueError("channel closed"), grpc.StatusCode.CANCELLED, "channel closed"),
    ],
)
def test_an_error_of_a_call_has_a_code_and_one_line(error: BaseException, code: grpc.StatusCode, text: str) -> None:
    assert status_of(error) == (code, text)
    found = store_error(error)
    assert type(found) is StoreUnavailable
    assert str(found) == (f"etcd: {code.name}: {text}" if text else f"etcd: {code.name}")


def test_a_compacted_revision_says_from_which_one_on_history_is_kept() -> None:
    assert (str(Compacted("gone", 7)), Compacted("gone", 7).compact_revision, Compacted("gone").compact_revision) == (
        "gone",
        7,
        0,
    )


class _Codeful(Exception):
    """No error of gRPC, though it has what looks like one's parts."""

    def code(self) -> str:
        return "E17"

    def details(self) -> str:
        return "details of its own"


def test_only_errors_of_grpc_are_asked_for_a_code() -> None:
    assert status_of(_Codeful("its text")) == (grpc.StatusCode.CANCELLED, "its text")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("etcdserver: mvcc: required revision has been compacted", Compacted),
        ("etcdserver: mvcc: required revision is a future revision", FutureRevision),
        ("etcdserver: mvcc: database space exceeded", StoreFull),
        ("etcdserver: request is too large", RequestTooLarge),
        ("etcdserver: too many operations in txn request", RequestTooLarge),
        ("Sent message larger than max (5 vs. 4)", RequestTooLarge),
        ("etcdserver: too many requests", StoreBusy),
        ("etcdserver: requested lease not found", LeaseNotFound),
        ("etcdserver: duplicate key given in txn request", RequestRefused),
        ("etcdserver: user name is empty", StoreDenied),
        ("etcdserver: invalid auth token", StoreDenied),
    ],
)
def test_what_etcd_says_is_known_by_its_text_and_else_by_its_code(text: str, kind: type[StoreError]) -> None:
    found = store_error(aio_error(grpc.StatusCode.INVALID_ARGUMENT, text))
    assert type(found) is kind and text.removeprefix("etcdserver: ") in str(found)
    assert store_error(found) is found
    assert not isinstance(found, Compacted) or found.compact_revision == 0


@pytest.mark.parametrize("code", [grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED])
def test_what_etcds_user_may_not_do_is_told_apart(code: grpc.StatusCode) -> None:
    assert type(store_error(aio_error(code, "etcdserver: permission denied"))) is StoreDenied
    # Who waits for an etcd that comes back does not wait for that.
    assert not issubclass(StoreDenied, StoreUnavailable)


# ------------------------------------------------------------------------------------------------------------------- reads


def steps(reads: Reads[Any], answers: list[Any]) -> tuple[list[WantedRead], Any]:
    """What is asked for one after the other where these are the answers, and what is found in the end."""
    wanted = [next(reads)]
    try:
        for answer in answers:
            wanted.append(reads.throw(answer) if isinstance(answer, Exception) else reads.send(answer))
    except StopIteration as done:
        return wanted, done.value
    raise AssertionError("it wants more")


def found_at(revision: int, *keys: bytes) -> Any:
    responses = [rpc.ResponseOp(response_range=a_page(revision, key)) for key in keys]
    return rpc.TxnResponse(header=rpc.ResponseHeader(revision=revision), succeeded=True, responses=responses)


def test_many_keys_are_read_at_the_revision_of_the_first_answer() -> None:
    keys = [b"/k%03d" % number for number in range(150)]
    wanted, reading = steps(read_many(keys), [found_at(7, *keys[:100]), found_at(9, *keys[100:])])
    assert [[one.request_range.revision for one in want.request.success] for want in wanted] == [[0] * 100, [7] * 50]
    assert [one.request_range.key for want in wanted for one in want.request.success] == keys
    assert reading.revision == 7 and [entry.key for entry in reading.entries] == keys
    assert not any(want.is_page for want in wanted)


def test_of_no_keys_the_newest_revision_is_told() -> None:
    wanted, reading = steps(read_many([]), [a_page(12)])
    assert wanted[0].request.count_only and reading == Reading((), 12)


def test_a_single_key_that_is_too_much_is_too_much() -> None:
    reads = read_many([b"/k"])
    next(reads)
    with pytest.raises(RequestTooLarge, match="large"):
        reads.throw(RequestTooLarge("large"))


def test_two_keys_that_are_too_much_are_read_one_by_one() -> None:
    wanted, reading = steps(read_many([b"/a", b"/b"]), [RequestTooLarge("large"), found_at(7, b"/a"), found_at(8, b"/b")])
    assert [len(want.request.success) for want in wanted] == [2, 1, 1]
    assert [entry.key for entry in reading.entries] == [b"/a", b"/b"] and reading.revision == 7


@pytest.mark.parametrize("known", [False, True])
def test_an_etcd_that_takes_no_transaction_is_read_key_by_key_at_one_revision(known: bool) -> None:
    keys = [b"/k%03d" % number for number in range(100)] if known else []
    first = [found_at(5, *keys)] if known else []
    newest = [] if known else [a_page(5)]
    answers = [*first, StoreFull("full"), *newest, a_page(9, b"/a"), a_page(9)]
    wanted, reading = steps(read_many([*keys, b"/a", b"/b"]), answers)
    assert [(want.request.key, want.request.revision) for want in wanted[-2:]] == [(b"/a", 5), (b"/b", 5)]
    assert [entry and entry.key for entry in reading.entries] == [*keys, b"/a", None] and reading.revision == 5


def test_a_list_is_read_in_pages_that_go_by_the_weight_of_the_one_before() -> None:
    mebibyte = bytes(1 << 20)
    answers = [a_page(9, b"/a/1", b"/a/2", more=True, value=mebibyte), a_page(12, b"/a/3", more=True), a_page(13, b"/a/4")]
    wanted, page = steps(list_pages(b"/a/", True), answers)
    asked = [(want.request.key, want.request.revision, want.request.limit, want.request.keys_only) for want in wanted]
    assert asked == [(b"/a/", 0, FIRST, True), (b"/a/2\0", 9, 7, True), (b"/a/3\0", 9, LIST_PAGE_LIMIT, True)]
    assert isinstance(page, Page) and (page.revision, page.next_key) == (9, None)
    assert [entry.key for entry in page.entries] == [b"/a/1", b"/a/2", b"/a/3", b"/a/4"]
    assert all(want.is_page for want in wanted)


def test_pages_have_more_time_than_single_keys() -> None:
    deadlines = Deadlines(read_seconds=1.5, page_seconds=7.5)
    assert [WantedRead(None, is_page).seconds_of(deadlines) for is_page in (False, True)] == [1.5, 7.5]
    assert WantedRead(None).seconds_of(deadlines) == 1.5


# -------------------------------------------------------------------------------------------------------------- keys, codec

KEYS = Keys()


def test_names_of_objects_and_prefixes_of_namespaces() -> None:
    assert [str(ObjectKey("Pod", "default", "web")), str(ObjectKey("Node", "", "n1"))] == ["Pod default/web", "Node n1"]
    assert KEYS.prefix(kinds.POD, "default") == b"/rayched/cluster/pods/default/"
    assert KEYS.prefix(kinds.POD) == b"/rayched/cluster/pods/"
    assert KEYS.prefix(kinds.EVENT, "default") == b"/rayched/events/default/"
    with pytest.raises(KeyTextError, match="root"):
        Keys("/with\0zero")
    assert KEYS.agent("n1") == b"/rayched/agents/n1"
    assert [prefix_end(prefix) for prefix in (b"/abc/", b"/ab\xff\xff", b"\xff")] == [b"/abc0", b"/ac", b"\0"]


def test_the_key_of_taken_room_is_one_of_so_many_and_always_the_same_for_a_node() -> None:
    found = {node: KEYS.taken(node) for node in [*(f"node-{number}" for number in range(5_000)), "\ud800"]}
    assert set(found.values()) <= {KEYS.cluster_prefix + b"taken/%d" % number for number in range(TAKEN_KEYS)}
    assert len(set(found.values())) > TAKEN_KEYS * 0.9
    assert all(Keys().taken(node) == key for node, key in found.items())


def test_an_object_without_a_name_is_named_by_no_key() -> None:
    pod = Pod()
    pod.metadata.namespace = "default"
    for key in (b"/rayched/cluster/pods/default/", b"/"):
        with pytest.raises(PoisonedObject, match="calls itself pod default/"):
            decode(encode(kinds.wrap(pod)), 3, key)


def test_the_same_labels_are_the_same_bytes_whatever_their_order() -> None:
    labels = [f"label-{number}" for number in range(40)]
    values = set()
    for order in (labels, labels[::-1], labels[20:] + labels[:20]):
        pod = Pod()
        for label in order:
            pod.metadata.labels[label] = "x"
        values.add(encode(kinds.wrap(pod)))
    (value,) = values
    assert [value.index(label.encode()) for label in sorted(labels)] == sorted(value.index(label.encode()) for label in labels)


def test_an_object_may_be_read_without_its_version() -> None:
    pod = Pod()
    pod.metadata.name, pod.metadata.namespace = "web", "default"
    key = KEYS.object_key(kinds.POD, "default", "web")
    assert decode_unversioned(encode(kinds.wrap(pod)), 7, key).object.pod == pod
    assert decode(encode(kinds.wrap(pod)), 7, key).pod.metadata.resource_version == "7"


def test_a_value_that_cannot_be_read_says_why() -> None:
    with pytest.raises(PoisonedObject) as caught:
        decode(b"\xff", 7, b"/k")
    found = caught.value
    assert (found.key, found.mod_revision, found.reason) == (b"/k", 7, "does not parse as an object")


# ---------------------------------------------------------------------------------------------------------- rights to write


def test_a_refusal_is_told_once_and_nothing_is_told_without_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="rayched.replica"):
        assert count_fenced_among("status", [Committed(7)]) == 0
        assert caplog.messages == []
        assert count_fenced_among("status", [Committed(7), Fenced(9), Fenced(9)]) == 2
    assert caplog.messages == ["the store refused writes of an epoch that was over: status 2"]


def test_where_the_rule_of_belief_is_broken_the_last_epoch_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = BeliefCell.create(tmp_path / "belief")
    fence = Fence(cell)
    cell.publish(17, 1_000)
    cell.withdraw()
    assert fence.epoch(0) is None
    monkeypatch.setattr(Fence, "RULE_BELIEF_ENDS", False)
    assert fence.epoch(0) is None, "there was none under this rule"
    cell.publish(18, 1_000)
    assert fence.epoch(5_000) == 18
    cell.withdraw()
    assert fence.epoch(5_000) == 18
    cell.close()
