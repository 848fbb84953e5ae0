"""The tolerations that admission gives to new pods: of lost nodes for a while, of pressure on memory, and those of daemons."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.api.admission import admit_pod
from rayched.api.manifest import read_object
from rayched.api.well_known_taints import DefaultTolerations
from rayched.v1.core_pb2 import Pod

LOST = {("not-ready", "NoExecute", 300), ("unreachable", "NoExecute", 300)}
MEMORY = ("memory-pressure", "NoSchedule", None)
DAEMON = {
    ("not-ready", "NoExecute", None),
    ("unreachable", "NoExecute", None),
    ("disk-pressure", "NoSchedule", None),
    MEMORY,
    ("pid-pressure", "NoSchedule", None),
    ("unschedulable", "NoSchedule", None),
}
A_LITTLE = {"requests": {"cpu": "100m"}}


def a_pod(resources: dict[str, Any] | None = None, owner: str = "", controls: bool = True, **spec: Any) -> Pod:
    owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u", "controller": controls}] if owner else []
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "ownerReferences": owners},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources or {}}], **spec},
    }
    pod: Pod = read_object(document).object.pod
    return pod


def admitted(pod: Pod, **options: Any) -> set[tuple[str, str, int | None]]:
    assert admit_pod(pod, {}, {}, **options) == []
    found = [
        (
            one.key.removeprefix("node.kubernetes.io/"),
            one.effect,
            one.toleration_seconds if one.HasField("toleration_seconds") else None,
        )
        for one in pod.spec.tolerations
    ]
    assert len(found) == len(set(found))
    return set(found)


def test_a_pod_that_says_nothing_stays_five_minutes_on_a_lost_node() -> None:
    assert admitted(a_pod()) == LOST


def test_how_long_is_a_setting() -> None:
    found = admitted(a_pod(), tolerations=DefaultTolerations(2, 0))
    assert found == {("not-ready", "NoExecute", 2), ("unreachable", "NoExecute", 0)}


@pytest.mark.row("K5.8")
@pytest.mark.parametrize(
    ("resources", "tolerated"), [(None, False), (A_LITTLE, True), ({"limits": {"cpu": "1", "memory": "1Gi"}}, True)]
)
def test_all_but_best_effort_pods_tolerate_pressure_on_memory(resources: dict[str, Any] | None, tolerated: bool) -> None:
    assert admitted(a_pod(resources)) == (LOST | {MEMORY} if tolerated else LOST)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
            {("not-ready", "NoExecute", None)},
        ),
        (
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 7},
            {("not-ready", "NoExecute", 7)},
        ),
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, {("not-ready", "", None)}),
    ],
)
def test_what_a_pod_says_of_a_taint_itself_counts(said: dict[str, Any], expected: set[Any]) -> None:
    assert admitted(a_pod(tolerations=[said])) == expected | {("unreachable", "NoExecute", 300)}


def test_a_pod_that_tolerates_everything_needs_nothing_more() -> None:
    assert admitted(a_pod(A_LITTLE, tolerations=[{"operator": "Exists"}])) == {("", "", None)}


@pytest.mark.row("K5.7")
@pytest.mark.parametrize("host_network", [False, True])
def test_a_pod_of_a_daemon_set_stays_through_lost_and_pressed_nodes(host_network: bool) -> None:
    network = {("network-unavailable", "NoSchedule", None)} if host_network else set()
    assert admitted(a_pod(A_LITTLE, "DaemonSet", hostNetwork=host_network)) == DAEMON | network
    assert admitted(a_pod(None, "DaemonSet", hostNetwork=host_network)) == DAEMON | network


def test_a_daemons_own_time_limit_does_not_hold() -> None:
    limited = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    assert admitted(a_pod(None, "DaemonSet", tolerations=[limited])) == DAEMON


@pytest.mark.row("K5.7")
@pytest.mark.parametrize("owner", [("ReplicaSet", True), ("DaemonSet", False)])
def test_an_owner_that_is_no_daemon_set_or_does_not_control_changes_nothing(owner: tuple[str, bool]) -> None:
    assert admitted(a_pod(None, *owner)) == LOST


def test_there_is_room_for_as_many_tolerations_as_are_allowed_in_all() -> None:
    many = [{"key": f"k{number}", "operator": "Exists"} for number in range(63)]
    (error,) = admit_pod(a_pod(tolerations=many), {}, {})
    assert str(error) == "spec.tolerations: 65 with those that the cluster adds; at most 64 are allowed"
    assert admit_pod(a_pod(tolerations=many[:62]), {}, {}) == []
