"""The store's clients on a real etcd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leader.channel import open_aio_channel, open_channel
from leader.effects import Get
from leader.etcd_requests import LockKeys, build
from leader.etcd_shim import rpc
from rayched.api import kinds
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.replica.ray.processes import alive
from rayched.store.calls import Deadlines
from rayched.store.codec import decode_entry, encode
from rayched.store.errors import (
    Compacted,
    FutureRevision,
    LeaseNotFound,
    RequestTooLarge,
    StoreFull,
    StoreUnavailable,
    store_error,
)
from rayched.store.io.async_client import AsyncStoreClient
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys
from rayched.store.readings import reading_request
from rayched.store.transactions import (
    ALSO_MAX,
    Committed,
    Conflict,
    Fenced,
    Guard,
    GuardedDelete,
    GuardedPut,
    OutcomeUnknown,
    TransactionRefused,
    Write,
    create,
    split,
)
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite
from tests.etcd_fixture import hang

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def channel(etcd: EtcdServer) -> Iterator[grpc.Channel]:
    with contextlib.closing(open_channel([etcd.endpoint])) as channel:
        yield channel


@pytest.fixture
def client(channel: grpc.Channel) -> StoreClient:
    return StoreClient(channel)


@pytest.fixture
def root(etcd_root: str) -> bytes:
    return etcd_root.encode() + b"/"


def a_bound_pod(name: str, attempt: str) -> bytes:
    pod = Pod()
    pod.metadata.name = name
    pod.metadata.namespace = "default"
    return encode(kinds.wrap(pod), LeaderWrite(op="bind", attempt=attempt))


def test_a_stale_object_is_refused_alone_and_its_answer_carries_object_and_node(client: StoreClient, root: bytes) -> None:
    epoch = client.put(root + b"epoch", b"{}")
    node = client.put(root + b"node", b"n1")
    stale_node = node
    pods = [client.put(root + b"pod%d" % number, b"pending") for number in range(3)]
    client.put(root + b"pod1", b"changed by another")
    writes = [
        GuardedPut(root + b"pod%d" % number, pods[number], b"bound", also=((root + b"node", stale_node),)) for number in range(3)
    ]
    first, stale, last = client.commit(Guard(root + b"epoch", epoch), writes)
    assert isinstance(first, Committed)
    assert first == last
    assert isinstance(stale, Conflict)
    assert stale.current is not None
    assert (stale.current.value, stale.current.mod_revision) == (b"changed by another", pods[2] + 1)
    assert [entry and entry.value for entry in stale.also] == [b"n1"]
    assert client.get(root + b"pod0") == client.get_many([root + b"pod0"]).entries[0]


def test_a_changed_node_refuses_the_bind_and_the_answer_shows_the_node_as_it_is(client: StoreClient, root: bytes) -> None:
    pod, node = client.put(root + b"pod", b"pending"), client.put(root + b"node", b"n1")
    client.put(root + b"node", b"cordoned")
    (outcome,) = client.commit(None, [GuardedPut(root + b"pod", pod, b"bound", also=((root + b"node", node),))])
    assert isinstance(outcome, Conflict)
    assert outcome.current is not None
    assert outcome.current.mod_revision == pod
    assert [entry and entry.value for entry in outcome.also] == [b"cordoned"]


def test_a_deposed_leader_writes_nothing_and_learns_the_new_epoch(client: StoreClient, root: bytes) -> None:
    old = client.put(root + b"epoch", b"{1}")
    new = client.put(root + b"epoch", b"{2}")
    writes = [GuardedPut(root + b"a", 0, b"x"), GuardedPut(root + b"b", 0, b"x")]
    assert client.commit(Guard(root + b"epoch", old), writes) == [Fenced(new), Fenced(new)]
    assert client.list_all(root + b"a").entries == ()
    client.delete(root + b"epoch")
    assert client.commit(Guard(root + b"epoch", new), writes)[0] == Fenced(0)


def test_the_same_bind_sent_twice_is_committed_once_and_known_as_the_same(client: StoreClient, root: bytes) -> None:
    pod = client.put(root + b"p", b"pending")
    bind = GuardedPut(root + b"p", pod, a_bound_pod("p", "attempt-1"), attempt="attempt-1")
    (first,) = client.commit(None, [bind])
    (again,) = client.commit(None, [bind])
    assert first == again == Committed(pod + 1)
    (other,) = client.commit(None, [GuardedPut(root + b"p", pod, a_bound_pod("p", "attempt-2"), attempt="attempt-2")])
    assert isinstance(other, Conflict)


def test_a_creation_and_its_record_are_written_together_or_not_at_all(client: StoreClient, root: bytes) -> None:
    first = create(root + b"pods/a", b"pod a", root + b"submissions/u1", b"record 1")
    same_uid = create(root + b"pods/b", b"pod b", root + b"submissions/u1", b"record 2")
    same_name = create(root + b"pods/a", b"pod a'", root + b"submissions/u3", b"record 3")
    committed, by_uid, by_name = client.commit(None, [first, same_uid, same_name])
    assert isinstance(committed, Committed)
    assert isinstance(by_uid, Conflict)
    assert by_uid.current is None
    assert [entry and entry.value for entry in by_uid.also] == [b"record 1"]
    assert isinstance(by_name, Conflict)
    assert by_name.current is not None
    assert (by_name.current.value, by_name.also) == (b"pod a", (None,))
    assert [entry.value for entry in client.list_all(root).entries] == [b"pod a", b"record 1"]


def test_many_creations_in_one_transaction_have_each_their_own_outcome(client: StoreClient, root: bytes) -> None:
    client.put(root + b"p/7", b"there")
    outcomes = client.commit(None, [create(root + b"p/%d" % n, b"x", root + b"s/%d" % n, b"r") for n in range(100)])
    assert [isinstance(outcome, Committed) for outcome in outcomes] == [n != 7 for n in range(100)]
    assert {outcome.revision for outcome in outcomes if isinstance(outcome, Committed)} == {client.revision()}


def test_a_full_batch_fits_an_etcd_that_runs_with_its_default_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayched.replica.etcd.etcd_server._FLAGS", ())
    nodes = [b"/n%d" % number for number in range(20)]
    writes = [
        GuardedPut(b"/p%d" % n, 0, bytes(9000), also=tuple((node, 0) for node in nodes), with_puts=((b"/r%d" % n, b""),))
        for n in range(100)
    ]
    with (
        EtcdServer(tmp_path / "data") as server,
        contextlib.closing(open_channel([server.endpoint])) as channel,
    ):
        client = StoreClient(channel)
        guard = Guard(b"/epoch", client.put(b"/epoch", b"{}"))
        outcomes = client.send(guard, writes).outcomes()
        assert all(isinstance(outcome, Committed) for outcome in outcomes)
        assert client.settle(guard, writes)[0] != outcomes[0]


def test_pipelined_transactions_bind_thousands(client: StoreClient, root: bytes) -> None:
    batches = [[GuardedPut(root + b"%d-%d" % (batch, n), 0, bytes(600)) for n in range(100)] for batch in range(20)]
    pending = [client.send(None, batch) for batch in batches]
    assert all(isinstance(outcome, Committed) for commit in pending for outcome in commit.outcomes())
    assert len(client.list_all(root, keys_only=True).entries) == 2000


def test_a_listing_in_pages_is_one_moment_whatever_is_written_meanwhile(client: StoreClient, root: bytes) -> None:
    client.put_many([(root + b"%d" % number, b"old") for number in range(10, 15)])
    page = client.list_page(root, limit=2)
    keys = [entry.key for entry in page.entries]
    client.delete(root + b"14")
    client.put(root + b"13", b"new")
    while page.next_key is not None:
        page = client.list_page(root, limit=2, revision=page.revision, start_key=page.next_key)
        keys += [entry.key for entry in page.entries]
        assert all(entry.value == b"old" for entry in page.entries)
    assert keys == [root + b"%d" % number for number in range(10, 15)]


def test_many_keys_are_read_at_one_revision(client: StoreClient, root: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    client.put_many([(root + b"%d" % number, b"%d" % number) for number in range(0, 250, 2)])
    read_once = client._read

    def read_and_then_write(*arguments: Any) -> Any:
        answer = read_once(*arguments)
        client.put(root + b"240", b"written after the first read")
        return answer

    revision = client.revision()
    monkeypatch.setattr(client, "_read", read_and_then_write)
    reading = client.get_many([root + b"%d" % number for number in range(250)])
    assert [entry.value if entry else None for entry in reading.entries] == [
        b"%d" % number if number % 2 == 0 else None for number in range(250)
    ]
    assert reading.revision == revision
    assert client.get_many([]).entries == ()


def test_a_lost_or_compacted_revision_is_told_apart(client: StoreClient, root: bytes) -> None:
    old = client.put(root + b"a", b"1")
    client.put(root + b"a", b"2")
    with pytest.raises(FutureRevision):
        client.list_page(root, revision=client.revision() + 1000)
    client.compact(client.revision())
    with pytest.raises(Compacted):
        client.list_page(root, revision=old)
    with pytest.raises(Compacted):
        client.compact(old)


def test_what_is_too_large_is_refused_as_such(client: StoreClient, root: bytes) -> None:
    for size in (1_800_000, 5 << 20):
        with pytest.raises(RequestTooLarge):
            client.put(root + b"a", bytes(size))
    (outcome,) = client.commit(None, [GuardedPut(root + b"a", 0, bytes(5 << 20))])
    assert isinstance(outcome, TransactionRefused)
    assert isinstance(outcome.error, RequestTooLarge)


def test_leases_are_granted_renewed_and_end(client: StoreClient, root: bytes) -> None:
    lease = client.grant_lease(30)
    client.put(root + b"a", b"v", lease.id)
    renewals = client.keep_alives()
    assert renewals.renew([lease.id]) == {lease.id: 30}
    client.revoke_lease(lease.id)
    assert client.get(root + b"a") is None
    assert renewals.renew([lease.id, 4711]) == {lease.id: 0, 4711: 0}
    renewals.close()
    with pytest.raises(LeaseNotFound):
        client.revoke_lease(lease.id)
    with pytest.raises(LeaseNotFound):
        client.put(root + b"a", b"v", lease.id)


def test_the_members_tell_their_version(client: StoreClient, etcd: EtcdServer) -> None:
    assert client.status().version == etcd.binary.version_text
    (member,) = client.members()
    assert [url.partition("://")[0] for url in member.client_urls] == ["unix"]
    assert member.id == client.status().leader_id


names = st.sampled_from([b"a", b"b", b"c", b"d"])
revisions = st.sampled_from(["now", "now", "absent", "wrong"])
plans = st.lists(st.tuples(names, revisions, st.booleans(), st.lists(st.tuples(names, revisions), max_size=2)), max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(names, unique=True), plans)
def test_a_commit_does_what_the_writes_one_by_one_would_do(
    client: StoreClient, root: bytes, there: list[bytes], plan: list[tuple[bytes, str, bool, list[tuple[bytes, str]]]]
) -> None:
    """The oracle is a dictionary and one write after the other."""
    prefix = root + b"%d/" % client.revision()
    expected = {prefix + name: b"old" for name in there}
    revision_of = {key: client.put(key, value) for key, value in expected.items()}

    def resolved(name: bytes, wanted: str) -> int:
        return {"now": revision_of.get(prefix + name, 0), "absent": 0, "wrong": 1}[wanted]

    writes: list[Write] = []
    for number, (name, wanted, removing, conditions) in enumerate(plan):
        also = tuple((prefix + other, resolved(other, want)) for other, want in conditions)
        key, revision = prefix + name, resolved(name, wanted)
        writes.append(GuardedDelete(key, revision, also) if removing else GuardedPut(key, revision, b"%d" % number, also))
    current = dict(revision_of)
    passed = []
    for number, write in enumerate(writes):
        passed.append(all(current.get(key, 0) == want for key, want in [(write.key, write.mod_revision), *write.also]))
        if passed[-1] and isinstance(write, GuardedDelete):
            current.pop(write.key, None)
            expected.pop(write.key, None)
        elif passed[-1]:
            current[write.key] = -number - 1
            expected[write.key] = b"%d" % number
    assert [isinstance(outcome, Committed) for outcome in client.commit(None, writes)] == passed
    assert {entry.key: entry.value for entry in client.list_all(prefix).entries} == expected


def test_a_full_etcd_refuses_writes_as_full_and_still_reads(tmp_path: Path) -> None:
    with (
        EtcdServer(tmp_path / "data", unsafe_no_fsync=True, quota_bytes=1 << 20) as server,
        contextlib.closing(open_channel([server.endpoint])) as channel,
    ):
        client = StoreClient(channel)
        with pytest.raises(StoreFull, match="space"):
            # etcd looks at the size of its file, which grows every 100 ms.
            for number in range(1000):
                client.put(b"/%d" % number, bytes(100_000))
        with pytest.raises(StoreFull):
            client.put_many([(b"/x", bytes(100_000))])
        assert client.get(b"/0") is not None


def test_a_write_to_a_hung_etcd_is_unknown_until_it_is_settled(tmp_path: Path) -> None:
    with (
        EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as server,
        contextlib.closing(open_channel([server.endpoint])) as channel,
    ):
        client = StoreClient(channel, Deadlines(read_seconds=0.2, write_seconds=0.2, patience_seconds=0.3))
        keys = Keys()
        key = keys.object_key(kinds.POD, "default", "p")
        guard = Guard(keys.epoch, client.put(keys.epoch, b"{}"))
        bind = GuardedPut(key, 0, a_bound_pod("p", "attempt-1"), attempt="attempt-1")
        assert server.pid is not None
        hang(server.pid)
        try:
            (outcome,) = client.commit(guard, [bind])
            with pytest.raises(StoreUnavailable):
                client.settle(guard, [bind])
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert isinstance(outcome, OutcomeUnknown)
        patient = StoreClient(channel)
        (settled,) = patient.settle(guard, [bind])
        assert isinstance(settled, Committed | OutcomeUnknown)
        # Whether or not the first sending arrived, the same write again ends in one binding of this attempt.
        (again,) = patient.commit(guard, [bind])
        entry = patient.get(key)
        assert entry is not None
        assert again == Committed(entry.mod_revision)
        assert decode_entry(entry).pod.metadata.name == "p"


def test_reads_wait_for_a_restarting_etcd_and_writes_do_not(tmp_path: Path) -> None:
    with (
        EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as server,
        contextlib.closing(open_channel([server.endpoint])) as channel,
    ):
        client = StoreClient(channel)
        client.put(b"/a", b"v")
        server.stop()
        with pytest.raises(StoreUnavailable):
            client.put(b"/a", b"w")
        server.start()
        entry = client.get(b"/a")
        assert entry is not None
        assert entry.value == b"v"


def in_a_loop(endpoint: str, work: Callable[[AsyncStoreClient], Awaitable[None]]) -> None:
    async def run() -> None:
        channel = open_aio_channel([endpoint])
        try:
            await work(AsyncStoreClient(channel))
        finally:
            await channel.close()

    asyncio.run(run())


def test_the_asyncio_client_does_the_same(etcd: EtcdServer, client: StoreClient, root: bytes) -> None:
    async def work(store: AsyncStoreClient) -> None:
        epoch = await store.put(root + b"epoch", b"{}")
        guard = Guard(root + b"epoch", epoch)
        writes = [GuardedPut(root + b"p/%d" % number, 0, b"v") for number in range(150)]
        assert all(isinstance(outcome, Committed) for outcome in await store.commit(guard, writes))
        assert all(isinstance(outcome, Conflict) for outcome in await store.commit(guard, writes))
        assert await store.commit(Guard(root + b"epoch", epoch + 1), writes[:1]) == [Fenced(epoch)]
        assert await store.get(root + b"p/1") == client.get(root + b"p/1")
        assert await store.get_many([root + b"p/1", root + b"x"]) == client.get_many([root + b"p/1", root + b"x"])
        assert await store.list_all(root) == client.list_all(root)
        assert await store.list_page(root, limit=2) == client.list_page(root, limit=2)
        assert await store.settle(guard, writes[:1]) == client.settle(guard, writes[:1])
        lease = await store.grant_lease(30)
        await store.put_many([(root + b"leased", b"v")], lease.id)
        renewals = store.keep_alives()
        assert await renewals.renew([lease.id, 4711]) == {lease.id: 30, 4711: 0}
        renewals.close()
        await store.revoke_lease(lease.id)
        assert await store.delete(root + b"leased") is False
        with pytest.raises(FutureRevision):
            await store.list_page(root, revision=await store.revision() + 1000)
        with pytest.raises(RequestTooLarge):
            await store.put(root + b"a", bytes(5 << 20))
        await store.compact(await store.revision())
        assert await store.status() == client.status()
        assert await store.members() == client.members()

    in_a_loop(etcd.endpoint, work)


def test_a_cancelled_call_leaves_open_whether_it_happened() -> None:
    assert isinstance(store_error(grpc.FutureCancelledError()), StoreUnavailable)


@pytest.mark.parametrize("marks", [1, 7, 50, 100])
def test_etcd_takes_the_largest_transactions_with_marks_and_puts_each_once(client: StoreClient, root: bytes, marks: int) -> None:
    guard = Guard(root + b"epoch", client.put(root + b"epoch", b""))
    also = tuple((root + b"not/%d" % number, 0) for number in range(ALSO_MAX))
    writes = [
        GuardedPut(root + b"%03d" % number, 0, b"", also, mark=root + b"mark/%d" % (number % marks)) for number in range(100)
    ]
    assert all(isinstance(outcome, Committed) for outcome in client.commit(guard, writes))
    first = {entry.key: entry.mod_revision for entry in client.list_all(root + b"mark/").entries}
    assert len(first) == marks
    # Refused, each of them, and the marks that several share are moved all the same; but not by those of an epoch that is over.
    assert all(isinstance(outcome, Conflict) for outcome in client.commit(guard, writes))
    second = {entry.key: entry.mod_revision for entry in client.list_all(root + b"mark/").entries}
    shared = {mark for batch in split(writes) for mark, count in Counter(write.mark for write in batch).items() if count > 1}
    assert {key for key, revision in first.items() if second[key] > revision} == shared
    assert len(shared) == {1: 1, 7: 7, 50: 7, 100: 0}[marks]
    assert all(isinstance(outcome, Fenced) for outcome in client.commit(Guard(guard.epoch_key, 1), writes))
    assert {entry.key: entry.mod_revision for entry in client.list_all(root + b"mark/").entries} == second


def test_a_mark_of_one_write_is_put_with_it_or_not_at_all(client: StoreClient, root: bytes) -> None:
    mark = root + b"mark"
    write = GuardedPut(root + b"pod", 0, b"", mark=mark)
    assert isinstance(client.commit(None, [write])[0], Committed)
    revision = client.revision()
    assert isinstance(client.commit(None, [write])[0], Conflict)
    assert client.revision() == revision
    # It moves where one of those that share it is written.
    new = GuardedPut(root + b"new", 0, b"", mark=mark)
    outcomes = client.commit(None, [write, new])
    assert [type(outcome) for outcome in outcomes] == [Conflict, Committed]
    found = client.get(mark)
    assert found is not None and found.mod_revision > revision


def test_etcd_lives_on_when_readers_give_up(tmp_path: Path) -> None:
    keys = [b"/given-up/%d" % number for number in range(100)]
    readings = [("of the store", reading_request(keys, 0)), ("of the election", build(Get(0, 0), LockKeys(keys[0], keys[1]), 0))]
    for what, request in readings:
        with (
            EtcdServer(tmp_path / what.replace(" ", "-"), unsafe_no_fsync=True) as etcd,
            open_channel([etcd.endpoint]) as channel,
        ):
            StoreClient(channel).put_many([(key, b"x" * 1_000) for key in keys])
            txn = rpc.KVStub(channel).Txn
            for number in range(100):
                calls = [txn.future(request, timeout=10) for _ in range(40)]
                # At another moment of their life each time.
                time.sleep(number % 10 * 0.002)
                for call in calls:
                    call.cancel()
                assert etcd.pid is not None and alive(etcd.pid), f"a reading {what} that was given up ended etcd"
