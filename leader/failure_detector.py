"""What a follower makes of its connection to the leader: a state machine without I/O, clock or threads of its own.

A follower keeps one idle TCP connection to the address in the leader's record. Two things are taken for evidence:

    refused   the connection broke, and a new one was refused: the kernel there says that nobody listens any more
    silent    a renewal is overdue, and since it was due, `suspect_after` ago, no attempt to connect was answered at all, nor the
              other followers'. An attempt begins each PROBE_NS and is waited for longer than that: a slow network is no silence

Refused is acted on at once. Silence proves nothing: so a follower votes, and acts when two followers, where there are two, have
voted for the same term, and only while the lead has not passed more than `CHANGES_A_MINUTE_MAX` times within the last minute.
A host that answers is not silent, whatever answers there; whether its leader works is for its lease to say.

`step` takes what happened and returns what is to be done. Neither kind of evidence has to be true for safety: what is revoked is
compared, and writes are guarded by the epoch (revocation.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar, Final

from leader.clock import NS_PER_SECOND, seconds_to_ns
from leader.revocation import Evidence, HeldTerm

PROBE_NS: Final = NS_PER_SECOND // 10
"""Between two attempts to get an answer; one without an answer for so long counts as missed until it comes."""
ANSWER_NS_MAX: Final = NS_PER_SECOND
"""How long an answer may take to come, at most: a host behind a slow network is not silent."""
VOTES_MIN: Final = 2
CHANGES_A_MINUTE_MAX: Final = 2
_MINUTE_NS: Final = 60 * NS_PER_SECOND
_CONNECT_NS: Final = NS_PER_SECOND
"""How long the idle connection is waited for."""
_RECONNECT_NS: Final = NS_PER_SECOND // 2
"""After an attempt that failed, and between two when connections hardly live."""
_SHORT_LIFE_NS: Final = NS_PER_SECOND
_SHORT_LIVES_MAX: Final = 5
"""So many connections in a row may break soon; a server that is ending takes one or two with it."""


@dataclass(frozen=True, slots=True)
class Leading:
    """Whoever leads, as the record shows it."""

    holder: str
    address: str
    held: HeldTerm


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """The record or the epoch was seen to change, by a renewal too. None: nobody leads, or it is this candidate."""

    leading: Leading | None


@dataclass(frozen=True, slots=True)
class Connected:
    number: int


@dataclass(frozen=True, slots=True)
class ConnectionBroken:
    """A connection that was there ended."""

    number: int


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """Its host answered that nobody listens."""

    number: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Nothing came back in time, or there is no way to it."""

    number: int


@dataclass(frozen=True, slots=True)
class Counted:
    """Answer to a vote: of the followers that are present, this one among them, how many suspect the same epoch."""

    epoch: int
    present: int
    suspecting: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It may be time for something."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a connection, and tell what becomes of it. An open one is kept until `Disconnect`."""

    number: int
    address: str
    timeout_ns: int


@dataclass(frozen=True, slots=True)
class Disconnect:
    number: int


@dataclass(frozen=True, slots=True)
class Vote:
    """Tell the other followers that this one suspects the leader of this epoch, and count; 0: that it suspects nobody."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Revoke:
    leading: Leading
    evidence: Evidence
    detail: str


@dataclass(frozen=True, slots=True)
class LookAround:
    """The leader's host gives no answer, and a member of etcd may be there: find out who answers, before anything is asked."""


DetectorEvent = LeaderSeen | Connected | ConnectionBroken | ConnectionRefused | Unanswered | Counted | TimePassed
DetectorEffect = Connect | Disconnect | LookAround | Vote | Revoke


class FailureDetector:
    """Of one follower."""

    RULE_SILENCE_NEEDS_VOTES: ClassVar[bool] = True
    """ConnectionBroken by tests alone."""

    def __init__(self, retry_period: float, suspect_after: float | None) -> None:
        """Seconds. `retry_period`: between two renewals. `suspect_after`: None: silence is never acted on."""
        self._late_ns = seconds_to_ns(retry_period) // 8
        """So late may a renewal be before it is overdue."""
        self._overdue_ns = seconds_to_ns(retry_period) + self._late_ns
        self._suspect_after_ns = None if suspect_after is None else seconds_to_ns(suspect_after)
        self._now_ns = 0
        self._out: list[DetectorEffect] = []
        self._leading: Leading | None = None
        self._seen_ns = 0
        """When the record last changed."""
        self._has_answered = False
        """Since then."""
        self._number = 0
        self._link = 0
        """The idle connection, or the attempt at it; 0: there is none."""
        self._open_since_ns: int | None = None
        self._was_open = False
        """In the present term."""
        self._short_lives = 0
        self._connect_at_ns: int | None = None
        self._probes: dict[int, int] = {}
        """Attempts to get an answer, and when each began; the first is the oldest."""
        self._probe_at_ns = 0
        """When the next one may be sent."""
        self._silent_since_ns: int | None = None
        """When the renewal was due; after an answer, when the first attempt began that has had none."""
        self._vote_at_ns = 0
        """When the next one may be cast."""
        self._voted = 0
        self._acted_on = 0
        """The last epoch of which something was revoked, or tried to be."""
        self._changes: deque[int] = deque()
        """When the lead passed, of the last minute."""

    def step(self, now_ns: int, event: DetectorEvent) -> list[DetectorEffect]:
        """Take in one event; the effects are to be performed in order."""
        self._now_ns, self._out = now_ns, []
        match event:
            case LeaderSeen(leading):
                self._see(leading)
            case Connected(number) if number == self._link:
                self._open_since_ns, self._was_open = now_ns, True
            case Connected(number) if number in self._probes:
                self._drop_probes()
                self._silent_since_ns, self._has_answered = None, True
            case ConnectionBroken(number) if number == self._link:
                self._broken()
            case ConnectionRefused(number) if number == self._link or number in self._probes:
                self._refused(number)
            case Unanswered(number) if number == self._link:
                self._link, self._connect_at_ns = 0, now_ns + _RECONNECT_NS
            case Unanswered(number) if number in self._probes:
                self._miss(self._probes.pop(number))
            case Counted(epoch, present, suspecting):
                self._counted(epoch, present, suspecting)
        self._advance()
        return self._out

    @property
    def due_ns(self) -> int | None:
        """When `TimePassed` is to be told; None: nothing is due."""
        if self._leading is None:
            return None
        dues = [] if self._connect_at_ns is None else [self._connect_at_ns]
        if self._suspect_after_ns is not None:
            dues.append(max(self._seen_ns + self._overdue_ns, self._probe_at_ns))
        if self._suspect_after_ns is not None and self._silent_since_ns is not None:
            dues.append(max(self._silent_since_ns + self._suspect_after_ns, self._vote_at_ns))
        return min(dues, default=None)

    # ------------------------------------------------------------------------------------------------------- what happens

    def _see(self, leading: Leading | None) -> None:
        former, self._leading, self._seen_ns = self._leading, leading, self._now_ns
        self._silent_since_ns, self._has_answered = None, False
        self._drop_probes()
        if self._voted:
            self._voted = 0
            self._out.append(Vote(0))
        if leading is None:
            self._drop_all()
        elif former is None or (former.held.epoch, former.address) != (leading.held.epoch, leading.address):
            self._changes.append(self._now_ns)
            self._drop_all()
            self._was_open, self._short_lives, self._connect_at_ns = False, 0, self._now_ns

    def _drop_all(self) -> None:
        self._drop_probes()
        if self._link:
            self._out.append(Disconnect(self._link))
        self._link = 0
        self._open_since_ns = self._connect_at_ns = None

    def _drop_probes(self) -> None:
        self._out += map(Disconnect, self._probes)
        self._probes.clear()

    def _miss(self, began_ns: int) -> None:
        """An attempt that began then has no answer yet."""
        if self._silent_since_ns is None:
            self._silent_since_ns = began_ns - (0 if self._has_answered else self._late_ns)
            self._out.append(LookAround())

    def _broken(self) -> None:
        lived_ns = self._now_ns - (self._now_ns if self._open_since_ns is None else self._open_since_ns)
        self._short_lives = self._short_lives + 1 if lived_ns < _SHORT_LIFE_NS else 0
        pause_ns = _RECONNECT_NS if self._short_lives > _SHORT_LIVES_MAX else 0
        self._link, self._open_since_ns, self._connect_at_ns = 0, None, self._now_ns + pause_ns

    def _refused(self, number: int) -> None:
        if number == self._link:
            self._link, self._connect_at_ns = 0, self._now_ns + _RECONNECT_NS
        self._probes.pop(number, None)
        self._drop_probes()
        self._silent_since_ns, self._has_answered = None, True
        # Without a connection in this term the address may be wrong, or meant for others.
        if self._was_open:
            self._revoke(Evidence.REFUSED, "whose connection broke, and whose address refuses another one")

    def _counted(self, epoch: int, present: int, suspecting: int) -> None:
        if epoch != self._voted or not epoch:
            return
        self._forget_changes()
        needed = min(VOTES_MIN, present) if self.RULE_SILENCE_NEEDS_VOTES else 1
        if suspecting >= needed and len(self._changes) <= CHANGES_A_MINUTE_MAX:
            silent_ms = (self._now_ns - (self._silent_since_ns or self._now_ns)) // 1_000_000
            detail = f"who neither renewed nor answered for {silent_ms} ms, as {suspecting} of {present} followers say"
            self._revoke(Evidence.SILENT, detail)

    def _forget_changes(self) -> None:
        while self._changes and self._changes[0] <= self._now_ns - _MINUTE_NS:
            self._changes.popleft()

    def _revoke(self, evidence: Evidence, detail: str) -> None:
        """Once a term: a leader that lived after all and kept it is left alone."""
        leading = self._leading
        if leading is not None and leading.held.epoch != self._acted_on:
            self._acted_on = leading.held.epoch
            self._out.append(Revoke(leading, evidence, detail))

    # ---------------------------------------------------------------------------------------------------------------- time

    def _advance(self) -> None:
        leading, now_ns = self._leading, self._now_ns
        if leading is None:
            return
        if self._connect_at_ns is not None and now_ns >= self._connect_at_ns and not self._link:
            self._connect_at_ns = None
            self._link = self._connect(leading, _CONNECT_NS)
        if self._suspect_after_ns is None or now_ns < self._seen_ns + self._overdue_ns:
            return
        oldest_ns = next(iter(self._probes.values()), now_ns)
        if now_ns >= oldest_ns + PROBE_NS:
            self._miss(oldest_ns)
        if now_ns >= self._probe_at_ns:
            self._probe_at_ns = now_ns + PROBE_NS
            self._probes[self._connect(leading, min(ANSWER_NS_MAX, self._suspect_after_ns))] = now_ns
        if self._silent_since_ns is None or now_ns < max(self._silent_since_ns + self._suspect_after_ns, self._vote_at_ns):
            return
        self._vote_at_ns = now_ns + PROBE_NS
        self._voted = leading.held.epoch
        self._out.append(Vote(self._voted))

    def _connect(self, leading: Leading, timeout_ns: int) -> int:
        self._number += 1
        self._out.append(Connect(self._number, leading.address, timeout_ns))
        return self._number
