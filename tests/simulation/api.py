"""A replica's API for submissions and deletions: the real `Creator` and `Deleter`, their coroutines carried by the simulation.

There is no event loop: a coroutine runs until it wants something of etcd, and goes on when the answer comes. What
`AsyncStoreClient` does with gRPC is done here with calls of the world; reads are not repeated.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest import mock

from leader.etcd_shim import rpc
from rayched.api import kinds
from rayched.server import objects as server_objects
from rayched.server.admission.admission import Admission
from rayched.server.admission.creation import Creator
from rayched.server.admission.deletion import Deleter
from rayched.server.admission.submissions import Creation
from rayched.server.errors import ApiFailure, failure_of
from rayched.server.objects import Objects
from rayched.store.calls import page_of, page_request
from rayched.store.entries import Entry, Page, Reading, first_entry
from rayched.store.errors import StoreError, store_error
from rayched.store.keys import Keys
from rayched.store.readings import read_many
from rayched.store.transactions import Guard, Outcome, Write, build, read, split, without_answer
from rayched.v1.workloads_pb2 import Object
from tests.simulation.candidate import MachineClock
from tests.simulation.etcd_errors import EtcdError
from tests.simulation.world import SECOND, Answer, Link, Process, World

CALL_NS: Final = SECOND


class Call:
    """What a coroutine waits for: a request to etcd."""

    def __init__(self, handle: Callable[[], Answer]) -> None:
        self.handle = handle

    def __await__(self) -> Generator[Call, Answer, Answer]:
        return (yield self)


@contextlib.contextmanager
def simulated_time(world: World) -> Iterator[None]:
    """While inside, the API's wall clock is that of the machine that works on a call."""
    clock = SimpleNamespace(time=world.wall_seconds)
    with mock.patch.object(server_objects, "time", clock):
        yield


class SimulatedStore:
    """The part of AsyncStoreClient that creations, deletions and the care for nodes use."""

    def __init__(self, world: World) -> None:
        self._etcd = world.etcd

    async def get(self, key: bytes) -> Entry | None:
        answer = await Call(lambda: self._etcd.range(rpc.RangeRequest(key=key)))
        if isinstance(answer, EtcdError):
            raise store_error(answer)
        return first_entry(answer)

    async def get_many(self, keys: Sequence[bytes]) -> Reading:
        reads = read_many(keys)
        calls = {rpc.RangeRequest: self._etcd.range, rpc.TxnRequest: self._etcd.txn}
        try:
            wanted = next(reads)
            while True:
                request = wanted.request
                answer = await Call(lambda request=request: calls[type(request)](request))  # type: ignore[misc]
                wanted = reads.throw(store_error(answer)) if isinstance(answer, EtcdError) else reads.send(answer)
        except StopIteration as done:
            found: Reading = done.value
            return found

    async def list_keys(self, prefix: bytes) -> Page:
        """All at once, without values."""
        answer = await Call(lambda: self._etcd.range(page_request(prefix, 0, 0, b"", True)))
        if isinstance(answer, EtcdError):
            raise store_error(answer)
        return page_of(answer, 0)

    async def send(self, guard: Guard | None, batch: Sequence[Write]) -> list[Outcome]:
        request = rpc.TxnRequest.FromString(build(guard, batch))
        answer = await Call(lambda: self._etcd.txn(request))
        return without_answer(store_error(answer), batch) if isinstance(answer, EtcdError) else read(answer, batch)

    async def commit(self, guard: Guard | None, writes: Sequence[Write]) -> list[Outcome]:
        return [outcome for batch in split(writes) for outcome in await self.send(guard, batch)]


class Api:
    """What users call at one replica. An answer that is lost on the way to the user counts as none."""

    def __init__(self, world: World, process: Process, link: Link, clock: MachineClock, keys: Keys) -> None:
        self.world, self.process, self.link, self._clock = world, process, link, clock
        objects = Objects(cast(Any, SimulatedStore(world)), keys)
        # No classes, and no namespace that is not read from the store itself.
        hub = SimpleNamespace(version=lambda kind: 0, all_of=lambda kind: (), find=lambda key: None)
        ready = SimpleNamespace(is_set=lambda: True)
        # No event loop is there that others could want.
        self._creator = Creator(objects, Admission(cast(Any, hub), objects, cast(Any, ready)), lambda: 0.0)
        self._deleter = Deleter(objects)
        self._objects = objects

    def submit(self, items: Sequence[Object], done: Callable[[list[Creation]], None]) -> None:
        self._begin(self._creator.create(items), done)

    def delete(self, pod_name: str, uid: str, done: Callable[[bool], None]) -> None:
        """`done` is told whether the deletion was acknowledged."""

        async def deleted() -> bool:
            target = self._objects.target_of(kinds.POD, "default", pod_name)
            try:
                await self._deleter.delete(target, uid, None)
            except Exception as error:
                failure = failure_of(error, "Delete")
                assert isinstance(failure, ApiFailure)
                return False
            return True

        self._begin(deleted(), done)

    def _begin(self, work: Coroutine[Call, Answer, Any], done: Callable[[Any], None]) -> None:
        # Begun at once, so that none is left that never was; a process that is paused or dead just gets no answer.
        self._go_on(work, None, done)

    def _go_on(self, work: Coroutine[Call, Answer, Any], answer: Answer, done: Callable[[Any], None]) -> None:
        self.world.wall_clock = lambda: self._clock.gettime_ns(time.CLOCK_REALTIME) / SECOND
        try:
            call = work.send(answer)
        except StopIteration as end:
            done(end.value)
            return
        except StoreError:
            return  # the user gets an error, which says as little as no answer
        self.world.call(self.process, self.link, call.handle, CALL_NS, lambda answer: self._go_on(work, answer, done))
