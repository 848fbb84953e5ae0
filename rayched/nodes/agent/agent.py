"""The agent of one node: takes the pods that are bound to it, keeps a runner for each, tells the cluster how they are.

One thread owns all of it (`run`). It can be killed at any moment: shims go on, and the next agent in the same directory takes
them over. Nothing is started or restarted before the cluster's state is known as of this agent's own registration; killing is
allowed at once.

Source: kubelet's sync loop and pod workers, Kubernetes 1.34. Cost: a turn looks at each pod once.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import grpc

from rayched.api.termination import FINAL_PHASES
from rayched.client.errors import ApiError
from rayched.client.node_agent import NodeAgentClient
from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.agent_settings import AgentSettings, steady_clock
from rayched.nodes.agent.disk import NodeDirectory, PodDirectory
from rayched.nodes.agent.following import FollowerPorts, NodeFollower
from rayched.nodes.agent.intake import IntakePorts, PodIntake
from rayched.nodes.agent.loop import AgentLoop
from rayched.nodes.agent.node_object import node_object, set_conditions
from rayched.nodes.agent.pod_life import PodEnding
from rayched.nodes.agent.pod_runner import PodRunner
from rayched.nodes.agent.pod_status import MESSAGE_MAX
from rayched.nodes.agent.pressure import PressureMonitor, PressurePorts
from rayched.nodes.agent.recovery import presumed_lost
from rayched.nodes.agent.reports import Reporter, ReportOutcomes
from rayched.nodes.agent.runner_context import RunnerContext
from rayched.nodes.agent.running_pods import RunningPods
from rayched.nodes.agent.shim_link import ShimLink
from rayched.nodes.agent.stats import NodeStats
from rayched.nodes.agent.streams.attending import AgentStreaming
from rayched.nodes.agent.streams.targets import StreamTargets
from rayched.nodes.node_admission import NodeRefusal
from rayched.v1.core_pb2 import Node, NodeStatus, Pod, PodStatus
from rayched.v1.services_pb2 import PodStatusUpdate, RegisterNodeRequest

_WORKERS: Final = 8
_STATUS_SECONDS: Final = 10.0
_UNCHANGED_STATUS_SECONDS: Final = 300.0
_FLUSH_SECONDS: Final = 2.0
_REMOVAL_SECONDS: Final = 10.0

log = logging.getLogger(__name__)


class NodeAgent:
    """Make it, `run` it in one thread; `stop` may be called by any other, or by a signal."""

    def __init__(self, settings: AgentSettings, client: NodeAgentClient) -> None:
        """Raises NodeSizeError."""
        self._settings = settings
        self._client = client
        self._clock = steady_clock
        self._loop = AgentLoop(self._clock)
        self._workers = ThreadPoolExecutor(_WORKERS, "node-worker")
        self._probers = ThreadPoolExecutor(_WORKERS, "node-probe")
        traversable = settings.policy.own_user == 0
        self._directory = NodeDirectory(settings.root, traversable=traversable)
        self._node = node_object(
            settings.node, settings.address, settings.machine, settings.size, settings.labels, settings.version
        )
        ports = IntakePorts(self._accepted, self._refused, self._someone_ends, self._loop.post, self._clock)
        self._intake = PodIntake(self._node, client, self._directory, self._workers, ports)
        self._runners: dict[str, PodRunner] = {}
        self._told: dict[str, bytes] = {}
        self._gone: set[str] = set()
        """Pods whose object is gone while something of them lives."""
        self._synced = False
        self._registers = False
        self._is_superseded = False
        self._status: bytes = b""
        self._status_due = 0.0
        self._status_told_at = 0.0
        self.failure = ""
        """Why it ended by itself; empty: it was told to."""
        outcomes = ReportOutcomes(
            lambda update, error: self._loop.post(partial(self._pod_reported, update, error)),
            lambda: self._loop.post(self._register_again),
            lambda: self._loop.post(self._register_again),
        )
        self._reporter = Reporter(client, settings.node, settings.heartbeat_seconds, outcomes)
        running, post = RunningPods(self._runners, self._directory.logs), self._loop.post
        reserved = [one.get("memory", 0) for one in (settings.size.system_reserved, settings.size.agent_reserved)]
        self._pressure = PressureMonitor(
            settings.eviction,
            NodeStats(settings.root, settings.bounds, settings.size.capacity["memory"] - sum(reserved)),
            PressurePorts(
                post, self._clock, running.places, running.lives, running.evict, self._pressures, running.kill, running.reclaim
            ),
        )
        self._streaming = AgentStreaming(settings, client.endpoints, StreamTargets(self._runners), post)
        self._context = RunnerContext(
            node=settings.node,
            address=settings.address,
            memory_capacity=settings.size.capacity["memory"],
            policy=settings.policy,
            restart_cap=settings.restart_cap,
            clock=self._clock,
            random=random.Random(),
            post=self._loop.post,
            post_later=self._loop.later,
            workers=self._workers,
            probers=self._probers,
            watch_link=self._watch_link,
            event=self._event,
        )

    def run(self) -> None:
        """Until stopped. Raises DiskFault where it cannot work in its directory."""
        settings = self._settings
        agent_id = self._directory.open(settings.node)
        try:
            self._recover()
            request = RegisterNodeRequest(
                node=self._node,
                agent_id=agent_id,
                machine_id=settings.machine.machine_id,
                boot_id=settings.machine.boot_id,
                agent_version=settings.version,
                address=settings.address,
                take_over=settings.take_over,
            )
            self._follower = NodeFollower(self._client, request, self._ports())
            self._reporter.start()
            self._follower.start()
            self._streaming.start(agent_id)
            if settings.eviction.thresholds:
                self._pressure.start()
            self._loop.run(self._wakes_at, self._turn)
            self._streaming.stop(_FLUSH_SECONDS)
            self._pressure.stop(_FLUSH_SECONDS)
            self._follower.stop(_FLUSH_SECONDS)
            self._reporter.stop(_FLUSH_SECONDS)
        finally:
            self._workers.shutdown(wait=False, cancel_futures=True)
            self._probers.shutdown(wait=False, cancel_futures=True)
            self._directory.close()

    def _register_again(self) -> None:
        """Its object is gone, or this incarnation over: only where another agent has the node is that refused."""
        if self._registers or self._is_superseded:
            return
        self._registers = True

        def register() -> None:
            self._follower.register()
            self._loop.post(registered)

        def registered() -> None:
            self._registers = False

        self._workers.submit(register)

    def stop(self) -> None:
        """Pods go on."""
        self._loop.post(self._loop.stop)

    def _ports(self) -> FollowerPorts:
        post = self._loop.post
        return FollowerPorts(
            registered=lambda node, incarnation: post(partial(self._registered, node, incarnation)),
            refused=lambda error: post(partial(self._registration_refused, error)),
            listed=lambda pods: post(partial(self._listed, pods)),
            changed=lambda pod: post(partial(self._changed, pod)),
            gone=lambda pod: post(partial(self._object_gone, pod)),
        )

    # ------------------------------------------------------------------------------------------------------------ recovery

    def _recover(self) -> None:
        for directory in self._directory.pods_there():
            try:
                self._recover_pod(directory)
            except Exception:
                # It is as one whose directory is lost; the others are none the worse for it.
                log.exception("%s cannot be taken over", directory.path)
                self._runners.pop(directory.uid, None)

    def _recover_pod(self, directory: PodDirectory) -> None:
        pod, accepted_at = directory.load_object(), directory.accepted_at()
        if pod is None or accepted_at is None:
            directory.remove()
            return
        runner = self._runner(directory, pod, accepted_at)
        runner.is_held = True
        runner.recover()
        if not runner.life.has_ended:
            self._intake.admission.placement.hold(pod)

    def _runner(self, directory: PodDirectory, pod: Pod, accepted_at: float) -> PodRunner:
        runner = self._runners[directory.uid] = PodRunner(self._context, directory, pod, accepted_at)
        return runner

    def _watch_link(self, link: ShimLink, on: bool) -> None:
        if on:
            self._loop.watch(link, link.ready)
        else:
            self._loop.unwatch(link)

    # ---------------------------------------------------------------------------------------------------------------- turn

    def _wakes_at(self) -> float:
        times = [runner.wakes_at() for runner in self._runners.values()]
        return min([self._status_due, self._intake.wakes_at(), *times])

    def _turn(self) -> None:
        now = self._clock()
        for runner in list(self._runners.values()):
            if runner.wakes_at() <= now or not runner.is_held:
                runner.step()
            self._tell(runner)
            self._finish(runner)
        self._intake.turn(now)
        if now >= self._status_due:
            self._status_due = now + _STATUS_SECONDS
            self._tell_node(now)

    def _tell(self, runner: PodRunner) -> None:
        """The pod's status, where it says something new and its object is there."""
        if runner.is_held or self._is_superseded or runner.uid in self._gone:
            return
        status = runner.status()
        said = status.SerializeToString(deterministic=True)
        if self._told.get(runner.uid) != said:
            self._told[runner.uid] = said
            self._report(runner.life.pod, status)

    def _report(self, pod: Pod, status: PodStatus | None) -> None:
        """None: it is to be removed."""
        metadata = pod.metadata
        update = PodStatusUpdate(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid, remove=status is None)
        if status is not None:
            update.status.CopyFrom(status)
        self._reporter.pod(update)

    def _finish(self, runner: PodRunner) -> None:
        """Of a pod that has ended: gives back its room, and its directory once its object is gone."""
        if not runner.life.has_ended or runner.is_held:
            return
        self._intake.admission.forget(runner.uid)
        self._intake.room_is_free()
        self._pressure.cleaned(runner.uid)
        if runner.uid in self._gone and not runner.has_shim and runner.removed_from <= self._clock():
            try:
                runner.directory.remove()
            except OSError as error:
                log.warning("pod %s is left on the disk for now: %s", runner.life.full_name(), error)
                runner.removed_from = self._clock() + _REMOVAL_SECONDS
                return
            self._forget(runner.uid)

    def _forget(self, uid: str) -> None:
        self._runners.pop(uid, None)
        self._told.pop(uid, None)
        self._gone.discard(uid)
        self._reporter.forget(uid)
        if self._is_superseded and not self._runners:
            self._loop.stop()

    def _pressures(self, found: Iterable[str]) -> None:
        if list(self._intake.admission.pressures) != list(found):
            self._intake.admission.pressures = list(found)
            self._status_due = 0.0

    def _tell_node(self, now: float) -> None:
        status = NodeStatus()
        set_conditions(status, self._intake.admission.pressures, ())
        said = status.SerializeToString(deterministic=True)
        if self._reporter.incarnation and (said != self._status or now - self._status_told_at >= _UNCHANGED_STATUS_SECONDS):
            self._status, self._status_told_at = said, now
            self._reporter.node(status)

    # -------------------------------------------------------------------------------------------------------------- cluster

    def _registered(self, node: Node, incarnation: int) -> None:
        log.info("node %s registered, incarnation %d", self._settings.node, incarnation)
        self._intake.update(node)
        self._reporter.incarnation = incarnation
        self._streaming.registered(incarnation)
        self._status_due = 0.0

    def _registration_refused(self, error: ApiError) -> None:
        if error.code is grpc.StatusCode.FAILED_PRECONDITION and (self._reporter.incarnation or self._runners):
            self._superseded()
        elif self._reporter.incarnation:
            # No other agent has it, and each sign of life asks again.
            log.error("node %s is not registered again: %s", self._settings.node, error)
            return
        else:
            self._loop.stop()
        if not self._reporter.incarnation:
            self.failure = str(error)

    def _superseded(self) -> None:
        if self._is_superseded:
            return
        self._is_superseded = True
        self.failure = f"node {self._settings.node} has another agent now"
        log.error("%s: its pods here are stopped", self.failure)
        self._intake.close("Pod was rejected as the node has another agent.")
        for runner in list(self._runners.values()):
            self._end_unseen(runner)
        if not self._runners:
            self._loop.stop()

    def _end_unseen(self, runner: PodRunner) -> None:
        """Ends a pod that nobody is to be told of any more."""
        self._gone.add(runner.uid)
        runner.is_held = False
        runner.life.end(PodEnding(self._clock() + runner.life.grace))
        runner.step()

    def _listed(self, pods: list[Pod]) -> None:
        there = {pod.metadata.uid for pod in pods}
        self._synced = True
        for runner in list(self._runners.values()):
            if runner.uid not in there:
                self._end_unseen(runner)
        self._intake.keep(there)
        # What has a place keeps it before anything new is judged.
        for pod in sorted(pods, key=lambda one: (one.metadata.uid not in self._runners, one.metadata.creation_timestamp.seconds)):
            self._changed(pod)

    def _object_gone(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._intake.drop(uid)
        runner = self._runners.get(uid)
        if runner is not None:
            self._end_unseen(runner)

    def _changed(self, pod: Pod) -> None:
        if self._is_superseded:
            return
        uid, deleted = pod.metadata.uid, pod.metadata.HasField("deletion_timestamp")
        runner = self._runners.get(uid)
        if runner is not None:
            runner.is_held = False
            runner.changed(pod)
            if deleted:
                runner.life.end(PodEnding(self._by(pod)))
                if runner.life.has_ended:
                    self._report(pod, None)
            runner.step()
        elif deleted:
            self._intake.drop(uid)
            self._report(pod, None)
        elif pod.status.phase == "Running":
            self._intake.take_lost(pod)
        elif pod.status.phase not in FINAL_PHASES:
            self._intake.judge(pod)

    def _by(self, pod: Pod) -> float:
        """When a pod that is being deleted has to have ended: by its grace from when this agent saw it, for clocks differ."""
        grace = pod.metadata.deletion_grace_period_seconds if pod.metadata.HasField("deletion_grace_period_seconds") else 30
        return self._clock() + max(grace, 1)

    # ------------------------------------------------------------------------------------------------------------ admission

    def _accepted(self, directory: PodDirectory, pod: Pod, now: float, lost: bool) -> None:
        if directory.uid in self._runners:
            return
        runner = self._runner(directory, pod, now)
        if lost:
            presumed_lost(runner.life, now)
        runner.step()

    def _refused(self, pod: Pod, refusal: NodeRefusal) -> None:
        self._event(pod, PodEvent("Warning", refusal.reason, refusal.message))
        self._report(pod, PodStatus(phase="Failed", reason=refusal.reason, message=refusal.message[:MESSAGE_MAX]))

    def _someone_ends(self) -> bool:
        return any(one.life.ending is not None and not one.life.has_ended for one in self._runners.values())

    # ------------------------------------------------------------------------------------------------------------- outcomes

    def _pod_reported(self, update: PodStatusUpdate, error: ApiError | None) -> None:
        if error is not None and error.code is not grpc.StatusCode.NOT_FOUND:
            log.warning("report on pod %s/%s refused: %s", update.namespace, update.name, error)
        runner = self._runners.get(update.uid)
        if runner is None or update.remove:
            return
        if error is not None and error.code is grpc.StatusCode.NOT_FOUND:
            self._end_unseen(runner)
        elif runner.life.has_ended and runner.life.pod.metadata.HasField("deletion_timestamp"):
            # Only when the last status is there: whoever watches sees how it ended.
            self._report(runner.life.pod, None)

    def _event(self, pod: Pod, event: PodEvent) -> None:
        log.info("pod %s/%s: %s %s: %s", pod.metadata.namespace, pod.metadata.name, event.kind, event.reason, event.message)
