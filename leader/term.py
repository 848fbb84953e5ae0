"""A candidate's own term, and the values that it writes for it.

The token of a term is the revision of the transaction that began it. `transitions` counts changes of holder as client-go
does: it starts at 0 with the first record, stays when the same holder begins again, and grows by one otherwise, also after a
release. A new term of a living leader counts too.
"""

from __future__ import annotations

from dataclasses import dataclass

from leader import effects as fx
from leader.clock import Instant
from leader.config import ElectionConfig
from leader.observation import Observation
from leader.record import RELEASED_LEASE_MS, Epoch, LeaderRecord, StoredEpoch, StoredRecord, View


@dataclass(frozen=True, slots=True)
class Candidate:
    """Writes records in the name of one run of one identity."""

    config: ElectionConfig
    instance: str

    def holds(self, seen: Observation) -> bool:
        """Whether both keys were last written by this run."""
        record, epoch = seen.record, seen.epoch
        return record is not None and epoch is not None and record.record.instance == epoch.epoch.instance == self.instance

    def may_take_ns(self, seen: Observation, *, led_before: bool) -> int:
        """When the record may be taken; 0: now."""
        record = seen.record.record if seen.record else None
        own_identity = record is not None and record.holder == self.config.identity
        own_instance = record is not None and record.instance == self.instance
        # An earlier life of this identity is gone. A living twin, seen after having led, is another candidate.
        if own_identity and (own_instance or not led_before):
            return 0
        return seen.held_until_ns()

    def record(self, at: Instant, acquired_us: int, seen: Observation) -> LeaderRecord:
        return LeaderRecord(
            holder=self.config.identity,
            instance=self.instance,
            lease_ms=self.config.lease_ms,
            acquire_us=acquired_us,
            renew_us=at.wall_us,
            version=self.config.version,
            address=self.config.address,
            labels=self._labels(seen),
        )

    def acquire(self, number: int, at: Instant, seen: Observation) -> fx.Acquire:
        """The transaction that takes what was seen, exactly as it was seen."""
        record = seen.record.record if seen.record else None
        epoch = seen.epoch.epoch if seen.epoch else None
        last_holder = record.holder if record else epoch.holder if epoch else None
        if last_holder == self.config.identity:
            transitions = epoch.transitions if epoch else 0
            acquired_us = record.acquire_us if record else at.wall_us
        else:
            transitions = 0 if last_holder is None else (epoch.transitions if epoch else 0) + 1
            acquired_us = at.wall_us
        return fx.Acquire(
            number,
            self.config.call_timeout_ns,
            seen.record_revision,
            seen.epoch_revision,
            self.record(at, acquired_us, seen),
            Epoch(transitions, self.config.identity, self.instance),
        )

    def renew(self, number: int, at: Instant, guard: int, seen: Observation) -> fx.Renew:
        return fx.Renew(number, self.config.renewal_timeout_ns, guard, self.record(at, self._acquired_us(at, seen), seen))

    def begin_term(self, number: int, at: Instant, guard: int, seen: Observation) -> fx.BeginTerm:
        epoch = Epoch(_transitions(seen) + 1, self.config.identity, self.instance)
        record = self.record(at, self._acquired_us(at, seen), seen)
        return fx.BeginTerm(number, self.config.renewal_timeout_ns, guard, record, epoch)

    def release(self, number: int, at: Instant, guard: int, seen: Observation) -> fx.Release:
        record = LeaderRecord(
            "", lease_ms=RELEASED_LEASE_MS, acquire_us=at.wall_us, renew_us=at.wall_us, labels=self._labels(seen)
        )
        return fx.Release(number, self.config.call_timeout_ns, guard, record, Epoch(_transitions(seen), ""))

    def _labels(self, seen: Observation) -> tuple[tuple[str, str], ...]:
        """The own labels as they shall be, and everybody else's as they were seen."""
        if seen.record is None or not seen.record.record.labels:
            return self.config.labels
        return tuple(sorted({**dict(seen.record.record.labels), **dict(self.config.labels)}.items()))

    def _acquired_us(self, at: Instant, seen: Observation) -> int:
        """Of the own record; now, where the record has vanished."""
        record = seen.record.record if seen.record else None
        return record.acquire_us if record is not None and record.instance == self.instance else at.wall_us


def written(write: fx.Acquire | fx.BeginTerm | fx.Release, revision: int) -> View:
    """What both keys hold after this transaction."""
    return View(StoredRecord(write.record, revision), StoredEpoch(write.epoch, revision), revision)


def _transitions(seen: Observation) -> int:
    return seen.epoch.epoch.transitions if seen.epoch else 0
