"""Status writes: the condition that says why a pod has no node, written seldom and last.

* Written only when its text differs from what the pod says already, at most once a pod in STATUS_PERIOD_SECONDS, and after all
  bindings. The newest text replaces an older one that was not sent.
* One write a pod in flight: a pod whose status write is under way is busy, until its outcome is known and the cache shows it;
  a binding waits for that, because it has to be built on the pod as it is then.
* A conflict, a refusal or an answer that never comes drops the write. The next failed attempt brings the next one; only a gated
  pod, which has no attempts, is put down again.

No I/O. Owner: the SchedulerCore. Memory: one entry for each pod that waits for its write or was written in the last period.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from rayched.api.stages import Stage
from rayched.core.cache.cache import Cache
from rayched.core.writes.pod_patches import GATED, OP_STATUS, NotScheduled, not_scheduled_value
from rayched.store.transactions import BYTES_MAX, WRITES_MAX, Committed, GuardedPut, Outcome
from rayched.v1.storage_pb2 import LeaderWrite

STATUS_PERIOD_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class _WantedStatus:
    due: float
    why: NotScheduled


class StatusWrites:
    """What is to be written, what is under way, and when the next is due."""

    def __init__(self, cache: Cache, incarnation: str) -> None:
        self._cache = cache
        self._incarnation = incarnation
        self._number = 0
        self._wanted: dict[str, _WantedStatus] = {}
        self._due: list[tuple[float, str]] = []
        """A heap of when pods are due; entries that differ from `_wanted` are leftovers."""
        self._written: OrderedDict[str, float] = OrderedDict()
        """When statuses were sent in the last period, oldest first."""
        self._busy: dict[str, int | None] = {}
        """Pods with a write under way: None until the outcome is known, then the revision that the cache has to reach."""
        self._sent: dict[str, tuple[str, NotScheduled]] = {}
        """Pod and text by the attempt ids of writes under way."""

    def __len__(self) -> int:
        """Pods that wait for their write."""
        return len(self._wanted)

    def want(self, uid: str, why: NotScheduled, now: float) -> None:
        """To be written when the pod's turn comes."""
        waiting = self._wanted.get(uid)
        if waiting is not None:
            self._wanted[uid] = _WantedStatus(waiting.due, why)
            return
        written = self._written.get(uid)
        due = now if written is None else max(now, written + STATUS_PERIOD_SECONDS)
        self._wanted[uid] = _WantedStatus(due, why)
        heapq.heappush(self._due, (due, uid))

    def drop(self, uid: str) -> None:
        """The pod is about to be bound, or gone: what is not sent is not worth sending."""
        self._wanted.pop(uid, None)

    def clear(self) -> None:
        """The term is over. What is under way stays busy until its answer comes."""
        self._wanted.clear()
        self._due.clear()

    def forget_sent(self) -> None:
        """The epoch is over: answers still to come are ignored."""
        self._busy.clear()
        self._sent.clear()

    def next_due(self) -> float | None:
        due = self._due
        while due:
            when, uid = due[0]
            waiting = self._wanted.get(uid)
            if waiting is not None and waiting.due == when:
                return when
            heapq.heappop(due)
        return None

    # ---------------------------------------------------------------------------------------------------------- busy

    @property
    def is_quiet(self) -> bool:
        """No pod waits for its write, and none is under way."""
        return not self._wanted and not self._busy

    def is_busy(self, uid: str) -> bool:
        return uid in self._busy

    def is_mine(self, write: GuardedPut) -> bool:
        return write.attempt in self._sent

    def outcome(self, write: GuardedPut, outcome: Outcome, now: float) -> str | None:
        """What became of a write: its pod, if that is no longer busy."""
        uid, why = self._sent.pop(write.attempt)
        if why is GATED and not isinstance(outcome, Committed):
            self.want(uid, why, now)
        self._busy[uid] = outcome.revision if isinstance(outcome, Committed) else 0
        return uid if self.seen(uid) else None

    def seen(self, uid: str) -> bool:
        """The cache may have another state of the pod than before. True: it was busy and is no longer."""
        committed = self._busy.get(uid)
        if committed is None:
            return False
        record = self._cache.pod(uid)
        if record is not None and record.mod_revision < committed:
            return False
        del self._busy[uid]
        return True

    # --------------------------------------------------------------------------------------------------------- writing

    def batch(self, epoch: int, now: float, now_unix: float) -> list[GuardedPut]:
        """The writes that are due, as many as one transaction takes. They count as sent."""
        while self._written and next(iter(self._written.values())) + STATUS_PERIOD_SECONDS <= now:
            self._written.popitem(last=False)
        writes: list[GuardedPut] = []
        size = 0
        # Half a transaction of large pods: one more always fits.
        while len(writes) < WRITES_MAX and size < BYTES_MAX // 2:
            due = self.next_due()
            if due is None or due > now:
                break
            uid = heapq.heappop(self._due)[1]
            why = self._wanted.pop(uid).why
            write = None if uid in self._busy else self._write(uid, why, epoch, now_unix)
            if write is not None:
                self._written[uid] = now
                self._written.move_to_end(uid)
                self._busy[uid] = None
                self._sent[write.attempt] = uid, why
                writes.append(write)
                size += len(write.value)
        return writes

    def _write(self, uid: str, why: NotScheduled, epoch: int, now_unix: float) -> GuardedPut | None:
        record = self._cache.pod(uid)
        if record is None or record.pod is None or record.stage is not Stage.PENDING or why.is_said_by(record.pod):
            return None
        if why is GATED and not record.pod.spec.scheduling_gates:
            # Held back by another plugin, or let go meanwhile: the condition speaks of the gates in the pod's own spec.
            return None
        self._number += 1
        attempt = f"{self._incarnation}-status-{self._number}"
        write = LeaderWrite(op=OP_STATUS, epoch=epoch, attempt=attempt, decided_at_revision=self._cache.revision)
        value = not_scheduled_value(record.pod, why, write, now_unix)
        return GuardedPut(record.key, record.mod_revision, value, attempt=attempt)
