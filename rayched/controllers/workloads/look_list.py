"""Whom the reconciler looks at next, and whom not yet. No I/O; `now` is a monotonic clock's, in seconds.

| an owner is not looked at | until |
|---|---|
| while the view has not seen what was written for it | the view's revision reaches it |
| while the view has not seen what a write of it met, and nobody knows at which revision that was | the same, or a second |
| while it rests after its writes, or after a failure | its time is over |

What fails is tried again after 1 s, then 2, 4 and so on, 60 s at most, so that one owner that always fails costs little and holds
up nobody else.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0
_KEPT_MIN: Final = 1_024

K = TypeVar("K", str, bytes)


class RetryTimes(Generic[K]):
    """How often each of some things has failed in a row, and when it may be tried again."""

    def __init__(self) -> None:
        self._failures: dict[K, tuple[int, float]] = {}
        self._prune_at = _KEPT_MIN

    def fail(self, key: K, now: float, free: int = 0) -> float:
        """When it may be tried again; the first `free` failures cost no time."""
        if len(self._failures) >= self._prune_at:
            old = now - RETRY_SECONDS_MAX
            self._failures = {known: pair for known, pair in self._failures.items() if pair[1] > old}
            self._prune_at = max(_KEPT_MIN, 2 * len(self._failures))
        count, until = self._failures.get(key, (0, now))
        count = count + 1 if now - until <= RETRY_SECONDS_MAX else 1
        seconds = min(RETRY_SECONDS * 2.0 ** min(count - free - 1, 16), RETRY_SECONDS_MAX) if count > free else 0.0
        self._failures[key] = count, now + seconds
        return now + seconds

    def holds(self, key: K, now: float) -> bool:
        """It may not be tried yet."""
        known = self._failures.get(key)
        return known is not None and now < known[1]

    def forget(self, key: K) -> None:
        self._failures.pop(key, None)


class LookList:
    """Owners by their identity. Owner: the WorkloadReconciler."""

    def __init__(self) -> None:
        self._to_look_at: dict[str, None] = {}
        self._waiting: dict[str, int] = {}
        """The revision that the view has to reach first."""
        self._hoping: dict[str, tuple[int, float]] = {}
        """A revision that the view may never reach, and until when that is waited for."""
        self._resting: dict[str, float] = {}
        self._retries = RetryTimes[str]()
        self._due: list[tuple[float, str]] = []
        """A heap: when an owner is to be looked at although nothing has changed. One may be in it several times."""
        self._due_at: dict[str, float] = {}
        """The earliest of them."""

    def add(self, owners: Iterable[str]) -> None:
        self._to_look_at.update(dict.fromkeys(owners))

    def take(self, owner: str) -> None:
        """It is looked at now."""
        del self._to_look_at[owner]

    def ready(self, *, heed_waiting: bool = True) -> Iterator[str]:
        """In the order in which they came; those that are not yet looked at stay on the list."""
        for owner in list(self._to_look_at):
            waits = heed_waiting and (owner in self._waiting or owner in self._hoping)
            if not waits and owner not in self._resting:
                yield owner

    def look_at(self, owner: str, when: float) -> None:
        known = self._due_at.get(owner)
        if known is None or when < known:
            self._due_at[owner] = when
            heapq.heappush(self._due, (when, owner))

    def seconds_until_due(self, now: float) -> float | None:
        """None: only a change brings something to do."""
        return max(0.0, self._due[0][0] - now) if self._due else None

    def wait_for(self, owner: str, revision: int) -> None:
        self._waiting[owner] = max(revision, self._waiting.get(owner, 0))

    def hope_for(self, owner: str, revision: int, now: float) -> None:
        """The view may show nothing of this revision: what is not in the cluster's keys moves etcd's revision too."""
        until = now + RETRY_SECONDS
        self._hoping[owner] = revision, until
        self.look_at(owner, until)

    def rest(self, owner: str, until: float) -> None:
        self._resting[owner] = max(until, self._resting.get(owner, 0.0))
        self.look_at(owner, until)

    def fail(self, owner: str, now: float) -> None:
        """It rests for longer each time."""
        self.rest(owner, self._retries.fail(owner, now))

    def succeed(self, owner: str) -> None:
        self._retries.forget(owner)

    def gather(self, now: float, revision: int) -> None:
        """Adds those that are due, and those that have what they waited for."""
        reached = [owner for owner, wanted in self._waiting.items() if wanted <= revision]
        over = [owner for owner, (wanted, until) in self._hoping.items() if wanted <= revision or until <= now]
        for table, owners in ((self._waiting, reached), (self._hoping, over)):
            for owner in owners:
                del table[owner]
            self.add(owners)
        while self._due and self._due[0][0] <= now:
            at, owner = heapq.heappop(self._due)
            if self._due_at.get(owner) == at:
                del self._due_at[owner]
            self._to_look_at[owner] = None
        for owner in [owner for owner, until in self._resting.items() if until <= now]:
            del self._resting[owner]

    def expect_nothing(self) -> None:
        """etcd was set back: the revisions that are waited for may never come."""
        self._waiting.clear()
        self._hoping.clear()

    def forget(self, owner: str) -> None:
        for table in (self._waiting, self._hoping, self._due_at, self._resting):
            table.pop(owner, None)
        self._retries.forget(owner)
