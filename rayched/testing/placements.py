"""Where pods went, and assertions about it that say why when they fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rayched.v1.core_pb2 import Pod


@dataclass(frozen=True, slots=True)
class Placements:
    """What became of pods, by namespace/name. Pods may be named by message, by name (in "default") or by namespace/name."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    """The node of each pod that has one."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why each of the others has none."""

    def node_of(self, pod: Pod | str) -> str:
        """The pod's node. AssertionError where it has none."""
        name = _name(pod)
        if name in self.nodes:
            return self.nodes[name]
        raise AssertionError(f"pod {name} has no node: {self._why(name)}")

    def per_node(self) -> Counter[str]:
        """How many pods each node got."""
        return Counter(self.nodes.values())

    def assert_on(self, pod: Pod | str, *nodes: str) -> None:
        """The pod is on one of these nodes."""
        found = self.node_of(pod)
        if found not in nodes:
            raise AssertionError(f"pod {_name(pod)} is on {found}, expected {' or '.join(nodes)}")

    def assert_not_on(self, pod: Pod | str, *nodes: str) -> None:
        """The pod has a node, and it is none of these."""
        found = self.node_of(pod)
        if found in nodes:
            raise AssertionError(f"pod {_name(pod)} is on {found}, expected any other node")

    def assert_pending(self, pod: Pod | str, because: str = "") -> None:
        """The pod has no node, and these words are part of the reason."""
        name = _name(pod)
        if name in self.nodes:
            raise AssertionError(f"pod {name} is on {self.nodes[name]}, expected it to be pending")
        reason = self._why(name)
        if because not in reason:
            raise AssertionError(f"pod {name} is pending, but not because of {because!r}: {reason}")

    def _why(self, name: str) -> str:
        if name not in self.reasons:
            known = ", ".join([*self.nodes, *self.reasons][:10]) or "none"
            raise AssertionError(f"pod {name} is not among the pods that were placed: {known}")
        return self.reasons[name]


def _name(pod: Pod | str) -> str:
    if isinstance(pod, str):
        return pod if "/" in pod else f"default/{pod}"
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
