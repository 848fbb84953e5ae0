"""The auditor sees each violation, and nothing in a history that is right."""

from __future__ import annotations

import json

import pytest

from rayched.audit.auditor import Auditor, Change
from rayched.audit.requests import amount, taken_by
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import LeaderWrite, Stored


class History:
    """Writes revisions as the cluster does; every call is one revision."""

    def __init__(self) -> None:
        self.auditor = Auditor()
        self.revision = 10
        self.attempts = 0

    def write(self, key: str, value: bytes | None) -> int:
        self.revision += 1
        self.auditor.replay(self.revision, [Change(f"/rayched/cluster/{key}".encode(), value)], float(self.revision))
        return self.revision

    def epoch(self, transitions: int, holder: str = "a") -> int:
        return self.write("epoch", json.dumps({"transitions": transitions, "holder": holder}).encode())

    def node(self, name: str, cpu: str = "4", pods: str = "10", zone: str = "") -> None:
        node = Node()
        node.metadata.name = name
        if zone:
            node.metadata.labels["topology.kubernetes.io/zone"] = zone
        node.status.allocatable["cpu"].string = cpu
        node.status.allocatable["pods"].string = pods
        stored = Stored()
        stored.object.node.CopyFrom(node)
        self.write(f"nodes/{name}", stored.SerializeToString())

    def pod(self, name: str, *, node: str = "", cpu: str = "1", epoch: int = 0, uid: str = "", host_port: int = 0) -> None:
        """A submission; with an epoch, a leader's binding."""
        pod = Pod()
        pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = name, "default", uid or f"uid-{name}"
        container = pod.spec.containers.add(name="main")
        container.resources.requests["cpu"].string = cpu
        if host_port:
            container.ports.add(container_port=80, host_port=host_port, protocol="TCP")
        pod.spec.node_name = node
        stored = Stored()
        stored.object.pod.CopyFrom(pod)
        if epoch:
            self.attempts += 1
            stored.leader_write.CopyFrom(LeaderWrite(op="bind", epoch=epoch, attempt=f"a{self.attempts}"))
        self.write(f"pods/default/{name}", stored.SerializeToString())


@pytest.fixture
def history() -> History:
    found = History()
    found.node("n1", zone="a")
    found.node("n2", zone="b")
    return found


def test_a_history_without_faults_has_no_findings(history: History) -> None:
    epoch = history.epoch(0)
    for name, node in (("p1", "n1"), ("p2", "n2"), ("p3", "n1")):
        history.pod(name)
        history.pod(name, node=node, epoch=epoch)
    later = history.epoch(1, "b")
    history.pod("p4")
    history.pod("p4", node="n2", epoch=later)
    assert history.auditor.findings.total == 0
    assert history.auditor.bound_pods() == 4
    assert history.auditor.zones() == {"a": 2, "b": 2}
    assert [binding.epoch for binding in history.auditor.bindings] == [epoch] * 3 + [later]


def test_a_pod_that_changes_its_node_was_bound_twice(history: History) -> None:
    epoch = history.epoch(0)
    history.pod("p1")
    history.pod("p1", node="n1", epoch=epoch)
    history.pod("p1", node="n2", epoch=epoch)
    assert history.auditor.findings.bound_twice >= 1


def test_a_second_binding_to_the_same_node_counts_as_well(history: History) -> None:
    epoch = history.epoch(0)
    history.pod("p1")
    history.pod("p1", node="n1", epoch=epoch)
    history.pod("p1", node="n1", epoch=epoch)
    assert history.auditor.findings.bound_twice == 1


def test_a_new_pod_of_an_old_name_may_be_bound_elsewhere(history: History) -> None:
    epoch = history.epoch(0)
    history.pod("p1")
    history.pod("p1", node="n1", epoch=epoch)
    history.write("pods/default/p1", None)
    history.pod("p1", uid="another")
    history.pod("p1", uid="another", node="n2", epoch=epoch)
    assert history.auditor.findings.total == 0
    assert history.auditor.bound_pods() == 1


@pytest.mark.parametrize(
    ("cpus", "over"),
    [(("2", "2"), 0), (("2", "2001m"), 1), (("4",), 0), (("5",), 1), (("1", "1", "1", "1"), 0)],
)
def test_a_node_over_its_capacity_is_found_to_the_milli(history: History, cpus: tuple[str, ...], over: int) -> None:
    epoch = history.epoch(0)
    for number, cpu in enumerate(cpus):
        history.pod(f"p{number}", cpu=cpu)
        history.pod(f"p{number}", cpu=cpu, node="n1", epoch=epoch)
    assert history.auditor.findings.over_capacity == over


def test_pods_that_ended_or_are_gone_take_nothing(history: History) -> None:
    epoch = history.epoch(0)
    history.pod("p1", cpu="4")
    history.pod("p1", cpu="4", node="n1", epoch=epoch)
    history.write("pods/default/p1", None)
    history.pod("p2", cpu="4")
    history.pod("p2", cpu="4", node="n1", epoch=epoch)
    assert history.auditor.findings.total == 0


def test_a_shared_host_port_is_over_capacity(history: History) -> None:
    epoch = history.epoch(0)
    for name in ("p1", "p2"):
        history.pod(name, host_port=8080)
        history.pod(name, host_port=8080, node="n1", epoch=epoch)
    assert history.auditor.findings.over_capacity == 1


def test_too_many_pods_on_a_node_are_over_capacity(history: History) -> None:
    epoch = history.epoch(0)
    history.node("small", pods="1")
    for name in ("p1", "p2"):
        history.pod(name)
        history.pod(name, node="small", epoch=epoch)
    assert history.auditor.findings.over_capacity == 1


def test_a_binding_to_a_node_that_is_not_there_is_found(history: History) -> None:
    epoch = history.epoch(0)
    history.pod("p1")
    history.pod("p1", node="elsewhere", epoch=epoch)
    assert history.auditor.findings.bound_nowhere == 1


def test_a_write_of_an_epoch_that_is_over_is_stale(history: History) -> None:
    old = history.epoch(0)
    history.epoch(1, "b")
    history.pod("p1")
    history.pod("p1", node="n1", epoch=old)
    assert history.auditor.findings.stale == 1


def test_a_transition_that_is_left_out_is_found(history: History) -> None:
    history.epoch(0)
    history.epoch(2, "b")
    assert history.auditor.findings.epochs_not_rising == 1


def test_what_was_acknowledged_and_is_gone_is_lost_unless_its_deletion_was_asked_for(history: History) -> None:
    history.pod("kept")
    history.pod("deleted")
    history.write("pods/default/deleted", None)
    acknowledged = ["uid-kept", "uid-deleted", "uid-never-written"]
    assert history.auditor.lost(acknowledged) == ["uid-deleted", "uid-never-written"]
    assert history.auditor.lost(acknowledged, ["uid-deleted"]) == ["uid-never-written"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("100m", 0.1), ("1Ki", 1024), ("1.5Gi", 1.5 * 2**30), ("2e3", 2000), ("1n", 1e-9), ("5k", 5000), (".5", 0.5)],
)
def test_quantities_are_read_as_written(text: str, value: float) -> None:
    assert float(amount(text)) == pytest.approx(value, rel=1e-12)


def test_init_containers_sidecars_and_overhead_are_counted_as_documented() -> None:
    pod = Pod()
    sidecar = pod.spec.init_containers.add(name="sidecar", restart_policy="Always")
    sidecar.resources.requests["cpu"].string = "500m"
    pod.spec.init_containers.add(name="init").resources.requests["cpu"].string = "1"
    pod.spec.containers.add(name="main").resources.requests["cpu"].string = "900m"
    pod.spec.overhead["cpu"].string = "250m"
    # max(0.5 + 0.9, 0.5 + 1) + 0.25
    assert float(taken_by(pod)["cpu"]) == 1.75
