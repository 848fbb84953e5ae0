"""This replica's part in the election: the elector on its own threads, and what the API tells of it.

Fills the server's LeadershipPort. The elector's callbacks come on threads of its own; what the event loop waits for is handed
over to it. What leading means is `LeadersWork`: the SchedulerActor reads the belief cell by itself and has to be asked only to
let go.

A replica stands for election while it has a scheduler that has read the cluster, so whoever wins is warm; else it only looks on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Protocol

from prometheus_client import Metric

from leader.belief import BeliefCell
from leader.channel import kept
from leader.config import ElectionConfig, TimingProfile
from leader.elector import Elector
from leader.etcd_lock import EtcdLock
from leader.etcd_requests import LockKeys
from leader.events import Event
from leader.follower_watch import FollowerWatch
from leader.lock import Callbacks
from leader.record import LeaderRecord, StoredEpoch
from leader.revocation import HeldTerm
from rayched.replica.election_metrics import ElectionCounts
from rayched.replica.record_observer import RecordObserver
from rayched.replica.revocation_news import RevocationNews
from rayched.server.ports import Leader
from rayched.store.keys import Keys

ELECTION_NAME: Final = "rayched"
_PROGRESS_LIMIT_LEASES: Final = 1.5
"""A scheduler without a sign of life for this many lease durations loses its lease: long enough to replace its process."""
_RELEASE_SECONDS_MAX: Final = 2.0
"""For the work to stop and for the release; both take milliseconds where the work and etcd answer."""
_CEASE_SECONDS_MAX: Final = 30.0
"""An elector that cannot release ends by itself before that, whatever the profile."""
_SETTLE_SECONDS: Final = 0.05
"""Record and epoch change in one transaction, but are seen one after the other; between two looks for the second one. What is
seen of them may be older, too, than what this replica has just written itself."""
_SETTLE_LOOKS_MAX: Final = 20
"""After so many it is told that nobody leads."""


log = logging.getLogger("rayched.replica")


class LeadersWork(Protocol):
    """What has to stop before the lease is given back. Called on the elector's threads."""

    def begin(self, epoch: int) -> None:
        """Leading began; does not block."""

    def expect_to_lead(self) -> None:
        """The leader gives no answer: `begin` may come soon, or not at all. Does not block."""

    def drain(self) -> None:
        """Returns when nothing is written any more. May take as long as the grace."""

    def end_now(self) -> None:
        """The grace is over: ends the work by force."""


class Leadership:
    """One candidate. `look_on` is called first and on the event loop; the rest from anywhere at any time."""

    def __init__(
        self,
        identity: str,
        version: str,
        endpoints: Sequence[str],
        keys: Keys,
        durations: TimingProfile,
        belief: BeliefCell,
        work: LeadersWork,
        held: Callable[[HeldTerm | None], object] = lambda _: None,
        *,
        takes_evidence: bool = False,
        suspect_after: float | None = None,
    ) -> None:
        """`held` is told the term that this replica holds, on a thread of grpc. `takes_evidence`: a leader whose address refuses
        connections is replaced at once, and one that is silent for `suspect_after` seconds, unless None. Raises EndpointError."""
        self._identity = identity
        self._version = version
        self._endpoints = kept(endpoints)
        self._keys = keys
        self._durations = durations
        self._belief = belief
        self._work = work
        self._held = held
        self._takes_evidence, self._suspect_after = takes_evidence, suspect_after
        self._watch: FollowerWatch | None = None
        self._lock: EtcdLock | None = None
        self._counts = ElectionCounts(ELECTION_NAME)
        self._news = RevocationNews(self._endpoints, keys, identity, self._counts.revoked)
        self._led = 0
        """The epoch that was led last."""
        self._address = ""
        self._moves = threading.Lock()
        """Held while this replica begins to stand or ceases to."""
        self._elector: Elector | None = None
        self._ceasing: Elector | None = None
        """A former elector that has not ended in time; there is one writer of the belief at most."""
        self._observer = self._new_observer()
        self._released = False
        self.on_failed: Callable[[], object] = lambda: None
        """Called when an elector has failed: this replica stands no more."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()

    def look_on(self, address: str) -> None:
        """Follows who leads. `address` is where the other replicas reach this one's own API."""
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._observer.start()

    def stand(self) -> None:
        """Takes part in the election from now on. Does nothing where it does already, or after the release."""
        with self._moves:
            if self._elector is not None or self._released:
                return
            # One that failed has withdrawn its belief, and writes none any more.
            if (
                self._ceasing is not None
                and not self._ceasing.failed
                and not self._ceasing.stop(timeout_seconds=_CEASE_SECONDS_MAX)
            ):
                raise RuntimeError("the former elector does not end")
            self._ceasing = None
            config = ElectionConfig.of(
                self._durations,
                identity=self._identity,
                name=ELECTION_NAME,
                address=self._address,
                version=self._version,
                progress_limit=self._durations.lease_duration * _PROGRESS_LIMIT_LEASES,
            )
            observer = self._observer

            def leader_seen(*_: object) -> None:
                observer.close()
                self._tell_loop()

            callbacks = Callbacks(
                self._started, self._stopped, leader_seen, on_overdue=self._work.end_now, on_failed=self._elector_failed
            )
            watched = self._begin_to_watch()
            lock = self._lock = EtcdLock(self._endpoints, self._keys.record, self._keys.epoch, self._held, watched)
            self._elector = Elector(config, lock, callbacks, self._belief, progress=self._belief.last_tick, metrics=self._counts)
            self._elector.start()

    def stand_down(self) -> None:
        """Stops the work, gives the lease back, and looks on from now on. Blocks, for milliseconds where etcd answers."""
        with self._moves:
            if self._elector is None or self._released:
                return
            self._observer.close()
            self._observer = self._new_observer()
            self._observer.start()
            elector, self._elector = self._elector, None
            if not elector.stop(release=True, timeout_seconds=_RELEASE_SECONDS_MAX):
                self._ceasing = elector
            self._cease_to_watch()
        self._tell_loop()

    def release(self) -> None:
        """As `stand_down`, for good."""
        with self._moves:
            self._released = True
            self._observer.close()
            if self._elector is not None and not self._elector.stop(release=True, timeout_seconds=_RELEASE_SECONDS_MAX):
                log.warning("the lease could not be given back in time")
            self._cease_to_watch()

    def _begin_to_watch(self) -> Callable[[Event], object]:
        """What is to be told of the record and the epoch."""
        if not self._takes_evidence:
            return lambda _: None
        keys = LockKeys(self._keys.record, self._keys.epoch, self._keys.revocation)
        watch = self._watch = FollowerWatch(
            self._endpoints,
            keys,
            self._keys.followers_prefix,
            self._identity,
            retry_period=self._durations.retry_period,
            suspect_after=self._suspect_after,
            suspects=self._counts.suspects,
            silent=self._look_around,
        )
        watch.start()
        return watch.seen

    def _look_around(self) -> None:
        """The leader gives no answer: this replica may have to acquire soon."""
        lock = self._lock
        if lock is not None:
            with contextlib.suppress(ValueError):  # grpc's word for a channel that is closed
                lock.look_around()
        self._work.expect_to_lead()

    def _cease_to_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def begin_new_term(self) -> None:
        """The writer under this epoch was replaced: a new epoch, so that what it still sends is refused."""
        elector = self._elector
        if elector is not None:
            elector.begin_new_term().add_done_callback(lambda _: self._tell_loop())

    def epoch(self) -> int | None:
        """The epoch to write under now."""
        elector = self._elector
        return None if elector is None else elector.epoch()

    def problem(self) -> str | None:
        """For health checks: None, or what is wrong with the election. One who only looks on is healthy."""
        elector = self._elector
        return None if elector is None else elector.check()

    def metrics(self) -> list[Metric]:
        epoch = self._seen()[1]
        return self._counts.families(self.leader(), None if epoch is None else epoch.epoch.transitions)

    # ------------------------------------------------------------------------------------------------- the server's port

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def leads(self) -> bool:
        return self.epoch() is not None

    @property
    def stands(self) -> bool:
        elector = self._elector
        return elector is not None and not elector.failed

    def leader(self) -> Leader | None:
        record, epoch = self._seen()
        if record is None or epoch is None or epoch.epoch.instance != record.instance:
            return None
        return Leader(
            holder=record.holder,
            address=record.address,
            epoch=epoch.mod_revision,
            transitions=epoch.epoch.transitions,
            acquired_at_ms=record.acquire_us // 1000,
            renewed_at_ms=record.renew_us // 1000,
            lease_duration_ms=record.lease_ms,
        )

    async def changes(self) -> AsyncIterator[Leader | None]:
        looks = 0
        while True:
            changed = self._changed
            leader = self.leader()
            unsettled = leader is None and (self.leads or self._seen()[0] is not None)
            looks = looks + 1 if unsettled else 0
            if not 0 < looks <= _SETTLE_LOOKS_MAX:
                yield leader
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SETTLE_SECONDS if unsettled else None):
                    await changed.wait()

    def _seen(self) -> tuple[LeaderRecord | None, StoredEpoch | None]:
        """The record of whoever leads, and the epoch, which is perhaps another one's."""
        elector = self._elector
        if elector is None or elector.observed_epoch() is None:
            return self._observer.seen()
        return elector.leader(), elector.observed_epoch()

    # ------------------------------------------------------------------------------------------------ elector's callbacks

    def _started(self, epoch: int) -> None:
        vacated = self._elector.vacated() if self._elector is not None else None
        if vacated is not None and epoch != self._led:
            self._counts.took_over(vacated)
            self._news.ask(epoch)
        self._led = epoch
        self._work.begin(epoch)
        self._tell_loop()

    def _stopped(self) -> None:
        self._tell_loop()
        self._work.drain()

    def _elector_failed(self, _: BaseException) -> None:
        """It has logged why. A bug is not repeated under the same process: whoever runs it starts another."""
        self._tell_loop()
        self.on_failed()

    def _new_observer(self) -> RecordObserver:
        return RecordObserver(self._endpoints, self._keys, self._tell_loop)

    def _tell_loop(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(self._signal)

    def _signal(self) -> None:
        """Wakes those who wait now; who comes later waits for the next change."""
        self._changed.set()
        self._changed = asyncio.Event()
