"""What one candidate has seen of the record and the epoch, and since when by its own clock.

Answers and watch events arrive in any order; each says as of which revision it speaks, and one that is older than what is
known is dropped. A takeover is decided by how long the record's revision has stood still by the local clock. No time written
in the record is ever compared with a clock.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from leader.clock import NS_PER_MS, NS_PER_US, Instant
from leader.record import StoredEpoch, StoredRecord, View

_NEVER_SEEN = -1


class Vacated(NamedTuple):
    """A holder was there, and then was not."""

    released: bool
    """It gave the lease back; else it vanished, or lost the lease to another one."""
    since_ns: int
    """When it was seen to do so; for one that vanished, when its last renewal was seen. CLOCK_BOOTTIME."""


class Observation:
    """Owned by one Election."""

    __slots__ = ("_epoch_as_of", "_record_as_of", "epoch", "record", "record_since_ns", "vacated")

    RULE_TIMES_ARE_THOSE_OF_SEEING: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(self) -> None:
        self.record: StoredRecord | None = None
        self.record_since_ns = 0
        """When the record's present revision was first seen."""
        self.epoch: StoredEpoch | None = None
        self.vacated: Vacated | None = None
        """The last end of a holder that was seen."""
        self._record_as_of = _NEVER_SEEN
        self._epoch_as_of = _NEVER_SEEN

    @property
    def complete(self) -> bool:
        return self._record_as_of != _NEVER_SEEN and self._epoch_as_of != _NEVER_SEEN

    @property
    def record_revision(self) -> int:
        return self.record.mod_revision if self.record else 0

    @property
    def epoch_revision(self) -> int:
        return self.epoch.mod_revision if self.epoch else 0

    @property
    def holder(self) -> str:
        return self.record.record.holder if self.record else ""

    def forget(self) -> None:
        """What was known is void: the store went back."""
        self._record_as_of = self._epoch_as_of = _NEVER_SEEN

    def see(self, view: View, at: Instant) -> bool:
        """Take over a view of both keys. True where either key changed."""
        record_changed = self.see_record(view.record, view.revision, at)
        epoch_changed = self.see_epoch(view.epoch, view.revision)
        return record_changed or epoch_changed

    def see_record(self, record: StoredRecord | None, as_of: int, at: Instant) -> bool:
        if as_of < self._record_as_of:
            return False
        first = self._record_as_of == _NEVER_SEEN
        changed = first or (record.mod_revision if record else 0) != self.record_revision
        self._record_as_of = as_of
        if changed:
            self._see_vacated(record, at)
            self.record, self.record_since_ns = record, at.boot_ns
            if record is not None and not self.RULE_TIMES_ARE_THOSE_OF_SEEING:
                self.record_since_ns -= (at.wall_us - record.record.renew_us) * NS_PER_US
        return changed

    def _see_vacated(self, record: StoredRecord | None, at: Instant) -> None:
        if self.holder and (record is None or record.record.holder != self.holder):
            released = record is not None and not record.record.holder
            self.vacated = Vacated(released, at.boot_ns if released else self.record_since_ns)

    def see_epoch(self, epoch: StoredEpoch | None, as_of: int) -> bool:
        if as_of < self._epoch_as_of:
            return False
        first = self._epoch_as_of == _NEVER_SEEN
        changed = first or (epoch.mod_revision if epoch else 0) != self.epoch_revision
        self._epoch_as_of = as_of
        self.epoch = epoch
        return changed

    def held_until_ns(self) -> int:
        """When the record, unless it changes again, may be taken from its holder; 0 where nobody holds it."""
        if self.record is None or not self.record.record.holder:
            return 0
        return self.record_since_ns + self.record.record.lease_ms * NS_PER_MS
