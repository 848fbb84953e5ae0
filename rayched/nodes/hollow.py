"""Hollow nodes: agents without machines. They register nodes, keep their heartbeat, and answer for the pods bound to them.

One HollowNodes stands for any number of nodes over one client:

* registers them, at first and whenever the API says that it does not know one;
* sends their heartbeat every `heartbeat_seconds`, and says that a node is ready where its object says otherwise;
* follows the pods: one that is bound here is admitted (phase Running) or refused (phase Failed, reason OutOfcpu and the like);
  one that is being deleted is stopped after `stop_seconds` and its object removed; one that ended gives back what it held;
* answers for further nodes, those that a manifest gives to hollow agents by an annotation (`rayched.dev/agent: hollow`);
* follows its nodes in the same watch, in the order of revisions, so that a pod that was placed for a new label, a removed taint
  or a larger capacity is judged by them;
* can be told that nodes fall silent, as if they had lost their network: no heartbeat, no report, until they speak again. Pods go
  on running there, and end when it is their time; what is to be told of them is told afterwards.

Reports go out in batches, at most `_FLUSH_SECONDS` after what caused them. A report that fails is tried again a second later.

Threads: one follows nodes and pods, one reports and sends heartbeats; both belong to this object and end with `stop`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api.kinds import AnyObject
from rayched.api.resources import is_sidecar
from rayched.api.termination import FINAL_PHASES
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.client.watch import EventType, WatchStream
from rayched.nodes.node_admission import NodeAdmission, NodeRefusal
from rayched.nodes.shapes import ready_condition, wants_hollow_agent
from rayched.v1.core_pb2 import Node, NodeStatus, Pod, PodStatus
from rayched.v1.services_pb2 import PodStatusUpdate

_FLUSH_SECONDS = 0.05
_RETRY_SECONDS = 1.0
_REGISTRATIONS_AT_ONCE = 16
_REPORT_ATTEMPTS_MAX = 5

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Report:
    """What is to be told of a pod, from when on, and how often that was tried."""

    due: float
    tried: int
    node: str
    update: PodStatusUpdate


class HollowNodes:
    """The agents of `nodes`. Start it once, stop it once."""

    def __init__(
        self, client: Client, nodes: Sequence[Node], *, heartbeat_seconds: float = 10.0, stop_seconds: float = 0.0
    ) -> None:
        self._client = client
        self._nodes = {node.metadata.name: node for node in nodes}
        self._admissions = {name: NodeAdmission(node) for name, node in self._nodes.items()}
        self._adopted: set[str] = set()
        """Nodes made by others that exist. What was bound to one is answered for also after it is gone."""
        self._unwell: set[str] = set()
        """Nodes that are to be reported as ready: new ones of others, and those whose object says that they are not."""
        self._silent: set[str] = set()
        self._heartbeat_seconds = heartbeat_seconds
        self._stop_seconds = stop_seconds
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._reports: dict[str, _Report] = {}
        """By uid. A later report on a pod replaces an earlier one."""
        self._heartbeats_due = True
        self._wake = threading.Event()
        self._watch: WatchStream | None = None
        self._threads = [
            threading.Thread(target=self._follow, name="hollow-watch", daemon=True),
            threading.Thread(target=self._report, name="hollow-reports", daemon=True),
        ]
        self.failure: ApiError | None = None
        """What ended the agents early, if something did."""

    def register(self, done: Callable[[int], None] | None = None) -> None:
        """Registers all nodes, several at a time; `done` is told how many more are. Raises ApiError."""
        with ThreadPoolExecutor(_REGISTRATIONS_AT_ONCE, "hollow-register") as pool:
            for _ in pool.map(self._client.register_node, self._nodes.values()):
                if done is not None:
                    done(1)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._wake.set()
        if self._watch is not None:
            self._watch.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(5.0)

    def silence(self, names: Collection[str]) -> None:
        """These nodes are not heard of any more."""
        with self._lock:
            self._silent |= set(names)

    def speak(self, names: Collection[str]) -> None:
        """They are heard of again, at once."""
        with self._lock:
            self._silent -= set(names)
            self._heartbeats_due = True
        self._wake.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the agents are stopped or fail; whether they are."""
        return self._stopped.wait(seconds)

    # ----------------------------------------------------------------------------------------------------- nodes and pods

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                self._follow_from_here()
            except ApiError as error:
                if error.code.name == "OUT_OF_RANGE":
                    # Compacted before this watch saw it, or the store went back: what is there now is all that counts.
                    continue
                self.failure = error
                self._stopped.set()
                self._wake.set()

    def _follow_from_here(self) -> None:
        # The nodes are listed last: what a pod was placed for is then there when the pod is judged.
        pods, nodes = self._client.list_all("pods"), self._client.list_all("nodes")
        for node in nodes.objects:
            self._node_changed(EventType.ADDED, node)
        here = [pod for pod in pods.objects if isinstance(pod, Pod) and pod.spec.node_name in self._admissions]
        uids = {pod.metadata.uid for pod in here}
        for admission in self._admissions.values():
            admission.keep(uids)
        for pod in sorted(here, key=_order):
            self._pod_changed(EventType.ADDED, pod)
        with self._client.watch(None, start_revision=pods.revision + 1) as self._watch:
            if self._stopped.is_set():
                return
            for event in self._watch:
                if isinstance(event.object, Node) and event.revision > nodes.revision:
                    self._node_changed(event.type, event.object)
                elif isinstance(event.object, Pod) and event.object.spec.node_name in self._admissions:
                    self._pod_changed(event.type, event.object)

    def _node_changed(self, kind: EventType, node: AnyObject) -> None:
        name = node.metadata.name
        if not isinstance(node, Node) or (name not in self._nodes and not wants_hollow_agent(node)):
            return
        if kind is EventType.DELETED:
            with self._lock:
                self._adopted.discard(name)
                self._unwell.discard(name)
            return
        if name not in self._admissions:
            self._admissions[name] = NodeAdmission(node)
        self._admissions[name].update(node)
        with self._lock:
            is_new = name not in self._nodes and name not in self._adopted
            if is_new:
                self._adopted.add(name)
            if is_new or not _is_ready(node):
                self._unwell.add(name)
                self._wake.set()

    def _pod_changed(self, kind: EventType, pod: Pod) -> None:
        uid = pod.metadata.uid
        admission = self._admissions[pod.spec.node_name]
        if kind is EventType.DELETED or pod.status.phase in FINAL_PHASES:
            admission.leave(uid)
            if kind is EventType.DELETED:
                with self._lock:
                    self._reports.pop(uid, None)
            elif pod.metadata.HasField("deletion_timestamp"):
                self._report_later(pod, _removal(pod), 0.0)
        elif pod.metadata.HasField("deletion_timestamp"):
            self._report_later(pod, _removal(pod), self._stop_seconds)
        elif pod.status.phase == "Running":
            admission.hold(pod)
            if _is_called_unready(pod):
                self._report_later(pod, _running(pod), 0.0)
        elif not admission.holds(uid):
            refusal = admission.take(pod)
            self._report_later(pod, _running(pod) if refusal is None else _refused(pod, refusal), 0.0)

    def _report_later(self, pod: Pod, update: PodStatusUpdate, seconds: float) -> None:
        due = time.monotonic() + seconds
        with self._lock:
            before = self._reports.get(update.uid)
            if update.remove and before is not None and before.update.remove:
                # It is stopping already; that its object changed again does not begin its time anew.
                due = min(due, before.due)
            self._reports[update.uid] = _Report(due, 0, pod.spec.node_name, update)
        self._wake.set()

    # ------------------------------------------------------------------------------------------------------------ reports

    def _report(self) -> None:
        next_heartbeat = 0.0
        while not self._stopped.is_set():
            self._wake.wait(max(0.0, min(next_heartbeat, self._next_report()) - time.monotonic()))
            self._wake.clear()
            self._stopped.wait(_FLUSH_SECONDS)
            with self._lock:
                due, self._heartbeats_due = self._heartbeats_due, False
            if due or time.monotonic() >= next_heartbeat:
                next_heartbeat = time.monotonic() + self._heartbeat_seconds
                self._send_heartbeats()
            self._greet()
            self._send_reports()

    def _next_report(self) -> float:
        with self._lock:
            return min((report.due for report in self._reports.values() if report.node not in self._silent), default=float("inf"))

    def _send_reports(self) -> None:
        now = time.monotonic()
        with self._lock:
            due = [report for report in self._reports.values() if report.due <= now and report.node not in self._silent]
            for report in due:
                del self._reports[report.update.uid]
        if not due:
            return
        outcomes: tuple[ApiError | None, ...]
        try:
            outcomes = self._client.update_pod_statuses([report.update for report in due])
        except ApiError as failure:
            outcomes = (failure,) * len(due)
        for report, error in zip(due, outcomes, strict=True):
            if error is None or error.code.name == "NOT_FOUND":
                continue
            update, tried = report.update, report.tried + 1
            if tried < _REPORT_ATTEMPTS_MAX and not self._stopped.is_set():
                with self._lock:
                    # A later report on the pod is worth more than this one.
                    self._reports.setdefault(update.uid, replace(report, due=time.monotonic() + _RETRY_SECONDS, tried=tried))
            else:
                log.warning("report on pod %s/%s given up: %s", update.namespace, update.name, error)

    def _greet(self) -> None:
        """Says of nodes that they are ready; what fails is tried again with the next heartbeat."""
        with self._lock:
            names = self._unwell - self._silent
        for name in sorted(names):
            status = NodeStatus()
            ready_condition(status)
            try:
                self._client.update_node_status(name, status)
            except ApiError as error:
                log.warning("node %s cannot be reported as ready yet: %s", name, error)
            else:
                with self._lock:
                    self._unwell.discard(name)

    def _send_heartbeats(self) -> None:
        with self._lock:
            names = [name for name in (*self._nodes, *self._adopted) if name not in self._silent]
        try:
            for name in self._client.heartbeat(names):
                if name in self._nodes:
                    self._client.register_node(self._nodes[name])
        except ApiError as error:
            log.warning("heartbeat failed, next one in %.0f s: %s", self._heartbeat_seconds, error)


def _is_ready(node: Node) -> bool:
    return any(found.type == "Ready" and found.status == "True" for found in node.status.conditions)


def _is_called_unready(pod: Pod) -> bool:
    """What runs on a hollow node is well; so the cluster says otherwise only because it did not hear of the node."""
    return any(found.type == "Ready" and found.status != "True" for found in pod.status.conditions)


def _order(pod: Pod) -> tuple[bool, int]:
    """What runs already has its place before anything new is judged."""
    return pod.status.phase != "Running", pod.metadata.creation_timestamp.seconds


def _running(pod: Pod) -> PodStatusUpdate:
    status = PodStatus(phase="Running")
    status.start_time.CopyFrom(_now())
    for condition in ("Initialized", "ContainersReady", "Ready"):
        status.conditions.add(type=condition, status="True").last_transition_time.CopyFrom(status.start_time)
    for container in pod.spec.containers:
        report = status.container_statuses.add(name=container.name, image=container.image, ready=True)
        report.state.running.started_at.CopyFrom(status.start_time)
    for container in pod.spec.init_containers:
        report = status.init_container_statuses.add(name=container.name, image=container.image, ready=True)
        if is_sidecar(container):
            report.state.running.started_at.CopyFrom(status.start_time)
        else:
            report.state.terminated.reason = "Completed"
            report.state.terminated.started_at.CopyFrom(status.start_time)
            report.state.terminated.finished_at.CopyFrom(status.start_time)
    return _update(pod, status)


def _refused(pod: Pod, refusal: NodeRefusal) -> PodStatusUpdate:
    return _update(pod, PodStatus(phase="Failed", reason=refusal.reason, message=refusal.message))


def _removal(pod: Pod) -> PodStatusUpdate:
    return PodStatusUpdate(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid, remove=True)


def _update(pod: Pod, status: PodStatus) -> PodStatusUpdate:
    return PodStatusUpdate(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid, status=status)


def _now() -> Timestamp:
    now = Timestamp()
    now.GetCurrentTime()
    now.nanos = 0
    return now
