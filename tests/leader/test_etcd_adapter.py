"""The adapter's parts without I/O, the channel's targets, and etcd3 on today's protobuf."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from leader import effects as fx
from leader import events as ev
from leader.channel import EndpointError, open_aio_channel, open_channel, target_of
from leader.etcd_lock import EtcdLock
from leader.etcd_requests import LockKeys, build, read_watch_events
from leader.etcd_shim import install, kv, rpc
from leader.etcd_watch import WatchCursor
from leader.record import Epoch, LeaderRecord, View
from rayched.replica.etcd.etcd_server import EtcdServer

KEYS = LockKeys(b"/r/leader/record", b"/r/cluster/epoch")
RECORD, EPOCH = LeaderRecord("a"), Epoch(0, "a")


@pytest.mark.parametrize(
    ("endpoints", "target"),
    [
        (["127.0.0.1:2379"], "ipv4:127.0.0.1:2379"),
        (["http://10.0.0.1:1", "10.0.0.2:2/"], "ipv4:10.0.0.1:1,10.0.0.2:2"),
        (["[::1]:2379"], "ipv6:[::1]:2379"),
        (["[::1]:65535", "[::2]:1"], "ipv6:[::1]:65535,[::2]:1"),
        ([" 127.0.0.1:65535 "], "ipv4:127.0.0.1:65535"),
        (["etcd.example:2379"], "dns:///etcd.example:2379"),
        (["127.0.0.2:1", "localhost:2"], "ipv4:127.0.0.2:1,127.0.0.1:2"),
        (["unix:/run/etcd.sock"], "unix:/run/etcd.sock"),
    ],
)
def test_endpoints_become_one_target(endpoints: list[str], target: str) -> None:
    assert target_of(endpoints) == target


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "host",
        "host:",
        ":1",
        "1.2.3.4:0",
        "1.2.3.4:65536",
        "a:b",
        "::1:5",
        "https://a:1",
        "a:1/b",
        "[::1:5",
        "::1]:5",
        "unix:/run/etcd.sock",
        "a:\u0664\u0662",
        "a:\u00b2",
    ],
)
def test_a_bad_endpoint_is_named(endpoint: str) -> None:
    with pytest.raises(EndpointError) as refusal:
        target_of([endpoint, "127.0.0.1:1"])
    assert repr(endpoint) in str(refusal.value)


def test_no_endpoints_or_a_mix_of_families_are_refused() -> None:
    for endpoints in ([], ["127.0.0.1:1", "[::1]:1"]):
        with pytest.raises(EndpointError):
            target_of(endpoints)
    with pytest.raises(EndpointError, match="none given"):
        target_of([])
    with pytest.raises(EndpointError, match=r"nowhere\.invalid:1: the host name does not resolve"):
        target_of(["nowhere.invalid:1", "127.0.0.1:1"])
    with pytest.raises(EndpointError, match="want a list"):
        target_of("127.0.0.1:1")
    with pytest.raises(EndpointError):
        EtcdLock(["nonsense"], "a", "b")


@pytest.mark.row("LE-40", "L19")
def test_every_write_is_guarded_and_reads_both_keys_where_it_is_refused() -> None:
    for request, guards, puts in (
        (fx.Acquire(1, 1, 5, 4, RECORD, EPOCH), {KEYS.record: 5, KEYS.epoch: 4}, {KEYS.record: 9, KEYS.epoch: 0}),
        (fx.Acquire(1, 1, 0, 0, RECORD, EPOCH), {KEYS.record: 0, KEYS.epoch: 0}, {KEYS.record: 9, KEYS.epoch: 0}),
        (fx.Renew(1, 1, 4, RECORD), {KEYS.epoch: 4}, {KEYS.record: 9}),
        (fx.BeginTerm(1, 1, 4, RECORD, EPOCH), {KEYS.epoch: 4}, {KEYS.record: 9, KEYS.epoch: 0}),
        (fx.Release(1, 1, 4, RECORD, EPOCH), {KEYS.epoch: 4}, {KEYS.record: 0, KEYS.epoch: 0}),
    ):
        txn = build(request, KEYS, 9)
        assert {c.key: c.mod_revision for c in txn.compare} == guards
        assert all(c.target == rpc.Compare.MOD and c.result == rpc.Compare.EQUAL for c in txn.compare)
        assert {op.request_put.key: op.request_put.lease for op in txn.success} == puts
        assert [op.request_range.key for op in txn.failure] == [KEYS.record, KEYS.epoch]


def test_two_different_keys_are_needed() -> None:
    for record, epoch in ((b"a", b"a"), (b"", b"a"), (b"a", b"")):
        with pytest.raises(ValueError, match="want two different keys"):
            LockKeys(record, epoch)


def watch_event(key: bytes, revision: int, value: bytes | None) -> object:
    kind = kv.Event.DELETE if value is None else kv.Event.PUT
    return kv.Event(type=kind, kv=kv.KeyValue(key=key, mod_revision=revision, value=value or b""))


def test_of_many_events_in_one_message_the_last_of_each_key_counts() -> None:
    events = [watch_event(KEYS.record, 7, RECORD.to_json()), watch_event(b"other", 8, b""), watch_event(KEYS.record, 9, None)]
    assert read_watch_events(events, KEYS) == [ev.RecordChanged(None, 9)]


def listed_at(revision: int) -> WatchCursor:
    cursor = WatchCursor(KEYS)
    assert cursor.must_list
    assert cursor.listed(ev.Found(View(None, None, revision))) == ev.Listed(View(None, None, revision), went_back=False)
    return cursor


def starts(cursor: WatchCursor) -> list[int]:
    return [request.create_request.start_revision for request in cursor.requests()]


def test_a_watch_resumes_each_key_behind_its_last_event() -> None:
    cursor = listed_at(10)
    assert starts(cursor) == [11, 11] and not cursor.must_list
    answer = rpc.WatchResponse(watch_id=1, events=[watch_event(KEYS.record, 15, RECORD.to_json())])
    assert len(cursor.receive(answer) or []) == 1
    assert starts(cursor) == [16, 11]
    assert cursor.receive(rpc.WatchResponse(watch_id=1, canceled=True)) is None
    assert not cursor.must_list, "a cancelled watch goes on from where it was"


def test_a_compaction_or_a_store_that_went_back_makes_it_read_anew() -> None:
    compacted = listed_at(10)
    assert compacted.receive(rpc.WatchResponse(watch_id=1, canceled=True, compact_revision=12)) is None
    assert compacted.must_list and not compacted.listed(ev.Found(View(None, None, 12))).went_back
    back = listed_at(10)
    created = rpc.WatchResponse(watch_id=1, created=True)
    created.header.revision = 9
    assert back.receive(created) is None and back.must_list
    assert back.listed(ev.Found(View(None, None, 9))).went_back


def answered_at(revision: int, **fields: object) -> rpc.WatchResponse:
    return rpc.WatchResponse(header=rpc.ResponseHeader(revision=revision), **fields)


@pytest.mark.parametrize(("revision", "is_back"), [(14, True), (15, False), (16, False)])
def test_a_store_went_back_where_it_is_below_what_was_seen_of_either_key(revision: int, is_back: bool) -> None:
    cursor = listed_at(10)
    assert [(one.create_request.key, one.create_request.watch_id) for one in cursor.requests()] == [
        (KEYS.record, 1),
        (KEYS.epoch, 2),
    ]
    assert cursor.receive(answered_at(10, created=True, watch_id=1)) == []
    assert cursor.receive(rpc.WatchResponse(watch_id=1, events=[watch_event(KEYS.record, 15, RECORD.to_json())]))
    assert cursor.receive(rpc.WatchResponse(watch_id=2, events=[watch_event(KEYS.epoch, 12, EPOCH.to_json())]))
    assert cursor.receive(answered_at(3, watch_id=1)) == [], "what is no beginning of a watch says nothing of the store"
    assert starts(cursor) == [16, 13]
    found = cursor.receive(answered_at(revision, created=True, watch_id=2))
    assert found == (None if is_back else []) and cursor.must_list is is_back
    assert cursor.listed(ev.Found(View(None, None, revision))).went_back is is_back and not cursor.must_list
    assert starts(cursor) == [revision + 1, revision + 1]


def test_installing_twice_does_nothing_and_the_fields_of_a_newer_etcd_are_there() -> None:
    assert install() is False
    request = rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=b"k", watch_id=3, fragment=True))
    assert request.SerializeToString() == bytes.fromhex("0a070a016b38034001")
    progress = rpc.WatchRequest(progress_request=rpc.WatchProgressRequest())
    assert progress.SerializeToString() == bytes.fromhex("1a00") and progress.WhichOneof("request_union") == "progress_request"
    assert rpc.WatchResponse(fragment=True).SerializeToString() == bytes.fromhex("3801")


def test_the_package_is_light_and_knows_nothing_of_the_scheduler() -> None:
    code = (
        "import sys; before = set(sys.modules); import leader.elector, leader.etcd_lock, leader.belief;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    # grpc imports its own companions where they are installed.
    public = {name for name in found if not name.startswith(("_", "grpc", "cython"))}
    assert public <= {"leader", "google", "etcd3", "six", "tenacity", "typing_extensions"}


@pytest.mark.cluster
def test_the_unmodified_etcd3_client_works(tmp_path: Path) -> None:
    import etcd3

    with EtcdServer(tmp_path / "data", 0, unsafe_no_fsync=True) as etcd:
        host, _, port = etcd.endpoint.rpartition(":")
        client = etcd3.client(host=host, port=int(port))
        client.put("/a", "b")
        assert client.get("/a")[0] == b"b"
        assert client.replace("/a", "b", "c") and not client.replace("/a", "b", "d")
        assert client.lease(5).ttl == 5
        client.close()


@pytest.mark.cluster
def test_the_same_stubs_work_on_both_kinds_of_channel(etcd: EtcdServer, etcd_root: str) -> None:
    key = f"{etcd_root}/k".encode()
    with open_channel([etcd.endpoint]) as channel:
        revision = rpc.KVStub(channel).Put(rpc.PutRequest(key=key, value=b"v"), timeout=2).header.revision

    async def read() -> int:
        async with open_aio_channel([etcd.endpoint]) as channel:
            answer = await rpc.KVStub(channel).Range(rpc.RangeRequest(key=key), timeout=2)
            return int(answer.kvs[0].mod_revision)

    assert asyncio.run(read()) == revision


@pytest.mark.cluster
def test_a_manual_progress_request_is_answered(etcd: EtcdServer, etcd_root: str) -> None:
    with open_channel([etcd.endpoint]) as channel:
        create = rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=etcd_root.encode(), watch_id=7, fragment=True))
        call = rpc.WatchStub(channel).Watch(
            iter([create, rpc.WatchRequest(progress_request=rpc.WatchProgressRequest())]), timeout=5
        )
        created, progress = next(call), next(call)
        assert created.created and created.watch_id == 7
        assert not progress.events and progress.header.revision >= created.header.revision
        call.cancel()
