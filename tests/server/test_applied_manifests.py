"""What an apply makes of a stored object: what it changes, what it leaves, what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api.kinds import AnyObject
from rayched.api.names import LAST_APPLIED
from rayched.api.well_known_taints import NOT_READY, UNREACHABLE
from rayched.server.admission.admission import Classes
from rayched.server.admission.applying import step
from rayched.server.admission.last_applied import add_note
from rayched.server.admission.submissions import Created
from rayched.server.objects import read_entry
from rayched.v1.core_pb2 import Node, Pod, Service
from rayched.v1.workloads_pb2 import Job, PodGroup, ReplicaSet
from tests.server.api_over_model import ApiOverModel
from tests.server.objects import a_node, a_pod, a_priority_class, a_runtime_class

NOW = Timestamp(seconds=1_900_000_000)


def copy_of(message: Any) -> Any:
    found = type(message)()
    found.CopyFrom(message)
    return found


@dataclass
class Applied:
    """An object that was created by an apply of `manifest`, and what has become of it since."""

    manifest: Any
    stored: Any
    classes: Classes

    def again(self, change: Callable[[Any], object] = lambda _: None, *, as_got: bool = False) -> list[str]:
        """The paths of what is wrong with the manifest, or with what `get` gave, once `change` was made to it."""
        manifest = copy_of(self.stored if as_got else self.manifest)
        change(manifest)
        return [error.path for error in step(self.stored, manifest, self.classes, NOW)]


def applied(manifest: AnyObject, *beside: AnyObject) -> Applied:
    api = ApiOverModel(*beside)
    noted = copy_of(manifest)
    add_note(noted.metadata)
    (created,) = api.create(noted)
    assert isinstance(created, Created), created
    entry = next(entry for key, entry in api.store.model.now.items() if read_is_of(key, manifest))
    return Applied(manifest, read_entry(entry).message, asyncio.run(api.admission.classes_for(())))


def read_is_of(key: bytes, manifest: AnyObject) -> bool:
    return key.endswith(f"/{manifest.metadata.name}".encode()) and b"/submissions/" not in key


def a_rich_pod() -> Pod:
    """Each of admission's merges has something to do."""
    pod = a_pod("rich", namespace="default", labels={"app": "web", "tier": "front"})
    pod.metadata.annotations["by"] = "manifest"
    pod.spec.priority_class_name = "high"
    pod.spec.runtime_class_name = "kata"
    pod.spec.tolerations.add(key="own", operator="Exists")
    spread = pod.spec.topology_spread_constraints.add(max_skew=1, topology_key="zone", when_unsatisfiable="ScheduleAnyway")
    spread.label_selector.match_labels["app"] = "web"
    spread.match_label_keys.append("tier")
    return pod


def an_applied_pod() -> Applied:
    kata = a_runtime_class("kata", cpu="10m")
    kata.scheduling.node_selector["disk"] = "ssd"
    kata.scheduling.tolerations.add(key="kata", operator="Exists", effect="NoSchedule")
    found = applied(a_rich_pod(), a_priority_class("high", 1000), a_priority_class("low", 10), kata)
    pod = found.stored
    # What others have done to it since.
    pod.spec.node_name = "node-1"
    pod.status.phase = "Running"
    pod.metadata.labels["by"] = "others"
    return found


@pytest.mark.parametrize("as_got", [False, True])
def test_a_pod_applied_again_stays_as_it_is(as_got: bool) -> None:
    pod = an_applied_pod()
    before = copy_of(pod.stored)
    assert pod.again(as_got=as_got) == []
    assert pod.stored == before
    assert {"own", "kata", NOT_READY, UNREACHABLE} <= {one.key for one in pod.stored.spec.tolerations}


def test_a_pod_that_is_ending_and_was_given_its_name_stays_as_it_is() -> None:
    pod = an_applied_pod()
    pod.stored.metadata.generate_name = "rich-"
    pod.stored.metadata.deletion_timestamp.seconds = 1_800_000_000
    pod.stored.metadata.deletion_grace_period_seconds = 0
    before = copy_of(pod.stored)
    assert pod.again() == [] and pod.stored == before


def touch_status(pod: Pod) -> None:
    pod.status.phase = "Failed"
    pod.status.reason = "made up"


@pytest.mark.parametrize(
    "change",
    [
        touch_status,
        lambda pod: setattr(pod.metadata, "resource_version", "1"),
        lambda pod: setattr(pod.metadata, "generate_name", "other-"),
        lambda pod: setattr(pod.metadata, "generation", 77),
        lambda pod: setattr(pod.metadata, "deletion_grace_period_seconds", 5),
        lambda pod: setattr(pod.metadata.creation_timestamp, "seconds", 5),
        lambda pod: setattr(pod.metadata.deletion_timestamp, "seconds", 5),
        lambda pod: setattr(pod.metadata, "uid", "another"),
    ],
)
def test_what_is_not_a_manifests_to_say_is_left_alone(change: Callable[[Pod], object]) -> None:
    pod = an_applied_pod()
    before = copy_of(pod.stored)
    assert pod.again(change) == [] and pod.stored == before


def test_a_new_image_is_a_new_generation_and_a_label_is_none() -> None:
    pod = an_applied_pod()
    before = copy_of(pod.stored)
    assert pod.again(lambda new: setattr(new.spec.containers[0], "image", "nginx:2")) == []
    assert pod.stored.metadata.generation == before.metadata.generation + 1
    before.metadata.generation += 1
    before.spec.containers[0].image = "nginx:2"
    assert pod.stored == before
    pod.manifest.spec.containers[0].image = "nginx:2"
    mine = {"app": "web", "tier": "front", "by": "others"}
    assert pod.again(lambda new: new.metadata.labels.update(more="x")) == []
    assert pod.stored.metadata.generation == before.metadata.generation
    assert dict(pod.stored.metadata.labels) == {**mine, "more": "x"}
    assert pod.again() == [] and dict(pod.stored.metadata.labels) == mine


def test_what_get_gave_is_no_statement_about_who_owns_a_label() -> None:
    pod = an_applied_pod()
    note = pod.stored.metadata.annotations[LAST_APPLIED]
    assert pod.again(as_got=True) == [] and pod.stored.metadata.annotations[LAST_APPLIED] == note
    assert pod.again(lambda got: got.metadata.labels.update(more="x"), as_got=True) == []
    assert '"more"' in pod.stored.metadata.annotations[LAST_APPLIED] and pod.stored.metadata.annotations["by"] == "manifest"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda pod: setattr(pod.spec, "node_name", "node-2"), "spec.nodeName"),
        (lambda pod: setattr(pod.spec, "priority", 5), "spec.priority"),
        (lambda pod: setattr(pod.spec, "preemption_policy", "Never"), "spec.preemptionPolicy"),
        (lambda pod: setattr(pod.spec, "priority_class_name", "low"), "spec.priorityClassName"),
        (lambda pod: setattr(pod.spec.overhead["memory"], "string", "1Gi"), "spec.overhead"),
        (lambda pod: setattr(pod.spec, "scheduler_name", "other"), "spec.schedulerName"),
        (lambda pod: pod.spec.node_selector.update(disk="hdd"), "spec.nodeSelector"),
        (lambda pod: pod.spec.tolerations.pop(), "spec.tolerations[0]"),
        (lambda pod: setattr(pod.spec.containers[0], "image", ""), "spec.containers"),
    ],
)
def test_what_a_pod_cannot_become_is_refused_and_changes_nothing(change: Callable[[Pod], object], path: str) -> None:
    pod = an_applied_pod()
    before = copy_of(pod.stored)
    found = pod.again(change)
    assert found and all(one.startswith(path) for one in found), found
    assert pod.stored == before


def test_a_toleration_that_is_added_stands_behind_the_others_once() -> None:
    pod = an_applied_pod()
    before = [one.key for one in pod.stored.spec.tolerations]
    assert pod.again(lambda new: new.spec.tolerations.add(key="more", operator="Exists")) == []
    assert [one.key for one in pod.stored.spec.tolerations] == [*before, "more"]


def test_a_pod_without_a_class_of_its_own_keeps_what_the_default_gave() -> None:
    pod = applied(a_pod("plain", namespace="default"), a_priority_class("usual", 7, is_default=True))
    assert (pod.stored.spec.priority, pod.stored.spec.priority_class_name) == (7, "usual")
    before = copy_of(pod.stored)
    pod.classes = Classes({}, {})
    assert pod.again() == [] and pod.stored == before


# ------------------------------------------------------------------------------------------------------------ other kinds


def test_a_priority_class_has_no_status_and_takes_a_description() -> None:
    found = applied(a_priority_class("high", 1000))
    before = copy_of(found.stored)
    assert found.again() == [] and found.stored == before
    assert found.again(lambda new: setattr(new, "description", "for what matters")) == []
    assert found.stored.description == "for what matters" and found.stored.metadata.generation == 2
    assert found.again(lambda new: setattr(new, "value", 5)) == ["value"] and found.stored.value == 1000


def a_pod_group() -> PodGroup:
    group = PodGroup()
    group.metadata.name, group.metadata.namespace = "train", "default"
    group.spec.scheduling_policy.gang.min_count = 3
    return group


@pytest.mark.row("G2", "G4", "G5")
def test_a_pod_group_keeps_what_its_class_gave_and_takes_another_minimum() -> None:
    group = applied(a_pod_group(), a_priority_class("usual", 7, is_default=True))
    assert (group.stored.spec.priority, group.stored.spec.priority_class_name) == (7, "usual")
    before = copy_of(group.stored)
    assert group.again() == [] and group.stored == before
    assert group.again(lambda new: setattr(new.spec.scheduling_policy.gang, "min_count", 5)) == []
    assert group.stored.spec.scheduling_policy.gang.min_count == 5 and group.stored.metadata.generation == 2
    assert group.again(lambda new: setattr(new.spec, "priority_class_name", "other")) == ["spec.priorityClassName"]


@pytest.mark.row("G5")
def test_a_pod_group_finds_a_class_that_came_just_before_it() -> None:
    api = ApiOverModel()
    api.put(a_priority_class("high", 1000))
    group = a_pod_group()
    group.spec.priority_class_name = "high"
    (created,) = api.create(group)
    assert isinstance(created, Created), created
    stored = api.stored(a_pod_group())
    assert stored is not None and stored.pod_group.spec.priority == 1000


def a_service() -> Service:
    service = Service()
    service.metadata.name, service.metadata.namespace = "front", "default"
    service.spec.selector["app"] = "web"
    service.spec.ports.add(port=80)
    return service


def a_replica_set() -> ReplicaSet:
    found = ReplicaSet()
    found.metadata.name, found.metadata.namespace = "web", "default"
    found.spec.selector.match_labels["app"] = "web"
    found.spec.template.metadata.labels["app"] = "web"
    found.spec.template.spec.containers.add(name="main", image="nginx:1")
    return found


def a_job() -> Job:
    found = Job()
    found.metadata.name, found.metadata.namespace = "once", "default"
    found.spec.template.spec.containers.add(name="main", image="nginx:1")
    found.spec.template.spec.restart_policy = "Never"
    return found


@pytest.mark.parametrize("manifest", [a_service(), a_replica_set(), a_job()], ids=["service", "replica set", "job"])
@pytest.mark.parametrize("as_got", [False, True])
def test_a_manifest_without_defaults_changes_nothing(manifest: AnyObject, as_got: bool) -> None:
    found = applied(manifest)
    before = copy_of(found.stored)
    assert found.again(as_got=as_got) == [] and found.stored == before


def test_the_field_that_a_manifest_no_longer_has_goes() -> None:
    manifest = a_replica_set()
    manifest.spec.replicas, manifest.spec.min_ready_seconds = 3, 7
    found = applied(manifest)
    found.stored.status.replicas = 3
    assert found.again(lambda new: new.spec.ClearField("min_ready_seconds")) == []
    assert (found.stored.spec.replicas, found.stored.spec.min_ready_seconds, found.stored.status.replicas) == (3, 0, 3)
    assert found.stored.metadata.generation == 2


# ----------------------------------------------------------------------------------------------------------------- nodes


def an_applied_node() -> Applied:
    found = applied(a_node("node-1", labels={"zone": "a"}))
    node = found.stored
    node.metadata.labels["by"] = "others"
    node.spec.taints.add(key="dedicated", value="db", effect="NoSchedule")
    return found


def test_a_node_keeps_what_its_manifest_does_not_mention() -> None:
    node = an_applied_node()
    node.stored.spec.unschedulable = True
    before = copy_of(node.stored)
    assert node.again() == [] and node.stored == before


def test_a_node_without_a_spec_gets_none() -> None:
    node = applied(a_node("node-1"))
    assert not node.stored.HasField("spec")
    assert node.again() == [] and not node.stored.HasField("spec")


def test_a_node_is_closed_by_its_manifest_and_that_is_a_new_generation() -> None:
    node = an_applied_node()
    assert node.again(lambda new: setattr(new.spec, "unschedulable", True)) == []
    assert node.stored.spec.unschedulable and node.stored.metadata.generation == 2


def test_a_nodes_amounts_are_status_and_no_new_generation() -> None:
    node = an_applied_node()
    assert node.again(lambda new: setattr(new.status.capacity["cpu"], "string", "8")) == []
    assert node.stored.status.capacity["cpu"].string == "8" and node.stored.metadata.generation == 1


def test_a_label_that_a_nodes_manifest_gave_up_goes() -> None:
    node = an_applied_node()
    assert node.again(lambda new: new.metadata.labels.pop("zone")) == []
    assert dict(node.stored.metadata.labels) == {"by": "others"}


def test_a_node_that_had_no_amounts_gets_all_of_them() -> None:
    bare = Node()
    bare.metadata.name = "node-1"
    node = applied(bare)
    assert node.again(lambda new: setattr(new.status.capacity["cpu"], "string", "8")) == []
    assert node.stored.status.allocatable["cpu"].string == "8"


Taint = tuple[str, str, str, int]
"""Key, value, effect, and when it was added, 0: it is not said."""


@pytest.mark.parametrize(
    ("stored", "wanted", "then"),
    [
        # The time of a taint that is there already is kept, unless the manifest has one.
        ([("a", "1", "NoExecute", 5)], [("a", "1", "NoExecute", 0)], [("a", "1", "NoExecute", 5)]),
        ([("a", "1", "NoExecute", 5)], [("a", "1", "NoExecute", 9)], [("a", "1", "NoExecute", 9)]),
        ([("a", "1", "NoExecute", 0)], [("a", "1", "NoExecute", 0)], [("a", "1", "NoExecute", 0)]),
        ([("a", "1", "NoExecute", 0)], [("a", "1", "NoExecute", 9)], [("a", "1", "NoExecute", 9)]),
        # Another value or effect is another taint.
        ([("a", "1", "NoExecute", 5)], [("a", "2", "NoExecute", 0)], [("a", "2", "NoExecute", 0)]),
        ([("a", "1", "NoExecute", 5)], [("a", "1", "NoSchedule", 0)], [("a", "1", "NoSchedule", 0)]),
        # What the manifest does not say goes, but for what the leader sets.
        ([("b", "", "NoSchedule", 0)], [("a", "", "NoSchedule", 0)], [("a", "", "NoSchedule", 0)]),
        (
            [(NOT_READY, "", "NoExecute", 5), ("b", "", "NoSchedule", 0)],
            [("a", "", "NoSchedule", 0)],
            [("a", "", "NoSchedule", 0), (NOT_READY, "", "NoExecute", 5)],
        ),
        (
            [(NOT_READY, "", "NoExecute", 5), (NOT_READY, "", "NoSchedule", 0)],
            [(NOT_READY, "", "NoSchedule", 0)],
            [(NOT_READY, "", "NoSchedule", 0), (NOT_READY, "", "NoExecute", 5)],
        ),
        ([(NOT_READY, "x", "NoExecute", 5)], [(NOT_READY, "", "NoExecute", 0)], [(NOT_READY, "", "NoExecute", 0)]),
    ],
)
def test_the_taints_of_a_node_are_what_its_manifest_says(
    stored: Sequence[Taint], wanted: Sequence[Taint], then: Sequence[Taint]
) -> None:
    node = applied(a_node("node-1"))

    def put(where: Node, taints: Sequence[Taint]) -> None:
        for key, value, effect, added in taints:
            one = where.spec.taints.add(key=key, value=value, effect=effect)
            if added:
                one.time_added.seconds = added

    put(node.stored, stored)
    assert node.again(lambda new: put(new, wanted)) == []
    found = [(one.key, one.value, one.effect, one.time_added.seconds) for one in node.stored.spec.taints]
    assert found == list(then)
    assert all(one.HasField("time_added") == (one.time_added.seconds > 0) for one in node.stored.spec.taints)
