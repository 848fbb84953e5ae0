"""What a node does with a pod that is bound to it: takes it, or refuses it with the agent's reason. Pure.

A pod that names its node itself goes past the scheduler, so the node checks again, in this order: pod slots, resources, node
selector and required node affinity, host ports, NoExecute taints. The first reason found stands in the pod's status, phase
Failed, as kubelet writes it.

The node is what the API says it is: whoever labels, taints or resizes it there tells its agent (`update`) before the pods that
were placed for it.

Source: kubelet's admission of Kubernetes 1.34 (OutOfpods, OutOfcpu, NodeAffinity, NodePorts, TaintToleration). Known difference:
an extended resource that the node does not have is refused here and overlooked there.
Cost: O(resources of the pod) for each pod.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rayched.api.quantity import milli_value, value
from rayched.api.resources import is_sidecar, pod_requests
from rayched.api.selectors import NodeSelectorMatcher, matches_all
from rayched.api.tolerations import NO_EXECUTE, first_untolerated
from rayched.v1.core_pb2 import Node, Pod

ANY_ADDRESS = ("", "0.0.0.0", "::")
HostPort = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Why a node does not take a pod."""

    reason: str
    message: str


class NodeAdmission:
    """One node and the pods that it has taken."""

    def __init__(self, node: Node) -> None:
        self.update(node)
        self._used: dict[str, int] = defaultdict(int)
        self._ports: Counter[HostPort] = Counter()
        self._taken: dict[str, tuple[dict[str, int], frozenset[HostPort]]] = {}

    def update(self, node: Node) -> None:
        """The node as it is now. What it has taken stays, also where it would not take it any more."""
        self.node = node
        self._offers = offers_of(node)

    def keep(self, uids: Collection[str]) -> None:
        """Gives back what other pods held."""
        for uid in self._taken.keys() - set(uids):
            self.leave(uid)

    def holds(self, uid: str) -> bool:
        return uid in self._taken

    def take(self, pod: Pod) -> NodeRefusal | None:
        """Takes the pod, or says why not. A pod that is there already is there."""
        uid = pod.metadata.uid
        if uid in self._taken:
            return None
        needs = {"pods": 1, **pod_requests(pod)}
        ports = _host_ports(pod)
        refusal = self._too_large(needs) or self._misplaced(pod) or self._port_conflict(ports) or self._repelled(pod)
        if refusal is None:
            self._take(uid, needs, ports)
        return refusal

    def hold(self, pod: Pod) -> None:
        """A pod that runs here already, taken by an agent before this one: it is not judged again."""
        if pod.metadata.uid not in self._taken:
            self._take(pod.metadata.uid, {"pods": 1, **pod_requests(pod)}, _host_ports(pod))

    def leave(self, uid: str) -> None:
        """The pod has ended or is gone. Unknown ones are nobody's."""
        needs, ports = self._taken.pop(uid, ({}, frozenset()))
        for name, amount in needs.items():
            self._used[name] -= amount
        self._ports.subtract(ports)

    def _take(self, uid: str, needs: dict[str, int], ports: frozenset[HostPort]) -> None:
        self._taken[uid] = needs, ports
        for name, amount in needs.items():
            self._used[name] += amount
        self._ports.update(ports)

    def _misplaced(self, pod: Pod) -> NodeRefusal | None:
        labels = self.node.metadata.labels
        required = pod.spec.affinity.node_affinity
        name = "required_during_scheduling_ignored_during_execution"
        selected = matches_all(pod.spec.node_selector, labels)
        if selected and required.HasField(name):
            selected = NodeSelectorMatcher(getattr(required, name)).matches(self.node.metadata.name, labels)
        if selected:
            return None
        return NodeRefusal(
            "NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        )

    def _too_large(self, needs: Mapping[str, int]) -> NodeRefusal | None:
        for name, amount in needs.items():
            used, offered = self._used[name], self._offers.get(name, 0)
            if amount and used + amount > offered:
                words = f"Node didn't have enough resource: {name}, requested: {amount}, used: {used}, capacity: {offered}"
                return NodeRefusal(f"OutOf{name}", f"Pod was rejected: {words}")
        return None

    def _port_conflict(self, ports: frozenset[HostPort]) -> NodeRefusal | None:
        for protocol, port, address in ports:
            for (other_protocol, other_port, other_address), count in self._ports.items():
                same = (protocol, port) == (other_protocol, other_port) and count > 0
                if same and (address == other_address or "" in (address, other_address)):
                    words = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
                    return NodeRefusal("NodePorts", f"Pod was rejected: {words}")
        return None

    def _repelled(self, pod: Pod) -> NodeRefusal | None:
        """By a taint that would evict the pod at once."""
        if first_untolerated(pod.spec.tolerations, self.node.spec.taints, (NO_EXECUTE,)) is None:
            return None
        words = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
        return NodeRefusal("TaintToleration", f"Pod was rejected: {words}")


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
