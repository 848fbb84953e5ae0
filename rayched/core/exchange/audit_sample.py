"""The scheduler's part in the queue's audit: it states what it knows of a few pods at a time, so that none is lost on the way.

The cache is gone through round by round, PODS_PER_SECOND of it; besides, the queue suggests pods that it holds. What is stated
here holds as of the end of the log, so a roll crosses only with a request that carries the log to its end.

A pod that an earlier session's attempt may still hold room for is left out: nobody can say whether it waits.

No I/O. Owner: the SchedulerCore. Cost: 0.2 µs for each pod of the cache that is looked at, 20 µs with the queue's part for each
that is asked about: less than 0.5 % of a processor, and once a round a list of all pods (10 ms for a million).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from typing import Final

from rayched.api.stages import Stage
from rayched.core.cache.cache import Cache
from rayched.core.cache.records import PodRecord
from rayched.core.exchange.messages import Stated
from rayched.queue.audit import Standing

PODS_PER_SECOND: Final = 150
"""Asked about."""
PODS_MAX: Final = 75
"""In one roll: what half a second brings."""
LOOKS_PER_POD: Final = 20
"""Pods of the cache looked at for each that may be asked about: most have a node."""
PODS_PER_SUGGESTION: Final = 4
ROUND_SECONDS_MIN: Final = 1.0
"""Between the beginnings of two rounds."""


class RollCall:
    """Picks the pods that the next call names for the queue's audit."""

    def __init__(
        self, cache: Cache, is_to_be_tried: Callable[[PodRecord], bool], is_group: Callable[[str], bool] = lambda _: False
    ) -> None:
        """`is_group`: whether the queue has a group under this uid, of which nothing is stated."""
        self._cache = cache
        self._is_to_be_tried = is_to_be_tried
        self._is_group = is_group
        self._round: list[str] = []
        self._round_since: float | None = None
        self._since: float | None = None
        self._suggested: deque[tuple[str, str]] = deque(maxlen=PODS_MAX)

    def begin(self, now: float) -> None:
        """A session begins: its queue has no pod yet."""
        self._round.clear()
        self._round_since = None
        self._suggested.clear()
        self._since = now

    def suggest(self, pods: tuple[tuple[str, str], ...]) -> None:
        """Uid and name of pods that the queue holds."""
        self._suggested.extend(pods)

    def is_due(self, now: float) -> bool:
        """So long ago that a call of its own is worth it."""
        return self._since is not None and now - self._since >= PODS_MAX / PODS_PER_SECOND

    def take(self, now: float, in_flight: Set[str]) -> tuple[tuple[Stated, ...], int]:
        """What is known now of the next pods, and how many the queue is to suggest. `in_flight`: whom the queue waits for."""
        wanted = 0 if self._since is None else min(PODS_MAX, int((now - self._since) * PODS_PER_SECOND))
        if not wanted:
            return (), 0
        self._since = now
        stated: list[Stated] = []
        while self._suggested and len(stated) < wanted:
            self._state(*self._suggested.popleft(), in_flight, stated)
        for _ in range(wanted * LOOKS_PER_POD):
            if len(stated) >= wanted or not self._has_next(now):
                break
            record = self._cache.pod(self._round.pop())
            if record is not None and record.stage is Stage.PENDING:
                self._state(record.uid, record.name, in_flight, stated)
        return tuple(stated), max(1, wanted // PODS_PER_SUGGESTION)

    def _has_next(self, now: float) -> bool:
        if not self._round and (self._round_since is None or now - self._round_since >= ROUND_SECONDS_MIN):
            self._round = self._cache.uids()
            self._round_since = now
        return bool(self._round)

    def _state(self, uid: str, name: str, in_flight: Set[str], stated: list[Stated]) -> None:
        record = self._cache.pod(uid)
        if uid in in_flight:
            stated.append((uid, name, Standing.IN_FLIGHT.value))
        elif record is None and self._is_group(uid):
            return
        elif record is None or record.stage is not Stage.PENDING:
            stated.append((uid, name, Standing.NOWHERE.value))
        elif self._is_to_be_tried(record):
            stated.append((uid, record.name, Standing.QUEUED.value))
