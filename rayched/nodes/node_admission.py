"""What a node does with a pod that is bound to it: takes it, or refuses it with the agent's reason. Pure.

A pod that names its node itself goes past the scheduler, so the node checks again: resources, pod slots, host ports, node
selector and required node affinity. The first reason found stands in the pod's status, phase Failed, as kubelet writes it.

Source: kubelet's admission of Kubernetes 1.34 (OutOfcpu, OutOfmemory, OutOfpods, NodePorts, NodeAffinity).
Cost: O(resources of the pod) for each pod.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from rayched.api.quantity import milli_value, value
from rayched.api.resources import is_sidecar, pod_requests
from rayched.api.selectors import NodeSelectorMatcher, matches_all
from rayched.v1.core_pb2 import Node, Pod

ANY_ADDRESS = ("", "0.0.0.0", "::")
HostPort = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node does not take a pod."""

    reason: str
    message: str


class NodeAdmission:
    """One node and the pods that it has taken."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._offers = offers_of(node)
        self._used: dict[str, int] = defaultdict(int)
        self._ports: Counter[HostPort] = Counter()
        self._taken: dict[str, tuple[dict[str, int], frozenset[HostPort]]] = {}

    def holds(self, uid: str) -> bool:
        return uid in self._taken

    def take(self, pod: Pod) -> Refusal | None:
        """Takes the pod, or says why not. A pod that is there already is there."""
        uid = pod.metadata.uid
        if uid in self._taken:
            return None
        needs = {**pod_requests(pod), "pods": 1}
        ports = _host_ports(pod)
        refusal = self._misplaced(pod) or self._too_large(needs) or self._port_conflict(ports)
        if refusal is None:
            self._taken[uid] = needs, ports
            for name, amount in needs.items():
                self._used[name] += amount
            self._ports.update(ports)
        return refusal

    def leave(self, uid: str) -> None:
        """The pod has ended or is gone. Unknown ones are nobody's."""
        needs, ports = self._taken.pop(uid, ({}, frozenset()))
        for name, amount in needs.items():
            self._used[name] -= amount
        self._ports.subtract(ports)

    def _misplaced(self, pod: Pod) -> Refusal | None:
        labels = self.node.metadata.labels
        required = pod.spec.affinity.node_affinity
        name = "required_during_scheduling_ignored_during_execution"
        selected = matches_all(pod.spec.node_selector, labels)
        if selected and required.HasField(name):
            selected = NodeSelectorMatcher(getattr(required, name)).matches(self.node.metadata.name, labels)
        if selected:
            return None
        return Refusal(
            "NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        )

    def _too_large(self, needs: Mapping[str, int]) -> Refusal | None:
        for name, amount in needs.items():
            used, offered = self._used[name], self._offers.get(name, 0)
            if amount and used + amount > offered:
                words = f"Node didn't have enough resource: {name}, requested: {amount}, used: {used}, capacity: {offered}"
                return Refusal(f"OutOf{name}", f"Pod was rejected: {words}")
        return None

    def _port_conflict(self, ports: frozenset[HostPort]) -> Refusal | None:
        for protocol, port, address in ports:
            for (other_protocol, other_port, other_address), count in self._ports.items():
                same = (protocol, port) == (other_protocol, other_port) and count > 0
                if same and (address == other_address or "" in (address, other_address)):
                    words = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
                    return Refusal("NodePorts", f"Pod was rejected: {words}")
        return None


def offers_of(node: Node) -> dict[str, int]:
    """What a node offers: milli-CPU, bytes, counts."""
    allocatable = node.status.allocatable
    return {name: milli_value(q.string) if name == "cpu" else value(q.string) for name, q in allocatable.items()}


def _host_ports(pod: Pod) -> frozenset[HostPort]:
    containers = [*pod.spec.containers, *filter(is_sidecar, pod.spec.init_containers)]
    return frozenset(
        (port.protocol or "TCP", port.host_port, "" if port.host_ip in ANY_ADDRESS else port.host_ip)
        for container in containers
        for port in container.ports
        if port.host_port
    )
