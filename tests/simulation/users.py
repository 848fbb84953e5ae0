"""Users, agents of nodes and administrators: a random workload on the API of whatever replica answers.

Users submit pods, sometimes twice, try again when they get no answer, and delete pods. Agents let pods run, end, and go when they
are to be deleted. Administrators add, remove, cordon, resize and relabel nodes. All stop at `rest`; what was begun is finished.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from leader.etcd_shim import rpc
from rayched.api import kinds
from rayched.api.termination import FINAL_PHASES
from rayched.server.admission.submissions import Created, Creation
from rayched.store.codec import encode
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import Stored
from rayched.v1.workloads_pb2 import Object
from tests.simulation.replica import KEYS, Replica
from tests.simulation.world import MS, SECOND, World

ATTEMPTS_MAX: Final = 12
ZONES: Final = ("east", "west")


@dataclass(slots=True)
class Record:
    """What users know, and the checker holds them to."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    """Uids of pods whose submission was acknowledged, and the revision that the answer named."""
    deletions_asked: set[str] = field(default_factory=set)
    deletions_acknowledged: set[str] = field(default_factory=set)
    submitted: int = 0


class Users:
    def __init__(self, world: World, replicas: list[Replica], record: Record, *, crowded: bool) -> None:
        self.world, self.random, self.replicas, self.record = world, world.random, replicas, record
        self._crowded = crowded
        """There is always more to run than there is room."""
        self._pods_left = self.random.choice((25, 40)) if crowded else self.random.choice((6, 15, 25))
        self._nodes = 0
        self.resting = False
        self.silent: set[str] = set()
        """Nodes whose agents do nothing."""
        self.adorn: Callable[[Pod], None] = lambda pod: None
        """Gives a new pod more than users say."""
        self.agents_tell_ready = False
        """Of a pod that runs, that it is ready."""

    def start(self, nodes: int) -> None:
        """A namespace and nodes are there before anything else."""
        namespace = kinds.NAMESPACE.message()
        namespace.metadata.name, namespace.metadata.uid = "default", "uid-default"
        self.put(KEYS.object_key(kinds.NAMESPACE, "", "default"), encode(kinds.wrap(namespace)))
        high = kinds.PRIORITY_CLASS.message()
        high.metadata.name, high.metadata.uid, high.value = "high", "uid-high", 100
        self.put(KEYS.object_key(kinds.PRIORITY_CLASS, "", "high"), encode(kinds.wrap(high)))
        for _ in range(nodes):
            self._add_node()
        self.world.after(0, self._submit_next)
        self.world.after(self._pause(1.0), self._delete_next)
        self.world.after(self._pause(1.0), self._administrate)
        self.world.after(self._pause(0.3), self._agents)

    def rest(self) -> None:
        self.resting = True

    # What further loads do in the users' name.

    def submit(self, pods: list[Pod]) -> None:
        if pods and not self.resting:
            self._submit(pods, 1)

    def delete(self, name: str, uid: str) -> None:
        if (replica := self._replica()) is not None:
            self._delete(replica, name, uid)

    def _pause(self, mean_seconds: float) -> int:
        return int(self.random.expovariate(1.0 / mean_seconds) * SECOND)

    # --------------------------------------------------------------------------------------------------------------- users

    def _submit_next(self) -> None:
        if self.resting or self._pods_left <= 0:
            return
        count = min(self._pods_left, self.random.choice((1, 1, 2, 5)))
        self._pods_left -= count
        self._submit([self._pod() for _ in range(count)], 1)
        self.world.after(self._pause(0.25 if self._crowded else 0.5), self._submit_next)

    def _pod(self) -> Pod:
        random, record = self.random, self.record
        record.submitted += 1
        pod = Pod()
        pod.metadata.name = f"p{record.submitted}"
        pod.metadata.namespace = "default"
        pod.metadata.uid = f"uid-p{record.submitted}"
        if random.random() < 0.15:
            pod.spec.priority_class_name = "high"
        container = pod.spec.containers.add(name="main", image="registry.example/app:1")
        container.resources.requests["cpu"].string = random.choice(("500m", "1", "1", "2"))
        kind = random.random()
        if kind < 0.15:
            pod.spec.node_selector["zone"] = random.choice(ZONES)
        elif kind < 0.3:
            pod.metadata.labels["app"] = "alone"
            term = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add()
            term.label_selector.match_labels["app"] = "alone"
            term.topology_key = "kubernetes.io/hostname"
        elif kind < 0.4:
            container.ports.add(container_port=80, host_port=8080, protocol="TCP")
        elif kind < 0.45:
            pod.spec.scheduling_gates.add(name="wait")
        self.adorn(pod)
        return pod

    def _submit(self, pods: list[Pod], attempt: int) -> None:
        replica = self._replica()
        if replica is None:
            self.world.after(200 * MS, lambda: self._submit(pods, attempt))
            return
        answered = False

        def done(results: list[Creation]) -> None:
            nonlocal answered
            # The user's own connection may break, too.
            if answered or self.random.random() < 0.05:
                return
            answered = True
            again = []
            for pod, result in zip(pods, results, strict=True):
                if isinstance(result, Created):
                    self.record.acknowledged[result.uid] = result.revision
                    self.world.trace("created", result.uid, result.revision)
                else:
                    again.append(pod)
            self._again(again, attempt)

        def nothing_heard() -> None:
            nonlocal answered
            if not answered:
                answered = True
                self._again(pods, attempt)

        # Objects are used up by a submission.
        replica.api.submit([_copy(pod) for pod in pods], done)
        if self.random.random() < 0.1 and (other := self._replica()) is not None:
            other.api.submit([_copy(pod) for pod in pods], done)
        self.world.after(1500 * MS, nothing_heard)

    def _again(self, pods: list[Pod], attempt: int) -> None:
        if pods and attempt < ATTEMPTS_MAX:
            self.world.after(self._pause(0.2), lambda: self._submit(pods, attempt + 1))

    def _delete_next(self) -> None:
        if self.resting:
            return
        pods = self.pods()
        replica = self._replica()
        if pods and replica is not None:
            pod = self.random.choice(pods)[1].object.pod
            self._delete(replica, pod.metadata.name, pod.metadata.uid)
        self.world.after(self._pause(2.0), self._delete_next)

    def _delete(self, replica: Replica, name: str, uid: str) -> None:
        self.record.deletions_asked.add(uid)

        def done(acknowledged: bool) -> None:
            if acknowledged:
                self.record.deletions_acknowledged.add(uid)

        replica.api.delete(name, uid, done)

    def _replica(self) -> Replica | None:
        up = [replica for replica in self.replicas if replica.is_up]
        return self.random.choice(up) if up else None

    # -------------------------------------------------------------------------------------------------------------- agents

    def _agents(self) -> None:
        """They write without delay: what matters here is what others see of it."""
        for key, stored in self.pods():
            pod = stored.object.pod
            if pod.spec.node_name in self.silent:
                continue
            if not pod.spec.node_name:
                if pod.spec.scheduling_gates and self.random.random() < 0.2:
                    del pod.spec.scheduling_gates[:]
                    self._rewrite(key, stored)
            elif pod.metadata.HasField("deletion_timestamp"):
                self.remove(key)
            elif pod.status.phase not in FINAL_PHASES and self.random.random() < 0.08:
                pod.status.phase = "Succeeded" if pod.status.phase == "Running" else "Running"
                if self.agents_tell_ready:
                    _tell_ready(pod)
                self._rewrite(key, stored)
        # Agents go on while users rest, or room would never come free.
        self.world.after(self._pause(0.5), self._agents)

    # ------------------------------------------------------------------------------------------------------ administrators

    def _administrate(self) -> None:
        if self.resting:
            return
        random = self.random
        nodes = self._node_keys()
        what = random.random()
        if what < 0.25 and len(nodes) < 6:
            self._add_node()
        elif what < 0.4 and len(nodes) > 3:
            self.remove(random.choice(nodes))
        elif nodes:
            self._change_node(random.choice(nodes))
        self.world.after(self._pause(1.5), self._administrate)

    def _add_node(self) -> None:
        self._nodes += 1
        node = Node()
        node.metadata.name = f"n{self._nodes}"
        node.metadata.uid = f"uid-n{self._nodes}"
        node.metadata.labels["kubernetes.io/hostname"] = node.metadata.name
        node.metadata.labels["zone"] = self.random.choice(ZONES)
        for resource, amount in (("cpu", self._cpu()), ("memory", "64Gi"), ("pods", "110")):
            node.status.allocatable[resource].string = amount
            node.status.capacity[resource].string = amount
        self.put(KEYS.object_key(kinds.NODE, "", node.metadata.name), encode(kinds.wrap(node)))

    def _cpu(self) -> str:
        return str(self.random.randint(1, 3) if self._crowded else self.random.randint(2, 6))

    def _change_node(self, key: bytes) -> None:
        stored = Stored.FromString(self.world.etcd.get(key).value)
        node = stored.object.node
        what = self.random.random()
        if what < 0.4:
            node.spec.unschedulable = not node.spec.unschedulable
        elif what < 0.8:
            node.status.allocatable["cpu"].string = self._cpu()
        else:
            node.metadata.labels["zone"] = self.random.choice(ZONES)
        self._rewrite(key, stored)

    # ---------------------------------------------------------------------------------------------------------- the store

    def pods(self) -> list[tuple[bytes, Stored]]:
        return [(pair.key, Stored.FromString(pair.value)) for pair in self.world.etcd.under(KEYS.prefix(kinds.POD))]

    def _node_keys(self) -> list[bytes]:
        return [pair.key for pair in self.world.etcd.under(KEYS.prefix(kinds.NODE))]

    def _rewrite(self, key: bytes, stored: Stored) -> None:
        self.put(key, stored.SerializeToString())

    def put(self, key: bytes, value: bytes) -> None:
        self._serve(lambda: self.world.etcd.put(rpc.PutRequest(key=key, value=value)))

    def remove(self, key: bytes) -> None:
        self._serve(lambda: self.world.etcd.delete_range(rpc.DeleteRangeRequest(key=key)))

    def _serve(self, handle: Callable[[], Any]) -> None:
        if self.world.etcd_up:
            self.world.serve(handle)


def _tell_ready(pod: Pod) -> None:
    ready = next((one for one in pod.status.conditions if one.type == "Ready"), None) or pod.status.conditions.add(type="Ready")
    ready.status = "True" if pod.status.phase == "Running" else "False"


def _copy(pod: Pod) -> Object:
    item = Object()
    item.pod.CopyFrom(pod)
    return item
