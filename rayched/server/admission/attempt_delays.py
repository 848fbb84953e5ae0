"""How long small pods wait from their creation to their first attempt, by samples of what the hub is fed with.

The first change of a pod that waits for a node is its attempt's: it is bound, or says why not. Pods that nobody will try (of a
scheduler that is not there, behind a pod of their priority that never ends) are forgotten after a while and say nothing.

No I/O. Owner: the event loop. Cost: 0.2 µs a change; a sample is decoded, at most one in SAMPLE_SECONDS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

from rayched.server.admission.large_objects import LARGE_BYTES
from rayched.store.codec import PoisonedObject, decode_entry
from rayched.store.entries import Change, Entry

SAMPLE_SECONDS: Final = 0.02
SAMPLES_MAX: Final = 64
FORGOTTEN_SECONDS: Final = 60.0


class AttemptDelays:
    """See the module. Times in seconds."""

    def __init__(self, pods: bytes, tried: Callable[[float, float], None], clock: Callable[[], float]) -> None:
        """`pods`: what the keys of pods begin with. `tried` gets how long one waited, and the time."""
        self._pods = pods
        self._tried = tried
        self._clock = clock
        self._waiting: dict[bytes, float] = {}
        """When samples were created, by key; the oldest first."""
        self._next_at = -math.inf

    def changed(self, changes: Iterable[Change]) -> None:
        """Keys have changed; in order."""
        now, waiting = self._clock(), self._waiting
        for change in changes:
            if change.key in waiting:
                since = waiting.pop(change.key)
                if isinstance(change, Entry):
                    self._tried(now - since, now)
            elif now >= self._next_at and self._is_sample(change):
                self._next_at = now + SAMPLE_SECONDS
                self._forget(now)
                if len(waiting) < SAMPLES_MAX:
                    waiting[change.key] = now

    def _is_sample(self, change: Change) -> bool:
        if not isinstance(change, Entry) or change.create_revision != change.mod_revision:
            return False
        if len(change.value) > LARGE_BYTES or not change.key.startswith(self._pods):
            return False
        try:
            spec = decode_entry(change).pod.spec
        except PoisonedObject:
            # The hub's readers report it.
            return False
        return not spec.node_name and not spec.scheduling_gates

    def _forget(self, now: float) -> None:
        while self._waiting:
            oldest = next(iter(self._waiting))
            if now - self._waiting[oldest] < FORGOTTEN_SECONDS:
                return
            del self._waiting[oldest]
