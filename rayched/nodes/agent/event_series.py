"""What is to be told as Events: counted, bounded, and never faster than the cluster wants to hear it. Pure: the time comes in.

What happens again to the same object for the same reason is one event that counts; it is told when it first happens, then after
a pause that doubles from 5 s to 5 min. At most BURST at once and RATE a second on the long run, as kubelet has it. What is more
than WAITING_MAX is dropped and counted: nothing decides by events.

Memory: WAITING_MAX events and QUIET_MAX keys. Cost: some microseconds an event.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.services_pb2 import NodeEvent

RATE: Final = 50.0
BURST: Final = 100
WAITING_MAX: Final = 1_000
QUIET_MAX: Final = 4_096
PAUSE_SECONDS_MIN: Final = 5.0
PAUSE_SECONDS_MAX: Final = 300.0

_Key = tuple[str, str, str, str, str]


class _Pause(NamedTuple):
    until: float
    seconds: float


class EventSeries:
    """One thread at a time."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[_Key, NodeEvent] = OrderedDict()
        self._quiet: OrderedDict[_Key, _Pause] = OrderedDict()
        """When what was told may be told again."""
        self._allowance = float(BURST)
        self._allowed_at = 0.0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, about: Node | Pod, kind: str, reason: str, message: str, now: float) -> None:
        """`kind`: Normal or Warning."""
        metadata = about.metadata
        event = NodeEvent(
            kind="Pod" if isinstance(about, Pod) else "Node",
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            type=kind,
            reason=reason,
            message=message,
            count=1,
            first_at_ms=int(now * 1000),
            last_at_ms=int(now * 1000),
        )
        self._wait(event)

    def again(self, events: Iterable[NodeEvent]) -> None:
        """Those could not be told: they wait on, with what happened since."""
        for event in events:
            self._quiet.pop(_key(event), None)
            self._wait(event)

    def due(self, now: float) -> float:
        """When one may be told next; infinite: none waits."""
        first = min((self._until(key) for key in self._waiting), default=float("inf"))
        missing = 1.0 - self._allowed(now)
        return max(first, now + missing / RATE) if missing > 0 else first

    def take(self, now: float, most: int) -> list[NodeEvent]:
        """Those whose turn it is. They count as told."""
        self._allowance, self._allowed_at = self._allowed(now), now
        ready = [key for key in self._waiting if self._until(key) <= now][: min(most, int(self._allowance))]
        for key in ready:
            before = self._quiet.pop(key, None)
            pause = PAUSE_SECONDS_MIN if before is None else min(2 * before.seconds, PAUSE_SECONDS_MAX)
            self._quiet[key] = _Pause(now + pause, pause)
        while len(self._quiet) > QUIET_MAX:
            self._quiet.popitem(last=False)
        self._allowance -= len(ready)
        return [self._waiting.pop(key) for key in ready]

    def _allowed(self, now: float) -> float:
        return min(BURST, self._allowance + (now - self._allowed_at) * RATE)

    def _until(self, key: _Key) -> float:
        pause = self._quiet.get(key)
        return float("-inf") if pause is None else pause.until

    def _wait(self, event: NodeEvent) -> None:
        key = _key(event)
        there = self._waiting.get(key)
        if there is None:
            if len(self._waiting) < WAITING_MAX:
                self._waiting[key] = event
            else:
                self.dropped += event.count
            return
        newer = event if event.last_at_ms >= there.last_at_ms else there
        merged = NodeEvent()
        merged.CopyFrom(newer)
        merged.count = there.count + event.count
        merged.first_at_ms = min(there.first_at_ms, event.first_at_ms)
        self._waiting[key] = merged


def _key(event: NodeEvent) -> _Key:
    return event.kind, event.namespace, event.uid or event.name, event.type, event.reason
