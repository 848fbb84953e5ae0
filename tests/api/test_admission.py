"""Admission of a new pod: its priority, its RuntimeClass, label keys, and all errors at once."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.api.admission import (
    admit_pod,
    apply_runtime_class,
    check_default_class,
    merge_label_keys,
    qos_class,
    resolve_priority,
)
from rayched.api.manifest import read_object
from rayched.api.resources import pod_requests
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PriorityClass, RuntimeClass

KATA = RuntimeClass(
    metadata={"name": "kata"},
    handler="kata",
    overhead={"pod_fixed": {"cpu": {"string": "250m"}, "memory": {"string": "120Mi"}}},
    scheduling={"node_selector": {"runtime": "kata"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
)
PLAIN = RuntimeClass(metadata={"name": "plain"}, handler="runc")
RUNTIMES = {"kata": KATA, "plain": PLAIN}


def a_pod(labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": labels or {}},
        "spec": {"containers": [{"name": "c"}], **spec},
    }
    pod: Pod = read_object(document).object.pod
    return pod


def a_class(name: str, value: int, *, default: bool = False, policy: str | None = None) -> PriorityClass:
    found = PriorityClass(metadata={"name": name}, value=value, global_default=default)
    if policy is not None:
        found.preemption_policy = policy
    return found


def by_name(*classes: PriorityClass) -> dict[str, PriorityClass]:
    return {one.metadata.name: one for one in classes}


# ------------------------------------------------------------------------------------------------------------- priority

HIGH = a_class("high", 100, policy="Never")


@pytest.mark.row("K9.2", "K9.5")
@pytest.mark.parametrize(
    ("name", "classes", "expected"),
    [
        (None, by_name(), ("", 0, "PreemptLowerPriority")),
        (None, by_name(HIGH), ("", 0, "PreemptLowerPriority")),
        (None, by_name(HIGH, a_class("usual", 7, default=True)), ("usual", 7, "PreemptLowerPriority")),
        (None, by_name(a_class("a", 9, default=True), a_class("b", 3, default=True)), ("b", 3, "PreemptLowerPriority")),
        ("high", by_name(HIGH, a_class("usual", 7, default=True)), ("high", 100, "Never")),
        ("system-node-critical", by_name(), ("system-node-critical", 2_000_001_000, "PreemptLowerPriority")),
    ],
)
def test_a_pods_class_or_the_clusters_default_gives_its_priority(name: str | None, classes: Any, expected: Any) -> None:
    pod = a_pod(**({"priorityClassName": name} if name else {}))
    assert resolve_priority(pod, classes) == []
    assert (pod.spec.priority_class_name, pod.spec.priority, pod.spec.preemption_policy) == expected


@pytest.mark.row("K9.5")
def test_an_unknown_class_is_refused_with_those_that_are_known() -> None:
    (error,) = resolve_priority(a_pod(priorityClassName="urgent"), by_name(HIGH))
    assert str(error) == (
        'spec.priorityClassName: there is no PriorityClass "urgent"; '
        "known are high, system-cluster-critical, system-node-critical"
    )


def test_a_pod_cannot_set_another_priority_than_its_class_gives() -> None:
    errors = resolve_priority(a_pod(priority=5, preemptionPolicy="PreemptLowerPriority", priorityClassName="high"), by_name(HIGH))
    assert [str(error) for error in errors] == [
        "spec.priority: 5 cannot be set by the pod; PriorityClass high gives 100",
        'spec.preemptionPolicy: "PreemptLowerPriority" cannot be set by the pod; PriorityClass high gives Never',
    ]
    assert resolve_priority(a_pod(priority=100, preemptionPolicy="Never", priorityClassName="high"), by_name(HIGH)) == []


@pytest.mark.row("K9.2")
def test_a_cluster_has_one_default_class() -> None:
    usual = a_class("usual", 7, default=True)
    (error,) = check_default_class(a_class("other", 1, default=True), by_name(usual))
    assert str(error) == "globalDefault: PriorityClass usual is the default already; there can be one"
    assert check_default_class(usual, by_name(usual)) == []
    assert check_default_class(HIGH, by_name(usual)) == []


# -------------------------------------------------------------------------------------------------------- runtime class


@pytest.mark.row("K3.1", "K3.2")
def test_overhead_comes_from_the_runtime_class_and_counts_in_the_requests() -> None:
    containers = [
        {"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "100Mi"}}},
        {"name": "b", "resources": {"limits": {"cpu": "1500m", "memory": "100Mi"}}},
    ]
    pod = a_pod(runtimeClassName="kata", containers=containers)
    assert admit_pod(pod, {}, RUNTIMES) == []
    assert {name: amount.string for name, amount in pod.spec.overhead.items()} == {"cpu": "250m", "memory": "120Mi"}
    assert pod_requests(pod) == {"cpu": 2250, "memory": 320 * 2**20}


@pytest.mark.row("K3.1")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"overhead": {"cpu": "1"}}, "spec.overhead: cannot be set by the pod: the pod names no RuntimeClass"),
        (
            {"overhead": {"cpu": "1"}, "runtimeClassName": "plain"},
            "spec.overhead: cannot be set by the pod: RuntimeClass plain defines none",
        ),
        (
            {"overhead": {"cpu": "1"}, "runtimeClassName": "kata"},
            "spec.overhead: differs from the overhead of RuntimeClass kata; leave it out",
        ),
        ({"runtimeClassName": "gvisor"}, 'spec.runtimeClassName: there is no RuntimeClass "gvisor"; known are kata, plain'),
        (
            {"runtimeClassName": "kata", "nodeSelector": {"runtime": "runc"}},
            'spec.nodeSelector["runtime"]: "runc" contradicts RuntimeClass kata, which wants "kata"',
        ),
    ],
)
def test_a_pod_that_contradicts_its_runtime_class_is_refused(spec: Any, message: str) -> None:
    assert [str(error) for error in admit_pod(a_pod(**spec), {}, RUNTIMES)] == [message]


def test_the_same_overhead_written_in_another_way_is_accepted() -> None:
    pod = a_pod(runtimeClassName="kata", overhead={"cpu": "0.25", "memory": "122880Ki"})
    assert admit_pod(pod, {}, RUNTIMES) == []


def test_a_toleration_of_no_value_does_not_cover_one_of_any_value() -> None:
    pod = a_pod(runtimeClassName="any", tolerations=[{"key": "kata", "operator": "Equal"}])
    any_value = {"key": "kata", "operator": "Exists", "effect": "NoExecute"}
    classes = {"any": RuntimeClass(metadata={"name": "any"}, handler="any", scheduling={"tolerations": [any_value]})}
    assert apply_runtime_class(pod, classes) == []
    assert [(one.operator, one.effect) for one in pod.spec.tolerations] == [("Equal", ""), ("Exists", "NoExecute")]


def test_a_runtime_class_without_tolerations_leaves_those_of_the_pod_as_they_are() -> None:
    own = [{"key": "a", "operator": "Exists"}, {"operator": "Exists"}]
    pod = a_pod(runtimeClassName="plain", tolerations=own)
    assert apply_runtime_class(pod, {"plain": RuntimeClass(metadata={"name": "plain"}, handler="plain")}) == []
    assert [(one.key, one.operator) for one in pod.spec.tolerations] == [("a", "Exists"), ("", "Exists")]
    assert apply_runtime_class(pod, RUNTIMES | {"plain": RUNTIMES["kata"]}) == []
    assert [(one.key, one.operator) for one in pod.spec.tolerations] == [("", "Exists")]


@pytest.mark.parametrize(
    ("own", "merged"),
    [
        ([], [("kata", "Exists")]),
        ([{"key": "a", "operator": "Exists"}], [("a", "Exists"), ("kata", "Exists")]),
        ([{"key": "kata", "operator": "Exists"}], [("kata", "Exists")]),
        ([{"operator": "Exists"}], [("", "Exists")]),
        ([{"key": "kata", "operator": "Equal", "value": "x"}], [("kata", "Exists")]),
        ([{"key": "kata", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}], [("kata", "Exists")]),
    ],
)
def test_where_a_runtime_class_runs_is_merged_into_the_pod(own: Any, merged: Any) -> None:
    pod = a_pod(runtimeClassName="kata", tolerations=own)
    assert apply_runtime_class(pod, RUNTIMES) == []
    assert [(one.key, one.operator) for one in pod.spec.tolerations] == merged
    assert dict(pod.spec.node_selector) == {"runtime": "kata"}


# ----------------------------------------------------------------------------------------------------------- label keys


def conditions(selector: Any) -> list[tuple[str, str, list[str]]]:
    return [(one.key, one.operator, list(one.values)) for one in selector.match_expressions]


def test_label_keys_of_a_term_without_a_selector_make_none() -> None:
    terms = [{"topologyKey": "zone", "matchLabelKeys": ["rev"]}, {"topologyKey": "zone", "labelSelector": {}}]
    pod = a_pod({"rev": "5"}, affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    merge_label_keys(pod)
    without, with_selector = pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution
    assert not without.HasField("label_selector")
    assert with_selector.HasField("label_selector") and conditions(with_selector.label_selector) == []


def test_label_keys_become_conditions_of_the_selectors_they_belong_to() -> None:
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["rev", "absent"],
        "mismatchLabelKeys": ["tenant"],
    }
    pod = a_pod(
        {"rev": "5", "tenant": "t"},
        affinity={
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [term],
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}],
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [term],
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}],
            },
        },
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["rev", "absent"]},
            {"maxSkew": 1, "topologyKey": "zone", "matchLabelKeys": ["rev"]},
        ],
    )
    merge_label_keys(pod)
    for affinity in (pod.spec.affinity.pod_affinity, pod.spec.affinity.pod_anti_affinity):
        (required,) = affinity.required_during_scheduling_ignored_during_execution
        (preferred,) = affinity.preferred_during_scheduling_ignored_during_execution
        for found in (required, preferred.pod_affinity_term):
            assert conditions(found.label_selector) == [("rev", "In", ["5"]), ("tenant", "NotIn", ["t"])]
            assert dict(found.label_selector.match_labels) == {"app": "web"}
    with_selector, without = pod.spec.topology_spread_constraints
    assert conditions(with_selector.label_selector) == [("rev", "In", ["5"])]
    assert not without.HasField("label_selector")


# -------------------------------------------------------------------------------------------------------- all together


def test_every_error_of_every_step_comes_at_once() -> None:
    pod = a_pod({"a b": ""}, priorityClassName="urgent", runtimeClassName="gvisor", restartPolicy="x")
    assert [error.path for error in admit_pod(pod, {}, {})] == [
        'metadata.labels["a b"]',
        "spec.restartPolicy",
        "spec.runtimeClassName",
        "spec.priorityClassName",
    ]


@pytest.mark.row("K2.8")
def test_hard_anti_affinity_can_be_limited_to_nodes() -> None:
    terms = [{"topologyKey": key, "labelSelector": {}} for key in ("kubernetes.io/hostname", "zone")]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert admit_pod(a_pod(affinity=affinity), {}, {}) == []
    (error,) = admit_pod(a_pod(affinity=affinity), {}, {}, limit_hard_anti_affinity=True)
    assert error.path == "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].topologyKey"
    assert error.message == '"zone" is not allowed; allowed is "kubernetes.io/hostname"'


BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "own", "expected"),
    [
        ([{}], None, "BestEffort"),
        ([{"requests": {"cpu": "0"}}], None, "BestEffort"),
        ([{"requests": {"x/y": "1"}}], None, "BestEffort"),
        ([{"requests": {"cpu": "1"}}], None, "Burstable"),
        ([{"limits": BOTH}, {}], None, "Burstable"),
        ([{"limits": BOTH, "requests": {"cpu": "500m"}}], None, "Burstable"),
        ([{"limits": {"cpu": "1"}}], None, "Burstable"),
        ([{"limits": {"cpu": "1"}, "requests": {"cpu": "0"}}], None, "Burstable"),
        ([{"limits": BOTH}], None, "Guaranteed"),
        ([{"limits": BOTH, "requests": {"cpu": "1000m"}}], None, "Guaranteed"),
        ([{}], {"limits": BOTH}, "Guaranteed"),
        ([{}], {"limits": BOTH, "requests": {"cpu": "500m"}}, "Burstable"),
    ],
)
def test_the_class_of_service_follows_from_requests_and_limits(resources: Any, own: Any, expected: str) -> None:
    containers = [{"name": f"c{position}", "resources": one} for position, one in enumerate(resources)]
    pod = a_pod(containers=containers, **({"resources": own} if own else {}))
    assert admit_pod(pod, {}, {}) == []
    assert pod.status.qos_class == qos_class(pod) == expected
