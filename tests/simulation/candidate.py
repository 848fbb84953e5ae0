"""A replica's part in the election: the real `Election`, `WatchCursor`, `BeliefCell` and requests, carried by the simulation.

What `Elector`, `EtcdLock`, `EtcdLease` and `KeyWatch` do with threads and futures is done here with plans of the world.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from time import CLOCK_REALTIME
from typing import TYPE_CHECKING, Any, Final, Protocol

import grpc

from leader import effects as fx
from leader import events as ev
from leader.belief import BeliefCell
from leader.clock import SystemClock
from leader.config import ElectionConfig
from leader.election import Election
from leader.election_state import State
from leader.etcd_requests import LockKeys, build, read_outcome
from leader.etcd_shim import rpc
from leader.etcd_watch import WatchCursor
from leader.lease_use import LeaseUse
from leader.record import View
from leader.revocation import HeldTerm, held_by
from tests.simulation.etcd_errors import EtcdError
from tests.simulation.world import MS, SECOND, Link, Process, Stream, Violation, World

if TYPE_CHECKING:
    from tests.simulation.peers import Following

_EPOCH_NS: Final = 1_700_000_000 * SECOND
"""What wall clocks show at the beginning of a world, more or less."""
_DRAIN_LOOKS_NS: Final = 5 * MS
_DRAIN_NS_MAX: Final = 2 * SECOND
"""The supervisor waits so long for the scheduler to let go."""


class Work(Protocol):
    """The scheduler, as the elector's callbacks see it."""

    def drained(self) -> bool: ...

    def end_now(self) -> None: ...


class MachineClock:
    """A machine's clocks as `clock_gettime` reads them: each with a rate of its own, the wall clock with steps."""

    def __init__(self, world: World, rate: float, boot_ns: int, wall_offset_ns: int) -> None:
        self._world = world
        self.rate = rate
        self._rate_since_ns = self._local_then_ns = 0
        self._boot_ns = boot_ns
        self.wall_offset_ns = wall_offset_ns
        self.ahead_ns = 0
        """Work of the moment that takes time on this machine alone."""

    def gettime_ns(self, number: int) -> int:
        # As `local_ns`; asked so often that a call more can be felt.
        local = self._local_then_ns + int((self._world.now - self._rate_since_ns) * self.rate) + self.ahead_ns
        return _EPOCH_NS + local + self.wall_offset_ns if number == CLOCK_REALTIME else self._boot_ns + local

    def local_ns(self) -> int:
        """What this machine takes for the time since the beginning of the world."""
        return self._local_then_ns + int((self._world.now - self._rate_since_ns) * self.rate)

    def set_rate(self, rate: float) -> None:
        """From now on. What was planned at the old rate comes when it was to come."""
        self._local_then_ns, self._rate_since_ns = self.local_ns(), self._world.now
        self.rate = rate

    def true_delay_ns(self, local_ns: int) -> int:
        """How long this machine's span takes in truth."""
        return max(0, int(local_ns / self.rate) + 1)


class Candidate:
    """One run of an elector. `believing` is called whenever a belief is published."""

    def __init__(
        self,
        world: World,
        process: Process,
        link: Link,
        clock: MachineClock,
        keys: LockKeys,
        config: ElectionConfig,
        work: Work,
        believing: Callable[[Candidate], None],
    ) -> None:
        self.world, self.process, self.link = world, process, link
        self.machine_clock = clock
        self.clock = SystemClock(clock.gettime_ns)
        self.config = config
        self.cell = BeliefCell(mmap.mmap(-1, 4096))
        self.election = Election(config, f"of-{config.identity}", world.random.random)
        self.work = work
        self._believing = believing
        self._keys = keys
        self._cursor = WatchCursor(keys)
        self._stream: Stream | None = None
        self._timer = 0
        self._lease = LeaseUse(config.store_ttl_seconds)
        self.held: HeldTerm | None = None
        """As `EtcdLock` tells it."""
        self.following: Following | None = None
        """Where replicas look after each other."""
        self._seen_at, self._is_gone = 0, False
        """The newest revision as of which the record was seen, and whether it was gone."""
        self._shown_epoch = 0
        """The highest epoch of another that was shown to this candidate."""

    def start(self) -> None:
        self._follow()
        self.give(ev.Started())

    def believes(self) -> int:
        """The epoch believed in now; 0: none."""
        belief = self.cell.belief()
        return belief.epoch if belief is not None and self.clock.now().boot_ns < belief.valid_until_ns else 0

    def begin_new_term(self) -> None:
        """The scheduler was lost."""
        self.cell.withdraw()
        self.process.deliver(lambda: self.give(ev.NewTermRequested()))

    # -------------------------------------------------------------------------------------------------------------- events

    def give(self, event: ev.Event) -> None:
        self._note_shown(event)
        self._step(ev.ProgressReported(self.cell.last_tick()))
        self._step(event)
        if self.following is not None:
            self.following.seen(event)
        if self._is_gone and self.believes():
            raise Violation("E2", f"{self.process.name} believes to lead, and was shown that its record is gone")
        if self._shown_epoch > (believed := self.believes()) > 0:
            raise Violation(
                "E2", f"{self.process.name} believes in epoch {believed} and was shown {self._shown_epoch} of another"
            )

    def _step(self, event: ev.Event) -> None:
        for effect in self.election.step(self.clock.now(), event):
            self._perform(effect)

    def _note_shown(self, event: ev.Event) -> None:
        self._note_gone(event)
        match event:
            case ev.EpochChanged(epoch, _):
                shown = epoch
            case ev.Answered(_, ev.Refused(View(_, epoch, _)) | ev.Found(View(_, epoch, _))) | ev.Listed(View(_, epoch, _)):
                shown = epoch
            case _:
                return
        if shown is not None and shown.epoch.holder and shown.epoch.holder != self.config.identity:
            self._shown_epoch = max(self._shown_epoch, shown.mod_revision)

    def _note_gone(self, event: ev.Event) -> None:
        """The newest that was seen of the record: that it is there, or gone."""
        match event:
            case ev.RecordChanged(record, revision):
                there, at = record is not None, revision
            case ev.Listed(view, _) | ev.Answered(_, ev.Refused(view) | ev.Found(view)):
                there, at = view.record is not None, view.revision
            case ev.Answered(_, ev.Written(revision)):
                there, at = True, revision
            case _:
                return
        if at >= self._seen_at:
            self._seen_at, self._is_gone = at, not there

    def _perform(self, effect: fx.Effect) -> None:
        world = self.world
        match effect:
            case fx.Get() | fx.Acquire() | fx.Renew() | fx.BeginTerm() | fx.Release():
                self._submit(effect, 1)
            case fx.PublishBelief(epoch, valid_until_ns):
                self.cell.publish(epoch, valid_until_ns)
                world.trace(self.process.name, "believes", epoch)
                self._believing(self)
            case fx.WithdrawBelief():
                self.cell.withdraw()
            case fx.ArmTimer(due_ns):
                self._timer += 1
                if due_ns is not None:
                    self._plan_tick(self._timer, due_ns)
            case fx.StopLeading():
                self._drain(world.now + _DRAIN_NS_MAX)
            case fx.Overdue():
                self.work.end_now()
            case fx.Announce(text) | fx.Note(text):
                world.tell(f"{self.process.name}: {text}")

    def _plan_tick(self, number: int, due_ns: int) -> None:
        def tick() -> None:
            if self._timer == number:
                if self.clock.now().boot_ns < due_ns:
                    self._plan_tick(number, due_ns)  # a wall clock that stepped back, where that is what counts
                else:
                    self.give(ev.Tick())

        wait = self.machine_clock.true_delay_ns(due_ns - self.clock.now().boot_ns)
        # Like the elector's thread, which looks again at least once in a retry period.
        self.world.after(min(wait, self.config.retry_period_ns), lambda: self._timer == number and self.process.deliver(tick))

    def _drain(self, until: int) -> None:
        if self.work.drained() or self.world.now >= until:
            self.world.after(MS, lambda: self.process.deliver(lambda: self.give(ev.Drained())))
        else:
            self.world.after(_DRAIN_LOOKS_NS, lambda: self.process.deliver(lambda: self._drain(until)))

    # ------------------------------------------------------------------------------------------------------------ requests

    def _submit(self, request: fx.Request, lease_retries: int) -> None:
        timeout_ns = self.machine_clock.true_delay_ns(request.timeout_ns)
        if isinstance(request, fx.Get | fx.Release):
            self._send(request, 0, 0, timeout_ns)
        else:
            self._write(request, lease_retries, self.world.now + timeout_ns)

    def _write(self, request: fx.Request, lease_retries: int, deadline: int) -> None:
        """Under the lease, which is kept alive or granted first where it must be."""
        left_ns = max(MS, deadline - self.world.now)
        if lease := self._lease.usable(self._local()):
            self._send(request, lease, lease_retries, left_ns)
        elif lease := self._lease.lease_id:

            def kept() -> None:
                if self._lease.lease_id == lease and not self._lease.usable(self._local()):
                    self.give(ev.Answered(request.number, ev.Unknown("the lease was not kept alive")))
                else:
                    self._write(request, lease_retries, deadline)

            self._keep_alive(left_ns, kept)
        else:
            self._grant(request, lease_retries, left_ns, deadline)

    def _grant(self, request: fx.Request, lease_retries: int, left_ns: int, deadline: int) -> None:
        etcd, sent = self.world.etcd, self._local()

        def handle() -> Any:
            answer = etcd.grant(rpc.LeaseGrantRequest(TTL=self.config.store_ttl_seconds))
            self.world.lease_renewed(answer.ID)
            return answer

        def granted(answer: Any) -> None:
            if isinstance(answer, EtcdError):
                self.give(ev.Answered(request.number, ev.Unknown(str(answer))))
            else:
                self._lease.granted(answer.ID, sent)
                self._send(request, answer.ID, lease_retries, max(MS, deadline - self.world.now))

        self.world.call(self.process, self.link, handle, left_ns, granted)

    def _send(self, request: fx.Request, lease: int, lease_retries: int, timeout_ns: int) -> None:
        def answered(answer: Any) -> None:
            if isinstance(answer, EtcdError):
                if answer.code() is grpc.StatusCode.NOT_FOUND and lease:
                    self._lease.gone(lease)
                    if lease_retries:
                        self._submit(request, lease_retries - 1)
                        return
                outcome: ev.Outcome = ev.Unknown(str(answer))
            else:
                outcome = read_outcome(request, answer, self._keys)
            if isinstance(outcome, ev.Written):
                if isinstance(request, fx.Release):
                    self.held = None
                    self._revoke()
                else:
                    self.held = held_by(request, outcome, lease)
                    self._keep_alive(SECOND // 2, lambda: None)
            self.give(ev.Answered(request.number, outcome))

        txn = build(request, self._keys, lease)
        self.world.call(self.process, self.link, lambda: self.world.etcd.txn(txn), timeout_ns, answered)

    def _keep_alive(self, timeout_ns: int, then: Callable[[], None]) -> None:
        lease, sent = self._lease.lease_id, self._local()

        def handle() -> Any:
            self.world.lease_renewed(lease)
            return self.world.etcd.keep_alive(rpc.LeaseKeepAliveRequest(ID=lease))

        def answered(answer: Any) -> None:
            if not isinstance(answer, EtcdError):
                self._lease.kept(lease, answer.TTL, sent)
            then()

        if lease:
            self.world.call(self.process, self.link, handle, timeout_ns, answered)

    def _revoke(self) -> None:
        lease = self._lease.lease_id
        self._lease.gone(lease)
        if lease:
            revoke = rpc.LeaseRevokeRequest(ID=lease)
            self.world.call(self.process, self.link, lambda: self.world.etcd.revoke(revoke), SECOND, lambda _: None)

    def _local(self) -> float:
        return self.machine_clock.local_ns() / SECOND

    # --------------------------------------------------------------------------------------------------------------- watch

    def _follow(self) -> None:
        if self.election.state is State.STOPPED:
            return
        if not self._cursor.must_list:
            self._open()
            return
        read = fx.Get(0, 0)

        def found(answer: Any) -> None:
            if isinstance(answer, EtcdError):
                self.world.after(50 * MS, lambda: self.process.deliver(self._follow))
                return
            outcome = read_outcome(read, answer, self._keys)
            assert isinstance(outcome, ev.Found)
            self.give(self._cursor.listed(outcome))
            self._open()

        txn = build(read, self._keys, 0)
        self.world.call(self.process, self.link, lambda: self.world.etcd.txn(txn), SECOND, found)

    def _open(self) -> None:
        def again(_: object) -> None:
            self.world.after(20 * MS, lambda: self.process.deliver(self._follow))

        if not self.world.etcd_up:
            again(None)
            return
        prefixes = (self._keys.record, self._keys.epoch)
        stream = self._stream = Stream(self.world, self.process, self.link, prefixes, self._message, again)
        for request in self._cursor.requests():
            stream.send(request)

    def _message(self, message: Any) -> None:
        events = self._cursor.receive(message)
        if events is None:
            if self._stream is not None:
                self._stream.close()
            self.world.after(20 * MS, lambda: self.process.deliver(self._follow))
            return
        for event in events:
            self.give(event)
