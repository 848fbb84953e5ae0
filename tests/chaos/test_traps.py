"""Links that know HTTP/2: what passes is what came, and what is caught, lost or held is exactly that."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.replica.etcd.etcd_server import EtcdServer
from tests.chaos.traps import Frames, TrapLink, TrapNetwork
from tests.leader.members import eventually


def test_bytes_in_any_pieces_become_the_same_frames() -> None:
    draw = random.Random(7)
    frames = [
        len(body).to_bytes(3, "big") + bytes([0, 0]) + b"\0\0\0\1" + body for body in map(draw.randbytes, range(0, 3000, 70))
    ]
    stream = b"preface" + b"".join(frames)
    cutter, found = Frames(b"preface"), list[bytes]()
    while stream:
        size = draw.randrange(1, 200)
        found += cutter.take(stream[:size])
        stream = stream[size:]
    assert found == [b"preface", *frames]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """At a port: links lead from port to port."""
    with EtcdServer(tmp_path_factory.mktemp("traps") / "data", 0, unsafe_no_fsync=True) as server:
        yield server


@pytest.mark.cluster
def test_calls_pass_while_streams_are_held_and_what_is_caught_goes_no_further(etcd: EtcdServer, etcd_root: str) -> None:
    with TrapNetwork() as network:
        link = network.link("etcd", etcd.endpoint)
        assert isinstance(link, TrapLink)
        with open_channel([link.address]) as channel, open_channel([etcd.endpoint]) as direct:
            keys, seen = rpc.KVStub(channel), list[bytes]()
            call = _followed(channel, etcd_root)
            threading.Thread(target=_read, args=(call, seen.append), daemon=True).start()
            eventually(lambda: b"created" in seen)

            link.hold_streams = True
            keys.Put(rpc.PutRequest(key=f"{etcd_root}/held".encode()), timeout=5)
            link.loses = (b"/lost",)
            with pytest.raises(grpc.RpcError):
                keys.Put(rpc.PutRequest(key=f"{etcd_root}/lost".encode()), timeout=0.5)
            trap = link.catch(b"/caught", passes=False)
            with pytest.raises(grpc.RpcError):
                keys.Put(rpc.PutRequest(key=f"{etcd_root}/caught".encode()), timeout=0.5)
            assert trap.caught.is_set() and seen == [b"created"]
            found = rpc.KVStub(direct).Range(rpc.RangeRequest(key=etcd_root.encode(), range_end=f"{etcd_root}0".encode()))
            assert [pair.key.rpartition(b"/")[2] for pair in found.kvs] == [b"held"]


@pytest.mark.cluster
def test_what_was_held_comes_in_order_once_it_is_let_go(etcd: EtcdServer, etcd_root: str) -> None:
    with TrapNetwork() as network:
        link = network.link("etcd", etcd.endpoint)
        assert isinstance(link, TrapLink)
        with open_channel([link.address]) as channel:
            keys, seen = rpc.KVStub(channel), list[bytes]()
            call = _followed(channel, etcd_root)
            threading.Thread(target=_read, args=(call, seen.append), daemon=True).start()
            eventually(lambda: b"created" in seen)
            link.hold_streams = True
            for name in ("a", "b", "c"):
                keys.Put(rpc.PutRequest(key=f"{etcd_root}/{name}".encode()), timeout=5)
            assert seen == [b"created"]
            link.heal()
            eventually(lambda: seen == [b"created", b"a", b"b", b"c"])


def _followed(channel: grpc.Channel, root: str) -> Any:
    """A watch whose client may still send, as all of ours may."""
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    requests.put(rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=root.encode(), range_end=f"{root}0".encode())))
    return rpc.WatchStub(channel).Watch(iter(requests.get, None), wait_for_ready=True)


def _read(call: Any, tell: Callable[[bytes], object]) -> None:
    try:
        for answer in call:
            if answer.created:
                tell(b"created")
            for event in answer.events:
                tell(event.kv.key.rpartition(b"/")[2])
    except grpc.RpcError:
        pass  # its connection was caught
