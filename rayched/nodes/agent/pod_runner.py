"""Carries out the life of one pod: its directory, its shim, its probes, its reports. The agent's loop thread owns it.

Whatever blocks is done by a worker, which posts its result back to the loop. What decides is written to disk before it is done:
that the pod is accepted, why it ends, which attempt begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from rayched.api.disconnection import fence_condition, grace_before_stop, stop_after_seconds
from rayched.api.termination import START_ERROR
from rayched.nodes.agent.actions import (
    Action,
    LifecycleHook,
    PodEvent,
    PreparePod,
    RunHook,
    RunProbe,
    StartContainer,
    StopContainer,
)
from rayched.nodes.agent.attempts import AttemptPreparer
from rayched.nodes.agent.container_life import ContainerLife, ContainerStep
from rayched.nodes.agent.disk import DiskFault, PodDirectory
from rayched.nodes.agent.drivers.process_driver import PROCESS
from rayched.nodes.agent.handlers import carry_out
from rayched.nodes.agent.leftovers import sweep
from rayched.nodes.agent.owed_writes import OwedWrites
from rayched.nodes.agent.pod_life import PodEnding, PodFence, PodLife
from rayched.nodes.agent.pod_shim import PodShim, ShimPorts
from rayched.nodes.agent.pod_status import status_of
from rayched.nodes.agent.recovery import exit_of, has_begun, lost_exit, memory_of, presumed_running, restore
from rayched.nodes.agent.runner_context import RunnerContext
from rayched.nodes.agent.shim_link import Answer
from rayched.v1.core_pb2 import Pod, PodStatus

STOP_GROUP_ANNOTATION: Final = "rayched.dev/stop-group"
_START_ERROR_CODE: Final = 128
_RECOVERY_SECONDS: Final = 1.0
"""So long an agent that begins waits for leftovers of one pod to die."""
_STUCK_SECONDS: Final = 60.0

log = logging.getLogger(__name__)


class PodRunner:
    """One pod that is accepted."""

    def __init__(self, context: RunnerContext, directory: PodDirectory, pod: Pod, accepted_at: float) -> None:
        self._context = context
        self.directory = directory
        self.life = PodLife(pod, accepted_at, restart_cap=context.restart_cap)
        self._shim = PodShim(context, directory, self._shim_ports())
        self._saved_ending: PodEnding | None = None
        self._saved_memory: dict[str, Any] = {}
        self._owed = OwedWrites(directory.path, context.post_later)
        self._attempts = AttemptPreparer(context, directory, self.life, self._ask_to_start, self.step)
        self.removed_from = 0.0
        """Its directory is removed then at the earliest."""
        self._armed_under = 0
        """The incarnation of the agent under which its shim has taken its fence; 0: it has none, or has not."""
        self._stuck_told_at = float("-inf")
        self.is_held = False
        """Nothing is started; what runs goes on. So until the cluster's state is known."""
        self.has_moved = True
        """Since its last turn."""

    @property
    def uid(self) -> str:
        return self.life.uid

    def status(self) -> PodStatus:
        found = status_of(self.life, self._context.address, self._context.clock())
        if stop_after_seconds(self.life.pod) is not None:
            if not self.life.has_ended:
                # What an engine runs outlives a shim that is killed.
                is_armed = self._shim.is_fence_armed and self.life.runtime == PROCESS
                self._armed_under = self._context.incarnation() if is_armed else 0
            found.conditions.append(fence_condition(self._armed_under))
        return found

    @property
    def is_unsure(self) -> bool:
        """Something of it may live, and nobody knows: its shim is away, or is being swept."""
        return self._shim.is_unsure

    @property
    def has_ended(self) -> bool:
        """Nothing of it lives."""
        return self.life.has_ended and not self.is_unsure

    # ------------------------------------------------------------------------------------------------------------ recovery

    def recover(self) -> None:
        """Connects to the shim, or finds out that it is gone. Blocks while leftovers are killed; those that do not die are for
        workers to see to. Before the loop runs."""
        context, now = self._context, self._context.clock()
        self._attempts.recover()
        ending = self.directory.load("ending")
        if ending is not None:
            self._saved_ending = PodEnding(**ending)
            self.life.end(self._saved_ending)
        states = self._shim.recover()
        left: frozenset[int] = frozenset()
        if states is None:
            found = sweep(self.uid, context.cgroups, _RECOVERY_SECONDS)
            context.metrics.leftovers.inc(found.killed)
            left = found.left
        known = presumed_running(self.life, self.directory) if left else states
        context.metrics.lost_containers.inc(restore(self.life, self.directory, known, now, context.random.random()))
        if left:
            self._shim.sweep()
        elif states is not None:
            context.metrics.adopted_pods.inc()
        if known is not None:
            self.life.prepared(now)
        for one in self.life.containers:
            if one.step is ContainerStep.STARTING:
                self._ask_to_start(one, one.attempt)

    def _shim_ports(self) -> ShimPorts:
        return ShimPorts(
            self._prepared, self._not_prepared, self._heard, self._found_again, self._lost, self._stuck, self._ended_by
        )

    # ---------------------------------------------------------------------------------------------------------------- loop

    def step(self) -> None:
        """Does what is to be done now. Called after each event, and when `wakes_at` has come."""
        self.has_moved = True
        if self.is_held:
            return
        try:
            self._step()
        except Exception:
            # One pod that nobody thought of shall not end the agent, and with it all others.
            log.exception("pod %s is parked", self.life.full_name())
            self.life.prepare_message = "the agent cannot go on with this pod; its log says why"
            self.is_held = True

    def _step(self) -> None:
        now = self._context.clock()
        kind = "terminate" if self.life.ending is not None else "sync" if self.life.prepared_at is not None else "create"
        with self._context.metrics.pod_work.labels(kind).time():
            self._advance(now)

    def _advance(self, now: float) -> None:
        # Of what runs nobody knows for now; what is to be done is done when somebody does.
        actions = [] if self._shim.is_away else self.life.advance(now)
        if self.life.ending is not None and self.life.ending != self._saved_ending:
            self._saved_ending = self.life.ending
            self._owed.write("ending", partial(self.directory.save, "ending", asdict(self.life.ending)))
        for action in actions:
            self._do(action)
        memory = memory_of(self.life)
        if memory != self._saved_memory:
            self._saved_memory = memory
            self._owed.write("memory", partial(self.directory.save, "memory", memory))
        if self.life.has_ended and not self._shim.is_away:
            self._shim.quit()

    def changed(self, pod: Pod) -> None:
        self.life.changed(pod)
        self._owed.write("object", partial(self.directory.save_object, pod))

    def wakes_at(self) -> float:
        return float("inf") if self.is_held or self._shim.is_away else self.life.wakes_at(self._context.clock())

    def out_of_memory(self, container: str) -> None:
        """Kills a container that has more memory than its limit; its exit says so."""
        self._shim.tell("oom", container=container, attempt=self.life.container(container).attempt)

    def fence(self, at: float, seconds: float) -> None:
        """It has to be gone by then, unless that is put off before it is asked to end."""
        self.life.fence = PodFence(at, grace_before_stop(seconds, self.life.grace), seconds)
        self._shim.fence(self.life.fence)

    def tell_fence(self) -> None:
        """No sign of life is acknowledged now: its shim has to know the fence as it is."""
        self._shim.tell_fence()

    @property
    def shim_pid(self) -> int | None:
        """None: it has no shim, or none that has said so yet."""
        return self._shim.pid

    @property
    def has_shim(self) -> bool:
        """Or will have one, or may have one."""
        return self._shim.is_there

    def _do(self, action: Action) -> None:
        context = self._context
        match action:
            case PodEvent():
                context.event(self.life.pod, action)
            case PreparePod():
                self._shim.start()
            case StartContainer(name, attempt):
                self._attempts.prepare(self.life.container(name), attempt)
            case StopContainer(name, attempt, grace):
                self._stop(self.life.container(name), attempt, grace)
            case RunProbe(name, attempt, kind):
                probe = self.life.container(name).probes[kind]

                def probed(success: bool | None, message: str) -> None:
                    context.metrics.probe_made(kind, success)
                    self.life.probed(name, attempt, kind, success, message, context.clock())

                self._ask(self.life.container(name), attempt, probe.spec, probe.timeout, probed)
            case RunHook(name, attempt, hook, seconds):
                self._hook(self.life.container(name), attempt, hook, seconds)

    # ------------------------------------------------------------------------------------------------------------- prepare

    def _prepared(self) -> None:
        self._context.metrics.started_pods.inc()
        self.life.prepared(self._context.clock())
        for one in self.life.containers:
            if one.is_present and not self._attempts.is_preparing(one.name):
                # It was prepared while the shim before this one went.
                self._ask_to_start(one, one.attempt)
        self.step()

    def _not_prepared(self, text: str) -> None:
        log.warning("pod %s: %s", self.life.full_name(), text)
        self._context.metrics.failed_pods.inc()
        self.life.not_prepared(self._context.clock(), text)
        self.step()

    # --------------------------------------------------------------------------------------------------------------- start

    def _ask_to_start(self, one: ContainerLife, attempt: int) -> None:
        """It is prepared. Asked twice it begins once; where nobody answers the shim is away, and is asked again."""
        context = self._context

        def answered(answer: Answer) -> None:
            if answer["ok"] and answer["exit"] is None:
                context.metrics.container_started(self.life, one, context.clock())
                self.life.started(one.name, attempt, float(answer["started_at"]))
                self.step()
            elif not answer["ok"] and answer["kind"] != "gone":
                if answer["kind"] == "fenced":
                    self.life.is_fenced(context.clock())
                self._start_failed(one.name, attempt, answer)

        self._shim.ask("start", answered, container=one.name, attempt=attempt)

    def _start_failed(self, name: str, attempt: int, answer: Answer) -> None:
        now = self._context.clock()
        self._context.metrics.container_failed(self.life.container(name), START_ERROR)
        values = {**lost_exit(now, now), "code": _START_ERROR_CODE, "reason": START_ERROR, "message": answer["error"]}
        self._owed.write(f"exit of {name}", partial(self.directory.write_exit, name, attempt, values))
        self.life.ended(name, attempt, exit_of(values))
        self.step()

    # ------------------------------------------------------------------------------------------------------ stop and probe

    def _stop(self, one: ContainerLife, attempt: int, grace: float) -> None:
        group = self.life.pod.metadata.annotations.get(STOP_GROUP_ANNOTATION) == "true"
        number = one.spec.lifecycle.stop_signal or "SIGTERM"
        shim = self._shim

        def answered(answer: Answer) -> None:
            if not answer["ok"] and answer["kind"] != "gone":
                log.warning("pod %s: container %s is killed, as its stop failed: %s", self.uid, one.name, answer["error"])
                shim.tell("stop", container=one.name, attempt=attempt, grace=0.0)

        shim.ask("stop", answered, container=one.name, attempt=attempt, grace=grace, signal=number, group=group)

    def _hook(self, one: ContainerLife, attempt: int, hook: LifecycleHook, seconds: float) -> None:
        handler = one.spec.lifecycle.post_start if hook is LifecycleHook.POST_START else one.spec.lifecycle.pre_stop

        def done(success: bool | None, message: str) -> None:
            self.life.hook_done(one.name, attempt, hook, "" if success else message, self._context.clock())

        self._ask(one, attempt, handler, seconds, done)

    def _ask(
        self, one: ContainerLife, attempt: int, handler: Any, seconds: float, told: Callable[[bool | None, str], None]
    ) -> None:
        """`told` gets success, or None where it could not be made, and what was wrong."""

        def finish(success: bool | None, message: str) -> None:
            told(success, message)
            self.step()

        carry_out(self._context, self._shim, one, attempt, handler, seconds, finish)

    # ---------------------------------------------------------------------------------------------------------------- shim

    def _heard(self, event: Answer) -> None:
        if event.get("event") == "fault":
            log.error("pod %s: its shim goes on after a fault: %s", self.life.full_name(), event["error"])
        if event.get("event") == "fenced":
            self.life.is_fenced(self._context.clock())
            self.step()
        if event.get("event") == "ended":
            found = exit_of(event["exit"])
            if found.reason == START_ERROR:
                self._context.metrics.container_failed(self.life.container(event["container"]), found.reason)
            self.life.ended(event["container"], event["attempt"], found)
            self.step()

    def _found_again(self, states: list[Answer]) -> None:
        """Its shim was away: what was asked of it meanwhile, or may not have arrived, is asked once more."""
        by_key = {(one["container"], one["attempt"]): one for one in states}
        for one in self.life.containers:
            state = by_key.get((one.name, one.attempt))
            if not one.is_present or self._attempts.is_preparing(one.name):
                continue
            if state is None or not has_begun(state):
                self._ask_to_start(one, one.attempt)
            elif state["exit"] is not None:
                self.life.ended(one.name, one.attempt, exit_of(state["exit"]))
            else:
                self.life.started(one.name, one.attempt, float(state["started_at"]))
                one.asks_again()
        self.step()

    def _ended_by(self) -> float:
        return self.life.ending.by if self.life.ending is not None else float("inf")

    def _stuck(self, left: frozenset[int]) -> None:
        now = self._context.clock()
        if now - self._stuck_told_at >= _STUCK_SECONDS:
            self._stuck_told_at = now
            pids = ", ".join(map(str, sorted(left)))
            event = PodEvent("Warning", "ExceededGracePeriod", f"Processes of the pod do not die: {pids}")
            self._context.event(self.life.pod, event)

    def _lost(self) -> None:
        now = self._context.clock()
        for one in self.life.containers:
            if one.is_present and not self._attempts.is_preparing(one.name):
                try:
                    values = self.directory.exit_of(one.name, one.attempt)
                except DiskFault as fault:
                    log.error("%s", fault)
                    values = None
                if values is None:
                    self._context.metrics.lost_containers.inc()
                    values = lost_exit(one.started_at or now, now)
                    self._owed.write(f"exit of {one.name}", partial(self.directory.write_exit, one.name, one.attempt, values))
                self.life.ended(one.name, one.attempt, exit_of(values))
        self.life.lost_shim()
        self.step()
