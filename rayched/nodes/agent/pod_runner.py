"""Carries out the life of one pod: its directory, its shim, its probes, its reports. The agent's loop thread owns it.

Whatever blocks is done by a worker, which posts its result back to the loop. What decides is written to disk before it is done:
that the pod is accepted, why it ends, which attempt begins.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from rayched.api.disconnection import grace_before_stop
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
from rayched.nodes.agent.container_life import ContainerLife
from rayched.nodes.agent.disk import DiskFault, PodDirectory
from rayched.nodes.agent.handlers import carry_out
from rayched.nodes.agent.oom_scores import oom_score_adj
from rayched.nodes.agent.owed_writes import OwedWrites
from rayched.nodes.agent.pod_life import PodEnding, PodFence, PodLife
from rayched.nodes.agent.pod_status import status_of
from rayched.nodes.agent.process_specs import AttemptPlace, ConfigurationFault, host_path, process_spec
from rayched.nodes.agent.recovery import exit_of, kill_shim, lost_exit, memory_of, restore, sweep
from rayched.nodes.agent.runner_context import RunnerContext
from rayched.nodes.agent.shim.main import FENCE_PROTOCOL, PROTOCOL
from rayched.nodes.agent.shim_link import Answer, ShimFault, ShimLink, start_shim
from rayched.v1.core_pb2 import Pod, PodStatus

STOP_GROUP_ANNOTATION: Final = "rayched.dev/stop-group"
_START_ERROR_CODE: Final = 128

log = logging.getLogger(__name__)


class PodRunner:
    """One pod that is accepted."""

    def __init__(self, context: RunnerContext, directory: PodDirectory, pod: Pod, accepted_at: float) -> None:
        self._context = context
        self.directory = directory
        self.life = PodLife(pod, accepted_at, restart_cap=context.restart_cap)
        self._link: ShimLink | None = None
        self._saved_ending: PodEnding | None = None
        self._saved_memory: dict[str, Any] = {}
        self._owed = OwedWrites(directory.path, context.post_later)
        self.removed_from = 0.0
        """Its directory is removed then at the earliest."""
        self._protocol = PROTOCOL
        """Of the shim."""
        self._quits = False
        self._is_preparing = False
        self.is_held = False
        """Nothing is started; what runs goes on. So until the cluster's state is known."""

    @property
    def uid(self) -> str:
        return self.life.uid

    def status(self) -> PodStatus:
        return status_of(self.life, self._context.address, self._context.clock())

    # ------------------------------------------------------------------------------------------------------------ recovery

    def recover(self) -> None:
        """Connects to the shim, or finds out that it is gone. Blocks while leftovers are killed; before the loop runs."""
        context, now = self._context, self._context.clock()
        ending = self.directory.load("ending")
        if ending is not None:
            self._saved_ending = PodEnding(**ending)
            self.life.end(self._saved_ending)
        states: list[Answer] | None = None
        if self.directory.shim_lives():
            states = self._connected()
        if states is None:
            kill_shim(self.directory)
            context.metrics.leftovers.inc(sweep(self.uid, self._context.cgroups))
        lost = restore(self.life, self.directory, states, now, context.random.random())
        context.metrics.lost_containers.inc(lost)
        if states is not None:
            context.metrics.adopted_pods.inc()
            self.life.prepared(now)

    def _connected(self) -> list[Answer] | None:
        try:
            link = ShimLink(self.directory.path, self._heard, self._link_closed)
        except ShimFault as fault:
            log.warning("pod %s: %s", self.life.full_name(), fault)
            return None
        answers: list[Answer] = []
        link.ask("hello", answers.append)
        while not answers:
            link.wait(5.0)
        if not answers[0]["ok"]:
            return None
        self._protocol = answers[0]["protocol"]
        self._adopt(link)
        if answers[0].get("fenced", False):
            self.life.is_fenced(self._context.clock())
        found: list[Answer] = answers[0]["containers"]
        return found

    def _adopt(self, link: ShimLink) -> None:
        self._link = link
        self._context.watch_link(link, True)

    # ---------------------------------------------------------------------------------------------------------------- loop

    def step(self) -> None:
        """Does what is to be done now. Called after each event, and when `wakes_at` has come."""
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
        actions = self.life.advance(now)
        if self.life.ending is not None and self.life.ending != self._saved_ending:
            self._saved_ending = self.life.ending
            self._owed.write("ending", partial(self.directory.save, "ending", asdict(self.life.ending)))
        for action in actions:
            self._do(action, now)
        memory = memory_of(self.life)
        if memory != self._saved_memory:
            self._saved_memory = memory
            self._owed.write("memory", partial(self.directory.save, "memory", memory))
        if self.life.has_ended:
            self.quit()

    def changed(self, pod: Pod) -> None:
        self.life.changed(pod)
        self._owed.write("object", partial(self.directory.save_object, pod))

    def wakes_at(self) -> float:
        return float("inf") if self.is_held else self.life.wakes_at(self._context.clock())

    def quit(self) -> None:
        """Ends the shim, and kills what still runs below it."""
        self._quits = True
        if self._link is not None:
            self._link.tell("quit")

    def out_of_memory(self, container: str) -> None:
        """Kills a container that has more memory than its limit; its exit says so."""
        if self._link is not None:
            self._link.tell("oom", container=container, attempt=self.life.container(container).attempt)

    def fence(self, at: float, seconds: float) -> None:
        """It has to be gone by then, unless that is put off before it is asked to end."""
        self.life.fence = PodFence(at, grace_before_stop(seconds, self.life.grace))
        self._tell_fence()

    def _tell_fence(self) -> None:
        fence = self.life.fence
        if fence is not None and self._link is not None and self._protocol >= FENCE_PROTOCOL:
            self._link.tell("fence", at=self._context.boottime_of(fence.at), grace=fence.grace)

    @property
    def has_shim(self) -> bool:
        """Or will have one: it is being started."""
        return self._link is not None or self._is_preparing

    def _do(self, action: Action, now: float) -> None:
        context = self._context
        match action:
            case PodEvent():
                context.event(self.life.pod, action)
            case PreparePod():
                self._is_preparing = True
                context.workers.submit(self._prepare)
            case StartContainer(name, attempt):
                self._start(self.life.container(name), attempt, now)
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

    def _prepare(self) -> None:
        """In a worker."""
        post = self._context.post
        try:
            self._context.metrics.leftovers.inc(sweep(self.uid, self._context.cgroups))
            start_shim(self.directory.path)
        except (ShimFault, OSError) as fault:
            text = str(fault)
            post(lambda: self._not_prepared(text))
        else:
            post(self._prepared)

    def _prepared(self) -> None:
        self._is_preparing = False
        try:
            self._adopt(ShimLink(self.directory.path, self._heard, self._link_closed))
        except ShimFault as fault:
            self._not_prepared(str(fault))
            return
        self._context.metrics.started_pods.inc()
        self._tell_fence()
        self.life.prepared(self._context.clock())
        if self._quits or self.life.has_ended:
            self.quit()
        self.step()

    def _not_prepared(self, text: str) -> None:
        self._is_preparing = False
        log.warning("pod %s: %s", self.life.full_name(), text)
        self._context.metrics.failed_pods.inc()
        self.life.not_prepared(self._context.clock(), text)
        self.step()

    # --------------------------------------------------------------------------------------------------------------- start

    def _start(self, one: ContainerLife, attempt: int, now: float) -> None:
        pod, directory, context = self.life.pod, self.directory, self._context
        try:
            path = directory.attempt_path(one.name, attempt)
            place = AttemptPlace(
                node=context.node,
                address=context.address,
                attempt=attempt,
                work=str(path / "work"),
                log=str(directory.log_path(pod, one.name, attempt)),
                volumes=self._volumes(),
                memory_capacity=context.memory_capacity,
            )
            spec = process_spec(pod, one.spec, place, context.policy)
        except ConfigurationFault as fault:
            self.life.not_configured(one.name, "CreateContainerConfigError", str(fault), now)
            return
        except OSError as error:
            self.life.not_configured(one.name, "CreateContainerError", f"{error.strerror}: {error.filename}", now)
            return
        if context.cgroups is not None:
            spec["cgroup"] = str(context.cgroups / self.uid / f"{one.name}-{attempt}")
        spec["oom_score_adj"] = oom_score_adj(pod, one.spec, context.memory_capacity)
        try:
            directory.begin_attempt(one.name, attempt)
            if spec["user"] is not None:
                os.chown(path / "work", spec["user"], spec["group"])
            directory.write_spec(one.name, attempt, {**spec, "failures": one.failures, "at": now})
        except OSError as error:
            self.life.not_configured(one.name, "CreateContainerError", f"{error.strerror}: {error.filename}", now)
            return
        if self._link is None:
            self._start_failed(one.name, attempt, {"ok": False, "kind": "gone"})
            return

        def answered(answer: Answer) -> None:
            if answer["ok"] and answer["exit"] is None:
                context.metrics.container_started(self.life, one, context.clock())
                self.life.started(one.name, attempt, float(answer["started_at"]))
                self.step()
            elif not answer["ok"] and answer["kind"] != "gone":
                if answer["kind"] == "fenced":
                    self.life.is_fenced(context.clock())
                self._start_failed(one.name, attempt, answer)

        self._link.ask("start", answered, container=one.name, attempt=attempt)

    def _start_failed(self, name: str, attempt: int, answer: Answer) -> None:
        now = self._context.clock()
        values = lost_exit(now, now)
        if answer["kind"] != "gone":
            self._context.metrics.container_failed(self.life.container(name), "StartError")
            values |= {"code": _START_ERROR_CODE, "reason": "StartError", "message": answer["error"]}
        self._owed.write(f"exit of {name}", partial(self.directory.write_exit, name, attempt, values))
        self.life.ended(name, attempt, exit_of(values))
        self.step()

    def _volumes(self) -> dict[str, str]:
        spec = self.life.pod.spec
        context = spec.security_context
        group = context.fs_group if context.HasField("fs_group") else None
        found = {}
        for volume in spec.volumes:
            if volume.HasField("host_path"):
                found[volume.name] = host_path(volume.host_path.path, self._context.policy)
            else:
                found[volume.name] = self.directory.volume(volume.name, None, group)
        return found

    # ------------------------------------------------------------------------------------------------------ stop and probe

    def _stop(self, one: ContainerLife, attempt: int, grace: float) -> None:
        if self._link is None:
            return
        group = self.life.pod.metadata.annotations.get(STOP_GROUP_ANNOTATION) == "true"
        number = one.spec.lifecycle.stop_signal or "SIGTERM"
        link = self._link

        def answered(answer: Answer) -> None:
            if not answer["ok"] and answer["kind"] != "gone":
                log.warning("pod %s: container %s is killed, as its stop failed: %s", self.uid, one.name, answer["error"])
                link.tell("stop", container=one.name, attempt=attempt, grace=0.0)

        link.ask("stop", answered, container=one.name, attempt=attempt, grace=grace, signal=number, group=group)

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

        carry_out(self._context, self._link, one, attempt, handler, seconds, finish)

    # ---------------------------------------------------------------------------------------------------------------- shim

    def _heard(self, event: Answer) -> None:
        if event.get("event") == "fault":
            log.error("pod %s: its shim goes on after a fault: %s", self.life.full_name(), event["error"])
        if event.get("event") == "fenced":
            self.life.is_fenced(self._context.clock())
            self.step()
        if event.get("event") == "ended":
            self.life.ended(event["container"], event["attempt"], exit_of(event["exit"]))
            self.step()

    def _link_closed(self) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        self._context.watch_link(link, False)
        if self._quits:
            self._context.post(self.step)
            return
        log.warning("pod %s: its shim is gone", self.life.full_name())
        self._context.workers.submit(self._sweep)

    def _sweep(self) -> None:
        """In a worker."""
        self._context.metrics.leftovers.inc(sweep(self.uid, self._context.cgroups))
        self._context.post(self._lost)

    def _lost(self) -> None:
        now = self._context.clock()
        for one in self.life.containers:
            if one.is_present:
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
