"""The elector: carries an `Election` on a thread of its own and lets nothing else decide how long that takes.

    elector = Elector(config, EtcdLock(...), Callbacks(started, stopped))
    elector.run()

The thread waits for whatever comes first, an event or the election's timer, and performs the effects. It makes no call to the
store that blocks, and no callback runs on it; so a store that hangs and a callback that hangs cannot keep a belief alive. It
is the only writer of the belief cell. What other threads ask (`is_leader`, `epoch`, `leader`, `check`) is answered from
values that are replaced as a whole.

An election that raises is a bug: then the belief is withdrawn, the work is told to stop, nothing is released, and `run`
raises.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from functools import partial
from typing import Final

from leader import effects as fx
from leader import events as ev
from leader.belief import Belief, BeliefCell
from leader.clock import NS_PER_SECOND, Clock, SystemClock
from leader.config import ElectionConfig, check_config
from leader.election import Election
from leader.election_state import State
from leader.health import DEFAULT_TOLERANCE_SECONDS, check_leading
from leader.identity import new_instance
from leader.lock import Callbacks, ElectionLock, ElectionMetrics
from leader.observation import Vacated
from leader.record import LeaderRecord, StoredEpoch
from leader.work import ElectionThread, WorkRunner

_log = logging.getLogger("leader")

_WAIT_MIN_SECONDS: Final = 0.0005
_STOP_SLACK_SECONDS: Final = 1.0

_HOLDING: Final = frozenset({State.LEADING, State.SUSPENDED, State.STOPPING, State.RELEASING})


class NotLeadingError(RuntimeError):
    """A new term was asked for, but the lease is not held."""


class ElectorFailedError(RuntimeError):
    """The elector met a bug of its own and gave up."""


@dataclass(frozen=True, slots=True)
class _NewTermWanted:
    answer: Future[int]


class Elector:
    """One candidate. `start` and `stop` are called once each; the rest from any thread at any time."""

    def __init__(
        self,
        config: ElectionConfig,
        lock: ElectionLock | None,
        callbacks: Callbacks,
        belief: BeliefCell | None = None,
        clock: Clock | None = None,
        *,
        progress: Callable[[], int | None] | None = None,
        metrics: ElectionMetrics | None = None,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        """`progress` gives the time of the work's last sign of life (`BeliefCell.last_tick`); None: renewals do not depend
        on it. Raises ElectionConfigError."""
        check_config(
            config,
            on_started_leading=callbacks.on_started_leading,
            on_stopped_leading=callbacks.on_stopped_leading,
            lock=lock,
        )
        assert lock is not None
        self._config = config
        self._lock = lock
        self._callbacks = callbacks
        self._cell = belief
        self._clock = clock or SystemClock()
        self._progress = progress
        self._metrics = metrics

        self._inbox: queue.SimpleQueue[ev.Event | _NewTermWanted] = queue.SimpleQueue()
        self._election = Election(config, new_instance(), uniform)
        self._due_ns: int | None = None
        self._term_answers: list[Future[int]] = []

        self._belief_guard = threading.Lock()
        self._belief: Belief | None = None
        self._terms_wanted = 0
        """New terms asked for that the election has not heard of yet. Until it has, nothing is published."""
        self._closed = False

        self._work = WorkRunner(callbacks, self._inbox.put)
        self._thread = ElectionThread(target=self._run, name="leader-elector", daemon=True)
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        if metrics is not None:
            metrics.master_status(config.name, False)

    def start(self) -> None:
        """Begin to follow, and to lead when the lease is free."""
        self._thread.start()

    def request_stop(self, release: bool | None = None) -> None:
        """As `stop`, without waiting; also for signal handlers."""
        self._inbox.put(ev.StopRequested(release))

    def stop(self, release: bool | None = None, timeout_seconds: float | None = None) -> bool:
        """End the run: stop the work, then give the lease back (`release` None: as configured). True when it has ended.

        Waits for the work to drain and for the release, at most the grace and the renew deadline unless told otherwise. On a
        thread of the elector (inside a callback) it does not wait.
        """
        self.request_stop(release)
        if not self._thread.is_alive() or isinstance(threading.current_thread(), ElectionThread):
            return self._ended.is_set()
        bound = self._config.lease_duration + self._config.renew_deadline + _STOP_SLACK_SECONDS
        return self._ended.wait(bound if timeout_seconds is None else timeout_seconds)

    def run(self) -> None:
        """Start, and return when the run has ended. Raises ElectorFailedError."""
        self.start()
        self.wait()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end of the run. Raises ElectorFailedError."""
        ended = self._ended.wait(timeout_seconds)
        if self._failure is not None:
            raise ElectorFailedError(f"the elector of {self._config.name} failed") from self._failure
        return ended

    def begin_new_term(self) -> Future[int]:
        """Take over from itself: the future gives the new epoch, or raises NotLeadingError.

        For when the process that writes under the epoch was replaced. The present epoch is void from this call on, here and
        in the belief cell; once the new one is committed the store refuses whatever the replaced process still sends. Not to
        be waited for in on_new_leader or on_event, whose thread answers it.
        """
        answer: Future[int] = Future()
        with self._belief_guard:
            if self._closed:
                answer.set_exception(NotLeadingError("the elector has ended"))
                return answer
            self._terms_wanted += 1
            self._withdraw()
            self._inbox.put(_NewTermWanted(answer))
        return answer

    def is_leader(self) -> bool:
        """Whether a write may be sent now: the lease is held and the belief in it is not over."""
        return self.epoch() is not None

    def epoch(self) -> int | None:
        """The epoch to write under now; None: do not write."""
        belief = self._belief
        return belief.epoch if belief is not None and self._clock.now().boot_ns < belief.valid_until_ns else None

    def leader(self) -> LeaderRecord | None:
        """The record of whoever leads, as last seen; None: nobody does."""
        record = self._election.record
        return record if record is not None and record.holder else None

    def observed_epoch(self) -> StoredEpoch | None:
        """The epoch as last seen, with its token; it belongs to the record of `leader` where both name the same instance."""
        return self._election.seen_epoch

    def vacated(self) -> Vacated | None:
        """The last end of a holder that was seen; to be read when leading begins, it is that of the leader before."""
        return self._election.vacated

    @property
    def failed(self) -> bool:
        """It has ended by a bug, and is no candidate any more."""
        return self._failure is not None

    @property
    def identity(self) -> str:
        return self._config.identity

    @property
    def state(self) -> State:
        return self._election.state

    def check(self, tolerance_seconds: float = DEFAULT_TOLERANCE_SECONDS) -> str | None:
        """For a health check: None, or what is wrong."""
        if self._failure is not None:
            return f"the elector of {self._config.name} failed: {self._failure!r}"
        record = self._election.record
        holds = self._election.state in _HOLDING and record is not None and record.holder == self._config.identity
        age_ns = self._clock.now().boot_ns - self._election.record_since_ns
        return check_leading(
            self._config.name,
            holds=holds,
            since_renewal_seconds=age_ns / NS_PER_SECOND,
            lease_duration=self._config.lease_duration,
            tolerance_seconds=tolerance_seconds,
        )

    # the elector's thread

    def _run(self) -> None:
        try:
            self._lock.start(self._inbox.put, self._config.store_ttl_seconds)
            _log.info("%s joins the election of %s", self._config.identity, self._lock.describe())
            self._step(ev.Started())
            while self._election.state is not State.STOPPED:
                self._take(self._next_event())
        except BaseException as failure:
            _log.critical("the elector failed", exc_info=True)
            self._failure = failure
            self._fail()
        finally:
            self._lock.close()
            self._refuse_terms()
            self._work.close()
            self._ended.set()
        if self._failure is not None and self._callbacks.on_failed is not None:
            self._callbacks.on_failed(self._failure)

    def _fail(self) -> None:
        with self._belief_guard:
            self._withdraw()
        self._work.stop()
        if self._metrics is not None:
            self._metrics.master_status(self._config.name, False)

    def _next_event(self) -> ev.Event | _NewTermWanted:
        # Bounded by the retry period: the queue waits on a clock that may stand still while the machine sleeps.
        wait = self._config.retry_period
        if self._due_ns is not None:
            wait = min(wait, (self._due_ns - self._clock.now().boot_ns) / NS_PER_SECOND)
        try:
            return self._inbox.get(timeout=max(_WAIT_MIN_SECONDS, wait))
        except queue.Empty:
            return ev.Tick()

    def _take(self, event: ev.Event | _NewTermWanted) -> None:
        if self._progress is not None:
            self._step(ev.ProgressReported(self._progress()))
        if isinstance(event, _NewTermWanted):
            self._term_answers.append(event.answer)
            with self._belief_guard:
                self._terms_wanted -= 1
            event = ev.NewTermRequested()
        self._step(event)

    def _step(self, event: ev.Event) -> None:
        for effect in self._election.step(self._clock.now(), event):
            self._perform(effect)

    def _perform(self, effect: fx.Effect) -> None:
        name, metrics = self._config.name, self._metrics
        match effect:
            case fx.Get() | fx.Acquire() | fx.Renew() | fx.BeginTerm() | fx.Release():
                self._lock.submit(effect)
            case fx.PublishBelief(epoch, valid_until_ns):
                self._publish(epoch, valid_until_ns)
            case fx.WithdrawBelief():
                with self._belief_guard:
                    self._withdraw()
            case fx.ArmTimer(due_ns):
                self._due_ns = due_ns
            case fx.StartLeading(epoch):
                if metrics is not None:
                    metrics.master_status(name, True)
                self._work.start(epoch)
            case fx.StopLeading():
                if metrics is not None:
                    metrics.master_status(name, False)
                self._work.stop()
            case fx.Overdue():
                self._work.overdue()
            case fx.NewLeader(identity, record):
                self._tell_new_leader(identity, record)
            case fx.TermBegun(epoch):
                self._answer_terms(epoch)
            case fx.TermFailed(reason):
                self._answer_terms(NotLeadingError(reason))
            case fx.Announce(text):
                self._announce(text)
            case fx.Note(text):
                _log.debug("%s: %s", self._config.identity, text)
            case fx.Renewed(round_trip_ns):
                if metrics is not None:
                    metrics.renewed(name, round_trip_ns / NS_PER_SECOND)
            case fx.NotRenewed(since_ns):
                if metrics is not None:
                    metrics.not_renewed(name, since_ns / NS_PER_SECOND)
            case fx.SlowPath():
                if metrics is not None:
                    metrics.slowpath(name)
            case fx.Ended():
                _log.info("%s leaves the election of %s", self._config.identity, name)

    def _publish(self, epoch: int, valid_until_ns: int) -> None:
        with self._belief_guard:
            if not self._terms_wanted:
                self._belief = Belief(epoch, valid_until_ns)
                if self._cell is not None:
                    self._cell.publish(epoch, valid_until_ns)

    def _withdraw(self) -> None:
        """With `_belief_guard` held."""
        self._belief = None
        if self._cell is not None:
            self._cell.withdraw()

    def _answer_terms(self, answer: int | NotLeadingError) -> None:
        """On the notices' thread: what hangs on a future must not run on this one."""
        waiting, self._term_answers = self._term_answers, []
        for future in waiting:
            self._work.notify(partial(_resolve, future, answer))

    def _refuse_terms(self) -> None:
        with self._belief_guard:
            self._closed = True
        while not self._inbox.empty():
            event = self._inbox.get()
            if isinstance(event, _NewTermWanted):
                self._term_answers.append(event.answer)
        self._answer_terms(NotLeadingError("the elector has ended"))

    def _tell_new_leader(self, identity: str, record: LeaderRecord | None) -> None:
        _log.info("new leader of %s: %s", self._config.name, identity or "nobody")
        on_new_leader = self._callbacks.on_new_leader
        if on_new_leader is not None:
            self._work.notify(lambda: on_new_leader(identity, record))

    def _announce(self, text: str) -> None:
        _log.info("%s", text)
        on_event = self._callbacks.on_event
        if on_event is not None:
            self._work.notify(lambda: on_event(text))


def _resolve(future: Future[int], answer: int | NotLeadingError) -> None:
    try:
        if isinstance(answer, int):
            future.set_result(answer)
        else:
            future.set_exception(answer)
    except InvalidStateError:
        _log.debug("the caller of new_term no longer waits")
