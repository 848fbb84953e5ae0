"""How fast nodes that were lost may be emptied: a limit for each zone, by how much of the zone is lost.

| state of a zone | when | nodes a second |
|---|---|---|
| normal | otherwise | `node_eviction_rate` |
| partially disrupted | more than 2 of its nodes, and a part of `unhealthy_zone_threshold`, are not ready | the secondary rate |
| fully disrupted | no node of it is ready | as normal: elsewhere the cluster works, so the zone is really down |
| all zones fully disrupted | | 0: rather the observer is cut off; evictions that have not begun are called off |

The secondary rate is 0 in a zone of up to `large_cluster_size_threshold` nodes.

Each limit is a token bucket that holds one token; a change of its rate leaves in it what it has.

Pure: the time comes in, in seconds of any monotonic clock. Source: the node lifecycle controller of Kubernetes 1.34.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from rayched.controllers.node_settings import NodeSettings


class ZoneState(enum.Enum):
    """How much of a zone is lost."""

    NORMAL = enum.auto()
    PARTIAL = enum.auto()
    FULL = enum.auto()


class ZoneChange(enum.Enum):
    """What has changed for the whole cluster."""

    NONE = enum.auto()
    ALL_LOST = "all zones are lost now"
    FOUND_AGAIN = "the first of them works again"


@dataclass(frozen=True, slots=True)
class Census:
    """The nodes of a zone that count."""

    ready: int
    not_ready: int


def zone_state(census: Census, threshold: float) -> ZoneState:
    nodes = census.ready + census.not_ready
    if not census.ready and census.not_ready:
        return ZoneState.FULL
    if census.not_ready > 2 and census.not_ready / nodes >= threshold:
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


class _TokenBucket:
    """Holds one token at most; begins with it."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._tokens = 1.0
        self._at = now

    def set_rate(self, rate: float, now: float) -> None:
        self._fill(now)
        self.rate = rate

    def take(self, now: float) -> bool:
        self._fill(now)
        # What a float loses by many small fillings shall not cost a turn.
        if not self.rate or self._tokens < 1.0 - 1e-9:
            return False
        self._tokens -= 1.0
        return True

    def _fill(self, now: float) -> None:
        self._tokens = min(1.0, self._tokens + max(0.0, now - self._at) * self.rate)
        self._at = now


class ZoneLimits:
    """`census` with each look at all nodes; `may_empty` for each node that is to be emptied."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._buckets: dict[str, _TokenBucket] = {}
        self.states: dict[str, ZoneState] = {}
        self.all_lost = False

    def census(self, zones: Mapping[str, Census], now: float) -> ZoneChange:
        """The nodes of all zones that have some."""
        states = {zone: zone_state(found, self._settings.unhealthy_zone_threshold) for zone, found in zones.items()}
        all_lost = bool(states) and all(state is ZoneState.FULL for state in states.values())
        turn = ZoneChange.NONE
        if all_lost and not self.all_lost:
            turn = ZoneChange.ALL_LOST
        elif self.all_lost and not all_lost:
            turn = ZoneChange.FOUND_AGAIN
        self.states, self.all_lost = states, all_lost
        for zone in [zone for zone in self._buckets if zone not in states]:
            del self._buckets[zone]
        for zone, state in states.items():
            rate = self._rate(state, zones[zone])
            bucket = self._buckets.get(zone)
            if bucket is None:
                self._buckets[zone] = _TokenBucket(rate, now)
            elif bucket.rate != rate:
                bucket.set_rate(rate, now)
        return turn

    def may_empty(self, zone: str, now: float) -> bool:
        """Takes a token where there is one."""
        bucket = self._buckets.get(zone)
        return not self.all_lost and bucket is not None and bucket.take(now)

    def _rate(self, state: ZoneState, census: Census) -> float:
        settings = self._settings
        if self.all_lost:
            return 0.0
        if state is not ZoneState.PARTIAL:
            return settings.node_eviction_rate
        large = census.ready + census.not_ready > settings.large_cluster_size_threshold
        return settings.secondary_node_eviction_rate if large else 0.0
