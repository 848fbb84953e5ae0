"""An etcd that takes less in one request than its defaults: what is too much at once is taken apart, by whoever sends it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import grpc
import pytest

from leader.channel import open_aio_channel, open_channel
from rayched.core.writes.window import TRANSACTIONS_MAX, WriteWindow
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.errors import StoreUnavailable, store_error
from rayched.store.io.async_client import AsyncStoreClient
from rayched.store.io.client import StoreClient
from rayched.store.transactions import ALSO_MAX, Committed, Guard, GuardedPut, Outcome, TransactionRefused, Write
from tests.patience import patient_store

pytestmark = pytest.mark.cluster

OPERATIONS_MAX, REQUEST_BYTES_MAX = 16, 8_192


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    limits = ("--max-txn-ops", str(OPERATIONS_MAX), "--max-request-bytes", str(REQUEST_BYTES_MAX))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rayched.replica.etcd.etcd_server._FLAGS", limits)
        with EtcdServer(tmp_path_factory.mktemp("small") / "data", unsafe_no_fsync=True) as server:
            yield server


@pytest.fixture
def client(small: EtcdServer) -> Iterator[StoreClient]:
    with contextlib.closing(open_channel([small.endpoint])) as channel:
        yield patient_store(channel)


def mixed(root: bytes) -> list[Write]:
    """A hundred writes: one is too large, one has too many operations, one has more than any request may have."""
    writes: list[Write] = [GuardedPut(root + b"/%d" % number, 0, bytes(300)) for number in range(100)]
    writes[17] = GuardedPut(root + b"/17", 0, bytes(9_000))
    for place, others in ((42, ALSO_MAX), (63, ALSO_MAX + 1)):
        also = tuple((root + b"/not/%d" % number, 0) for number in range(others))
        writes[place] = GuardedPut(root + b"/%d" % place, 0, b"", also=also)
    return writes


def check(client: StoreClient, root: bytes, writes: list[Write], outcomes: dict[bytes, Outcome]) -> None:
    refused = {root + b"/%d" % number for number in (17, 42, 63)}
    assert {key for key, outcome in outcomes.items() if isinstance(outcome, TransactionRefused)} == refused
    assert all(isinstance(outcome, Committed) for key, outcome in outcomes.items() if key not in refused)
    stored = {entry.key for entry in client.list_all(root + b"/").entries}
    assert stored == {write.key for write in writes} - refused


def test_a_commit_does_all_that_this_etcd_takes_and_refuses_the_rest_one_by_one(client: StoreClient, etcd_root: str) -> None:
    root = etcd_root.encode()
    guard = Guard(root + b"-epoch", client.put(root + b"-epoch", b""))
    writes = mixed(root)
    outcomes = client.commit(guard, writes)
    check(client, root, writes, {write.key: outcome for write, outcome in zip(writes, outcomes, strict=True)})


def test_the_asyncio_client_does_the_same(small: EtcdServer, client: StoreClient, etcd_root: str) -> None:
    root = etcd_root.encode()
    writes = mixed(root)

    async def commit() -> list[Outcome]:
        async with open_aio_channel([small.endpoint]) as channel:
            return await AsyncStoreClient(channel).commit(None, writes)

    check(client, root, writes, {write.key: outcome for write, outcome in zip(writes, asyncio.run(commit()), strict=True)})


def test_many_keys_are_read_in_as_many_requests_as_it_takes(client: StoreClient, etcd_root: str) -> None:
    keys = [etcd_root.encode() + b"/%03d" % number for number in range(150)]
    for key in keys:
        client.put(key, key)
    client.put(keys[0], b"newer")
    reading = client.get_many(keys)
    assert [entry and entry.value for entry in reading.entries] == [b"newer", *keys[1:]]
    assert reading.revision == client.revision()


@pytest.mark.parametrize("answers_lost", [0, 3])
def test_the_leaders_window_comes_to_rest_with_one_outcome_for_each_write(
    client: StoreClient, etcd_root: str, answers_lost: int
) -> None:
    root = etcd_root.encode()
    guard = Guard(root + b"-epoch", client.put(root + b"-epoch", b""))
    writes, window, now, n_sent = mixed(root), WriteWindow(), 0.0, 0
    sends = [window.send(writes, guard)]
    outcomes: dict[bytes, Outcome] = {}
    while sends or window.next_due() is not None:
        if not sends:
            now = max(now, window.next_due() or now)
            sends = list(window.send_again(now))
        send = sends.pop(0)
        n_sent += 1
        if send.problem is not None:
            answer: object = send.problem
        elif n_sent <= answers_lost:
            # The request is lost with its answer.
            answer = StoreUnavailable("no answer")
        else:
            try:
                answer = client.txn_future(send.content).result()
            except grpc.RpcError as error:
                answer = store_error(error)
        for write, outcome in window.answered(send.number, answer, now):
            assert write.key not in outcomes
            outcomes[write.key] = outcome
    assert window.quiet and window.room == TRANSACTIONS_MAX and n_sent < 200
    check(client, root, writes, outcomes)
