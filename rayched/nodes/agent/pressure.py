"""Node-pressure eviction of a real node: a thread looks, the agent's loop decides and ends one pod, the thread waits for that.

A pass that evicted somebody is followed by the next as soon as that pod is cleaned up, after 30 s at the latest.

Without memory cgroups limits of memory are kept here too: a container that is above its own in two looks running is killed, and
its pod goes on. There is a look each second while somebody has a limit.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from rayched.api.quantity import value
from rayched.api.resources import EPHEMERAL_STORAGE, MEMORY, pod_requests
from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.admission import is_critical
from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.eviction.manager import EvictionManager, EvictionSettings, Observations
from rayched.nodes.agent.eviction.ranking import ContainerUsage, PodUsage
from rayched.nodes.agent.eviction.signals import CONDITION_OF, OF_IMAGE_FS, OF_INODES, OF_MEMORY, OF_NODE_FS, RESOURCE_OF, Signal
from rayched.nodes.agent.eviction.storage_limits import limit_signal, storage_fault
from rayched.nodes.agent.loop import LoopAnswer
from rayched.nodes.agent.node_object import DISK_PRESSURE
from rayched.nodes.agent.pod_life import PodEnding, PodLife
from rayched.nodes.agent.stalls import StallWatch
from rayched.nodes.agent.stats import NodeFigures, NodeStats, PodFigures, PodPlace
from rayched.v1.meta_pb2 import Quantity

_CLEANED_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 10.0
_LOOK_SECONDS_MIN: Final = 0.1
_FASTEST_GROWTH: Final[dict[Signal, int]] = {
    signal: 1 << 30 if signal in OF_MEMORY else 1 << 28
    for signal in Signal
    if signal is not Signal.PID and signal not in OF_INODES
}
"""Bytes a second: that a process fills with pages of its own, and that it writes to a disk."""
_POLL_SECONDS: Final = 0.5
_FAULT_SECONDS: Final = 10.0
_LIMITS_SECONDS: Final = 1.0
_OF_IMAGES: Final = (*OF_NODE_FS, *OF_IMAGE_FS)
"""What images that go may help."""

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PressurePorts:
    """What the agent gives; all but `post` and `remove_images` are called in its loop."""

    post: Callable[[Callable[[], None]], None]
    clock: Callable[[], float]
    places: Callable[[], list[PodPlace]]
    lives: Callable[[], list[PodLife]]
    """Of pods of which something may run."""
    evict: Callable[[str, PodEnding], None]
    pressures: Callable[[Iterable[str]], None]
    """Conditions that hold, after each pass."""
    kill: Callable[[str, str], None]
    """A container of a pod that is above its limit of memory."""
    reclaim: Callable[[Signal], bool]
    """Frees what the node can do without; whether there was something."""
    node_event: Callable[[PodEvent], None]
    metrics: AgentMetrics
    remove_images: Callable[[], int]
    """Removes images that nobody uses; how many. Called in the thread that looks, as it takes its time."""


class PressureMonitor:
    """Start it once, stop it once."""

    def __init__(self, settings: EvictionSettings, stats: NodeStats, ports: PressurePorts) -> None:
        self._settings = settings
        self._stats = stats
        self._ports = ports
        self._manager = EvictionManager(settings)
        self._earlier: Observations = {}
        self._files_due = float("-inf")
        """The files of pods are counted then: that takes longer than all else of a look together."""
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._evicted: str | None = None
        self.seen: Observations = {}
        """The last look."""
        self._above: set[tuple[str, str]] = set()
        """Containers that were above their limit at the last look."""
        self._stalls = StallWatch(self._stalled)
        self._thread = threading.Thread(target=self._run, name="node-pressure", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._stalls.start()

    def stop(self, seconds: float) -> None:
        self._stopped.set()
        self._wake.set()
        self._stalls.stop(seconds)
        if self._thread.is_alive():
            self._thread.join(seconds)

    def cleaned(self, uid: str) -> None:
        """Nothing of this pod lives any more."""
        if uid == self._evicted:
            self._evicted = None
            self._wake.set()

    def _stalled(self) -> None:
        self._ports.metrics.stalls.inc()
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                wait = self._look()
            except Exception:
                # Without this thread nothing would be evicted any more.
                log.exception("a look at the node failed; it is tried again")
                wait = _FAULT_SECONDS
            if wait is None:
                return
            self._wake.wait(_CLEANED_SECONDS if self._evicted is not None else wait)
            self._wake.clear()

    def _look(self) -> float | None:
        """Seconds until the next one; None: the loop has ended."""
        places = self._in_loop(self._ports.places)
        if places is None:
            return None
        now = self._ports.clock()
        files = now >= self._files_due
        figures = self._stats.look(places, now, files=files)
        if self._is_near(figures.seen):
            figures = self._stats.look(places, self._ports.clock(), exact=True, files=False)
        has_freed = files and self._free_images(figures)
        return self._in_loop(partial(self._pass, figures, files=files, has_freed=has_freed))

    def _free_images(self, figures: NodeFigures) -> bool:
        """Where a hard threshold of a disk is met, and what ended containers have left there is not enough: whether something was
        freed before the pass."""
        short = self._short_of(figures.seen)
        if short is None or self._is_near(figures.seen):
            # Memory that is short does not wait for that.
            return False
        has_freed = bool(self._in_loop(partial(self._ports.reclaim, short)))
        if has_freed and self._short_of(self._stats.disk(figures.pods.values(), self._ports.clock())) is None:
            return True
        return bool(self._ports.remove_images()) or has_freed

    def _short_of(self, seen: Observations) -> Signal | None:
        for one in self._settings.thresholds:
            found = seen.get(one.signal)
            if (
                one.signal in _OF_IMAGES
                and not one.grace
                and found is not None
                and found.available < one.value.of(found.capacity)
            ):
                return one.signal
        return None

    def _in_loop(self, call: Callable[[], T]) -> T | None:
        """What it gives, from the agent's loop; None: that has ended."""
        answer = LoopAnswer(self._ports.post, call)
        while not self._stopped.is_set():
            with contextlib.suppress(queue.Empty):
                return answer.get(_POLL_SECONDS)
        return None

    def _is_near(self, seen: Observations) -> bool:
        """Whether the rough figures decide something."""
        for one in self._settings.thresholds:
            observation = seen.get(one.signal)
            if one.signal in OF_MEMORY and observation is not None:
                limit = one.value.of(observation.capacity) + one.minimum_reclaim.of(observation.capacity)
                if observation.available < limit * 1.1:
                    return True
        return False

    def _pass(self, figures: NodeFigures, *, files: bool, has_freed: bool) -> float:
        """Seconds until the next one. `files`: they were counted for it. `has_freed`: disk, since these figures."""
        now = self._ports.clock()
        self.seen = figures.seen
        lives = {life.uid: life for life in self._ports.lives()}
        has_limits = self._keep_memory_limits(figures, lives)
        if self._over_limits(figures, lives, now):
            return 0.0
        usages = [usage_of_life(life, figures.pods.get(uid)) for uid, life in lives.items()]

        def reclaim(signal: Signal) -> Observations | None:
            if not (self._ports.reclaim(signal) or has_freed):
                return None
            return self._stats.disk(figures.pods.values(), self._ports.clock())

        verdict = self._manager.look(now, figures.seen, usages, reclaim)
        self._ports.pressures(self._manager.pressures)
        if self._manager.acting_on is not None:
            resource = RESOURCE_OF[self._manager.acting_on.signal]
            self._ports.node_event(PodEvent("Warning", "EvictionThresholdMet", f"Attempting to reclaim {resource}"))
        if verdict is not None:
            life = lives[verdict.uid]
            own = life.grace
            grace = own if verdict.grace is None else min(float(verdict.grace), own)
            metrics, age = self._ports.metrics, now - figures.seen[verdict.signal].at
            metrics.eviction_age.labels(verdict.signal.value).observe(age)
            metrics.decisions.observe(self._ports.clock() - figures.seen[verdict.signal].at)
            metrics.evictions.labels(verdict.signal.value).inc()
            self._evict(verdict.uid, PodEnding(now + grace, "Evicted", verdict.message, disruption=True))
            return 0.0
        disk = {signal: one for signal, one in figures.seen.items() if CONDITION_OF[signal] == DISK_PRESSURE}
        others = {signal: one for signal, one in figures.seen.items() if signal not in disk}
        if files:
            self._files_due = now + self._seconds_until_next(disk)
        wait = min(self._seconds_until_next(others), max(self._files_due - now, 0.0))
        self._earlier = figures.seen
        return min(wait, _LIMITS_SECONDS) if has_limits else wait

    def _seconds_until_next(self, seen: Observations) -> float:
        """Look at what is observed here. What was not looked at since is in `_earlier` as it was seen last."""
        return min(self._manager.next_pass(self._earlier, seen), self._safe_seconds(seen))

    def _safe_seconds(self, seen: Observations) -> float:
        """For so long no threshold can be crossed, however fast somebody begins to grow; the usual look at most."""
        found = _LOOK_SECONDS
        for one in self._settings.thresholds:
            observation, growth = seen.get(one.signal), _FASTEST_GROWTH.get(one.signal)
            if observation is not None and growth is not None:
                left = observation.available - one.value.of(observation.capacity)
                found = min(found, max(left / growth, _LOOK_SECONDS_MIN))
        return found

    def _keep_memory_limits(self, figures: NodeFigures, lives: Mapping[str, PodLife]) -> bool:
        """Kills who is above its limit for the second time; whether anybody has one."""
        above: set[tuple[str, str]] = set()
        has_limits = False
        for uid, life in lives.items():
            found = figures.pods.get(uid)
            for one in life.containers:
                limit = _request(one.spec.resources.limits, MEMORY)
                has_limits = has_limits or limit > 0
                if limit and found is not None and found.memory.get(one.name, 0) > limit:
                    above.add((uid, one.name))
        for uid, name in above & self._above:
            self._ports.kill(uid, name)
        self._above = above
        return has_limits

    def _over_limits(self, figures: NodeFigures, lives: Mapping[str, PodLife], now: float) -> bool:
        """Evicts every pod that is above a limit of its storage."""
        found = False
        for uid, life in lives.items():
            pod = figures.pods.get(uid)
            fault = storage_fault(life.pod, pod.volumes, pod.files) if pod is not None and life.ending is None else ""
            if fault:
                self._ports.metrics.evictions.labels(limit_signal(fault)).inc()
                self._evict(uid, PodEnding(now, "Evicted", fault, disruption=True))
                found = True
        return found

    def _evict(self, uid: str, ending: PodEnding) -> None:
        log.warning("pod %s is evicted: %s", uid, ending.message)
        self._evicted = uid
        self._ports.evict(uid, ending)


def usage_of_life(life: PodLife, figures: PodFigures | None) -> PodUsage:
    """What the ranking reads of a pod; without figures nothing is known of it."""
    pod = life.pod
    requests = pod_requests(pod)
    found = figures or PodFigures()
    containers = {
        one.name: ContainerUsage(
            found.memory.get(one.name, 0),
            found.files.get(one.name, 0),
            _request(one.spec.resources.requests, MEMORY),
            _request(one.spec.resources.requests, EPHEMERAL_STORAGE),
        )
        for one in life.containers
    }
    return PodUsage(
        uid=life.uid,
        priority=pod.spec.priority,
        started_at=life.accepted_at,
        critical=is_critical(pod),
        memory=None if figures is None else sum(found.memory.values()),
        memory_request=requests.get(MEMORY, 0),
        disk=None if figures is None else found.disk,
        disk_request=requests.get(EPHEMERAL_STORAGE, 0),
        inodes=None if figures is None else found.inodes,
        pids=None if figures is None else found.tasks,
        containers=containers,
    )


def _request(requests: Mapping[str, Quantity], name: str) -> int:
    return value(requests[name].string) if name in requests else 0
