"""This replica's part in the election: the elector on its own threads, and what the API tells of it.

Fills the server's LeadershipPort. The elector's callbacks come on threads of its own; what the event loop waits for is handed
over to it. What leading means is `LeadersWork`: the SchedulerActor reads the belief cell by itself and has to be asked only to
let go.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

import grpc

from leader.belief import BeliefCell
from leader.channel import open_channel
from leader.config import PROFILES, ElectionConfig
from leader.elector import Elector
from leader.etcd_lock import EtcdLock
from leader.etcd_shim import rpc
from leader.lock import Callbacks
from leader.record import LeaderRecord
from rayched.server.ports import Leader
from rayched.store.keys import Keys

ELECTION_NAME: Final = "rayched"
_PROGRESS_LIMIT_LEASES: Final = 1.5
"""A scheduler without a sign of life for this many lease durations loses its lease: long enough to replace its process."""
_EPOCH_READ_SECONDS: Final = 1.0


class LeadersWork(Protocol):
    """What has to stop before the lease is given back. Called on the elector's threads."""

    def begin(self, epoch: int) -> None:
        """Leading began; does not block."""

    def drain(self) -> None:
        """Returns when nothing is written any more. May take as long as the grace."""

    def end_now(self) -> None:
        """The grace is over: ends the work by force."""


class Leadership:
    """One candidate. `start` is called on the event loop; `close` from anywhere."""

    def __init__(
        self,
        identity: str,
        address: str,
        version: str,
        endpoints: Sequence[str],
        keys: Keys,
        profile: str,
        belief: BeliefCell,
        work: LeadersWork,
    ) -> None:
        durations = PROFILES[profile]
        config = ElectionConfig.of(
            durations,
            identity=identity,
            name=ELECTION_NAME,
            address=address,
            version=version,
            progress_limit=durations.lease_duration * _PROGRESS_LIMIT_LEASES,
        )
        callbacks = Callbacks(self._started, self._stopped, lambda *_: self._tell_loop(), on_overdue=work.end_now)
        lock = EtcdLock(endpoints, keys.record, keys.epoch, durations.store_ttl_seconds)
        self._elector = Elector(config, lock, callbacks, belief, progress=belief.last_tick)
        self._work = work
        self._epoch_reader = _EpochReader(endpoints, keys)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._elector.start()

    def release(self) -> bool:
        """Stops the work, gives the lease back; whether that has ended in time. Blocks; not on the event loop."""
        return self._elector.stop(release=True)

    def close(self) -> None:
        self._epoch_reader.close()

    def begin_new_term(self) -> Future[int]:
        """The writer under this epoch was replaced: a new epoch, so that what it still sends is refused."""
        return self._elector.begin_new_term()

    def holds_lease(self) -> bool:
        """Whether this replica is the holder on record, its belief aside."""
        record = self._elector.leader()
        return record is not None and record.holder == self._elector.identity

    # ------------------------------------------------------------------------------------------------- the server's port

    @property
    def identity(self) -> str:
        return self._elector.identity

    @property
    def leads(self) -> bool:
        return self._elector.is_leader()

    def leader(self) -> Leader | None:
        record = self._elector.leader()
        if record is None:
            return None
        epoch, transitions = self._epoch_reader.of(record)
        return Leader(
            holder=record.holder,
            address=record.address,
            epoch=epoch,
            transitions=transitions,
            acquired_at_ms=record.acquire_us // 1000,
            renewed_at_ms=record.renew_us // 1000,
            lease_duration_ms=record.lease_ms,
        )

    async def changes(self) -> AsyncIterator[Leader | None]:
        while True:
            changed = self._changed
            assert changed is not None
            yield self.leader()
            await changed.wait()

    # ------------------------------------------------------------------------------------------------ elector's callbacks

    def _started(self, epoch: int) -> None:
        self._work.begin(epoch)
        self._tell_loop()

    def _stopped(self) -> None:
        self._tell_loop()
        self._work.drain()

    def _tell_loop(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._signal)

    def _signal(self) -> None:
        """Wakes those who wait now; who comes later waits for the next change."""
        if self._changed is not None:
            self._changed.set()
        self._changed = asyncio.Event()


class _EpochReader:
    """The epoch and the transitions that belong to a record; read once for each acquisition."""

    def __init__(self, endpoints: Sequence[str], keys: Keys) -> None:
        self._channel = open_channel(endpoints)
        self._keys = keys
        self._known: tuple[tuple[str, int], tuple[int, int]] = ("", 0), (0, 0)

    def of(self, record: LeaderRecord) -> tuple[int, int]:
        acquisition = record.instance, record.acquire_us
        if self._known[0] != acquisition:
            try:
                answer = rpc.KVStub(self._channel).Range(rpc.RangeRequest(key=self._keys.epoch), timeout=_EPOCH_READ_SECONDS)
            except grpc.RpcError:
                return 0, 0
            if not answer.kvs:
                return 0, 0
            self._known = acquisition, (answer.kvs[0].mod_revision, int(json.loads(answer.kvs[0].value)["transitions"]))
        return self._known[1]

    def close(self) -> None:
        self._channel.close()
