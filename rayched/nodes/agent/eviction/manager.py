"""One pass after the other of node-pressure eviction: which thresholds are met, what is under pressure, what is to be done. Pure.

    1  thresholds whose available is below their value, and those met before that have not regained value + minimum reclaim
    2  when each was met first; conditions of all of them hold now, and for a transition period after they were last seen
    3  of those whose grace is over: memory first, then as configured; the first one is acted on
    4  the node reclaims what it can itself; then one pod is evicted, and none more in that pass

An observation that is no newer than the one before it is not acted on.

Source: the eviction manager of kubelet 1.34. Known difference: a pass comes sooner than after 10 s when a threshold is near.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rayched.nodes.agent.eviction.ranking import ONE_FILE_SYSTEM, DiskLayout, PodUsage, eviction_message, ranked
from rayched.nodes.agent.eviction.signals import CONDITION_OF, OF_MEMORY, Signal, SignalObservation
from rayched.nodes.agent.eviction.thresholds import Threshold

TRANSITION_SECONDS: Final = 300.0
PASS_SECONDS_MAX: Final = 10.0
_PASS_SECONDS_MIN: Final = 0.1
_NEAR_SECONDS: Final = 0.2
_NEAR: Final = 1.1
"""Within a tenth above a threshold."""

RULE_TRANSITION_PERIOD: bool = True
RULE_MIN_RECLAIM: bool = True
"""Broken by tests alone."""

Observations = Mapping[Signal, SignalObservation]


@dataclass(frozen=True, slots=True)
class EvictionSettings:
    """`max_pod_grace`: of soft evictions; negative: the pod's own."""

    thresholds: Sequence[Threshold]
    max_pod_grace: int = 0
    transition: float = TRANSITION_SECONDS
    layout: DiskLayout = ONE_FILE_SYSTEM


@dataclass(frozen=True, slots=True)
class EvictionVerdict:
    """A pod to be evicted. `grace` None: the pod's own; 0: at once."""

    uid: str
    signal: Signal
    grace: int | None
    message: str


class EvictionManager:
    """The state between passes."""

    def __init__(self, settings: EvictionSettings) -> None:
        self._settings = settings
        self._met: tuple[Threshold, ...] = ()
        self._first_met: dict[Threshold, float] = {}
        self._last_seen: dict[str, float] = {}
        self._before: dict[Signal, SignalObservation] = {}
        self.pressures: tuple[str, ...] = ()
        """Conditions that hold, as of the last pass."""
        self.acting_on: Threshold | None = None
        """What the last pass acted on; None: nothing was to be done."""

    def look(
        self, now: float, seen: Observations, pods: Iterable[PodUsage], reclaim: Callable[[Signal], Observations | None]
    ) -> EvictionVerdict | None:
        """One pass. `reclaim` frees what the node can do without and observes anew; None: there was nothing."""
        settings = self._settings
        met = [one for one in settings.thresholds if self._is_met(one, seen, RULE_MIN_RECLAIM and one in self._met)]
        self._first_met = {one: self._first_met.get(one, now) for one in met}
        for one in met:
            self._last_seen[CONDITION_OF[one.signal]] = now
        holds = settings.transition if RULE_TRANSITION_PERIOD else 0.0
        self.pressures = tuple(
            kind
            for kind in dict.fromkeys(CONDITION_OF.values())
            if kind in self._last_seen and (now - self._last_seen[kind] < holds or self._last_seen[kind] == now)
        )
        due = [one for one in met if now - self._first_met[one] >= one.grace]
        self._met = tuple(due)
        fresh = [one for one in due if self._is_newer(one.signal, seen)]
        self._before = dict(seen)
        self.acting_on = None
        if not fresh:
            return None
        first = min(fresh, key=lambda one: (one.signal not in OF_MEMORY, settings.thresholds.index(one)))
        self.acting_on = first
        again = reclaim(first.signal)
        if again is not None:
            seen = {**seen, **again}
            if not any(self._is_met(one, seen, minimum=True) for one in due):
                return None
        return self._victim(first, seen, pods)

    def _is_newer(self, signal: Signal, seen: Observations) -> bool:
        return signal not in self._before or seen[signal].at > self._before[signal].at

    def _is_met(self, threshold: Threshold, seen: Observations, minimum: bool) -> bool:
        observation = seen.get(threshold.signal)
        if observation is None:
            return False
        value = threshold.value.of(observation.capacity)
        if minimum:
            value += threshold.minimum_reclaim.of(observation.capacity)
        return observation.available < value

    def _victim(self, threshold: Threshold, seen: Observations, pods: Iterable[PodUsage]) -> EvictionVerdict | None:
        observation = seen[threshold.signal]
        for pod in ranked(pods, threshold.signal, self._settings.layout):
            if pod.critical:
                continue
            most = self._settings.max_pod_grace
            grace = 0 if not threshold.grace else None if most < 0 else most
            text = eviction_message(pod, threshold.signal, threshold.value.of(observation.capacity), observation)
            return EvictionVerdict(pod.uid, threshold.signal, grace, text)
        return None

    def next_pass(self, earlier: Observations, seen: Observations) -> float:
        """Seconds until the next pass, from how fast what is available shrinks."""
        wait = PASS_SECONDS_MAX
        for one in self._settings.thresholds:
            observation, before = seen.get(one.signal), earlier.get(one.signal)
            if observation is None:
                continue
            left = observation.available - one.value.of(observation.capacity)
            if observation.available < one.value.of(observation.capacity) * _NEAR:
                wait = min(wait, _NEAR_SECONDS)
            if before is not None and observation.at > before.at and before.available > observation.available:
                shrinks = (before.available - observation.available) / (observation.at - before.at)
                wait = min(wait, max(left, 0) / shrinks / 3)
        return max(wait, _PASS_SECONDS_MIN)
