"""PodGroups at the edge: what is refused, what may change, what pods say of their group."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from rayched.api import kinds
from rayched.api.admission import resolve_priority
from rayched.api.defaulting import default
from rayched.api.manifest import read_object
from rayched.api.validation import validate, validate_update
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodGroup, PriorityClass
from tests.api.invalid_fields import VALID

Change = Callable[[Any], object]


def a_group(**spec: Any) -> PodGroup:
    """Read from a manifest of a gang of three with this in its spec."""
    document = copy.deepcopy(VALID["PodGroup"])
    document["spec"] = {"schedulingPolicy": {"gang": {"minCount": 3}}, **spec}
    message = kinds.unwrap(read_object(document).object)
    assert isinstance(message, PodGroup)
    default(message)
    return message


def faults(group: PodGroup) -> list[str]:
    return [str(error) for error in validate(group)]


def changed(change: Change, old: PodGroup | None = None) -> list[str]:
    old = old or a_group()
    new = PodGroup()
    new.CopyFrom(old)
    change(new.spec)
    return [error.path for error in validate_update(old, new)]


@pytest.mark.row("G1")
@pytest.mark.parametrize(
    ("policy", "has"), [({}, "none"), ({"gang": {"minCount": 1}, "basic": {}}, "basic and gang")], ids=["neither", "both"]
)
def test_a_group_has_one_policy(policy: dict[str, Any], has: str) -> None:
    assert faults(a_group(schedulingPolicy=policy)) == [f"spec.schedulingPolicy: has {has}; wanted is one of basic and gang"]
    assert faults(a_group(schedulingPolicy={"basic": {}})) == [] == faults(a_group())


@pytest.mark.row("G1")
def test_the_kind_of_a_policy_cannot_be_changed() -> None:
    def to_basic(spec: Any) -> None:
        spec.scheduling_policy.ClearField("gang")
        spec.scheduling_policy.basic.SetInParent()

    assert changed(to_basic) == ["spec.schedulingPolicy"]


@pytest.mark.row("G2")
@pytest.mark.parametrize("count", [0, -1])
def test_a_minimum_below_one_is_refused(count: int) -> None:
    group = a_group(schedulingPolicy={"gang": {"minCount": count}})
    assert faults(group) == [f"spec.schedulingPolicy.gang.minCount: {count} must be at least 1"]


@pytest.mark.row("G2")
@pytest.mark.parametrize("count", [1, 2, 4, 2**31 - 1])
def test_a_minimum_may_be_raised_and_lowered(count: int) -> None:
    assert changed(lambda spec: setattr(spec.scheduling_policy.gang, "min_count", count)) == []


@pytest.mark.row("G3")
@pytest.mark.parametrize(
    ("spec", "path", "words"),
    [
        ({"disruptionMode": {"single": {}, "all": {}}}, "spec.disruptionMode", "has single and all"),
        (
            {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
            "spec.schedulingConstraints.topology",
            "at most 1",
        ),
        ({"schedulingConstraints": {"topology": [{"key": "no key"}]}}, "spec.schedulingConstraints.topology[0].key", "no key"),
        ({"schedulingConstraints": {"topology": [{}]}}, "spec.schedulingConstraints.topology[0].key", "is required"),
        ({"parentCompositePodGroupName": "tree"}, "spec.parentCompositePodGroupName", "there are no composite groups"),
        ({"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]}, "spec.resourceClaims", "no dynamic resource allocation"),
    ],
)
def test_what_is_not_served_is_refused_by_name(spec: dict[str, Any], path: str, words: str) -> None:
    (fault,) = faults(a_group(**spec))
    assert fault.startswith(f"{path}: ") and words in fault


def test_a_topology_of_one_label_is_taken() -> None:
    assert faults(a_group(schedulingConstraints={"topology": [{"key": "topology.kubernetes.io/zone"}]})) == []


@pytest.mark.row("G3")
def test_all_is_refused_together_with_basic() -> None:
    assert faults(a_group(disruptionMode={"all": {}})) == []
    (fault,) = faults(a_group(schedulingPolicy={"basic": {}}, disruptionMode={"all": {}}))
    assert fault.startswith("spec.disruptionMode.all: ")


@pytest.mark.row("G4")
@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda spec: setattr(spec, "priority", 5), "spec.priority"),
        (lambda spec: setattr(spec, "priority_class_name", "other"), "spec.priorityClassName"),
        (lambda spec: setattr(spec, "preemption_policy", "Never"), "spec.preemptionPolicy"),
        (lambda spec: spec.disruption_mode.all.SetInParent(), "spec.disruptionMode"),
        (lambda spec: spec.scheduling_constraints.topology.add(key="zone"), "spec.schedulingConstraints"),
    ],
)
def test_what_may_not_change_of_a_group(change: Change, path: str) -> None:
    assert changed(change) == [path]


@pytest.mark.row("G5")
@pytest.mark.parametrize(
    ("name", "classes", "given"),
    [
        ("", [], (0, "")),
        ("", [("usual", 7, True)], (7, "usual")),
        ("high", [("usual", 7, True), ("high", 9, False)], (9, "high")),
    ],
    ids=["none", "the default", "its own"],
)
def test_a_group_has_the_priority_of_its_class(name: str, classes: list[tuple[str, int, bool]], given: tuple[int, str]) -> None:
    group = a_group(priorityClassName=name)
    known = {one: PriorityClass(metadata={"name": one}, value=value, global_default=is_it) for one, value, is_it in classes}
    assert resolve_priority(group, known) == []
    assert (group.spec.priority, group.spec.priority_class_name) == given
    assert group.spec.preemption_policy == "PreemptLowerPriority"


@pytest.mark.row("G5")
def test_a_class_that_is_not_there_is_refused() -> None:
    (error,) = resolve_priority(a_group(priorityClassName="urgent"), {})
    assert str(error).startswith('spec.priorityClassName: there is no PriorityClass "urgent"; known are ')


def test_a_priority_of_its_own_is_refused_in_the_groups_name() -> None:
    (error,) = resolve_priority(a_group(priority=5), {})
    assert str(error) == "spec.priority: 5 cannot be set by the pod group; the cluster's default gives 0"


def test_older_versions_are_refused_by_the_name_of_the_one_that_is_served() -> None:
    group = a_group()
    group.api_version = "scheduling.k8s.io/v1alpha2"
    assert faults(group) == ['apiVersion: "scheduling.k8s.io/v1alpha2" is not supported; allowed is "scheduling.k8s.io/v1beta1"']


def test_a_reference_to_a_template_is_left_out_with_a_warning() -> None:
    document = copy.deepcopy(VALID["PodGroup"])
    document["spec"]["workloadRef"] = {"workloadName": "w", "templateName": "t"}
    (warning,) = read_object(document).warnings
    assert "spec.workloadRef" in str(warning)


def a_pod(group: str) -> Pod:
    document = copy.deepcopy(VALID["Pod"])
    document["spec"]["schedulingGroup"] = {"podGroupName": group}
    message = kinds.unwrap(read_object(document).object)
    assert isinstance(message, Pod)
    default(message)
    return message


@pytest.mark.row("G6")
def test_a_pod_may_name_any_group_and_stays_in_it() -> None:
    pod = a_pod("train")
    assert validate(pod) == []
    for change in (lambda new: setattr(new.spec.scheduling_group, "pod_group_name", "b"), leave):
        new = Pod()
        new.CopyFrom(pod)
        change(new)
        assert [error.path for error in validate_update(pod, new)] == ["spec.schedulingGroup"]


def leave(pod: Pod) -> None:
    pod.spec.ClearField("scheduling_group")


@pytest.mark.parametrize("name", ["", "A b", "a/b"])
def test_the_name_of_a_pods_group_is_one_that_a_group_can_have(name: str) -> None:
    assert [error.path for error in validate(a_pod(name))] == ["spec.schedulingGroup.podGroupName"]


@pytest.mark.row("G47", "G48")
@pytest.mark.parametrize(
    ("annotation", "text", "words"),
    [
        ("rayched.dev/incomplete-hold-seconds", "30s", "want whole seconds from 0 to 3600"),
        ("rayched.dev/incomplete-hold-seconds", "3601", "want whole seconds from 0 to 3600"),
        ("rayched.dev/release-after-seconds", "0", "want whole seconds from 1 to 604800"),
        ("rayched.dev/release-after-seconds", "-1", "want whole seconds from 1 to 604800"),
        ("rayched.dev/release-after-seconds", "٣", "want whole seconds from 1 to 604800"),
    ],
)
def test_what_a_group_says_of_its_losses_is_whole_seconds(annotation: str, text: str, words: str) -> None:
    group = a_group()
    group.metadata.annotations[annotation] = text
    assert faults(group) == [f"metadata.annotations[{annotation}]: {words}"]
    group.metadata.annotations[annotation] = "60"
    assert faults(group) == []
