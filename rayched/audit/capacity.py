"""What the pods on each node take of what it offers: S2.

A pod takes its room from the revision in which it gets its node until it has ended or is gone. A pod that named its node itself
counts for the others, and is not held against the scheduler; nor is a node that came to offer less.

Cost: O(resources of the pod) for each change, O(ports of the node) where a pod has host ports.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction

from rayched.audit.requests import Amounts, amounts, host_ports, taken_by
from rayched.v1.core_pb2 import Node, Pod

Port = tuple[str, int, str]


@dataclass(slots=True)
class _Placed:
    node: str
    takes: Amounts
    ports: set[Port]


class Capacity:
    """Offers by node, and what is taken of them."""

    def __init__(self) -> None:
        self._offers: dict[str, Amounts] = {}
        self._placed: dict[str, _Placed] = {}
        """By uid."""
        self._used: dict[str, Amounts] = defaultdict(lambda: defaultdict(Fraction))
        self._ports: dict[str, Counter[Port]] = defaultdict(Counter)

    def __len__(self) -> int:
        """Pods that hold room."""
        return len(self._placed)

    def offer(self, name: str, node: Node | None) -> None:
        """What a node offers from now on; None: it is gone."""
        if node is None:
            self._offers.pop(name, None)
        else:
            self._offers[name] = amounts(node.status.allocatable)

    def nodes_of_pods(self) -> list[str]:
        """The node of each pod that holds room."""
        return [placed.node for placed in self._placed.values()]

    def allocated(self, resource: str) -> tuple[Fraction, Fraction]:
        """What pods take of a resource in all, and what the nodes offer."""
        used = sum((used.get(resource, Fraction(0)) for used in self._used.values()), Fraction(0))
        return used, sum((offer.get(resource, Fraction(0)) for offer in self._offers.values()), Fraction(0))

    def enter(self, uid: str, pod: Pod, node: str) -> None:
        placed = self._placed[uid] = _Placed(node, taken_by(pod), host_ports(pod))
        for resource, value in placed.takes.items():
            self._used[node][resource] += value
        self._ports[node].update(placed.ports)

    def leave(self, uid: str) -> None:
        placed = self._placed.pop(uid, None)
        if placed is None:
            return
        for resource, value in placed.takes.items():
            self._used[placed.node][resource] -= value
        self._ports[placed.node].subtract(placed.ports)
        # A counter keeps what has come down to zero.
        self._ports[placed.node] += Counter()

    def exceeded_by(self, pod: Pod, node: str) -> str | None:
        """Whether there is too little room for a pod that has not entered yet, in words."""
        return self.exceeded(taken_by(pod), host_ports(pod), node)

    def exceeded(self, takes: Amounts, ports: set[Port], node: str) -> str | None:
        """The same for a pod that takes this."""
        offer = self._offers.get(node, {})
        for resource, wanted in takes.items():
            used, offered = self._used[node][resource] + wanted, offer.get(resource, Fraction(0))
            if wanted and used > offered:
                return f"node {node} has {float(used):g} of {float(offered):g} {resource}"
        taken = self._ports[node]
        for port in ports:
            if any(collide(port, other) for other in taken):
                return f"host port {port[1]}/{port[0]} on node {node} is shared"
        return None


def collide(one: Port, other: Port) -> bool:
    """Whether two pods on one node cannot have them both."""
    return one[:2] == other[:2] and (one[2] == other[2] or not one[2] or not other[2])
