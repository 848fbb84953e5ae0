"""A channel to all members of etcd waits for no single one: the others answer in the place of one that is silent."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from leader.etcd_lease import keep_alive_call
from leader.etcd_shim import rpc
from leader.member_channel import PATIENCE_SECONDS, MemberChannel
from leader.successive_channel import SuccessiveChannel
from rayched.replica.etcd.etcd_server import EtcdServer
from tests.chaos.proxy import Link, Network
from tests.leader.members import Member, eventually, now

pytestmark = pytest.mark.cluster
READ = rpc.RangeRequest(key=b"nothing")
SECONDS_MAX = 10.0
"""Of a call."""
SOON_SECONDS = 2.0
"""On a busy machine; a call that waits for a silent member takes all of its time."""


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """With a port, for links."""
    with EtcdServer(tmp_path_factory.mktemp("etcd") / "data", unsafe_no_fsync=True, client_port=0) as server:
        yield server


@pytest.fixture
def links(etcd: EtcdServer) -> Iterator[list[Link]]:
    """Three ways to etcd, as to three members."""
    with Network() as network:
        yield [network.link(name, etcd.endpoint) for name in ("one", "two", "three")]


@pytest.fixture
def channel(links: list[Link]) -> Iterator[MemberChannel]:
    opened = MemberChannel([link.address for link in links])
    yield opened
    opened.close()


def silence(*links: Link) -> None:
    """As of a host that has lost its network: nothing is refused, nothing is answered."""
    for link in links:
        link.silent_to_target = link.silent_to_client = True


def connected(channel: MemberChannel) -> None:
    """To each member."""
    for member in channel.members:
        rpc.KVStub(member).Range(READ, timeout=SECONDS_MAX)


def test_another_member_answers_in_the_place_of_one_that_falls_silent(channel: MemberChannel, links: list[Link]) -> None:
    connected(channel)
    kv = rpc.KVStub(channel)
    kv.Range(READ, timeout=SECONDS_MAX)
    assert channel.turn == 0
    silence(links[0])
    began = time.monotonic()
    kv.Range(READ, timeout=SECONDS_MAX)
    assert PATIENCE_SECONDS <= time.monotonic() - began < SOON_SECONDS
    assert channel.turn == 1, "who answered is asked next"


def test_two_of_three_may_be_silent_before_they_were_ever_reached(channel: MemberChannel, links: list[Link]) -> None:
    silence(links[0], links[1])
    began = time.monotonic()
    rpc.KVStub(channel).Range(READ, timeout=SECONDS_MAX)
    assert time.monotonic() - began < SOON_SECONDS


def test_a_member_that_refuses_is_not_waited_for(channel: MemberChannel, links: list[Link]) -> None:
    links[0].cut()
    call = rpc.KVStub(channel).Range.future(READ, timeout=SECONDS_MAX)
    told: list[int] = []
    call.add_done_callback(lambda ended: told.append(ended.result().count))
    assert call.result(SECONDS_MAX).count == 0
    assert channel.turn == 1
    call.add_done_callback(lambda ended: told.append(ended.result().count))
    assert told == [0, 0]


def test_where_all_are_silent_a_call_ends_when_its_time_does(channel: MemberChannel, links: list[Link]) -> None:
    connected(channel)
    silence(*links)
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as raised:
        rpc.KVStub(channel).Range(READ, timeout=0.6)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert 0.5 < time.monotonic() - began < 0.6 + SOON_SECONDS
    with pytest.raises(grpc.FutureTimeoutError):
        rpc.KVStub(channel).Range.future(READ, timeout=SECONDS_MAX).result(0.01)


def test_a_lease_is_kept_alive_by_another_member(channel: MemberChannel, links: list[Link]) -> None:
    connected(channel)
    lease = int(rpc.LeaseStub(channel).LeaseGrant(rpc.LeaseGrantRequest(TTL=60), timeout=SECONDS_MAX).ID)
    for place in range(3):
        channel.answered(place, 5.0)
    assert channel.patience_seconds > SOON_SECONDS / 2, "answers take long"
    silence(links[channel.turn])
    began = time.monotonic()
    answer = keep_alive_call(channel)(rpc.LeaseKeepAliveRequest(ID=lease), timeout=SECONDS_MAX)
    assert (lease, 60) == (answer.ID, answer.TTL)
    assert time.monotonic() - began < SOON_SECONDS
    gone = keep_alive_call(channel)(rpc.LeaseKeepAliveRequest(ID=lease + 1), timeout=SECONDS_MAX)
    assert gone.TTL == 0, "as etcd says of a lease that it does not know"


def test_what_etcd_says_of_a_call_counts(channel: MemberChannel) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        rpc.LeaseStub(channel).LeaseRevoke(rpc.LeaseRevokeRequest(ID=1), timeout=SECONDS_MAX)
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


def test_calls_that_are_made_alone_go_round_until_a_member_answers(channel: MemberChannel, links: list[Link]) -> None:
    connected(channel)
    alone = rpc.KVStub(channel).Range.alone
    alone(READ, timeout=SECONDS_MAX).result()
    eventually(lambda: channel.turn == 0, SECONDS_MAX)
    silence(*links)
    calls, turns = [], []
    for _ in range(4):
        calls.append(alone(READ, timeout=SECONDS_MAX))
        turns.append(channel.turn)
    assert turns == [1, 2, 0, 1]
    for link in links:
        link.heal()
    assert [call.result(SECONDS_MAX).count for call in calls] == [0] * 4


def test_a_channel_that_is_closed_says_so(channel: MemberChannel) -> None:
    kv = rpc.KVStub(channel)
    channel.close()
    with pytest.raises(ValueError, match="closed"):
        kv.Range.future(READ, timeout=SECONDS_MAX)


def test_a_follower_leads_at_once_though_most_of_its_members_are_silent(
    etcd: EtcdServer, links: list[Link], etcd_root: str
) -> None:
    leader = Member("leader", [etcd.endpoint], etcd_root).start()
    leader.leads()
    follower = Member("follower", [link.address for link in links], etcd_root).start()
    follower.when("leader")
    silence(links[0], links[1])
    released = now()
    assert leader.elector.stop()
    assert follower.when("started") - released < SOON_SECONDS, "its lease alone would be two seconds"
    for link in links:
        link.heal()
    assert follower.elector.stop()


def test_each_stream_of_who_follows_goes_to_another_member(links: list[Link]) -> None:
    channel = SuccessiveChannel([link.address for link in links], uniform=lambda: 0.4)
    places = []
    for _ in range(4):
        requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        requests.put(rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=b"nothing")))
        call = rpc.WatchStub(channel).Watch(iter(requests.get, None))
        assert next(call).created
        places.append(channel.place)
        requests.put(None)
        call.cancel()
    assert places == [1, 2, 0, 1]
    links[1].cut()
    with pytest.raises(grpc.RpcError):
        rpc.KVStub(channel).Range.future(READ, timeout=SECONDS_MAX).result()
    eventually(lambda: channel.place == 2, SECONDS_MAX)
    assert rpc.KVStub(channel).Range.future(READ, timeout=SECONDS_MAX).result().count == 0
    channel.close()


@contextmanager
def a_server_that_forgets(calls: int) -> Iterator[tuple[str, list[float]]]:
    """Its address, and when it was asked; the first calls get no answer, as where a member passed them on to one that is gone."""
    asked, ends = [], threading.Event()

    def answer(request: Any, context: Any) -> Any:
        asked.append(time.monotonic())
        if len(asked) <= calls:
            ends.wait(SECONDS_MAX)
        return rpc.RangeResponse(count=7)

    form = grpc.unary_unary_rpc_method_handler(answer, rpc.RangeRequest.FromString, rpc.RangeResponse.SerializeToString)
    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool, handlers=[grpc.method_handlers_generic_handler("etcdserverpb.KV", {"Range": form})])
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield address, asked
        finally:
            ends.set()
            server.stop(0).wait()


@pytest.mark.parametrize("repeats", [True, False])
def test_where_a_call_repeats_it_goes_round_until_its_time_is_over(repeats: bool) -> None:
    with a_server_that_forgets(4) as (address, asked):
        channel = MemberChannel([address] * 3, repeats=repeats)
        call = rpc.KVStub(channel).Range.future(READ, timeout=SOON_SECONDS)
        if repeats:
            assert call.result(SECONDS_MAX).count == 7
        else:
            with pytest.raises(grpc.RpcError):
                call.result(SECONDS_MAX)
        assert len(asked) == (5 if repeats else 3)
        channel.close()


def test_looking_around_finds_who_answers_before_somebody_depends_on_it(channel: MemberChannel, links: list[Link]) -> None:
    connected(channel)
    rpc.KVStub(channel).Range(READ, timeout=SECONDS_MAX)
    silence(links[0], links[1])
    assert channel.turn == 0
    channel.look_around()
    eventually(lambda: channel.turn == 2, SECONDS_MAX)
    assert rpc.KVStub(channel).Range.alone(READ, timeout=SECONDS_MAX).result().count == 0


def test_an_etcd_that_is_slow_is_not_asked_twice(channel: MemberChannel, links: list[Link]) -> None:
    connected(channel)
    for link in links:
        link.delay_seconds = 0.2
    kv = rpc.KVStub(channel)
    for _ in range(6):
        kv.Range(READ, timeout=SECONDS_MAX)
    assert channel.patience_seconds > 0.4, "longer than an answer takes"
