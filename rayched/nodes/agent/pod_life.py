"""The life of one pod on its node: what is started, probed, stopped, and when it is over. Pure: time and what happened come in.

    accepted → starting → running → ending → ended

Ending is entered by a deletion, an eviction, a deadline, a shutdown, or because all containers are done; it is never left but
forward, and its grace can only shrink. Init containers run one after the other, sidecars from their place among them until the
regular containers have ended; then they stop in reverse order. A pod has ended only when none of its containers has a process any
more.

Source: kubelet's pod workers and sync loop, Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from rayched.api.resources import is_sidecar
from rayched.api.termination import START_ERROR
from rayched.nodes.agent.actions import Action, LifecycleHook, PodEvent, PreparePod, StartContainer
from rayched.nodes.agent.container_life import ContainerExit, ContainerLife, ContainerStep
from rayched.nodes.agent.phases import ContainerRole, init_is_done, is_restarted, phase_of
from rayched.nodes.agent.probing import ProbeKind
from rayched.nodes.agent.restarts import MAX_SECONDS
from rayched.v1.core_pb2 import Pod

DEFAULT_GRACE_SECONDS: Final = 30.0
DISCONNECTED: Final = "NodeDisconnected"
_PREPARED_AGAIN_SECONDS: Final = 5.0
_DEADLINE_MESSAGE: Final = "Pod was active on the node longer than the specified deadline"


@dataclass(frozen=True, slots=True)
class PodEnding:
    """Why a pod ends, and by when. With a `reason` its phase will be Failed, whatever its containers say."""

    by: float
    reason: str = ""
    message: str = ""
    disruption: bool = False
    """The condition DisruptionTarget is told with the phase."""


@dataclass(frozen=True, slots=True)
class PodFence:
    """The pod has to be gone `at` that time, and is asked to end `grace` seconds before; unless that is put off first."""

    at: float
    grace: float
    seconds: float
    """From the sign of life from which it counts to `at`."""


class PodLife:
    """One pod that this node has accepted. One thread at a time."""

    def __init__(self, pod: Pod, accepted_at: float, *, restart_cap: float = MAX_SECONDS, probe_delay: float = 0.0) -> None:
        self.pod = pod
        self.accepted_at = accepted_at
        self.ending: PodEnding | None = None
        self.fence: PodFence | None = None
        self.prepared_at: float | None = None
        self.prepare_message = ""
        self.runtime = "process"
        """The driver of its containers."""
        self._probe_delay = probe_delay
        self._preparing = False
        self._prepare_again = 0.0
        self._events: list[PodEvent] = []
        self.containers = [
            ContainerLife(spec, ContainerRole.SIDECAR if is_sidecar(spec) else ContainerRole.INIT, restart_cap)
            for spec in pod.spec.init_containers
        ] + [ContainerLife(spec, ContainerRole.REGULAR, restart_cap) for spec in pod.spec.containers]
        self._by_name = {one.name: one for one in self.containers}

    # ------------------------------------------------------------------------------------------------------------- views

    @property
    def grace(self) -> float:
        spec = self.pod.spec
        asked = spec.termination_grace_period_seconds if spec.HasField("termination_grace_period_seconds") else None
        return DEFAULT_GRACE_SECONDS if asked is None else float(max(asked, 1))

    @property
    def has_ended(self) -> bool:
        return self.ending is not None and not any(one.is_present for one in self.containers)

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    def container(self, name: str) -> ContainerLife:
        return self._by_name[name]

    @property
    def initialized(self) -> bool:
        regular = any(one.attempts for one in self.containers if one.role is ContainerRole.REGULAR)
        return regular or init_is_done([one.view() for one in self._initial()])

    @property
    def phase(self) -> str:
        views = [one.view() for one in self.containers]
        found = phase_of(views, self.pod.spec.restart_policy, ending=self.ending is not None)
        if self.has_ended:
            return "Failed" if self.ending is not None and self.ending.reason else found
        if found not in ("Succeeded", "Failed"):
            return found
        # Something of it lives still; what ended is told when nothing does.
        return "Running" if any(one.attempts for one in self.containers if one.role is ContainerRole.REGULAR) else "Pending"

    def _initial(self) -> list[ContainerLife]:
        return [one for one in self.containers if one.role is not ContainerRole.REGULAR]

    def _regular(self) -> list[ContainerLife]:
        return [one for one in self.containers if one.role is ContainerRole.REGULAR]

    # ------------------------------------------------------------------------------------------------------------ events

    def changed(self, pod: Pod) -> None:
        """The object as it is now; what runs goes on by the specification that it was started with."""
        self.pod = pod

    def end(self, ending: PodEnding) -> None:
        """The first reason stays; a later one can only shorten the grace."""
        if self.ending is None:
            self.ending = ending
        else:
            self.ending = replace(self.ending, by=min(self.ending.by, ending.by))

    def tell(self, event: PodEvent) -> None:
        """With what is to be done next."""
        self._events.append(event)

    def is_fenced(self, by: float) -> None:
        """Its node was cut off for too long: by then nothing of it may live."""
        message = "Pod was stopped as its node had no connection to the cluster for too long"
        if self.ending is None:
            self._events.append(PodEvent("Warning", DISCONNECTED, message))
        self.end(PodEnding(by, DISCONNECTED, message, disruption=True))

    def prepared(self, now: float) -> None:
        self._preparing = False
        self.prepared_at = now
        self.prepare_message = ""

    def not_prepared(self, now: float, message: str) -> None:
        self._preparing = False
        self._prepare_again = now + _PREPARED_AGAIN_SECONDS
        self.prepare_message = message

    def lost_shim(self) -> None:
        """Its containers are told to have ended one by one; whatever starts next needs a new one."""
        self.prepared_at = None

    def started(self, name: str, attempt: int, at: float) -> None:
        one = self._by_name[name]
        if one.step is ContainerStep.STARTING and one.attempt == attempt:
            one.runs(at, self._probe_delay)
            self._events.append(PodEvent("Normal", "Started", f"Started container {name}"))

    def not_configured(self, name: str, reason: str, message: str, now: float) -> None:
        one = self._by_name[name]
        if one.step is ContainerStep.STARTING:
            if (one.reason, one.message) != (reason, message):
                self._events.append(PodEvent("Warning", "Failed", f"Error: {message}"))
            one.not_configured(reason, message, now)

    def not_begun(self, name: str, now: float) -> None:
        """The pod ends before its attempt was begun."""
        one = self._by_name[name]
        if one.step is ContainerStep.STARTING:
            one.not_configured(one.reason, one.message, now)

    def ended(self, name: str, attempt: int, found: ContainerExit) -> None:
        one = self._by_name[name]
        if one.is_present and one.attempt == attempt:
            if found.reason == START_ERROR:
                self._events.append(PodEvent("Warning", "Failed", f"Error: {found.message}"))
            one.ends(found)
            if self._restarts(one) and one.not_before > found.finished_at and self.ending is None:
                text = f"Back-off restarting failed container {name} in pod {self.full_name()}"
                self._events.append(PodEvent("Warning", "BackOff", text))

    def hook_done(self, name: str, attempt: int, hook: LifecycleHook, fault: str, now: float) -> None:
        """`fault`: empty where it went well."""
        one = self._by_name[name]
        if one.attempt != attempt or one.step is not ContainerStep.RUNNING:
            return
        one.hook_over(hook)
        if hook is LifecycleHook.PRE_STOP:
            if fault:
                self._events.append(PodEvent("Warning", "FailedPreStopHook", f"PreStopHook failed: {fault}"))
            return
        if fault:
            self._events.append(PodEvent("Warning", "FailedPostStartHook", f"PostStartHook failed: {fault}"))
            self._events.append(PodEvent("Normal", "Killing", f"Container {name} failed its hook after the start"))
            one.stop_by = now + self.grace

    def probed(self, name: str, attempt: int, kind: ProbeKind, success: bool | None, message: str, now: float) -> None:
        one = self._by_name[name]
        probe = one.probes.get(kind)
        if one.attempt != attempt or probe is None:
            return
        reached = probe.result(success)
        if success is None:
            self._events.append(PodEvent("Warning", "Unhealthy", f"{kind.value.capitalize()} probe errored: {message}"))
        elif not success:
            self._events.append(PodEvent("Warning", "Unhealthy", f"{kind.value.capitalize()} probe failed: {message}"))
        if (
            not reached
            or success
            or kind is ProbeKind.READINESS
            or one.stop_by is not None
            or one.step is not ContainerStep.RUNNING
        ):
            return
        own = probe.spec.HasField("termination_grace_period_seconds")
        grace = float(probe.spec.termination_grace_period_seconds) if own else self.grace
        text = f"Container {name} failed {kind.value} probe, will be restarted"
        self._events.append(PodEvent("Normal", "Killing", text))
        one.stop_by = now + grace

    # ------------------------------------------------------------------------------------------------------------ advance

    def advance(self, now: float) -> list[Action]:
        """What is to be done now. Asked again after each event, and at `wakes_at`."""
        actions: list[Action] = []
        self._check_deadline(now)
        if self.fence is not None and now >= self.fence.at - self.fence.grace:
            self.is_fenced(self.fence.at)
        if self.ending is None:
            actions += self._go_on(now)
        if self.ending is not None:
            actions += self._stop_on(now)
        for one in self.containers:
            actions += one.advance(now, ending=self.ending is not None)
        actions += self._events
        self._events = []
        return actions

    def wakes_at(self, now: float) -> float:
        """When time alone makes a difference, after what was to be done now."""
        times = [one.wakes_at(ending=self.ending is not None) for one in self.containers]
        if self.fence is not None:
            times.append(self.fence.at - self.fence.grace)
        if self.ending is None:
            times += [one.not_before for one in self.containers if self._waits_for_start(one)]
            if self.pod.spec.HasField("active_deadline_seconds"):
                times.append(self.accepted_at + self.pod.spec.active_deadline_seconds)
            if self.prepared_at is None and not self._preparing:
                times.append(self._prepare_again)
        elif self.ending.by < float("inf"):
            times += [self.ending.by for one in self.containers if one.is_present and one.stop_by is None]
        return min((at for at in times if at > now), default=float("inf"))

    def _check_deadline(self, now: float) -> None:
        spec = self.pod.spec
        if self.ending is not None or not spec.HasField("active_deadline_seconds"):
            return
        if now >= self.accepted_at + spec.active_deadline_seconds:
            self._events.append(PodEvent("Normal", "DeadlineExceeded", _DEADLINE_MESSAGE))
            self.end(PodEnding(now + self.grace, "DeadlineExceeded", _DEADLINE_MESSAGE))

    def _go_on(self, now: float) -> Iterator[Action]:
        if self._is_done():
            # Sidecars have as long as they would have in any ending.
            self.end(PodEnding(now + self.grace))
            return
        if self.prepared_at is None:
            if not self._preparing and now >= self._prepare_again:
                self._preparing = True
                yield PreparePod()
            return
        for one in self._initial():
            if one.role is ContainerRole.INIT:
                if one.exit is not None and one.exit.code == 0 and not one.is_present:
                    continue
                yield from self._start(one, now)
                return
            yield from self._start(one, now)
            if not one.is_started and not self._regular_begun():
                return
        for one in self._regular():
            yield from self._start(one, now)

    def _regular_begun(self) -> bool:
        return any(one.attempts for one in self._regular())

    def _is_done(self) -> bool:
        policy = self.pod.spec.restart_policy
        for one in self._initial():
            if (
                one.role is ContainerRole.INIT
                and one.step is ContainerStep.ENDED
                and one.exit is not None
                and one.exit.code
                and policy == "Never"
            ):
                return True
        return all(
            one.step is ContainerStep.ENDED and one.exit is not None and not self._restarts(one) for one in self._regular()
        )

    def _restarts(self, one: ContainerLife) -> bool:
        return one.exit is not None and is_restarted(one.role, one.exit.code, self.pod.spec.restart_policy)

    def _waits_for_start(self, one: ContainerLife) -> bool:
        if one.step is ContainerStep.WAITING:
            return one.not_before > 0
        return one.step is ContainerStep.ENDED and self._restarts(one)

    def _start(self, one: ContainerLife, now: float) -> Iterator[Action]:
        if one.is_present or now < one.not_before:
            return
        if one.step is ContainerStep.ENDED and not self._restarts(one):
            return
        one.begins()
        yield PodEvent("Normal", "Created", f"Created container {one.name}")
        yield StartContainer(one.name, one.attempt)

    def _stop_on(self, now: float) -> Iterator[Action]:
        assert self.ending is not None
        others = [one for one in self.containers if one.role is not ContainerRole.SIDECAR and one.is_present]
        for one in others:
            yield from one.stop(now, self.ending.by)
        if others and now < self.ending.by:
            return
        for one in reversed([one for one in self.containers if one.role is ContainerRole.SIDECAR and one.is_present]):
            yield from one.stop(now, self.ending.by)
            if now < self.ending.by:
                return

    def full_name(self) -> str:
        """name_namespace(uid), as kubelet's messages have it."""
        metadata = self.pod.metadata
        return f"{metadata.name}_{metadata.namespace}({metadata.uid})"
