"""The auditor sees each violation, and nothing in a history that is right."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rayched.audit.auditor import Auditor, KeyChange, PodChange
from rayched.audit.requests import amount, taken_by
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import LeaderWrite, Stored, Suspect


class History:
    """Writes revisions as the cluster does; every call is one revision."""

    def __init__(self, on_pod_change: Callable[[PodChange], object] | None = None) -> None:
        self.auditor = Auditor(on_pod_change=on_pod_change)
        self.revision = 10
        self.attempts = 0

    def write(self, key: str, value: bytes | None) -> int:
        self.revision += 1
        self.auditor.replay(self.revision, [KeyChange(f"/rayched/cluster/{key}".encode(), value)], float(self.revision))
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

    def pod(
        self,
        name: str,
        *,
        node: str = "",
        cpu: str = "1",
        epoch: int = 0,
        uid: str = "",
        host_port: int = 0,
        op: str = "bind",
        decided: int = 0,
        priority: int = 0,
        nominated: str = "",
        deleting: bool = False,
        preempted: bool = False,
    ) -> None:
        """A submission; with an epoch, a leader's write."""
        pod = Pod()
        pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = name, "default", uid or f"uid-{name}"
        container = pod.spec.containers.add(name="main")
        container.resources.requests["cpu"].string = cpu
        if host_port:
            container.ports.add(container_port=80, host_port=host_port, protocol="TCP")
        pod.spec.node_name, pod.spec.priority, pod.status.nominated_node_name = node, priority, nominated
        if deleting:
            pod.metadata.deletion_timestamp.seconds = 1
        if preempted:
            pod.status.conditions.add(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
        stored = Stored()
        stored.object.pod.CopyFrom(pod)
        if epoch:
            self.attempts += 1
            stored.leader_write.CopyFrom(
                LeaderWrite(op=op, epoch=epoch, attempt=f"a{self.attempts}", decided_at_revision=decided)
            )
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


def test_what_is_stored_of_a_pod_in_whose_cycle_a_scheduler_died_is_no_object(history: History) -> None:
    history.write("suspects/a-uid", Suspect(deaths=1).SerializeToString())
    history.write("suspects/a-uid", None)
    assert history.auditor.findings.total == 0
    history.write("priorityclasses/high", b"\xff")
    assert history.auditor.findings.unreadable == 1 and history.auditor.findings.total == 1


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


def test_a_write_that_was_decided_before_its_epoch_is_found(history: History) -> None:
    history.epoch(0)
    history.pod("p1")
    epoch = history.epoch(1, "b")
    history.pod("p1", node="n1", epoch=epoch, decided=epoch - 1)
    assert history.auditor.findings.decided_early == 1
    history.pod("p2")
    history.pod("p2", node="n1", epoch=epoch, decided=epoch)
    assert history.auditor.findings.decided_early == 1


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


# ------------------------------------------------------------------------------------------- epochs, uids, deletions, evictions


def test_a_holder_that_takes_up_its_own_lease_again_counts_no_transition(history: History) -> None:
    history.epoch(3)
    history.epoch(3)
    history.epoch(4)
    assert history.auditor.findings.total == 0
    assert len(history.auditor.epochs) == 3


@pytest.mark.parametrize(("transitions", "holder"), [(3, "b"), (5, "b"), (2, "a"), (4, "")])
def test_other_counts_of_transitions_are_found(history: History, transitions: int, holder: str) -> None:
    history.epoch(3)
    history.epoch(transitions, holder)
    assert history.auditor.findings.epochs_not_rising == 1


def test_after_a_release_also_the_same_holder_is_a_transition(history: History) -> None:
    history.epoch(3)
    history.epoch(3, "")
    history.epoch(3)
    assert history.auditor.findings.epochs_not_rising == 1
    assert len(history.auditor.terms.released) == 1


def test_a_uid_that_comes_back_was_not_deleted(history: History) -> None:
    history.pod("p1")
    history.write("pods/default/p1", None)
    history.pod("p1")
    assert history.auditor.findings.undeleted == 1


def test_one_uid_in_two_objects_is_found(history: History) -> None:
    history.pod("p1", uid="one")
    history.pod("p2", uid="one")
    assert history.auditor.findings.doubled == 1


def test_a_deletion_that_is_taken_back_is_found(history: History) -> None:
    history.pod("p1", deleting=True)
    assert history.auditor.undeleted(["uid-p1"]) == []
    history.pod("p1")
    assert history.auditor.findings.undeleted == 1
    assert history.auditor.undeleted(["uid-p1"]) == ["uid-p1"]


@pytest.mark.parametrize(("priority", "wrong"), [(10, 0), (5, 1), (0, 1)])
def test_a_victim_needs_a_preemptor_of_higher_priority(history: History, priority: int, wrong: int) -> None:
    epoch = history.epoch(0)
    history.pod("victim", priority=5)
    history.pod("victim", priority=5, node="n1", epoch=epoch)
    history.pod("preemptor", priority=priority, nominated="n1")
    history.pod("victim", priority=5, node="n1", epoch=epoch, op="evict", deleting=True, preempted=True)
    assert history.auditor.findings.wrong_victim == wrong
    history.write("pods/default/victim", None)
    assert history.auditor.lost(["uid-victim"]) == []


def test_what_the_nodes_could_take_is_told(history: History) -> None:
    history.pod("small")
    history.pod("large", cpu="5")
    found = {pod.metadata.name: history.auditor.node_for(pod) for pod, _ in history.auditor.pending()}
    assert found == {"small": "n1", "large": None}


def test_the_changes_of_pods_are_told_in_order() -> None:
    told: list[PodChange] = []
    history = History(told.append)
    epoch = history.epoch(0)
    history.node("n1")
    history.pod("p1")
    history.pod("p1", node="n1", epoch=epoch)
    history.write("pods/default/p1", None)
    assert [(one.kind, one.name) for one in told] == [(kind, "default/p1") for kind in ("ADDED", "MODIFIED", "DELETED")]
