"""One candidate's part in an election: a state machine without I/O, clock, threads or randomness of its own.

`Election.step(at, event)` takes what happened and returns what is to be done. client-go's elector, with the record in etcd, a
fencing token, and without the edges of client-go's that let two leaders work at once.

Who may write. The epoch key's revision E is the token of a term. Whoever leads writes under a guard on E, so a late writer is
refused by the store, whatever it believes. The belief (`PublishBelief`) only saves it the attempt: it holds from the sending
of the last successful renewal for the renew deadline, by CLOCK_BOOTTIME, and a follower waits longer than that, from a later
moment, before it takes over.

    state      event                                            next        what is done
    FOLLOWER   keys unknown, or a write's outcome unknown        -           Get; on failure again after a jittered retry
    FOLLOWER   no record, or no holder, or own identity's        -           Acquire at once
    FOLLOWER   record stood still for the record's own lease     -           Acquire
    FOLLOWER   Acquire refused                                   -           look at the keys; again after a jittered retry
    FOLLOWER   own record found that an unknown write left       -           Renew under its epoch: proof, and a send time
    FOLLOWER   Acquire or that Renew committed                   LEADING     publish belief, start
    LEADING    retry period over, work shows progress            -           Renew
    LEADING    renewal committed                                 -           publish the later belief
    LEADING    renewal unknown                                   -           Renew again; one failure loses nothing
    LEADING    new term requested                                -           withdraw belief, BeginTerm; then publish the new E
    LEADING    own record vanished, epoch still ours            -           withdraw belief, Renew at once; then publish it again
    LEADING    belief over                                       SUSPENDED   withdraw belief, stop; go on trying to renew
    SUSPENDED  renewal committed under the same epoch, drained   LEADING     publish belief, start under the same epoch
    SUSPENDED  lease duration over since the last renewal        STOPPING    release is still tried: the guard decides
    L, S       guard refused, or another holder or epoch seen    STOPPING    withdraw belief, stop; no release
    L, S       stop or resign requested                          STOPPING    withdraw belief, stop
    FOLLOWER   stop requested                                    STOPPING    stop, as client-go does though it never led
    STOPPING   drained, epoch perhaps still ours                 RELEASING   Release under the epoch
    STOPPING   not drained within the grace                      -           overdue; this term is not released any more
    STOPPING   drained, nothing to release                       FOLLOWER    or STOPPED, where the run shall end
    RELEASING  committed, refused, or tried long enough          FOLLOWER    or STOPPED

One request is waited for at most, until its own deadline, and no deadline of the state waits for an answer; what the answer to a
renewal says is heard also when it is late (flight.py). Who believes to lead, or may by an answer that is awaited, takes in what
any answer shows of the keys, however late. Nothing is released that has not drained, and a release is guarded, so it never
touches the record of a successor.

Source: client-go 0.34 leaderelection. Cost: microseconds a step.
"""

from __future__ import annotations

from typing import ClassVar

from leader import effects as fx
from leader import events as ev
from leader.clock import BOOT_NS, Instant
from leader.election_state import NewTerm, State
from leader.flight import Sent
from leader.leading_ends import LeadingEnds
from leader.record import StoredRecord, View
from leader.term import written


class Election(LeadingEnds):
    """One candidate's part."""

    RULE_A_VANISHED_RECORD_ENDS_BELIEF: ClassVar[bool] = True
    """Broken by tests alone."""

    def step(self, at: Instant, event: ev.Event) -> list[fx.Effect]:
        """Take in one event at one time; the effects are to be performed in order."""
        if self._state is State.STOPPED:
            return []
        self._at, self._out = at, []
        self._receive(event)
        while self._started and self._advance():
            pass
        self._arm()
        return self._out

    # events

    def _receive(self, event: ev.Event) -> None:
        match event:
            case ev.Started():
                self._started = True
            case ev.Tick():
                pass
            case ev.Answered(number, outcome):
                if (sent := self._flight.land(number)) is not None:
                    self._answered(sent, outcome)
                elif (sent := self._flight.land_late(number)) is not None:
                    self._answered_late(sent, outcome)
                elif isinstance(outcome, ev.Found | ev.Refused) and self._may_believe:
                    self._observe(outcome.view)  # the request is given up, and the keys were so all the same
            case ev.RecordChanged(record, revision):
                if self._seen.see_record(record, revision, self._at):
                    self._look()
            case ev.EpochChanged(epoch, revision):
                if self._seen.see_epoch(epoch, revision):
                    self._look()
            case ev.Listed(view, went_back):
                if went_back:
                    self._seen.forget()
                self._observe(view)
            case ev.Drained(clean):
                self._drain.end(clean)
            case ev.ProgressReported(last_tick_ns):
                self._progress.report(last_tick_ns)
                if self._state is State.FOLLOWER and self._progress.ticked_since(self._drain.since_ns):
                    self._hung_until_ns = BOOT_NS
            case ev.NewTermRequested():
                self._request_new_term()
            case ev.ResignRequested(reason):
                self._resign(reason)
            case ev.StopRequested(release):
                self._stop(self._config.release_on_cancel if release is None else release)

    def _answered(self, sent: Sent, outcome: ev.Outcome) -> None:
        now_ns = self._at.boot_ns
        if self._state is State.FOLLOWER:
            self._next_try_ns = now_ns + self._jittered_retry_ns()
        match sent.request, outcome:
            case fx.Get(), ev.Found(view):
                self._read_back, self._next_try_ns = False, BOOT_NS
                self._observe(view)
                self._settle_unknown_acquire()
            case fx.Get(), _:
                self._unknown_acquire &= self._state is State.FOLLOWER
            case fx.Acquire() | fx.BeginTerm() as write, ev.Written(revision):
                self._term_written(write, sent.sent_ns, revision)
            case fx.Renew() as renew, ev.Written(revision):
                self._renewed(renew, sent.sent_ns, revision)
            case fx.Release() as release, ev.Written(revision):
                self._observe(written(release, revision))
                self._finish()
            case fx.Release(), ev.Refused(view):
                self._observe(view)
                if self._own_unfinished():  # a BeginTerm that was in flight when leading was given up
                    self._adopt(self._seen.epoch_revision)
                else:
                    self._finish()
            case fx.Acquire(record_revision=record, epoch_revision=epoch), ev.Refused(view):
                self._observe(view)
                if (record, epoch) != (self._seen.record_revision, self._seen.epoch_revision):
                    self._next_try_ns = BOOT_NS
            case (fx.Renew() | fx.BeginTerm()) as write, ev.Refused(view):
                self._guard_refused(write, view)
            case fx.Acquire(), ev.Unknown(reason):
                self._read_back = self._unknown_acquire = True
                self._next_try_ns = now_ns
                self._tell_once_why_not(reason)
            case _ if self._state is State.FOLLOWER:
                self._read_back = True
            case _ if now_ns >= sent.deadline_ns:
                self._next_try_ns = now_ns  # beside the one that is still heard
            case _:
                self._note_unanswered([sent])
                self._next_try_ns = max(now_ns, sent.sent_ns + self._config.retry_period_ns)

    def _answered_late(self, sent: Sent, outcome: ev.Outcome) -> None:
        """A renewal or a new term, whose guard was checked by the store: that counts as much as in time."""
        match sent.request, outcome:
            case fx.Renew() as renew, ev.Written(revision):
                self._renewed(renew, sent.sent_ns, revision)
            case fx.BeginTerm() as begin, ev.Written(revision):
                self._term_written(begin, sent.sent_ns, revision)
            case (fx.Renew() | fx.BeginTerm()) as write, ev.Refused(view):
                self._guard_refused(write, view)
            case _:
                self._note_unanswered([sent])

    def _settle_unknown_acquire(self) -> None:
        if self._state is State.STOPPING and self._own_unfinished():
            self._adopt(self._seen.epoch_revision)
        self._unknown_acquire = False

    def _request_new_term(self) -> None:
        if self._state not in (State.LEADING, State.SUSPENDED):
            self._out.append(fx.TermFailed(f"{self._config.identity} does not lead"))
            return
        self._out.append(fx.WithdrawBelief())
        self._progress.restart(self._at.boot_ns)
        if self._new_term is NewTerm.NONE:  # else nobody has been given the one under way, so it serves this request too
            self._drop_flights()
            self._new_term, self._next_try_ns = NewTerm.WANTED, self._at.boot_ns

    def _resign(self, reason: str) -> None:
        if self._state in (State.LEADING, State.SUSPENDED):
            self._note(f"resigns: {reason}")
            self._resigned_until_ns = self._at.boot_ns + self._jittered_retry_ns()
            self._give_up(self._config.release_on_cancel)

    def _stop(self, release: bool) -> None:
        self._stop_wanted = True
        if self._state in (State.LEADING, State.SUSPENDED):
            self._give_up(release)
        elif self._state is State.STOPPING:
            self._drain.may_release &= release
        elif self._state is State.FOLLOWER:
            if self._own_unfinished():
                self._adopt(self._seen.epoch_revision)
            if not (self._flight.carries(fx.Acquire) or (self._flight.carries(fx.Get) and self._unknown_acquire)):
                self._drop_flights()
            self._started = True
            self._state = State.STOPPING
            self._stop_work(release)

    # what was seen

    def _observe(self, view: View) -> None:
        if self._seen.see(view, self._at):
            self._look()

    def _look(self) -> None:
        """Something changed in what is known of the keys."""
        if self._seen.holder != self._reported_holder:
            self._reported_holder = self._seen.holder
            self._out.append(fx.NewLeader(self._seen.holder, self.record))
        if self._state is State.FOLLOWER:
            if not self._read_back:
                self._next_try_ns = BOOT_NS
            if self._seen.complete and self._takeover_ns() > self._at.boot_ns:
                self._note(f"lock is held by {self._seen.holder} and has not yet expired")
        elif self._state in (State.LEADING, State.SUSPENDED):
            self._look_for_loss()

    def _look_for_loss(self) -> None:
        epoch, record = self._seen.epoch, self._seen.record
        if self._seen.epoch_revision != self._epoch:
            if not (self._new_term is NewTerm.WANTED and self._own_unfinished()):  # else BeginTerm's answer is under way
                self._lose(f"the epoch passed to {epoch.epoch.holder if epoch else 'nobody'}")
        elif record is None:
            # Its etcd lease ran out or was revoked. The epoch is still ours, so write it again, and believe when that is done.
            self._next_try_ns = self._at.boot_ns
            if self._record_vanished:
                self._out.append(fx.WithdrawBelief())
        elif record.record.instance != self._candidate.instance:
            self._lose(f"the record shows {record.record.holder or 'no holder'}")

    @property
    def _record_vanished(self) -> bool:
        return self._seen.record is None and self.RULE_A_VANISHED_RECORD_ENDS_BELIEF

    # terms

    def _term_written(self, write: fx.Acquire | fx.BeginTerm, sent_ns: int, revision: int) -> None:
        self._observe(written(write, revision))
        if self._seen.epoch_revision != revision:
            return  # the watch was faster, and shows that another candidate took it already
        if self._state is State.STOPPING:
            self._adopt(revision)
        elif isinstance(write, fx.BeginTerm):
            self._adopt(revision)
            self._renewed_at(sent_ns)
        elif self._state is State.FOLLOWER and self._still_fresh(sent_ns):
            self._lead(revision, sent_ns)
        else:
            self._tell_once_why_not(self._answered_after(sent_ns))

    def _renewed(self, renew: fx.Renew, sent_ns: int, revision: int) -> None:
        if self._seen.see_record(StoredRecord(renew.record, revision), revision, self._at):
            self._look()
        if self._state in (State.LEADING, State.SUSPENDED) and renew.guard == self._epoch:
            self._out.append(fx.Renewed(self._at.boot_ns - sent_ns))
            self._renewed_at(sent_ns)
        elif self._state is State.FOLLOWER and self._seen.epoch_revision == renew.guard and self._still_fresh(sent_ns):
            self._out.append(fx.SlowPath())
            self._lead(renew.guard, sent_ns)
        elif self._state is State.FOLLOWER:
            self._out.append(fx.NotRenewed(self._at.boot_ns - sent_ns))
            self._tell_once_why_not(self._answered_after(sent_ns))

    def _renewed_at(self, sent_ns: int) -> None:
        if sent_ns >= self._renewed_ns:  # else a later one was answered before
            self._renewed_ns = sent_ns
            self._next_try_ns = sent_ns + self._config.retry_period_ns
        self._heard_ns = self._at.boot_ns
        if self._record_vanished:
            self._next_try_ns = self._at.boot_ns  # it vanished after this renewal
        elif self._state is State.LEADING and self._at.boot_ns < self._valid_until_ns:
            self._out.append(fx.PublishBelief(self._epoch, self._valid_until_ns))
        if self._new_term is NewTerm.COMMITTED:
            self._new_term = NewTerm.NONE
            self._out.append(fx.TermBegun(self._epoch))

    def _lead(self, epoch: int, sent_ns: int) -> None:
        self._adopt(epoch)
        self._state = State.LEADING
        self._unknown_acquire = self._told_why_not = False
        self._progress.restart(self._at.boot_ns)
        self._renewed_at(sent_ns)
        self._announce("became leader")
        self._out.append(fx.StartLeading(epoch))

    def _adopt(self, epoch: int) -> None:
        """The present epoch is ours."""
        self._epoch = self._last_epoch = epoch
        if self._new_term is NewTerm.WANTED:
            self._new_term = NewTerm.COMMITTED

    def _guard_refused(self, write: fx.Renew | fx.BeginTerm, view: View) -> None:
        """Either the term is lost, or an earlier BeginTerm without an answer was committed."""
        self._observe(view)
        if self._state not in (State.LEADING, State.SUSPENDED) or write.guard != self._epoch:
            return  # of a term that this candidate has ended itself
        if self._new_term is NewTerm.WANTED and self._own_unfinished():
            self._adopt(self._seen.epoch_revision)
        else:
            self._lose("the guard was refused")

    # time

    def _advance(self) -> bool:
        """Do what is due now. True where something was done, so that more may be due."""
        now_ns = self._at.boot_ns
        self._note_unanswered(self._flight.expire(now_ns))
        if (sent := self._flight.time_out(now_ns)) is not None:
            self._answered(sent, ev.Unknown(self._answered_after(sent.sent_ns)))
            return True
        if self._drain.become_overdue(now_ns):
            self._out.append(fx.Overdue())
            return True
        match self._state:
            case State.FOLLOWER:
                return self._advance_follower()
            case State.LEADING | State.SUSPENDED:
                return self._advance_leader()
            case State.STOPPING | State.RELEASING:
                return self._advance_stopping()
            case State.STOPPED:
                return False

    def _advance_follower(self) -> bool:
        if self._flight.sent is not None or self._at.boot_ns < self._follower_due_ns():
            return False
        if self._read_back or not self._seen.complete:
            self._send(self._get())
        elif self._own_unfinished():
            self._send(self._candidate.renew(self._flight.next_number, self._at, self._seen.epoch_revision, self._seen))
        else:
            if self._seen.holder == self._config.identity:
                self._out.append(fx.SlowPath())
            self._send(self._candidate.acquire(self._flight.next_number, self._at, self._seen))
        return True

    def _advance_leader(self) -> bool:
        now_ns = self._at.boot_ns
        suspended = self._state is State.SUSPENDED
        if not suspended and now_ns >= self._valid_until_ns:
            self._suspend()
            return True
        if suspended and now_ns >= self._suspended_until_ns:
            self._note("lost the lease: not renewed for the lease duration")
            self._give_up(self._config.release_on_cancel)
            return True
        may_resume = self._drain.done and self._new_term is NewTerm.NONE and not self._record_vanished
        if suspended and may_resume and now_ns < self._valid_until_ns:
            self._resume()
            return True
        if self._flight.sent is not None or now_ns < self._next_try_ns:
            return False
        if not self._progress.alive(self._drain.since_ns if suspended else now_ns):
            self._note("renewal withheld: the work shows no progress")
            self._next_try_ns = now_ns + self._config.retry_period_ns
        elif self._new_term is NewTerm.WANTED:
            self._send(self._candidate.begin_term(self._flight.next_number, self._at, self._epoch, self._seen))
        else:
            self._send(self._candidate.renew(self._flight.next_number, self._at, self._epoch, self._seen))
        return True

    def _advance_stopping(self) -> bool:
        now_ns = self._at.boot_ns
        if self._state is State.RELEASING and now_ns >= self._release_until_ns:
            self._drop_flights()
            self._finish()
            return True
        if not self._drain.done or self._flight.sent is not None:
            return False
        if self._state is State.STOPPING:
            if self._drain.may_release and self._unknown_acquire:
                self._send(self._get())
            elif self._drain.may_release and self._epoch:
                self._state, self._next_try_ns = State.RELEASING, now_ns
                self._release_until_ns = now_ns + self._config.renew_deadline_ns
            else:
                self._finish()
            return True
        if now_ns >= self._next_try_ns:
            self._send(self._candidate.release(self._flight.next_number, self._at, self._epoch, self._seen))
            return True
        return False
