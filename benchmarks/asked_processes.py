"""Processes beside a benchmark's own that answer what they are asked, and one kind of them that looks at etcd meanwhile.

Each runs in an interpreter of its own, so that neither waits for the other, and ends with the process that started it: its pipe
closes. One that looks has a connection of its own to etcd.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from typing import Any, Final

import grpc

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.api.kinds import POD
from rayched.store.keys import Keys, prefix_end

SPAWN: Final = multiprocessing.get_context("spawn")
READY_SECONDS_MAX: Final = 60.0


class AskedProcess:
    """It says that it is ready, and then answers whatever it is sent."""

    def __init__(self, target: Any, *arguments: Any) -> None:
        self._end, other = SPAWN.Pipe()
        self._process = SPAWN.Process(target=target, args=(other, *arguments), daemon=True)
        self._process.start()
        other.close()
        self._receive(READY_SECONDS_MAX)

    def ask(self, question: str, seconds: float = READY_SECONDS_MAX) -> Any:
        self._end.send(question)
        return self._receive(seconds)

    def stop(self) -> None:
        self._end.close()
        self._process.kill()
        self._process.join()

    def _receive(self, seconds: float) -> Any:
        if not self._end.poll(seconds):
            raise TimeoutError(f"a process of the benchmark did not answer within {seconds:.0f} s")
        return self._end.recv()


def answer(end: Connection, told: Callable[[str], Any], guard: AbstractContextManager[Any] | None = None) -> None:
    """The work of such a process, until nobody asks any more. Under the guard nothing changes what is told."""
    end.send("ready")
    while True:
        try:
            asked = end.recv()
        except EOFError:
            return
        with guard or contextlib.nullcontext():
            end.send(told(asked))


def look(end: Connection, endpoints: Sequence[str], note: Callable[[Any, Keys], None], told: Callable[[str], Any]) -> None:
    """The same of one that notes each change of pods and epoch, one of etcd's KeyValues, from when it is ready on."""
    guard, ready, keys = threading.Lock(), threading.Event(), Keys()

    def watch() -> None:
        for pair in _changes(endpoints, keys, ready):
            with guard:
                note(pair, keys)

    threading.Thread(target=watch, daemon=True).start()
    ready.wait()
    answer(end, told, guard)


def _changes(endpoints: Sequence[str], keys: Keys, ready: threading.Event) -> Iterator[Any]:
    """What is put under the pods and the epoch, for ever, as etcd's KeyValues; `ready` is set once nothing is missed any more.

    Begins anew where etcd was out of reach: after what was seen last of each of the two.
    """
    pods = keys.prefix(POD)
    ranges = (pods, prefix_end(pods)), (keys.epoch, b"")
    following = [0] * len(ranges)
    """The revision of etcd that is to be seen next; 0: whatever comes."""
    with open_channel(endpoints) as channel:
        while True:
            requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
            for (key, range_end), revision in zip(ranges, following, strict=True):
                create = rpc.WatchCreateRequest(key=key, range_end=range_end, start_revision=revision)
                requests.put(rpc.WatchRequest(create_request=create))
            # etcd numbers the watches of a stream in the order of their requests.
            with contextlib.suppress(grpc.RpcError):
                for found in rpc.WatchStub(channel).Watch(iter(requests.get, None), wait_for_ready=True):
                    which = found.watch_id
                    if found.created:
                        following[which] = following[which] or found.header.revision + 1
                    for event in found.events:
                        following[which] = event.kv.mod_revision + 1
                        yield event.kv
                    if all(following):
                        ready.set()
            requests.put(None)
