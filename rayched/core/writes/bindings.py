"""The binding cycle's writes: from an attempt that is ready to a definite outcome.

```
  add ──▶ ready ──▶ (PreBind, Bind, built) ──▶ sent ──▶ bound
             ▲                 │                 │ conflict
   status write settled        ▼                 ▼
          waits for it     stale, refused     lost: waits until the cache shows what refused it
```

* A binding compares the pod as it is in the cache when it is built, the node as it was when it was chosen, and the epoch.
* A pod that names its node itself takes room there without asking. An attempt whose node took such a pod since its decision is
  tried again; and the binding compares the key that changes with the next one, so what is bound fits at that very moment.
* A pod that changed since its attempt began in what scheduling reads is not bound: the attempt is stale.
* A conflict rolls the attempt back at once. The pod is worth another attempt only when the cache has the very state that refused
  it, else the next attempt would be refused for the same reason; `resolved` tells when.

What becomes of a pod is an `EndedAttempt`; whoever owns the log tells the queue. No I/O. Owner: the SchedulerCore.
Cost: about 8 µs a binding.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from rayched.api.stages import PENDING
from rayched.core.cache.cache import Cache
from rayched.core.cache.records import PodRecord
from rayched.core.writes.foreign_bindings import ForeignBindings
from rayched.core.writes.pod_patches import BindingValues
from rayched.core.writes.recognition import is_on
from rayched.core.writes.statuses import StatusWrites
from rayched.framework.status import error
from rayched.scheduler.attempt import Attempt, AttemptFailure
from rayched.scheduler.scheduler import Scheduler
from rayched.snapshot.snapshot import Snapshot
from rayched.store.entries import Entry
from rayched.store.transactions import BYTES_MAX, WRITES_MAX, Committed, Conflict, GuardedPut, Outcome, TransactionRefused, Write

READY_MAX: Final = 1_024
"""Bindings that wait to be sent; with more nothing is decided until the store takes some."""


class AttemptEnd(enum.Enum):
    """What became of a pod's attempt."""

    BOUND = "bound"
    FAILED = "failed"
    """A plugin or the store turned the binding down."""
    AGAIN = "again"
    """A race was lost: worth another attempt at once."""


ENDS_BOUND: Final = AttemptEnd.BOUND
"""For what happens with each attempt: to look a member up in its class takes 0.1 µs."""


class EndedAttempt(NamedTuple):
    uid: str
    end: AttemptEnd
    attempt: Attempt | None = None
    failure: AttemptFailure | None = None


_Ready = tuple[Attempt, tuple[bytes, int], int]
"""An attempt on its way to the store, and the state it was decided on: the node's guard and the revision."""


@dataclass(frozen=True, slots=True)
class LostRace:
    """States that the cache has to reach: for each key the revision compared and the one found (0: not there)."""

    keys: tuple[tuple[bytes, int, int], ...]

    def is_shown(self, cache: Cache) -> bool:
        """The cache has what refused the write: another one would not be refused for the same reason."""
        return all(_has_reached(cache, *key) for key in self.keys)


class Bindings:
    """Attempts that chose a node, until their binding is committed or lost."""

    def __init__(self, cache: Cache, scheduler: Scheduler, snapshot: Snapshot, statuses: StatusWrites, incarnation: str) -> None:
        self.foreign: Final = ForeignBindings(cache, scheduler, snapshot, statuses)
        """Those of other schedulers: judged apart, written as these are."""
        self._cache = cache
        self._scheduler = scheduler
        self._statuses = statuses
        self._incarnation = incarnation
        self._number = 0
        self._decided: dict[str, _Ready] = {}
        """Attempts that chose a node and were not sent, by uid: those ready, those whose pod is busy, those that wait."""
        self._ready: deque[str] = deque()
        self._after_status: set[str] = set()
        self._built: tuple[Attempt, GuardedPut] | None = None
        """A write that did not fit into the last transaction."""
        self._sent: dict[str, Attempt] = {}
        """By attempt id."""
        self._lost: dict[str, LostRace] = {}

    @property
    def n_unsent(self) -> int:
        return len(self._ready) + (self._built is not None)

    @property
    def n_under_way(self) -> int:
        """Attempts between their decision and the store's word."""
        return len(self._decided) + len(self._sent) + (self._built is not None) + self.foreign.n_under_way

    @property
    def room(self) -> int:
        """How many more may be decided before some are sent."""
        return max(0, READY_MAX - len(self._ready))

    # ------------------------------------------------------------------------------------------------------- coming in

    def decided(self, attempt: Attempt) -> None:
        """An attempt chose its node just now: remember what it was decided on."""
        uid, cache = attempt.uid, self._cache
        self._statuses.drop(uid)
        self._decided[uid] = attempt, cache.node_guard(attempt.node_name), cache.revision

    def ready(self, uid: str) -> None:
        """Nothing but a status write under way keeps the attempt from its binding cycle."""
        if self._statuses.is_busy(uid):
            self._after_status.add(uid)
        else:
            self._ready.append(uid)

    def status_settled(self, uid: str) -> None:
        """The pod's status write is out of the way."""
        if uid in self._after_status:
            self._after_status.remove(uid)
            self._ready.append(uid)

    def cancel(self, uid: str) -> None:
        """The attempt was rolled back: it is not sent. If it was, its outcome is ignored."""
        self._decided.pop(uid, None)
        self._after_status.discard(uid)
        if self._built is not None and self._built[0].uid == uid:
            self._built = None

    def stop(self) -> None:
        """The term is over or interrupted: what was not sent is rolled back."""
        unsent = [attempt for attempt, _, _ in self._decided.values()]
        if self._built is not None:
            unsent.append(self._built[0])
        for attempt in unsent:
            self._scheduler.roll_back(attempt)
        self._decided.clear()
        self._ready.clear()
        self._after_status.clear()
        self._built = None
        self.foreign.stop()
        self.forget_lost()

    def forget_lost(self) -> None:
        """Every pending pod goes to the queue anew: the outcome of a lost race is not awaited."""
        self._lost.clear()

    def forget_sent(self) -> None:
        """The epoch is over: answers still to come are ignored."""
        self._sent.clear()
        self.foreign.forget_sent()

    # --------------------------------------------------------------------------------------------------------- writing

    def batch(self, epoch: int, now_unix: float, ended: list[EndedAttempt]) -> list[GuardedPut]:
        """The next bindings, as many as one transaction takes. They count as sent; attempts that end here go into `ended`."""
        writes: list[GuardedPut] = []
        size = 0
        values = BindingValues(epoch, now_unix)
        while len(writes) < WRITES_MAX:
            built = self._built or self._next(values, ended)
            if built is None:
                break
            attempt, write = built
            if writes and size + len(write.value) > BYTES_MAX:
                self._built = built
                break
            self._built = None
            self._sent[write.attempt] = attempt
            self._cache.expect(write.key, write.value, attempt.node_name, write.attempt)
            writes.append(write)
            size += len(write.value)
        return writes

    def _next(self, values: BindingValues, ended: list[EndedAttempt]) -> tuple[Attempt, GuardedPut] | None:
        while self._ready:
            ready = self._decided.pop(self._ready.popleft(), None)
            if ready is None:
                continue
            attempt, node_guard, decided_at = ready
            record = self._cache.pod(attempt.uid)
            is_taken = self._cache.is_taken_since(attempt.node_name, decided_at)
            if record is None or record.kept is None or not is_as_decided(record, attempt) or is_taken:
                self._scheduler.roll_back(attempt)
                ended.append(EndedAttempt(attempt.uid, AttemptEnd.AGAIN, attempt))
                continue
            failure = self._scheduler.begin_binding(attempt, self.next_id())
            if failure is not None:
                ended.append(EndedAttempt(attempt.uid, AttemptEnd.FAILED, attempt, failure))
                continue
            value = values.value(record, attempt.node_name, attempt.id, decided_at)
            guards = (node_guard, self._cache.taken_guard(attempt.node_name))
            return attempt, GuardedPut(record.key, record.mod_revision, value, guards, (), attempt.id)
        return None

    def next_id(self) -> str:
        """The id of the next attempt to be written, whoever writes it: they tell in which order attempts were made."""
        self._number += 1
        return f"{self._incarnation}-{self._number}"

    # -------------------------------------------------------------------------------------------------------- outcomes

    def is_mine(self, write: GuardedPut) -> bool:
        return write.attempt in self._sent

    def outcome(self, write: GuardedPut, outcome: Outcome) -> EndedAttempt | None:
        """What became of a sent binding. None: not known yet, or ignored."""
        attempt = self._sent.pop(write.attempt, None)
        if attempt is None or self._scheduler.attempt(attempt.uid) is not attempt:
            # Its pod was seen bound, or went, before the answer came.
            return None
        match outcome:
            case Committed():
                self._scheduler.bound(attempt)
                return EndedAttempt(attempt.uid, ENDS_BOUND, attempt)
            case Conflict() if is_on(outcome.current, attempt):
                # Bound by an earlier sending and written to since, so the attempt id is gone. The room is taken all the same.
                self._scheduler.bound(attempt)
                return EndedAttempt(attempt.uid, ENDS_BOUND, attempt)
            case Conflict():
                self._scheduler.roll_back(attempt)
                self.lose(attempt.uid, write, outcome)
                return None
            case TransactionRefused(problem):
                self._scheduler.roll_back(attempt)
                return EndedAttempt(
                    attempt.uid, AttemptEnd.FAILED, attempt, AttemptFailure(error(str(problem)), f"binding rejected: {problem}")
                )
            case _:
                # Fenced: the term is over, and so is this write.
                self._scheduler.roll_back(attempt)
                return EndedAttempt(attempt.uid, AttemptEnd.AGAIN, attempt)

    def lose(self, uid: str, write: GuardedPut, conflict: Conflict) -> None:
        """The pod's write lost a race: it is worth another attempt when the cache shows what it lost to."""
        self._lost[uid] = lost_race(write, conflict)

    def has_lost(self, uid: str) -> bool:
        """The pod's write lost a race, and the cache does not show yet what it lost to."""
        return uid in self._lost

    def resolved(self) -> Iterator[EndedAttempt]:
        """Pods whose lost race the cache shows by now."""
        if not self._lost:
            return
        for uid, lost in list(self._lost.items()):
            if lost.is_shown(self._cache):
                del self._lost[uid]
                yield EndedAttempt(uid, AttemptEnd.AGAIN)


def is_as_decided(record: PodRecord, attempt: Attempt) -> bool:
    """The pod still is what the attempt looked at."""
    if record.stage is not PENDING:
        return False
    return record.template is attempt.template or record.template.content == attempt.template.content


def _has_reached(cache: Cache, key: bytes, compared: int, found: int) -> bool:
    known = cache.revision_of(key)
    if compared == found:
        return True
    if not found:
        return known != compared
    return known >= found or (known == 0 and compared != 0)


def lost_race(write: Write, conflict: Conflict) -> LostRace:
    """What the cache has to show of a write that was refused."""
    compared = ((write.key, write.mod_revision), *write.also)
    found: tuple[Entry | None, ...] = (conflict.current, *conflict.also)
    return LostRace(
        tuple(
            # What stood for all keys below it was answered by one of them.
            (key, revision, 0) if entry is None else (entry.key, revision, entry.mod_revision)
            for (key, revision), entry in zip(compared, found, strict=True)
        )
    )
