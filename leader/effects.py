"""What the election wants done. Values only; the carrier performs them in the order in which they stand.

Requests go to the store. Each is answered once, by `events.Answered` with its number; one after the timeout is of no use. The
election may have lost its patience before: then the request counts as unknown, whether or not the carrier says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from leader.record import Epoch, LeaderRecord


@dataclass(frozen=True, slots=True)
class Get:
    """Read both keys at one revision."""

    number: int
    timeout_ns: int


@dataclass(frozen=True, slots=True)
class Acquire:
    """If both keys are at these revisions (0: absent), write both."""

    number: int
    timeout_ns: int
    record_revision: int
    epoch_revision: int
    record: LeaderRecord
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Renew:
    """If the epoch is `guard`, write the record."""

    number: int
    timeout_ns: int
    guard: int
    record: LeaderRecord


@dataclass(frozen=True, slots=True)
class BeginTerm:
    """If the epoch is `guard`, write both: the holder stays, the epoch becomes another."""

    number: int
    timeout_ns: int
    guard: int
    record: LeaderRecord
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Release:
    """If the epoch is `guard`, write both without a holder; unlike the others not bound to the etcd lease."""

    number: int
    timeout_ns: int
    guard: int
    record: LeaderRecord
    epoch: Epoch


Request = Get | Acquire | Renew | BeginTerm | Release


@dataclass(frozen=True, slots=True)
class PublishBelief:
    """Whoever writes under this epoch may do so until `valid_until_ns`, CLOCK_BOOTTIME."""

    epoch: int
    valid_until_ns: int


@dataclass(frozen=True, slots=True)
class WithdrawBelief:
    """Nobody may write any more."""


@dataclass(frozen=True, slots=True)
class StartLeading:
    """Begin the work, or go on with it where `epoch` is that of the previous StartLeading."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StopLeading:
    """Stop the work and report `events.Drained`. Also at the end of a run that never led."""


@dataclass(frozen=True, slots=True)
class NewLeader:
    """Another holder was observed; an empty identity: nobody."""

    identity: str
    record: LeaderRecord | None


@dataclass(frozen=True, slots=True)
class TermBegun:
    """The requested new term has begun, under this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TermFailed:
    """The requested new term will not begin: the lease is lost or was not held."""

    reason: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Event text for people, as `<identity> became leader`."""

    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """For the log."""

    text: str


@dataclass(frozen=True, slots=True)
class Renewed:
    """For the metrics: a renewal succeeded after this long."""

    round_trip_ns: int


@dataclass(frozen=True, slots=True)
class NotRenewed:
    """For the metrics: a renewal had no answer, or one without a word of what became of it, after this long."""

    since_ns: int


@dataclass(frozen=True, slots=True)
class SlowPath:
    """For the metrics: the own record had to be read back before it could be renewed."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """The work has not stopped within the grace."""


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Send a Tick at this time, CLOCK_BOOTTIME; replaces the one before. None: nothing is due."""

    due_ns: int | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over. Nothing follows."""


Effect = (
    Request
    | PublishBelief
    | WithdrawBelief
    | StartLeading
    | StopLeading
    | NewLeader
    | TermBegun
    | TermFailed
    | Announce
    | Note
    | Renewed
    | NotRenewed
    | SlowPath
    | Overdue
    | ArmTimer
    | Ended
)
