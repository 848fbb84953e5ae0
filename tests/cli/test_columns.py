"""What a person sees of an object: columns, ages, the one word for how a pod or a node is doing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api import kinds
from rayched.api.columns import age, cells, columns_of, labels_text, node_status, pod_status
from rayched.v1.core_pb2 import Event, Node, Pod
from rayched.v1.workloads_pb2 import Job

NOW = 2_000_000_000
MINUTE, HOUR, DAY = 60, 3600, 86_400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (2 * MINUTE + 1, "2m1s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE + 59, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 10 * MINUTE, "3h10m"),
        (8 * HOUR + 10 * MINUTE, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (8 * DAY + HOUR, "8d"),
        (729 * DAY, "729d"),
        (730 * DAY, "2y"),
        (731 * DAY, "2y1d"),
        (8 * 365 * DAY + DAY, "8y"),
        (-1, "0s"),
        (-2, "<invalid>"),
    ],
)
def test_an_age_has_one_or_two_units_as_kubectl_prints_it(seconds: int, text: str) -> None:
    assert age(Timestamp(seconds=NOW - seconds), NOW) == text


def test_without_a_time_the_age_is_unknown() -> None:
    assert age(Timestamp(), NOW) == "<unknown>"


def a_pod(change: Callable[[Pod], object] = lambda _: None) -> Pod:
    pod = Pod()
    pod.metadata.name = "web"
    pod.spec.containers.add(name="main")
    pod.status.phase = "Pending"
    change(pod)
    return pod


def deleted(pod: Pod) -> None:
    pod.metadata.deletion_timestamp.seconds = NOW


def gated(pod: Pod) -> None:
    pod.status.conditions.add(type="PodScheduled", status="False", reason="SchedulingGated")


def refused(pod: Pod) -> None:
    pod.status.phase, pod.status.reason = "Failed", "OutOfcpu"


def completed(pod: Pod) -> None:
    pod.status.phase = "Succeeded"
    pod.status.container_statuses.add(name="main").state.terminated.reason = "Completed"


def failed_and_deleted(pod: Pod) -> None:
    refused(pod)
    deleted(pod)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda pod: pod.status.ClearField("phase"), "Pending"),
        (lambda _: None, "Pending"),
        (gated, "SchedulingGated"),
        (deleted, "Terminating"),
        (refused, "OutOfcpu"),
        (completed, "Completed"),
        (failed_and_deleted, "OutOfcpu"),
    ],
)
def test_one_word_says_how_a_pod_is_doing(change: Callable[[Pod], object], word: str) -> None:
    assert pod_status(a_pod(change)) == word


@pytest.mark.parametrize(
    ("ready", "cordoned", "word"),
    [
        ("True", False, "Ready"),
        ("False", False, "NotReady"),
        ("Unknown", False, "NotReady"),
        (None, False, "Unknown"),
        ("True", True, "Ready,SchedulingDisabled"),
    ],
)
def test_one_word_says_how_a_node_is_doing(ready: str | None, cordoned: bool, word: str) -> None:
    node = Node()
    node.spec.unschedulable = cordoned
    if ready is not None:
        node.status.conditions.add(type="Ready", status=ready)
    assert node_status(node) == word


def test_sidecars_count_as_containers_that_are_to_be_ready_and_other_init_containers_do_not() -> None:
    pod = a_pod()
    pod.spec.init_containers.add(name="proxy", restart_policy="Always")
    pod.spec.init_containers.add(name="migrate")
    for name in ("proxy", "migrate"):
        pod.status.init_container_statuses.add(name=name, ready=True)
    pod.status.container_statuses.add(name="main", ready=False)
    ready = next(column for column in columns_of(kinds.POD) if column.heading == "READY")
    assert ready.text(pod, NOW) == "1/2"


HEADINGS = {
    "Pod": "NAME READY STATUS RESTARTS AGE",
    "Node": "NAME STATUS ROLES AGE VERSION",
    "Namespace": "NAME STATUS AGE",
    "PriorityClass": "NAME VALUE GLOBAL-DEFAULT AGE PREEMPTIONPOLICY",
    "PodDisruptionBudget": "NAME|MIN AVAILABLE|MAX UNAVAILABLE|ALLOWED DISRUPTIONS|AGE",
    "RuntimeClass": "NAME HANDLER AGE",
    "PodGroup": "NAME POLICY MIN-COUNT SCHEDULED AGE",
    "Service": "NAME TYPE CLUSTER-IP PORT(S) AGE",
    "ReplicaSet": "NAME DESIRED CURRENT READY AGE",
    "Job": "NAME STATUS COMPLETIONS DURATION AGE",
    "StatefulSet": "NAME DESIRED AGE",
    "ReplicationController": "NAME DESIRED AGE",
    "Event": "LAST SEEN|TYPE|REASON|OBJECT|MESSAGE",
}


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.name)
def test_each_kind_has_kubectls_headings_and_a_cell_below_each_even_when_the_object_is_empty(kind: kinds.Kind) -> None:
    columns = columns_of(kind)
    found = HEADINGS[kind.name]
    assert [column.heading for column in columns] == (found.split("|") if "|" in found else found.split())
    everything = columns_of(kind, wide=True, namespaces=True, label_keys=["a"], labels=True)
    row = cells(kind.message(), everything, NOW)
    assert len(row) == len(everything)
    assert (everything[0].heading == "NAMESPACE") is kind.namespaced


def test_labels_come_as_columns_or_all_at_once() -> None:
    node = Node()
    node.metadata.labels.update({"topology.kubernetes.io/zone": "zone-a", "app": "web"})
    columns = columns_of(kinds.NODE, label_keys=["topology.kubernetes.io/zone", "tier"], labels=True)[-3:]
    assert [column.heading for column in columns] == ["ZONE", "TIER", "LABELS"]
    assert cells(node, columns, NOW) == ["zone-a", "", "app=web,topology.kubernetes.io/zone=zone-a"]
    assert labels_text({}) == "<none>"


def test_an_event_without_a_last_time_was_seen_at_its_first() -> None:
    event = Event()
    event.first_timestamp.seconds = NOW - 60
    assert columns_of(kinds.EVENT)[0].text(event, NOW) == "60s"


@pytest.mark.parametrize(
    ("job", "row"),
    [
        (Job(), ["Running", "0/1", "<none>"]),
        (
            Job(spec={"completions": 5}, status={"succeeded": 2, "start_time": {"seconds": int(NOW) - 90}}),
            ["Running", "2/5", "90s"],
        ),
        (Job(spec={"parallelism": 3}, status={"succeeded": 1}), ["Running", "1/1 of 3", "<none>"]),
        (
            Job(
                spec={"completions": 1},
                status={
                    "succeeded": 1,
                    "start_time": {"seconds": int(NOW) - 90},
                    "completion_time": {"seconds": int(NOW) - 80},
                    "conditions": [
                        {"type": "SuccessCriteriaMet", "status": "True"},
                        {"type": "Complete", "status": "True"},
                    ],
                },
            ),
            ["Complete", "1/1", "10s"],
        ),
        (Job(status={"conditions": [{"type": "Suspended", "status": "True"}]}), ["Suspended", "0/1", "<none>"]),
        (Job(status={"conditions": [{"type": "Suspended", "status": "False"}]}), ["Running", "0/1", "<none>"]),
    ],
)
def test_a_job_is_shown_with_what_became_of_it(job: Job, row: list[str]) -> None:
    assert cells(job, columns_of(kinds.JOB), NOW)[1:4] == row
