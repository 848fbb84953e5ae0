"""Keeps room in etcd: watches its quota, forgets history, and brings a full etcd back where that is safe. On every replica.

| | who | when |
|---|---|---|
| looks: sizes, quota, alarms | every replica | every 2 s; four times as often while it fills |
| refuses what is new (`SpaceGate`) | every replica's API | TIGHT and FULL |
| gives up Events (`SpaceGate`) | the API, the leader's scheduler and controllers | sooner |
| compacts | the leader; any replica while nobody has renewed the lease for `_ALONE_SECONDS` | by time, sooner the fuller it is |
| defragments | the same, an etcd of one member alone | FULL, or the file nears the quota, and much of it is free |
| disarms the alarm | the same | every member has room again |

What an etcd with users does not let this replica's do is told (etcd_denials.py), and left to whoever may.

Compacting twice does no harm, so nobody is elected for it. Members of an etcd of several are not defragmented from here: each
would be silent meanwhile, and their order is an administrator's. What is wrong then, and which commands help, is told by readyz,
the log and `rayched leader`.

The same look reads the leader's record, and so compares the clocks (clock_skew.py).

Source: etcd 3.4 and 3.5. Cost: two calls a look and member, one of them local to it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from prometheus_client import Counter, Gauge

from leader.channel import kept, one_of, open_channel
from leader.clock import boottime
from leader.record import read_stored_record
from rayched.controllers.clock_skew import ClockSkew
from rayched.controllers.compaction import compactable, moments_in, value_of, with_moment
from rayched.controllers.etcd_denials import EtcdAct, EtcdDenials
from rayched.controllers.loop_thread import LoopThread
from rayched.store.calls import Deadlines, MemberStatus
from rayched.store.entries import Entry
from rayched.store.errors import Compacted, StoreDenied, StoreError
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys
from rayched.store.quota import quota_of
from rayched.store.revision_clock import RevisionClock
from rayched.store.space import Space, SpaceGate, SpaceState, judge
from rayched.store.transactions import GuardedPut

_LOOK_SECONDS: Final = 2.0
_LOOK_FILLING_SECONDS: Final = 0.5
_WATCHED_SHARE: Final = 0.3
"""From here on it is looked at more often: a small quota may be used up within seconds."""
_ASK_SECONDS: Final = 60.0
"""Between two questions for quota and number of members."""
_MOMENTS_SECONDS: Final = 30.0
_COMPACT_SECONDS: Final = {SpaceState.AMPLE: 60.0, SpaceState.FILLING: 5.0, SpaceState.TIGHT: 2.0, SpaceState.FULL: 2.0}
"""Between two compactions."""
_SETTLE_SECONDS: Final = 2.0
"""What was compacted is free a moment later; before that there is little to gain by defragmenting."""
_SETTLED_SECONDS: Final = 10.0
"""After that there is more to compact first."""
_DEFRAGMENT_SECONDS: Final = 30.0
"""Between two defragmentations."""
_DEFRAGMENT_SECONDS_MAX: Final = 600.0
_ALONE_SECONDS: Final = 10.0
"""A lease that nobody has renewed for so long is nobody's."""
_TOLD_AGAIN_SECONDS: Final = 60.0
_DENIED_SECONDS: Final = 60.0
"""Until a compaction that etcd's user may not do is tried again."""
_DEADLINES: Final = Deadlines(read_seconds=1.0, patience_seconds=1.0)

_FILE = Gauge("rayched_etcd_file_bytes", "Size of the file of etcd's fullest member; the quota limits it.")
_IN_USE = Gauge("rayched_etcd_in_use_bytes", "Of that, what is in use.")
_QUOTA = Gauge("rayched_etcd_quota_bytes", "etcd's quota; 0: not known.")
_STATE = Gauge("rayched_etcd_space_state", "0 ample, 1 filling, 2 tight: nothing new is taken, 3 full: etcd refuses writes.")
_SKEW = Gauge("rayched_clock_skew_seconds", "How far this host's clock is ahead of the leader's; 0 on the leader.")
_COMPACTIONS = Counter("rayched_compactions", "Compactions of etcd by this replica.")
_DEFRAGMENTATIONS = Counter("rayched_defragmentations", "Defragmentations of etcd by this replica.")

log = logging.getLogger("rayched.space")


class SpaceKeeper:
    """Owns its thread and connections. `start` and `stop` once; `gate` and the problems from anywhere."""

    def __init__(
        self,
        endpoints: Sequence[str],
        keys: Keys,
        epoch: Callable[[], int | None],
        *,
        compact: bool = True,
        wall_clock: Callable[[], float] = time.time,
        look_seconds: float = _LOOK_SECONDS,
        alone_seconds: float = _ALONE_SECONDS,
        room_for_events: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """`epoch` is None on a standby. Without `compact` it only looks. `room_for_events` is told after each look."""
        self.gate = SpaceGate()
        self._endpoints = kept(endpoints)
        self._keys = keys
        self._epoch = epoch
        self._compact = compact
        self._wall_clock = wall_clock
        self._look_seconds = look_seconds
        self._alone_seconds = alone_seconds
        self._room_for_events = room_for_events
        self._clock = RevisionClock()
        self._skew = ClockSkew()
        self._denials = EtcdDenials()
        self._quota_bytes = 0
        self._members = 1
        self._ask_at = 0.0
        self._moments_at = 0.0
        self._compact_at = 0.0
        self._compacted = 0
        self._compacted_at = -_SETTLED_SECONDS
        self._defragment_at = 0.0
        self._defragmented = -1
        """The revision compacted to before the last one."""
        self._told = SpaceState.AMPLE
        self._told_at = 0.0
        self._record_revision = 0
        self._renewed_at = 0.0
        """When the lease was last seen to be renewed."""
        self._loop = LoopThread("space", self._run)
        self.start, self.stop, self.problem = self._loop.start, self._loop.stop, self._loop.problem

    def full(self) -> str | None:
        """For readyz: etcd takes no writes; what helps."""
        space = self.gate.space
        return space.problem() if space.state is SpaceState.FULL else None

    def problems(self) -> list[str]:
        """What people should know, one line each."""
        found = [line for line in (self.gate.space.problem(), self._skew.problem()) if line is not None]
        return found + self._denials.problems()

    # ---------------------------------------------------------------------------------------------------------- the loop

    def _run(self) -> None:
        with ExitStack() as owned:
            stores = [
                StoreClient(owned.enter_context(contextlib.closing(open_channel(one_of(self._endpoints, endpoint)))), _DEADLINES)
                for endpoint in self._endpoints
            ]
            self._renewed_at = boottime()
            while not self._loop.stopped.is_set():
                try:
                    self.look(stores)
                except StoreError as error:
                    log.debug("etcd's space: %s", error)
                self._loop.stopped.wait(self._pause())

    def _pause(self) -> float:
        space = self.gate.space
        fills = space.state > SpaceState.AMPLE or (space.quota_bytes and space.in_use_bytes >= _WATCHED_SHARE * space.quota_bytes)
        return min(self._look_seconds, _LOOK_FILLING_SECONDS) if fills else self._look_seconds

    def look(self, stores: Sequence[StoreClient]) -> None:
        """One look, and what follows from it. Raises StoreError."""
        statuses = self._statuses(stores)
        if not statuses:
            return
        now, store = boottime(), statuses[0][0]
        self._ask(statuses, now)
        self._clock.observed(max(status.revision for _, status in statuses), now)
        space = judge([status for _, status in statuses], self._quota_bytes, self.gate.space.state)
        self._found(space)
        _FILE.set(space.file_bytes)
        _IN_USE.set(space.in_use_bytes)
        _QUOTA.set(space.quota_bytes)
        _STATE.set(space.state)
        self._tell(now)
        self._read_record(store)
        if not self._compact or not self._acts(now):
            return
        complete = len(statuses) == len(stores)
        wants = space.wants_defragmentation and self._members == 1 and complete and now >= self._defragment_at
        settling = now - self._compacted_at
        if not wants:
            self._forget_history(store, now)
        elif settling >= _SETTLE_SECONDS:
            # Until then nothing more is compacted: that would have to settle in its turn, for ever.
            has_more = settling >= _SETTLED_SECONDS and self._forget_history(store, now)
            # A full one gains by it once for all that was deleted and compacted since the last.
            if not has_more and (space.state is not SpaceState.FULL or self._compacted > self._defragmented):
                self._defragment(store, now)
        self._disarm(store, complete=complete)

    def _found(self, space: Space) -> None:
        self.gate.found(space)
        self._room_for_events(self.gate.events_refusal() is None)

    def _statuses(self, stores: Sequence[StoreClient]) -> list[tuple[StoreClient, MemberStatus]]:
        found = []
        for store in stores:
            try:
                with self._denials.asked(EtcdAct.STATUS):
                    found.append((store, store.status()))
            except StoreError as error:
                # The others tell enough; that a member is away is for others to notice.
                log.debug("etcd's space: %s", error)
        return found

    def _ask(self, statuses: Sequence[tuple[StoreClient, MemberStatus]], now: float) -> None:
        """The quota, which may have been changed by a restart, and how many members there are."""
        if now < self._ask_at:
            return
        quotas = [status.quota_bytes for _, status in statuses if status.quota_bytes]
        if not quotas:
            quotas = [quota for endpoint in self._endpoints if (quota := quota_of(endpoint))]
        # Who is not told takes the endpoints for all of them.
        self._members = len(self._endpoints)
        with contextlib.suppress(StoreDenied), self._denials.asked(EtcdAct.MEMBERS):
            self._members = len(statuses[0][0].members())
        if quotas and min(quotas) != self._quota_bytes:
            self._quota_bytes = min(quotas)
            log.info("etcd's quota is %d MiB", self._quota_bytes >> 20)
        elif not quotas and not self._quota_bytes and not self._ask_at:
            log.warning("etcd does not tell its quota, neither in its status nor at /metrics: only its alarm will show it")
        self._ask_at = now + _ASK_SECONDS

    def _tell(self, now: float) -> None:
        space = self.gate.space
        again = space.state >= SpaceState.TIGHT and now - self._told_at >= _TOLD_AGAIN_SECONDS
        if space.state == self._told and not again:
            return
        if space.state >= SpaceState.TIGHT:
            log.error("%s", space.problem())
        elif self._told >= SpaceState.TIGHT:
            log.warning("etcd has room again: %s", space.words)
        elif space.state is SpaceState.FILLING:
            log.warning("etcd fills: %s; history is kept for %.0f s", space.words, space.kept_seconds)
        self._told, self._told_at = space.state, now

    def _read_record(self, store: StoreClient) -> None:
        """Whether anybody renews the lease, and by what clock."""
        entry = store.get(self._keys.record)
        now = boottime()
        if entry is None:
            return
        if entry.mod_revision != self._record_revision:
            self._record_revision, self._renewed_at = entry.mod_revision, now
        if self._epoch() is not None:
            self._skew.itself()
        else:
            record = read_stored_record(entry.value, entry.mod_revision).record
            if record.renew_us:
                self._skew.seen(record.holder, record.renew_us / 1e6, self._wall_clock(), now)
        _SKEW.set(self._skew.seconds or 0.0)

    def _acts(self, now: float) -> bool:
        return self._epoch() is not None or now - self._renewed_at >= self._alone_seconds

    # ---------------------------------------------------------------------------------------------------------- its acts

    def _forget_history(self, store: StoreClient, now: float) -> bool:
        """Whether anything was compacted, by this replica or just before by another."""
        space, target = self.gate.space, 0
        if now >= self._moments_at:
            self._moments_at = now + _MOMENTS_SECONDS
            target = self._recorded(store)
        if space.state > SpaceState.AMPLE and now >= self._compact_at:
            target = max(target, self._clock.revision_at(now - space.kept_seconds))
        if target <= self._compacted and target <= self._clock.revision:
            return False
        try:
            with self._denials.asked(EtcdAct.COMPACT):
                store.compact(target)
        except StoreDenied:
            self._compact_at = self._moments_at = now + _DENIED_SECONDS
            return False
        except Compacted:
            # Another replica was faster, or an administrator.
            self._compacted, self._compacted_at = target, now
            return True
        self._compacted, self._compacted_at = target, now
        self._compact_at = now + _COMPACT_SECONDS[space.state]
        _COMPACTIONS.inc()
        level = logging.INFO if space.state is SpaceState.AMPLE else logging.DEBUG
        log.log(level, "etcd compacted to revision %d", target)
        return True

    def _recorded(self, store: StoreClient) -> int:
        """Adds a moment to those in etcd where one is due; the revision that these let be compacted to."""
        entry, wall, revision = store.get(self._keys.compaction), self._wall_clock(), self._clock.revision
        moments = moments_in(entry.value) if entry is not None else []
        added = with_moment(moments, revision, wall)
        if added is not None:
            self._write_moments(store, entry, value_of(added))
        return compactable(moments, revision, wall)

    def _write_moments(self, store: StoreClient, entry: Entry | None, value: bytes) -> None:
        """Who loses against another replica, or against a full etcd, needs not write it."""
        store.commit(None, [GuardedPut(self._keys.compaction, entry.mod_revision if entry is not None else 0, value)])

    def _defragment(self, store: StoreClient, now: float) -> None:
        self._defragment_at = now + _DEFRAGMENT_SECONDS
        compacted = self._compacted
        before = self.gate.space
        log.warning("defragmenting etcd, which answers nobody meanwhile: %s", before.words)
        began = time.monotonic()
        with self._denials.asked(EtcdAct.DEFRAGMENT):
            store.defragment(_DEFRAGMENT_SECONDS_MAX)
        self._defragmented = compacted
        _DEFRAGMENTATIONS.inc()
        status = store.status()
        self._found(judge([status], self._quota_bytes, before.state))
        log.warning("etcd defragmented in %.1f s: %s", time.monotonic() - began, self.gate.space.words)

    def _disarm(self, store: StoreClient, *, complete: bool) -> None:
        """`complete`: all members have answered, so the fullest is known."""
        if complete and self.gate.space.may_disarm:
            with self._denials.asked(EtcdAct.DISARM):
                store.disarm_nospace()
            log.warning("etcd's alarm NOSPACE is disarmed: %s", self.gate.space.words)
