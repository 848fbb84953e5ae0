"""Templates: which pods are the same to the scheduler."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.v1.core_pb2 import Pod
from tests.api.random_objects import SEEDS, random_pod
from tests.snapshot.objects import a_pod


def changed(change: Callable[[Pod], Any]) -> Pod:
    pod = a_pod({"cpu": "1"}, labels={"app": "web", "tier": "front"}, name="one")
    change(pod)
    return pod


def resized(pod: Pod, cpu: str, allocated: str = "") -> None:
    status = pod.status.container_statuses.add(name="main")
    status.resources.requests["cpu"].string = cpu
    if allocated:
        status.allocated_resources["cpu"].string = allocated


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda p: setattr(p.metadata, "name", "two"), True),
        (lambda p: setattr(p.metadata, "uid", "2"), True),
        (lambda p: setattr(p.metadata, "resource_version", "7"), True),
        (lambda p: p.metadata.annotations.update({"a": "b"}), True),
        (lambda p: setattr(p.spec, "node_name", "n"), True),
        (lambda p: setattr(p.status, "phase", "Running"), True),
        (lambda p: resized(p, "1", "1"), True),
        (lambda p: p.metadata.owner_references.add(name="a", kind="Whatever"), True),
        (lambda p: setattr(p.metadata, "namespace", "other"), False),
        (lambda p: p.metadata.labels.update({"app": "db"}), False),
        (lambda p: p.metadata.owner_references.add(name="a", kind="ReplicaSet", controller=True), False),
        (lambda p: setattr(p.spec, "priority", 5), False),
        (lambda p: p.spec.tolerations.add(key="k"), False),
        (lambda p: resized(p, "2"), False),
    ],
)
def test_pods_share_a_template_if_scheduling_reads_the_same_of_them(change: Callable[[Pod], Any], same: bool) -> None:
    table = TemplateTable()
    template = table.intern(changed(lambda _: None))
    other = table.intern(changed(change))
    assert (other is template) is same


@settings(deadline=None)
@given(SEEDS, st.sampled_from([b"", b"\xfa\x07\x01x"]))
def test_a_pod_that_is_given_away_has_the_template_of_one_that_stays_as_it_is(seed: int, unknown: bytes) -> None:
    """`unknown`: a field whose number no message has."""
    pod = random_pod(Random(seed))
    metadata = pod.metadata.SerializeToString() + unknown
    pod.ClearField("metadata")
    pod.metadata.MergeFromString(metadata)
    pod.MergeFromString(unknown)
    table = TemplateTable()
    template, content = table.intern(pod), pod.SerializeToString(deterministic=True)
    assert pod.SerializeToString(deterministic=True) == content
    assert table.intern_given(pod) is template


def test_the_order_of_labels_makes_no_difference() -> None:
    table = TemplateTable()
    one, other = Pod(), Pod()
    one.metadata.labels.update({"a": "1", "b": "2"})
    other.metadata.labels.update({"b": "2", "a": "1"})
    assert table.intern(one) is table.intern(other)


def test_a_template_holds_what_the_pod_asks_for() -> None:
    pod = a_pod({"cpu": "250m", "x/gpu": "1"}, labels={"app": "web"}, ports=[("", 80, ""), ("UDP", 53, "::1"), ("", 0, "")])
    sidecar = pod.spec.init_containers.add(name="s", restart_policy="Always")
    sidecar.ports.add(host_port=9)
    pod.spec.init_containers.add(name="i").ports.add(host_port=10)
    pod.spec.priority = 7
    pod.spec.scheduler_name = "mine"
    template = TemplateTable().intern(pod)
    assert template.requests == {"cpu": 250, "x/gpu": 1}
    assert template.non_zero == (350, 400 << 20)
    assert template.host_ports == (("TCP", 9, "0.0.0.0"), ("TCP", 80, "0.0.0.0"), ("UDP", 53, "::1"))
    assert (template.namespace, template.labels, template.priority, template.scheduler_name) == (
        "default",
        {"app": "web"},
        7,
        "mine",
    )


@pytest.mark.parametrize(
    ("cpu", "allocated", "reason", "taken"),
    [("2", "", "", 2000), ("500m", "", "", 1000), ("500m", "3", "", 3000), ("500m", "", "Infeasible", 500)],
)
def test_a_bound_pod_that_is_being_resized_takes_up_what_1_34_counts(cpu: str, allocated: str, reason: str, taken: int) -> None:
    pod = changed(lambda p: resized(p, cpu, allocated))
    if reason:
        pod.status.conditions.add(type="PodResizePending", reason=reason)
    template = TemplateTable().intern(pod)
    assert template.accounted["cpu"] == taken and template.requests["cpu"] == 1000


def test_the_node_a_pod_asks_for_is_kept_where_it_is_asked_for() -> None:
    table = TemplateTable()
    pod = changed(lambda p: setattr(p.spec, "node_name", "n"))
    assert table.intern(pod).pod.spec.node_name == ""
    assert table.intern(pod, with_node_name=True).pod.spec.node_name == "n"


def test_the_template_that_was_not_asked_for_longest_goes_and_numbers_are_never_given_again() -> None:
    table = TemplateTable(limit=2)
    pods = [a_pod({"cpu": str(n)}) for n in range(1, 4)]
    first, second = table.intern(pods[0]), table.intern(pods[1])
    assert table.intern(pods[0]) is first
    third = table.intern(pods[2])
    again = table.intern(pods[1])
    assert again is not second and again.content == second.content and len(table) == 2
    assert len({first.id, second.id, third.id, again.id}) == 4


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from([0, 10, 400, 3_000])), max_size=60))
def test_a_table_never_holds_more_bytes_than_it_may_and_holds_the_latest(pods: list[tuple[int, int]]) -> None:
    table = TemplateTable(limit=8, bytes_max=2_000)
    latest: list[PodTemplate] = []
    for number, size in pods:
        template = table.intern(a_pod({"cpu": str(1 + number)}, labels={"own": "x" * size}))
        latest = [one for one in latest if one is not template] + [template]
        while len(latest) > 8 or sum(len(one.content) for one in latest) > 2_000:
            latest.pop(0)
        assert len(table) == len(latest)
    for one in latest:
        assert table.intern(one.pod) is one


def test_a_template_does_not_change_with_the_pod_it_came_from() -> None:
    pod = a_pod({"cpu": "1"}, labels={"app": "web"})
    template = TemplateTable().intern(pod)
    before = copy.deepcopy(template.pod)
    pod.metadata.labels["app"] = "db"
    pod.spec.containers[0].image = "other"
    assert template.pod == before and template.labels == {"app": "web"}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda p: p.metadata.labels.update({"app": "db"}), True),
        (lambda p: p.spec.tolerations.add(key="k"), True),
        (lambda p: setattr(p.metadata, "namespace", "other"), False),
        (lambda p: p.metadata.owner_references.add(name="a", kind="ReplicaSet", controller=True), False),
        (lambda p: setattr(p.spec.containers[0], "image", "other"), False),
        (lambda p: setattr(p.spec, "priority", 5), False),
        (lambda p: p.spec.node_selector.update({"a": "b"}), False),
        (lambda p: resized(p, "2"), False),
    ],
)
def test_templates_are_bare_the_same_if_they_differ_in_labels_and_tolerations_alone(
    change: Callable[[Pod], Any], same: bool
) -> None:
    table = TemplateTable()
    template, other = table.intern(changed(lambda _: None)), table.intern(changed(change))
    assert (other.bare == template.bare) is same


@pytest.mark.parametrize(
    ("change", "mentions"),
    [
        (lambda p: p.spec.tolerations.add(key="k"), False),
        (lambda p: p.spec.affinity.SetInParent(), True),
        (lambda p: p.spec.topology_spread_constraints.add(topology_key="zone"), True),
    ],
)
def test_a_template_says_whether_it_may_mention_labels_of_pods(change: Callable[[Pod], Any], mentions: bool) -> None:
    pod = changed(change)
    assert TemplateTable().intern(pod).mentions_labels is mentions
