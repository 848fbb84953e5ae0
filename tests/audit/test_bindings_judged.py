"""Bindings under hard constraints: what is broken, what only a tolerance excuses, and what nothing excuses."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rayched.audit.auditor import Auditor, KeyChange
from rayched.audit.bindings_judged import HELD_BETWEEN, HELD_WITH_ASSUMED
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import LeaderWrite, Stored

Shape = Callable[[Pod], object]


class Cluster:
    """Nodes a1, a2 in zone a and b1 in zone b, and one epoch; every write is one revision."""

    def __init__(self) -> None:
        self.auditor = Auditor()
        self.revision = 0
        self.epoch = self.write("epoch", json.dumps({"transitions": 0, "holder": "me"}).encode())
        for name in ("a1", "a2", "b1"):
            self.node(name)

    def write(self, key: str, value: bytes | None) -> int:
        self.revision += 1
        self.auditor.replay(self.revision, [KeyChange(f"/rayched/cluster/{key}".encode(), value)])
        return self.revision

    def node(self, name: str, tainted: bool = False, **labels: str) -> int:
        node = Node()
        node.metadata.name = name
        for key, value in {"zone": name[0], **labels}.items():
            node.metadata.labels[key] = value
        if tainted:
            node.spec.taints.add(key="gpu", effect="NoSchedule")
        node.status.allocatable["pods"].string = "10"
        stored = Stored()
        stored.object.node.CopyFrom(node)
        return self.write(f"nodes/{name}", stored.SerializeToString())

    def bind(self, name: str, node: str, shape: Shape = lambda pod: None, *, decided: int = 0, number: int = 0) -> int:
        """Submits a pod and binds it."""
        self.write(f"pods/default/{name}", self._pod(name, "", shape, None))
        write = LeaderWrite(
            op="bind", epoch=self.epoch, attempt=f"me-{number or self.revision}", decided_at_revision=decided or self.revision
        )
        return self.write(f"pods/default/{name}", self._pod(name, node, shape, write))

    def place(self, name: str, node: str, shape: Shape = lambda pod: None) -> int:
        """A pod that names its node itself."""
        return self.write(f"pods/default/{name}", self._pod(name, node, shape, None))

    def _pod(self, name: str, node: str, shape: Shape, write: LeaderWrite | None) -> bytes:
        pod = Pod()
        pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = name, "default", f"uid-{name}"
        pod.metadata.labels["app"] = "web"
        pod.spec.containers.add(name="main")
        pod.spec.node_name = node
        shape(pod)
        stored = Stored()
        stored.object.pod.CopyFrom(pod)
        if write is not None:
            stored.leader_write.CopyFrom(write)
        return stored.SerializeToString()

    @property
    def broken(self) -> int:
        self.auditor.settle()
        return self.auditor.findings.constraint_broken

    @property
    def tolerated(self) -> dict[str, int]:
        return dict(self.auditor.findings.tolerated)


def wants_ssd(pod: Pod) -> None:
    pod.spec.node_selector["disktype"] = "ssd"


def is_gated(pod: Pod) -> None:
    pod.spec.scheduling_gates.add(name="wait")


def repels(pod: Pod) -> None:
    term = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add(topology_key="zone")
    term.label_selector.match_labels["app"] = "web"


def follows(pod: Pod) -> None:
    term = pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add(topology_key="zone")
    term.label_selector.match_labels["app"] = "web"


def spreads(pod: Pod) -> None:
    constraint = pod.spec.topology_spread_constraints.add(max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule")
    constraint.label_selector.match_labels["app"] = "web"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.mark.parametrize(
    ("shape", "node", "broken"),
    [(wants_ssd, "a1", 1), (wants_ssd, "ssd", 0), (is_gated, "a1", 1), (lambda pod: None, "tainted", 1)],
)
def test_what_the_node_alone_forbids_is_broken_at_the_commit(cluster: Cluster, shape: Shape, node: str, broken: int) -> None:
    cluster.node("ssd", disktype="ssd")
    cluster.node("tainted", tainted=True)
    cluster.bind("p", node, shape)
    assert cluster.broken == broken


@pytest.mark.parametrize(
    ("shape", "other", "node", "broken"),
    [
        (repels, "a1", "a2", 1),
        (repels, "a1", "b1", 0),
        (follows, "a1", "a2", 0),
        (follows, "a1", "b1", 1),
        (spreads, "a1", "a2", 1),
        (spreads, "a1", "b1", 0),
    ],
)
def test_constraints_on_other_pods_are_judged_by_zone(cluster: Cluster, shape: Shape, other: str, node: str, broken: int) -> None:
    cluster.bind("other", other)
    cluster.bind("p", node, shape)
    assert cluster.broken == broken
    assert not cluster.tolerated


def test_a_pod_that_is_there_keeps_others_away(cluster: Cluster) -> None:
    cluster.bind("first", "a1", repels)
    cluster.bind("second", "a2")
    assert cluster.broken == 1


def test_what_came_between_decision_and_commit_is_tolerated_and_counted(cluster: Cluster) -> None:
    decided = cluster.revision
    cluster.place("intruder", "a1")
    cluster.bind("p", "a2", repels, decided=decided)
    assert cluster.broken == 0
    assert cluster.tolerated == {HELD_BETWEEN: 1}


def test_what_was_there_at_the_decision_is_not_tolerated(cluster: Cluster) -> None:
    cluster.place("intruder", "a1")
    cluster.place("another", "b1")
    cluster.bind("p", "a2", repels, decided=cluster.revision)
    assert cluster.broken == 1


def test_what_was_assumed_may_be_committed_later_within_the_epoch(cluster: Cluster) -> None:
    cluster.place("old", "b1")
    cluster.place("older", "b1")
    decided = cluster.revision
    # Decided as the second, when the first was assumed in zone a; committed before it.
    cluster.bind("second", "b1", spreads, decided=decided, number=3)
    assert cluster.tolerated == {}
    cluster.bind("zeroth", "a1", decided=decided, number=1)
    cluster.bind("first", "a1", decided=decided, number=2)
    assert cluster.tolerated == {HELD_WITH_ASSUMED: 1}
    assert cluster.broken == 0


def test_what_was_decided_later_excuses_nothing(cluster: Cluster) -> None:
    cluster.place("old", "b1")
    decided = cluster.revision
    cluster.bind("second", "b1", spreads, decided=decided, number=2)
    cluster.bind("third", "a1", decided=decided, number=3)
    assert cluster.broken == 1


def test_a_doubtful_binding_is_broken_once_its_epoch_is_over(cluster: Cluster) -> None:
    cluster.place("old", "b1")
    cluster.bind("second", "b1", spreads, number=2)
    assert cluster.auditor.findings.constraint_broken == 0
    cluster.write("epoch", json.dumps({"transitions": 1, "holder": "other"}).encode())
    assert cluster.auditor.findings.constraint_broken == 1
