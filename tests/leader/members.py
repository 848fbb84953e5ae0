"""An elector over a real etcd, and what its callbacks saw, with times of CLOCK_BOOTTIME in seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

from leader.belief import BeliefCell
from leader.config import FAST, ElectionConfig
from leader.elector import Elector
from leader.etcd_lock import EtcdLock
from leader.etcd_shim import rpc
from leader.lock import Callbacks, ElectionLock
from leader.record import LeaderRecord


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def eventually(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The first true value of the condition; fails when there is none in time: on a host that is busy, too."""
    until = now() + seconds
    while not (value := condition()):
        assert now() < until, "it did not come true in time"
        time.sleep(0.001)
    return value


class Member:
    """One candidate with the FAST profile; keeps what it was told."""

    def __init__(
        self,
        identity: str,
        endpoints: list[str],
        root: str,
        *,
        belief: BeliefCell | None = None,
        lock: ElectionLock | None = None,
        stop_work: Callable[[], None] | None = None,
        progress: Callable[[], int | None] | None = None,
        **config: Any,
    ) -> None:
        self.told: list[tuple[float, str, Any]] = []
        self._stop_work = stop_work
        self._lock = threading.Lock()
        self.lock = lock or EtcdLock(endpoints, f"{root}/leader/record", f"{root}/cluster/epoch")
        self.elector = Elector(
            ElectionConfig.of(FAST, identity=identity, **config),
            self.lock,
            Callbacks(
                on_started_leading=lambda epoch: self._tell("started", epoch),
                on_stopped_leading=self._stopped,
                on_new_leader=self._new_leader,
                on_overdue=lambda: self._tell("overdue", None),
                on_event=lambda text: self._tell("event", text),
            ),
            belief,
            progress=progress,
        )

    def start(self) -> Member:
        self.elector.start()
        return self

    def _tell(self, what: str, value: Any) -> None:
        with self._lock:
            self.told.append((now(), what, value))

    def _stopped(self) -> None:
        self._tell("stopped", None)
        if self._stop_work is not None:
            self._stop_work()

    def _new_leader(self, identity: str, record: LeaderRecord | None) -> None:
        self._tell("leader", identity)

    def when(self, what: str, number: int = 0, seconds: float = 60.0) -> float:
        """When it was told that for the (number + 1)th time."""
        return float(eventually(lambda: self.all(what)[number : number + 1], seconds)[0][0])

    def all(self, what: str) -> list[tuple[float, Any]]:
        with self._lock:
            return [(moment, value) for moment, told, value in self.told if told == what]

    def leads(self, seconds: float = 60.0) -> int:
        """Wait until it does; the epoch."""
        epoch = eventually(self.elector.epoch, seconds)
        assert isinstance(epoch, int)
        return epoch


def guarded_put(channel: grpc.Channel, root: str, epoch: int, key: str) -> bool:
    """A write as the work does it: under the epoch. Whether the store took it."""
    request = rpc.TxnRequest(
        compare=[
            rpc.Compare(
                key=f"{root}/cluster/epoch".encode(), target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=epoch
            )
        ],
        success=[rpc.RequestOp(request_put=rpc.PutRequest(key=f"{root}/{key}".encode(), value=b"x"))],
    )
    return bool(rpc.KVStub(channel).Txn(request, timeout=2).succeeded)


def value_of(channel: grpc.Channel, key: str) -> bytes | None:
    pairs = rpc.KVStub(channel).Range(rpc.RangeRequest(key=key.encode()), timeout=2).kvs
    return bytes(pairs[0].value) if pairs else None
