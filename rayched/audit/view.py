"""The cluster as constraints see it, and how it was at each moment of the recent past.

An `AuditView` is what is there at one moment. The `Past` keeps the last STEPS_MAX changes with what they replaced, so that a view
can be taken back, change by change. A decision is judged by the views between the revision that it was made on and its commit.

Cost: O(1) for each change; O(pods + changes) for each look into the past.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rayched.audit.requests import Amounts, host_ports, taken_by
from rayched.v1.core_pb2 import Node, Pod, PodAffinityTerm

STEPS_MAX: Final = 50_000


@dataclass(frozen=True, slots=True)
class Resident:
    """A pod that has a node and has not ended."""

    pod: Pod
    node: str
    labels: dict[str, str]
    deleting: bool
    repels: tuple[PodAffinityTerm, ...]
    """Its required anti-affinity."""
    takes: Amounts
    """What it takes of its node."""
    ports: frozenset[tuple[str, int, str]]
    """Its host ports."""

    @property
    def namespace(self) -> str:
        return self.pod.metadata.namespace

    @property
    def name(self) -> str:
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"


def resident(pod: Pod, node: str = "") -> Resident:
    """The pod on its node, or on another one where that is given."""
    anti = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    deleting = pod.metadata.HasField("deletion_timestamp")
    labels, ports = dict(pod.metadata.labels), frozenset(host_ports(pod))
    return Resident(pod, node or pod.spec.node_name, labels, deleting, tuple(anti), taken_by(pod), ports)


@dataclass(slots=True)
class AuditView:
    """Nodes by name, labels of namespaces by name, pods on nodes by uid, and pending pods where they are nominated by uid."""

    nodes: dict[str, Node] = field(default_factory=dict)
    residents: dict[str, Resident] = field(default_factory=dict)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    nominated: dict[str, Resident] = field(default_factory=dict)
    repelling: dict[str, Resident] = field(default_factory=dict)
    """Those of the residents with required anti-affinity."""

    def copy(self) -> AuditView:
        return AuditView(
            dict(self.nodes), dict(self.residents), dict(self.namespaces), dict(self.nominated), dict(self.repelling)
        )

    def put(self, table: str, key: str, value: Any) -> None:
        """None takes it out."""
        entries = getattr(self, table)
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
        if table == "residents":
            if value is not None and value.repels:
                self.repelling[key] = value
            else:
                self.repelling.pop(key, None)


@dataclass(frozen=True, slots=True)
class _Step:
    revision: int
    table: str
    key: str
    before: Any
    """None: it was not there."""


class Past:
    """The present view, and the way back."""

    def __init__(self) -> None:
        self.now = AuditView()
        self._steps: deque[_Step] = deque(maxlen=STEPS_MAX)

    def change(self, revision: int, table: str, key: str, value: Any) -> None:
        """Puts a value into a table of the view; None takes it out."""
        before = getattr(self.now, table).get(key)
        if before is None and value is None:
            return
        self._steps.append(_Step(revision, table, key, before))
        self.now.put(table, key, value)

    def reaches_back_to(self, revision: int) -> bool:
        """Every change after that revision is still known."""
        return len(self._steps) < STEPS_MAX or self._steps[0].revision <= revision

    def views_since(self, revision: int) -> Iterator[AuditView]:
        """The present view taken back change by change, to the one of `revision`. It is the same object each time."""
        view = self.now.copy()
        for step in reversed(self._steps):
            if step.revision <= revision:
                return
            view.put(step.table, step.key, step.before)
            yield view

    def view_at(self, revision: int) -> AuditView:
        """As it was when that revision was the last one."""
        view = self.now.copy()
        for view in self.views_since(revision):  # noqa: B007  # the last one counts
            pass
        return view
