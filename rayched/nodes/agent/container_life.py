"""One container of a pod through all its attempts. Pure: the time comes in, actions go out.

    waiting ─Start▶ starting ─started▶ running ─ended▶ ended ─(back-off)▶ starting ...

Times are seconds of one clock that does not step while the agent lives.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rayched.nodes.agent.actions import Action, LifecycleHook, PodEvent, RunHook, RunProbe, StopContainer
from rayched.nodes.agent.phases import ContainerRole, ContainerView
from rayched.nodes.agent.probing import ProbeKind, ProbeState, probes_of
from rayched.nodes.agent.restarts import MAX_SECONDS, failures_after, restart_delay
from rayched.v1.core_pb2 import Container

_AFTER_HOOK_SECONDS: Final = 2.0
"""At least so long a container has between the end of its preStop hook and SIGKILL."""
_POST_START_SECONDS: Final = 600.0
_CONFIGURED_AGAIN_SECONDS: Final = 10.0
CONTAINER_CREATING: Final = "ContainerCreating"


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """How an attempt ended."""

    code: int
    signal: int
    reason: str
    started_at: float
    finished_at: float
    message: str = ""


class ContainerStep(enum.Enum):
    """Where a container is."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class ContainerLife:
    """Changed by PodLife alone."""

    spec: Container
    role: ContainerRole
    restart_cap: float = MAX_SECONDS
    step: ContainerStep = ContainerStep.WAITING
    attempts: int = 0
    """Begun so far; the present one has the number below it."""
    started_at: float = 0.0
    exit: ContainerExit | None = None
    """Of the last attempt that ended."""
    earlier_exit: ContainerExit | None = None
    """Of the one before that."""
    failures: int = 0
    not_before: float = 0.0
    reason: str = CONTAINER_CREATING
    message: str = ""
    probes: dict[ProbeKind, ProbeState] = field(default_factory=dict)
    post_start_done: bool = False
    hook: LifecycleHook | None = None
    """The one that runs now."""
    pre_stop_begun: bool = False
    stop_by: float | None = None
    """When everything of it is killed, as far as it was asked to stop."""
    _stop_told: float | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def attempt(self) -> int:
        return self.attempts - 1

    @property
    def is_present(self) -> bool:
        """A process of it may live."""
        return self.step in (ContainerStep.STARTING, ContainerStep.RUNNING)

    @property
    def is_started(self) -> bool:
        startup = self.probes.get(ProbeKind.STARTUP)
        return self.step is ContainerStep.RUNNING and self.post_start_done and (startup is None or startup.passed)

    @property
    def is_ready(self) -> bool:
        readiness = self.probes.get(ProbeKind.READINESS)
        return self.is_started and (readiness is None or readiness.passed)

    def view(self) -> ContainerView:
        code = None if self.exit is None or self.step is ContainerStep.RUNNING else self.exit.code
        return ContainerView(self.role, self.step is ContainerStep.RUNNING, code, passed=self.is_started)

    # ------------------------------------------------------------------------------------------------------------ events

    def begins(self) -> None:
        self.attempts += 1
        self.step = ContainerStep.STARTING
        self.stop_by = self._stop_told = self.hook = None
        self.pre_stop_begun = False
        self.reason, self.message = CONTAINER_CREATING, ""
        self.post_start_done = False
        self.probes = {}

    def runs(self, at: float, probe_delay: float = 0.0) -> None:
        self.step = ContainerStep.RUNNING
        self.started_at = at
        self.post_start_done = not self.spec.lifecycle.HasField("post_start")
        self.probes = probes_of(self.spec, at, probe_delay)

    def not_configured(self, reason: str, message: str, now: float) -> None:
        """The attempt was not begun, and costs nothing."""
        self.attempts -= 1
        self.step = ContainerStep.WAITING if self.exit is None else ContainerStep.ENDED
        self.reason, self.message = reason, message
        self.not_before = now + _CONFIGURED_AGAIN_SECONDS

    def ends(self, found: ContainerExit) -> None:
        self.earlier_exit = self.exit
        self.exit = found
        self.step = ContainerStep.ENDED
        self.failures = failures_after(self.failures, found.finished_at - found.started_at)
        self.not_before = found.finished_at + restart_delay(self.failures, self.restart_cap)
        self.reason = self.message = ""
        self.stop_by = None

    def asks_again(self) -> None:
        """What was asked of its shim may not have arrived, or not been answered: probes and the hook after the start are made
        once more, the hook before the stop counts as made, and a stop is told once more."""
        for probe in self.probes.values():
            if probe.spec.HasField("exec"):
                probe.in_flight = False
        hooks = {LifecycleHook.POST_START: self.spec.lifecycle.post_start, LifecycleHook.PRE_STOP: self.spec.lifecycle.pre_stop}
        if self.hook is not None and hooks[self.hook].HasField("exec"):
            self.hook = None
        self._stop_told = None

    # ---------------------------------------------------------------------------------------------------------- stopping

    def stop(self, now: float, by: float) -> Iterator[Action]:
        """Asks it to end by then: the hook before the stop first, then the signal. Repeated, the earlier end counts."""
        if not self.is_present:
            return
        if self.stop_by is None:
            yield PodEvent("Normal", "Killing", f"Stopping container {self.name}")
        self.stop_by = by if self.stop_by is None else min(self.stop_by, by)
        yield from self._stop_on(now)

    def _stop_on(self, now: float) -> Iterator[Action]:
        if self.step is not ContainerStep.RUNNING or self.stop_by is None:
            return
        left = self.stop_by - now
        if self.hook is not None and left > 0:
            return
        if not self.pre_stop_begun and left > 0 and self.spec.lifecycle.HasField("pre_stop") and self._stop_told is None:
            self.hook, self.pre_stop_begun = LifecycleHook.PRE_STOP, True
            yield RunHook(self.name, self.attempt, LifecycleHook.PRE_STOP, left)
            return
        by = self.stop_by
        if self.pre_stop_begun and self._stop_told is None:
            by = max(by, now + _AFTER_HOOK_SECONDS)
        if self._stop_told is None or self.stop_by < self._stop_told:
            self._stop_told = self.stop_by
            yield StopContainer(self.name, self.attempt, max(0.0, by - now))

    # ------------------------------------------------------------------------------------------------------------- advance

    def advance(self, now: float, *, ending: bool) -> Iterator[Action]:
        """What a container that runs has to do now."""
        if self.step is not ContainerStep.RUNNING:
            return
        if self.stop_by is not None:
            yield from self._stop_on(now)
        elif not self.post_start_done:
            if self.hook is None:
                self.hook = LifecycleHook.POST_START
                yield RunHook(self.name, self.attempt, LifecycleHook.POST_START, _POST_START_SECONDS)
            return
        yield from self._probe(now, ending=ending)

    def hook_over(self, hook: LifecycleHook) -> None:
        self.hook = None
        if hook is LifecycleHook.POST_START:
            self.post_start_done = True

    def _probe(self, now: float, *, ending: bool) -> Iterator[Action]:
        for kind in self._active_probes(ending=ending):
            probe = self.probes[kind]
            if probe.is_due(now):
                probe.begin(now)
                yield RunProbe(self.name, self.attempt, kind)

    def _active_probes(self, *, ending: bool) -> list[ProbeKind]:
        startup = self.probes.get(ProbeKind.STARTUP)
        if startup is not None and not startup.passed:
            return [] if ending else [ProbeKind.STARTUP]
        kinds = (ProbeKind.READINESS,) if ending or self.stop_by is not None else (ProbeKind.LIVENESS, ProbeKind.READINESS)
        return [kind for kind in kinds if kind in self.probes]

    def wakes_at(self, *, ending: bool) -> float:
        if self.step is not ContainerStep.RUNNING:
            return float("inf")
        times = [self.probes[kind].next_at for kind in self._active_probes(ending=ending) if not self.probes[kind].in_flight]
        if self.stop_by is not None and self.hook is not None:
            times.append(self.stop_by)
        return min(times, default=float("inf"))
