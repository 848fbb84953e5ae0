"""What the election is told. Values only; everything that happens reaches `Election.step` as one of these."""

from __future__ import annotations

from dataclasses import dataclass

from leader.record import StoredEpoch, StoredRecord, View


@dataclass(frozen=True, slots=True)
class Started:
    """The run begins."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Written:
    """The transaction was committed at this revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The transaction's guard did not hold; nothing was written. Both keys as they are instead."""

    view: View


@dataclass(frozen=True, slots=True)
class Found:
    """Answer to a read."""

    view: View


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer: a write may or may not have been committed, or may yet be."""

    reason: str


Outcome = Written | Refused | Found | Unknown


@dataclass(frozen=True, slots=True)
class Answered:
    """The store answered request `number`."""

    number: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class RecordChanged:
    """The watch saw the record as of `revision`; None: it is gone."""

    record: StoredRecord | None
    revision: int


@dataclass(frozen=True, slots=True)
class EpochChanged:
    """The watch saw the epoch as of `revision`; None: it is gone."""

    epoch: StoredEpoch | None
    revision: int


@dataclass(frozen=True, slots=True)
class Listed:
    """The watch read both keys anew."""

    view: View
    went_back: bool
    """The store's revision is lower than one seen before: it lost acknowledged writes or was restored. What was known is void."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The run shall end. `release` None: as configured."""

    release: bool | None = None


@dataclass(frozen=True, slots=True)
class ResignRequested:
    """Give up leading, go on as a follower."""

    reason: str


@dataclass(frozen=True, slots=True)
class NewTermRequested:
    """The process that wrote under the epoch was replaced: the leader takes over from itself."""


@dataclass(frozen=True, slots=True)
class Drained:
    """The work of the term has stopped. Not clean: it said that it may not have."""

    clean: bool = True


@dataclass(frozen=True, slots=True)
class ProgressReported:
    """When the work last showed a sign of life, CLOCK_BOOTTIME; None: it has shown none yet. Never sent: not coupled."""

    last_tick_ns: int | None


Event = (
    Started
    | Tick
    | Answered
    | RecordChanged
    | EpochChanged
    | Listed
    | StopRequested
    | ResignRequested
    | NewTermRequested
    | Drained
    | ProgressReported
)
