"""Replace: what is given becomes the object, whole; what is nobody's to give stays."""

from __future__ import annotations

import pytest

from rayched.api.defaulting import default
from rayched.api.kinds import AnyObject
from rayched.api.termination import JOB_TRACKING
from rayched.server.admission.replacing import replace
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.workloads_pb2 import ReplicaSet


def a_pod() -> Pod:
    pod = Pod(metadata={"name": "web", "namespace": "default", "uid": "u", "resource_version": "7", "generation": 1})
    pod.metadata.labels["app"] = "web"
    pod.metadata.annotations["note"] = "x"
    pod.metadata.finalizers.append(JOB_TRACKING)
    pod.metadata.owner_references.add(api_version="batch/v1", kind="Job", name="j", uid="j1", controller=True)
    pod.spec.containers.add(name="main", image="web:1")
    pod.spec.node_name = "node-1"
    pod.status.phase = "Running"
    default(pod)
    return pod


def copy_of(item: AnyObject) -> AnyObject:
    copy = type(item)()
    copy.CopyFrom(item)  # type: ignore[arg-type]
    return copy


def test_what_was_read_and_put_back_changes_nothing() -> None:
    stored = a_pod()
    before = copy_of(stored)
    assert replace(stored, copy_of(stored)) == []
    assert stored == before


def test_labels_and_annotations_that_are_not_given_go_and_what_controllers_own_stays() -> None:
    stored, given = a_pod(), a_pod()
    for metadata in (given.metadata,):
        metadata.labels.clear()
        metadata.annotations.clear()
        metadata.labels["new"] = "yes"
        del metadata.finalizers[:]
        del metadata.owner_references[:]
    given.metadata.uid = "somebody else's"
    given.status.phase = "Failed"
    given.spec.node_name = ""
    assert replace(stored, given) == []
    assert (dict(stored.metadata.labels), dict(stored.metadata.annotations)) == ({"new": "yes"}, {})
    assert list(stored.metadata.finalizers) == [JOB_TRACKING]
    assert [owner.name for owner in stored.metadata.owner_references] == ["j"]
    assert (stored.metadata.uid, stored.status.phase, stored.spec.node_name) == ("u", "Running", "node-1")
    assert stored.metadata.generation == 1


def test_what_may_not_change_is_refused_and_changes_nothing() -> None:
    stored, given = a_pod(), a_pod()
    given.spec.containers[0].resources.requests["cpu"].string = "1"
    before = copy_of(stored)
    assert [error.path for error in replace(stored, given)]
    assert stored == before


def test_a_changed_desire_is_a_new_generation() -> None:
    stored = ReplicaSet(metadata={"name": "web", "namespace": "default", "uid": "u", "generation": 3})
    stored.spec.replicas = 2
    stored.spec.selector.match_labels["app"] = "web"
    stored.spec.template.metadata.labels["app"] = "web"
    stored.spec.template.spec.containers.add(name="main", image="web:1")
    default(stored)
    given = copy_of(stored)
    assert isinstance(given, ReplicaSet)
    given.spec.replicas = 5
    assert replace(stored, given) == []
    assert (stored.spec.replicas, stored.metadata.generation) == (5, 4)


@pytest.mark.parametrize("given_taints", [[], [("dedicated", "NoSchedule")]])
def test_of_a_node_the_leaders_taints_stay_and_others_go(given_taints: list[tuple[str, str]]) -> None:
    stored = Node(metadata={"name": "node-1", "uid": "u"})
    stored.status.allocatable["cpu"].string = "4"
    stored.spec.taints.add(key="node.kubernetes.io/unreachable", effect="NoExecute").time_added.seconds = 5
    stored.spec.taints.add(key="old", effect="NoSchedule")
    given = Node(metadata={"name": "node-1"})
    for key, effect in given_taints:
        given.spec.taints.add(key=key, effect=effect)
    given.spec.unschedulable = True
    assert replace(stored, given) == []
    assert [taint.key for taint in stored.spec.taints] == [
        *(key for key, _ in given_taints),
        "node.kubernetes.io/unreachable",
    ]
    assert stored.spec.taints[-1].time_added.seconds == 5
    assert stored.spec.unschedulable
    assert stored.status.allocatable["cpu"].string == "4"
