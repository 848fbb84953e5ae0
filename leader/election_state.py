"""What an election knows, when it next has something to do, and how it asks and tells; election.py decides what that is.

Times are CLOCK_BOOTTIME in nanoseconds. Nothing here changes the state. Cost: under a microsecond a call.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable

from leader import effects as fx
from leader.clock import BOOT_NS, NS_PER_SECOND, Instant
from leader.config import JITTER_FACTOR, ElectionConfig
from leader.drain import Drain
from leader.flight import Flight, Sent
from leader.observation import Observation, Vacated
from leader.progress import ProgressTie
from leader.record import LeaderRecord, StoredEpoch
from leader.term import Candidate


class State(enum.Enum):
    FOLLOWER = "follower"
    LEADING = "leading"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    RELEASING = "releasing"
    STOPPED = "stopped"


class NewTerm(enum.Enum):
    """Where a requested new term stands."""

    NONE = 0
    WANTED = 1
    COMMITTED = 2
    """By a transaction whose answer was lost; a renewal under its epoch will prove that it still holds."""


class ElectionState:
    """The state of one candidate. `uniform` gives numbers of [0, 1); `instance` is unique to this run."""

    def __init__(self, config: ElectionConfig, instance: str, uniform: Callable[[], float]) -> None:
        self._config = config
        self._candidate = Candidate(config, instance)
        self._uniform = uniform
        self._at: Instant
        """Of the event that is taken in."""
        self._out: list[fx.Effect] = []
        self._armed_ns: int | None = None

        self._state = State.FOLLOWER
        self._started = False
        self._seen = Observation()
        self._reported_holder = ""
        self._flight = Flight()
        self._next_try_ns = BOOT_NS
        self._resigned_until_ns = BOOT_NS
        self._hung_until_ns = BOOT_NS
        """No acquisition before either of them."""
        self._read_back = False
        """The keys must be read before a follower writes again."""
        self._unknown_acquire = False
        """An acquisition without an answer may have been committed."""
        self._told_why_not = False
        """Of this time as a follower: why a lease that it could have is not led."""

        self._epoch = 0
        """Of the term that is led or being given up; 0: none."""
        self._last_epoch = 0
        self._renewed_ns = BOOT_NS
        """When the last successful renewal was sent."""
        self._heard_ns: int
        """When the last answer to a successful renewal came. The term is kept for a lease duration from there, for who needs
        a second for an answer needs another one for the next; its guard tells whether somebody else led meanwhile."""
        self._new_term = NewTerm.NONE
        self._progress = ProgressTie(config.progress_limit_ns)

        self._stop_wanted = False
        self._drain = Drain()
        self._release_until_ns: int

    @property
    def state(self) -> State:
        return self._state

    @property
    def epoch(self) -> int:
        """The token of the term that is led or being given up; 0: none."""
        return self._epoch

    @property
    def record(self) -> LeaderRecord | None:
        """The record as last seen."""
        stored = self._seen.record  # read once: other threads ask too
        return stored.record if stored is not None else None

    @property
    def seen_epoch(self) -> StoredEpoch | None:
        """The epoch as last seen. It belongs to the record where both name the same instance."""
        return self._seen.epoch

    @property
    def record_since_ns(self) -> int:
        """When the record was last seen to change."""
        return self._seen.record_since_ns

    @property
    def vacated(self) -> Vacated | None:
        """The last end of a holder that was seen; where this candidate leads, that of the one before it."""
        return self._seen.vacated

    # what follows from it

    def _takeover_ns(self) -> int:
        return self._candidate.may_take_ns(self._seen, led_before=self._last_epoch != 0)

    def _own_unfinished(self) -> bool:
        """A term of ours that we never began to lead, because the answer was lost or came too late."""
        return self._candidate.holds(self._seen) and self._seen.epoch_revision > self._last_epoch

    @property
    def _valid_until_ns(self) -> int:
        return self._renewed_ns + self._config.renew_deadline_ns

    @property
    def _suspended_until_ns(self) -> int:
        return self._heard_ns + self._config.lease_duration_ns

    def _still_fresh(self, sent_ns: int) -> bool:
        """Whether a belief that began with this sending is not over yet."""
        return self._at.boot_ns < sent_ns + self._config.renew_deadline_ns

    @property
    def _may_believe(self) -> bool:
        """Whether it leads, or may by an answer that is still heard."""
        return self._state in (State.LEADING, State.SUSPENDED) or not self._flight.empty

    # time

    def _follower_due_ns(self) -> int:
        if self._read_back or not self._seen.complete or self._own_unfinished():
            return self._next_try_ns
        return max(self._next_try_ns, self._resigned_until_ns, self._hung_until_ns, self._takeover_ns())

    def _arm(self) -> None:
        due_ns = self._due_ns()
        if due_ns != self._armed_ns:
            self._armed_ns = due_ns
            self._out.append(fx.ArmTimer(due_ns))

    def _due_ns(self) -> int | None:
        """When `_advance` will next have something to do."""
        if not self._started or self._state is State.STOPPED:
            return None
        idle = self._flight.sent is None
        due = [] if self._drain.overdue_ns is None else [self._drain.overdue_ns]
        if self._flight.sent is not None:
            due.append(self._flight.sent.deadline_ns)
        match self._state:
            case State.FOLLOWER if idle:
                due.append(self._follower_due_ns())
            case State.LEADING:
                due.append(self._valid_until_ns)
            case State.SUSPENDED:
                due.append(self._suspended_until_ns)
            case State.RELEASING:
                due.append(self._release_until_ns)
        if idle and self._state in (State.LEADING, State.SUSPENDED, State.RELEASING):
            due.append(self._next_try_ns)
        return min(due, default=None)

    def _send(self, request: fx.Request) -> None:
        renews = isinstance(request, fx.Renew)
        patience_ns = self._config.renewal_patience_ns if renews else self._config.call_timeout_ns
        self._flight.launch(request, self._at.boot_ns, patience_ns)
        self._out.append(request)

    def _drop_flights(self) -> None:
        """Nothing that is under way is of use any more."""
        self._note_unanswered(self._flight.give_up())

    def _note_unanswered(self, dropped: Iterable[Sent]) -> None:
        for sent in dropped:
            if isinstance(sent.request, fx.Renew):
                self._out.append(fx.NotRenewed(self._at.boot_ns - sent.sent_ns))

    def _get(self) -> fx.Get:
        return fx.Get(self._flight.next_number, self._config.call_timeout_ns)

    def _jittered_retry_ns(self) -> int:
        return round(self._config.retry_period_ns * (1.0 + JITTER_FACTOR * self._uniform()))

    def _announce(self, text: str) -> None:
        self._out.append(fx.Announce(f"{self._config.identity} {text}"))

    def _tell_once_why_not(self, reason: str) -> None:
        if self._state is State.FOLLOWER and not self._told_why_not:
            self._told_why_not = True
            self._announce(f"cannot take the lead: {reason}")

    def _answered_after(self, sent_ns: int) -> str:
        seconds = (self._at.boot_ns - sent_ns) / NS_PER_SECOND
        return f"no answer of the store to a write for {seconds:.1f} s, and belief lasts {self._config.renew_deadline:g} s"

    def _note(self, text: str) -> None:
        self._out.append(fx.Note(text))
