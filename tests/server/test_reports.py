"""What agents report and administrators edit, as rules on messages alone."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from rayched.server.admission.edits import EditRefused, edit_labels, edit_taints
from rayched.server.reports import register, report_node, report_pod
from rayched.v1.core_pb2 import Node, Pod, PodStatus, Taint
from rayched.v1.meta_pb2 import ObjectMeta
from tests.server.objects import a_node

PHASES = ("Pending", "Running", "Unknown", "Succeeded", "Failed")
ALLOWED = {
    ("Pending", "Pending"), ("Pending", "Running"), ("Pending", "Unknown"), ("Pending", "Succeeded"), ("Pending", "Failed"),
    ("Running", "Running"), ("Running", "Unknown"), ("Running", "Succeeded"), ("Running", "Failed"),
    ("Unknown", "Unknown"), ("Unknown", "Running"), ("Unknown", "Succeeded"), ("Unknown", "Failed"),
    ("Succeeded", "Succeeded"), ("Failed", "Failed"),
}  # fmt: skip
NOW = Timestamp(seconds=1000)


@pytest.mark.parametrize("before", PHASES)
@pytest.mark.parametrize("after", PHASES)
def test_a_phase_follows_only_where_a_pods_life_leads(before: str, after: str) -> None:
    pod = Pod(status=PodStatus(phase=before))
    fault = report_pod(pod, PodStatus(phase=after), NOW)
    assert (fault is None) is ((before, after) in ALLOWED)
    assert pod.status.phase == (after if fault is None else before)


def test_a_report_leaves_what_the_scheduler_owns() -> None:
    pod = Pod(status=PodStatus(phase="Pending", nominated_node_name="node-1", qos_class="Burstable"))
    pod.status.conditions.add(type="PodScheduled", status="True")
    reported = PodStatus(phase="Running", pod_ip="10.0.0.1")
    reported.conditions.add(type="PodScheduled", status="False")
    reported.conditions.add(type="Ready", status="True")
    assert report_pod(pod, reported, NOW) is None
    assert {condition.type: condition.status for condition in pod.status.conditions} == {"PodScheduled": "True", "Ready": "True"}
    assert (pod.status.nominated_node_name, pod.status.qos_class, pod.status.pod_ip) == ("node-1", "Burstable", "10.0.0.1")


def test_a_transition_is_a_new_status_and_a_heartbeat_is_nothing() -> None:
    node = a_node("node-1")
    report_node(node, node.status, NOW)
    before = node.SerializeToString(deterministic=True)
    reported = a_node("node-1").status
    reported.conditions[0].last_heartbeat_time.seconds = 999
    report_node(node, reported, NOW)
    assert node.SerializeToString(deterministic=True) == before
    reported.conditions[0].reason = "StillReady"
    report_node(node, reported, NOW)
    assert not node.status.conditions[0].last_transition_time.seconds
    reported.conditions[0].status = "False"
    report_node(node, reported, NOW)
    assert node.status.conditions[0].last_transition_time.seconds == 1000


def test_registering_again_takes_over_the_agents_own_and_leaves_the_rest() -> None:
    stored = a_node("node-1", labels={"zone": "a", "disk": "ssd"})
    stored.spec.unschedulable = True
    stored.spec.taints.add(key="dedicated", effect="NoSchedule")
    register(stored, a_node("node-1", labels={"zone": "b"}, cpu="8"), NOW)
    assert stored.metadata.labels == {"zone": "b", "disk": "ssd"}
    assert stored.spec.unschedulable and len(stored.spec.taints) == 1
    assert stored.status.capacity["cpu"].string == "8"


def taint(text: str) -> Taint:
    key, _, rest = text.partition("=")
    found, _, effect = rest.partition(":")
    return Taint(key=key, value=found, effect=effect)


@pytest.mark.row("K5.1")
@pytest.mark.parametrize(
    ("present", "add", "remove", "overwrite", "result"),
    [
        ([], ["a=1:NoSchedule"], [], False, ["a=1:NoSchedule"]),
        (["a=1:NoSchedule"], ["a=1:NoSchedule"], [], False, ["a=1:NoSchedule"]),
        (["a=1:NoSchedule"], ["a=2:NoSchedule"], [], False, None),
        (["a=1:NoSchedule"], ["a=2:NoSchedule"], [], True, ["a=2:NoSchedule"]),
        (["a=1:NoSchedule"], ["a=2:NoExecute"], [], False, ["a=1:NoSchedule", "a=2:NoExecute"]),
        (["a=1:NoSchedule", "a=2:NoExecute"], [], ["a="], False, []),
        (["a=1:NoSchedule", "a=2:NoExecute"], [], ["a=:NoExecute"], False, ["a=1:NoSchedule"]),
        (["a=1:NoSchedule"], [], ["b="], False, None),
        (["a=1:NoSchedule"], [], ["a=:NoExecute"], False, None),
        (["a=1:NoSchedule"], ["b=1:NoSchedule"], ["a="], False, ["b=1:NoSchedule"]),
        (["a=1:NoSchedule"], ["a=1:NoExecute"], ["a="], False, None),
        (["a=1:NoSchedule"], ["a=1:NoExecute"], ["a=:NoSchedule"], False, ["a=1:NoExecute"]),
    ],
)
def test_taints_are_known_by_key_and_effect(
    present: list[str], add: list[str], remove: list[str], overwrite: bool, result: list[str] | None
) -> None:
    node = Node()
    node.spec.taints.extend(map(taint, present))
    arguments = (node, [*map(taint, add)], [*map(taint, remove)], overwrite, NOW)
    if result is None:
        with pytest.raises(EditRefused):
            edit_taints(*arguments)
    else:
        edit_taints(*arguments)
        assert [f"{one.key}={one.value}:{one.effect}" for one in node.spec.taints] == result


@pytest.mark.parametrize(
    ("add", "remove", "overwrite", "result"),
    [
        ({"b": "2"}, [], False, {"a": "1", "b": "2"}),
        ({"a": "1"}, [], False, {"a": "1"}),
        ({"a": "2"}, [], False, None),
        ({"a": "2"}, [], True, {"a": "2"}),
        ({}, ["a", "z"], False, {}),
        ({"a": "2"}, ["a"], True, None),
    ],
)
def test_labels_change_only_when_asked_in_so_many_words(
    add: dict[str, str], remove: list[str], overwrite: bool, result: dict[str, str] | None
) -> None:
    metadata = ObjectMeta(labels={"a": "1"})
    if result is None:
        with pytest.raises(EditRefused):
            edit_labels(metadata, add, remove, overwrite)
    else:
        edit_labels(metadata, add, remove, overwrite)
        assert metadata.labels == result
