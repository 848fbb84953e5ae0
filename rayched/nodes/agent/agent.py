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
from rayched.client.node_agent import NodeAgentClient, NodeState
from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.adoption import adopt
from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.agent_settings import AgentSettings, boottime_of, steady_clock
from rayched.nodes.agent.disk import NodeDirectory, PodDirectory
from rayched.nodes.agent.doors import AgentDoors, AgentView
from rayched.nodes.agent.drivers.driver_watch import DriverWatch
from rayched.nodes.agent.event_reports import EventReporter
from rayched.nodes.agent.fence_guard import FenceGuard
from rayched.nodes.agent.fences import Fences
from rayched.nodes.agent.following import FollowerPorts, NodeFollower, NodeRegistration
from rayched.nodes.agent.intake import IntakePorts, PodIntake
from rayched.nodes.agent.leftovers import Leftovers
from rayched.nodes.agent.loop import AgentLoop
from rayched.nodes.agent.node_object import node_object
from rayched.nodes.agent.node_report import NodeReport
from rayched.nodes.agent.pod_life import PodEnding
from rayched.nodes.agent.pod_reports import PodReports
from rayched.nodes.agent.pod_runner import PodRunner
from rayched.nodes.agent.pod_status import MESSAGE_MAX
from rayched.nodes.agent.pod_turns import PodTurns
from rayched.nodes.agent.pressure import PressureMonitor
from rayched.nodes.agent.recovery import presumed_lost
from rayched.nodes.agent.reports import Reporter, ReportOutcomes
from rayched.nodes.agent.runner_context import RunnerContext
from rayched.nodes.agent.running_pods import RunningPods
from rayched.nodes.agent.shutdown_manager import ShutdownManager
from rayched.nodes.agent.streams.attending import AgentStreaming
from rayched.nodes.agent.streams.targets import StreamTargets
from rayched.nodes.agent.workers import Workers
from rayched.nodes.node_admission import NodeRefusal
from rayched.v1.core_pb2 import Node, Pod, PodStatus
from rayched.v1.services_pb2 import PodStatusUpdate, RegisterNodeResponse

_THREADS: Final = {"worker": 8, "probe": 8, "sweep": 4, "registration": 1}
"""What does not die holds up sweeps alone, and a node that has to be registered waits for nobody."""
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
        self._pools = {name: ThreadPoolExecutor(count, f"node-{name}") for name, count in _THREADS.items()}
        post = self._loop.post
        workers = Workers(self._pools["worker"], post)
        self._registering = Workers(self._pools["registration"], post)
        self._guard = FenceGuard(settings.cgroups)
        self._directory = NodeDirectory(settings.root, traversable=settings.policy.own_user == 0)
        self._node = node_object(
            settings.node, settings.address, settings.machine, settings.size, settings.labels, settings.version
        )
        self._metrics = metrics = AgentMetrics(settings.node, settings.tier)
        leftovers = Leftovers(Workers(self._pools["sweep"], post), self._loop.later, settings.cgroups, metrics)
        taken = IntakePorts(self._accepted, self._refused, self._someone_ends, post, self._clock, self._swept)
        self._intake = PodIntake(self._node, client, self._directory, workers, leftovers, taken)
        self._runners: dict[str, PodRunner] = {}
        self._left_behind: frozenset[str] = frozenset()
        """Pods that may run on another machine, which had this node before."""
        self._fences = Fences()
        self._turns = PodTurns(self._runners, self._tell_and_finish)
        self._registers = self._is_superseded = False
        self.failure = ""
        """Why it ended by itself; empty: it was told to."""
        self._reporter = Reporter(client, settings.node, settings.heartbeat_seconds, self._outcomes())
        self._reports = PodReports(self._reporter)
        self._events = EventReporter(client, self._node, self._clock, lambda: self._reporter.incarnation)
        of_node = self._events.of_node
        self._node_report = NodeReport(self._node, self._reporter.node, of_node, is_watched=bool(settings.eviction.thresholds))
        drivers = settings.node_drivers(client, metrics)
        ports = RunningPods(self._runners).ports(
            post, self._clock, self._pressures, of_node, metrics, drivers.remove_unused_images
        )
        self._pressure = PressureMonitor(settings.eviction, settings.node_stats(), ports)
        self._streaming = AgentStreaming(settings, client, StreamTargets(self._runners), self._loop.post)
        self._context = RunnerContext(
            node=settings.node,
            address=settings.address,
            memory_capacity=settings.size.capacity["memory"],
            drivers=drivers,
            restart_cap=settings.restart_cap,
            clock=self._clock,
            boottime_of=boottime_of,
            random=random.Random(),
            post=self._loop.post,
            post_later=self._loop.later,
            workers=workers,
            probers=self._pools["probe"],
            leftovers=leftovers,
            guard=self._guard,
            incarnation=lambda: self._reporter.incarnation,
            watch_link=self._loop.look_after,
            event=self._events.of_pod,
            metrics=metrics,
            cgroups=settings.cgroups,
        )
        self._shutdown = ShutdownManager(settings.shutdown, self._runners, self._intake, self._node_report, of_node, metrics)
        view = AgentView(self._runners, self._reporter, self._pressure, lambda: self._fences.silent_seconds(self._clock()))
        self._doors = AgentDoors(settings, self._loop, self._shutdown, view, metrics)

    def run(self) -> None:
        """Until stopped. Raises DiskFault where it cannot work in its directory."""
        settings = self._settings
        agent_id = self._directory.open(settings.node)
        try:
            adopt(self._directory, self._context, self._runners, self._intake.admission.placement.hold)
            self._guard.start()
            self._follower = NodeFollower(self._client, NodeRegistration(settings, self._node_report, agent_id), self._ports())
            self._reporter.start()
            self._events.start()
            self._doors.open()
            self._follower.start()
            DriverWatch(self._context.drivers, self._context.workers, self._loop.later, self._node_report).begin()
            self._streaming.start(agent_id)
            if settings.eviction.thresholds:
                self._pressure.start()
            self._loop.run(self._wakes_at, self._turn)
            self._streaming.stop(_FLUSH_SECONDS)
            self._doors.close()
            self._pressure.stop(_FLUSH_SECONDS)
            self._follower.stop(_FLUSH_SECONDS)
            self._reporter.stop(_FLUSH_SECONDS)
            self._events.stop(_FLUSH_SECONDS)
        finally:
            self._guard.stop(_FLUSH_SECONDS)
            for pool in self._pools.values():
                pool.shutdown(wait=False, cancel_futures=True)
            self._directory.close()

    @property
    def http_address(self) -> str:
        """Of its endpoint; empty: it has none."""
        return self._doors.http_address

    def _write_superseded(self) -> None:
        self._metrics.superseded_writes.inc()
        self._loop.post(self._register_again)

    def _register_again(self, over: int | None = None) -> None:
        """Its object is gone, or this incarnation over: only where another agent has the node is that refused."""
        if self._registers or self._is_superseded or over not in (None, self._reporter.incarnation):
            # What was said to an older incarnation of this very agent says nothing about the present one.
            return
        self._registers = True

        def registered(_: bool | Exception) -> None:
            self._registers = False

        self._registering.submit(f"registration of node {self._settings.node}", self._follower.register, registered)

    def stop(self) -> None:
        """Pods go on."""
        self._loop.post(self._loop.stop)

    def _outcomes(self) -> ReportOutcomes:
        post = self._loop.post
        return ReportOutcomes(
            lambda update, error: post(partial(self._pod_reported, update, error)),
            self._write_superseded,
            lambda: post(self._register_again),
            lambda sent_at: post(partial(self._acknowledged, sent_at)),
            lambda: post(lambda: self._fences.unanswered(self._runners.values())),
            self._clock,
        )

    def _ports(self) -> FollowerPorts:
        post = self._loop.post
        return FollowerPorts(
            registered=lambda answer, sent_at: post(partial(self._registered, answer, sent_at)),
            refused=lambda error: post(partial(self._registration_refused, error)),
            superseded=lambda incarnation: post(partial(self._register_again, incarnation)),
            listed=lambda state, left_behind: post(partial(self._listed, state, left_behind)),
            changed=lambda pod: post(partial(self._changed, pod)),
            gone=lambda pod: post(partial(self._object_gone, pod)),
            node_changed=lambda node: post(partial(self._node_changed, node)),
            clock=self._clock,
        )

    # ---------------------------------------------------------------------------------------------------------------- turn

    def _wakes_at(self) -> float:
        return min(self._node_report.due, self._shutdown.wakes_at(), self._intake.wakes_at(), self._turns.wakes_at())

    def _turn(self) -> None:
        now = self._clock()
        self._turns.turn(now)
        self._intake.turn(now)
        self._shutdown.turn(now)
        if now >= self._node_report.due:
            self._node_report.turn(now, may_tell=bool(self._reporter.incarnation))

    def _tell_and_finish(self, runner: PodRunner) -> None:
        """Tells its status. Of a pod that has ended: gives back its room, and its directory once its object is gone."""
        if not self._is_superseded:
            self._reports.tell(runner)
        if not runner.has_ended or runner.is_held:
            return
        self._intake.admission.forget(runner.uid)
        self._intake.room_is_free()
        self._pressure.cleaned(runner.uid)
        if runner.uid in self._reports.gone and not runner.has_shim and runner.removed_from <= self._clock():
            try:
                runner.directory.remove()
            except OSError as error:
                log.warning("pod %s is left on the disk for now: %s", runner.life.full_name(), error)
                runner.removed_from = self._clock() + _REMOVAL_SECONDS
                return
            self._forget(runner.uid)

    def _forget(self, uid: str) -> None:
        self._runners.pop(uid, None)
        self._reports.forget(uid)
        if self._is_superseded and not self._runners:
            self._loop.stop()

    def _pressures(self, found: Iterable[str]) -> None:
        self._node_report.under(found)
        self._intake.admission.pressures = self._node_report.pressures

    # -------------------------------------------------------------------------------------------------------------- cluster

    def _registered(self, answer: RegisterNodeResponse, sent_at: float) -> None:
        log.info("node %s is registered, as of revision %d", self._settings.node, answer.incarnation)
        is_first = not self._reporter.incarnation
        self._node_changed(answer.node)
        self._reporter.registered(answer.incarnation, answer.node_monitor_grace_seconds)
        self._streaming.registered(answer.incarnation)
        self._node_report.registered()
        self._acknowledged(sent_at)
        if is_first:
            self._events.of_node(PodEvent("Normal", "Starting", "Starting rayched node."))
            if self._directory.is_another_boot(self._settings.machine.boot_id):
                text = f"Node {self._settings.node} has been rebooted, boot id: {self._settings.machine.boot_id}"
                self._events.of_node(PodEvent("Warning", "Rebooted", text))

    def _acknowledged(self, sent_at: float) -> None:
        self._fences.acknowledged(sent_at, self._clock(), self._runners.values())

    def _node_changed(self, node: Node | None) -> None:
        if node is None:
            self._register_again()
        else:
            self._node.metadata.uid = node.metadata.uid
            self._intake.update(node)
            self._node_report.stored(node)

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
        self._reports.gone.add(runner.uid)
        runner.is_held = False
        runner.life.end(PodEnding(self._clock() + runner.life.grace))
        runner.step()

    def _listed(self, state: NodeState, left_behind: frozenset[str]) -> None:
        there = {pod.metadata.uid for pod in state.pods}
        self._left_behind = left_behind - self._runners.keys()
        if state.node is not None:
            self._node_changed(state.node)
        for runner in list(self._runners.values()):
            if runner.uid not in there and not state.hides(runner.life.pod):
                self._end_unseen(runner)
        self._intake.keep(there)
        if not state.unreadable:
            # Whose such an object is, nobody knows.
            self._intake.clear_absent(there | self._runners.keys())
        # What has a place keeps it before anything new is judged.
        for pod in sorted(
            state.pods, key=lambda one: (one.metadata.uid not in self._runners, one.metadata.creation_timestamp.seconds)
        ):
            self._changed(pod)

    def _object_gone(self, pod: Pod) -> None:
        if (runner := self._runners.get(pod.metadata.uid)) is not None:
            self._end_unseen(runner)
        else:
            self._intake.clear_gone(pod.metadata.uid)

    def _changed(self, pod: Pod) -> None:
        if self._is_superseded:
            return
        uid, deleted = pod.metadata.uid, pod.metadata.HasField("deletion_timestamp")
        if (runner := self._runners.get(uid)) is not None:
            runner.is_held = False
            runner.changed(pod)
            if deleted:
                runner.life.end(PodEnding(self._by(pod)))
                self._take_away(runner)
            runner.step()
        elif deleted:
            self._intake.clear(pod)
        elif uid in self._left_behind:
            if pod.status.phase not in FINAL_PHASES:
                self._intake.leave(pod)
        elif pod.status.phase == "Running":
            self._intake.take_lost(pod)
        elif pod.status.phase not in FINAL_PHASES:
            self._intake.judge(pod)

    def _take_away(self, runner: PodRunner) -> None:
        """Of a pod that was deleted: its object may go when it has ended, and its last status is there."""
        if runner.has_ended:
            self._reports.tell(runner)
            self._reports.remove(runner.life.pod)

    def _swept(self, pod: Pod) -> None:
        if not self._is_superseded:
            self._reports.remove(pod)

    def _by(self, pod: Pod) -> float:
        """When a pod that is being deleted has to have ended: by its grace from when this agent saw it, for clocks differ."""
        grace = pod.metadata.deletion_grace_period_seconds if pod.metadata.HasField("deletion_grace_period_seconds") else 30
        return self._clock() + max(grace, 1)

    # ------------------------------------------------------------------------------------------------------------ admission

    def _accepted(self, directory: PodDirectory, pod: Pod, now: float, lost: bool) -> None:
        if directory.uid in self._runners:
            return
        runner = self._runners[directory.uid] = PodRunner(self._context, directory, pod, now)
        self._fences.set_for(runner)
        if lost:
            presumed_lost(runner.life, now)
        runner.step()

    def _refused(self, pod: Pod, refusal: NodeRefusal) -> None:
        self._metrics.pod_refused(refusal.reason)
        self._events.of_pod(pod, PodEvent("Warning", refusal.reason, refusal.message))
        self._reports.report(pod, PodStatus(phase="Failed", reason=refusal.reason, message=refusal.message[:MESSAGE_MAX]))

    def _someone_ends(self) -> bool:
        return any(one.life.ending is not None and not one.life.has_ended for one in self._runners.values())

    # ------------------------------------------------------------------------------------------------------------- outcomes

    def _pod_reported(self, update: PodStatusUpdate, error: ApiError | None) -> None:
        if error is not None and error.code is not grpc.StatusCode.NOT_FOUND:
            log.warning("report on pod %s/%s refused: %s", update.namespace, update.name, error)
        self._reports.answered(update)
        runner = self._runners.get(update.uid)
        if runner is None or update.remove:
            return
        if error is not None and error.code is grpc.StatusCode.NOT_FOUND:
            self._end_unseen(runner)
        elif runner.life.pod.metadata.HasField("deletion_timestamp"):
            self._take_away(runner)
