"""Takes pods on: judges them, has them wait for room, writes down that they are accepted. The agent's loop thread owns it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from rayched.client.errors import ApiError
from rayched.client.node_agent import NodeAgentClient
from rayched.nodes.agent.admission import AgentAdmission
from rayched.nodes.agent.disk import NodeDirectory, PodDirectory
from rayched.nodes.agent.leftovers import Leftovers
from rayched.nodes.agent.workers import Workers
from rayched.nodes.node_admission import NodeRefusal
from rayched.v1.core_pb2 import Node, Pod

_LEFT_BEHIND: Final = "Pod was on the node before it was moved to this machine; it may run on the other one still"
_WITH_NEWER_NODE: Final = ("NodeAffinity", "TaintToleration", "OutOf")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IntakePorts:
    """What the agent does about a verdict, in its loop."""

    accepted: Callable[[PodDirectory, Pod, float, bool], None]
    """With when that was, and whether it ran here before and its state is lost."""
    refused: Callable[[Pod, NodeRefusal], None]
    someone_ends: Callable[[], bool]
    """A pod that holds room is ending."""
    post: Callable[[Callable[[], None]], None]
    clock: Callable[[], float]
    swept: Callable[[Pod], None]
    """Nothing of a pod that was deleted lives here, nor anything on the disk."""


class PodIntake:
    """New pods of one node."""

    def __init__(
        self,
        node: Node,
        client: NodeAgentClient,
        directory: NodeDirectory,
        workers: Workers,
        leftovers: Leftovers,
        ports: IntakePorts,
    ) -> None:
        self._node = node
        self._client = client
        self._directory = directory
        self._workers = workers
        self._leftovers = leftovers
        self._ports = ports
        self.admission = AgentAdmission(node)
        self._waiting: dict[str, tuple[Pod, float]] = {}
        """Pods that wait for room, with when they are judged again."""
        self._refused: set[str] = set()
        self._away: set[str] = set()
        """Pods that a worker looks at or sweeps; who is dropped meanwhile is not taken on."""
        self._deleted: dict[str, Pod] = {}
        """Pods that were deleted, while nothing of them is known here and they are swept."""

    def update(self, node: Node) -> None:
        self.admission.placement.update(node)

    def wakes_at(self) -> float:
        return min((until for _, until in self._waiting.values()), default=float("inf"))

    def turn(self, now: float) -> None:
        for pod, until in list(self._waiting.values()):
            if until <= now:
                self.judge(pod)

    def room_is_free(self) -> None:
        """Something has ended: who waits is judged again."""
        for pod, _ in list(self._waiting.values()):
            self.judge(pod)

    def keep(self, uids: Collection[str]) -> None:
        """Other pods than these do not exist any more."""
        for uid in (self._waiting.keys() | self._refused | self._away) - set(uids):
            self.drop(uid)

    def drop(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._refused.discard(uid)
        self._away.discard(uid)

    def close(self, why: str) -> None:
        """Nothing is taken any more."""
        self.admission.closed = why
        self._waiting.clear()
        self._away.clear()

    def shut(self, why: str) -> None:
        """Nothing is taken for now; who waits is refused."""
        self.admission.closed = why
        self.room_is_free()

    def open(self) -> None:
        """After `shut`."""
        self.admission.closed = ""

    def judge(self, pod: Pod, *, fresh: bool = False) -> None:
        uid = pod.metadata.uid
        if uid in self._refused:
            return
        self._waiting.pop(uid, None)
        verdict = self.admission.judge(pod, self._ports.clock(), someone_ends=self._ports.someone_ends())
        if isinstance(verdict, float):
            self._waiting[uid] = (pod, verdict)
        elif verdict is None:
            self._accept(pod, lost=False)
        elif verdict.reason.startswith(_WITH_NEWER_NODE) and not fresh:
            self._judge_with_newer_node(pod)
        else:
            self.refuse(pod, verdict)

    def leave(self, pod: Pod) -> None:
        """A pod that was here when another machine had the node: nobody here can say that it does not run there."""
        self.refuse(pod, NodeRefusal("NodeReplaced", _LEFT_BEHIND))

    def take_lost(self, pod: Pod) -> None:
        """A pod that ran here by its status, and of which the disk knows nothing: what is left of it dies first."""
        if pod.metadata.uid in self._away:
            # A second sweep would find the container that the first one was for.
            return
        self._away.add(pod.metadata.uid)

        def take() -> None:
            if self._is_back(pod):
                self.admission.placement.hold(pod)
                self._accept(pod, lost=True)

        self._leftovers.sweep(pod.metadata.uid, take)

    def clear(self, pod: Pod) -> None:
        """A pod that was deleted, and that nobody here looks after: something of it may live all the same."""
        uid = pod.metadata.uid
        self.drop(uid)
        is_new = uid not in self._deleted
        self._deleted[uid] = pod
        if is_new:
            self._leftovers.sweep(uid, lambda: self._cleared(uid))

    def clear_absent(self, uids: Collection[str]) -> None:
        """What the disk and the cgroups know of other pods than these: their objects are gone."""
        for uid in (self._directory.uids_there() | self._leftovers.uids_in_cgroups()) - set(uids):
            self.clear_gone(uid)

    def clear_gone(self, uid: str) -> None:
        """A pod whose object has gone, and that nobody here looks after."""
        self.drop(uid)
        if uid in self._directory.uids_there() | self._leftovers.uids_in_cgroups() and uid not in self._deleted:
            self._leftovers.sweep(uid, partial(self._remove_directory, uid))

    def _cleared(self, uid: str) -> None:
        pod = self._deleted.pop(uid)
        self._remove_directory(uid)
        self._ports.swept(pod)

    def _remove_directory(self, uid: str) -> None:
        try:
            self._directory.pod(uid).remove()
        except OSError as error:
            log.warning("what the disk has of pod %s stays: %s", uid, error)

    def _judge_with_newer_node(self, pod: Pod) -> None:
        """It may have been placed for a label that came since."""
        self._away.add(pod.metadata.uid)

        def judge(found: Node | Exception | None) -> None:
            if isinstance(found, Node):
                self.update(found)
            if self._is_back(pod):
                self.judge(pod, fresh=True)

        self._workers.submit(f"look at node {self._node.metadata.name}", self._newer_node, judge)

    def _newer_node(self) -> Node | None:
        """In a worker; None: it cannot be read."""
        try:
            found = self._client.get("node", self._node.metadata.name)
        except ApiError as error:
            log.warning("node %s cannot be read: %s", self._node.metadata.name, error)
            return None
        return found if isinstance(found, Node) else None

    def _is_back(self, pod: Pod) -> bool:
        """From a worker, and still to be taken on."""
        found = pod.metadata.uid in self._away
        self._away.discard(pod.metadata.uid)
        return found

    def _accept(self, pod: Pod, *, lost: bool) -> None:
        directory = self._directory.pod(pod.metadata.uid)
        now = self._ports.clock()
        try:
            directory.make()
            directory.save_object(pod)
            directory.accept(now)
        except OSError as error:
            self.admission.forget(pod.metadata.uid)
            text = f"Pod was rejected: {error.strerror}: {error.filename}"
            self.refuse(pod, NodeRefusal("UnexpectedAdmissionError", text))
            return
        self._ports.accepted(directory, pod, now, lost)

    def refuse(self, pod: Pod, refusal: NodeRefusal) -> None:
        """Once; repeated, nothing."""
        if pod.metadata.uid in self._refused:
            return
        self._refused.add(pod.metadata.uid)
        self._ports.refused(pod, refusal)
