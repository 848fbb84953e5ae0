"""What an agent tells of, and how often: events that repeat, and its node's status."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.event_series import BURST, RATE, WAITING_MAX, EventSeries
from rayched.nodes.agent.following import NodeRegistration
from rayched.nodes.agent.node_object import DISK_PRESSURE, MEMORY_PRESSURE
from rayched.nodes.agent.node_report import NodeReport
from rayched.v1.core_pb2 import Node, NodeStatus, Pod
from tests.nodes.real_node import settings
from tests.server.objects import a_node, a_pod


def told(series: EventSeries, now: float) -> list[tuple[str, str, int]]:
    return [(event.reason, event.message, event.count) for event in series.take(now, 1000)]


def test_what_repeats_is_told_at_once_and_then_after_pauses_that_double() -> None:
    series = EventSeries()
    times = []
    now = 1000.0
    while now < 2000:
        series.add(a_pod("web", uid="7"), "Warning", "BackOff", f"at {now:g}", now)
        found = told(series, now)
        if found:
            times.append((now, found[0][2]))
        now += 1.0
    assert [at for at, _ in times] == [1000, 1005, 1015, 1035, 1075, 1155, 1315, 1615, 1915]
    assert sum(count for _, count in times) == 916, "none is lost, and none is counted twice"


def test_what_could_not_be_told_waits_on_with_what_happened_since() -> None:
    series = EventSeries()
    pod = a_pod("web", uid="7")
    series.add(pod, "Normal", "Started", "one", 1.0)
    series.add(pod, "Normal", "Created", "other", 1.0)
    lost = series.take(1.0, 10)
    assert len(lost) == 2 and series.due(1.0) == float("inf")
    series.add(pod, "Normal", "Started", "two", 2.0)
    series.again(lost)
    assert told(series, 2.0) == [("Started", "two", 2), ("Created", "other", 1)]


def test_a_flood_is_told_no_faster_than_allowed_and_what_is_too_much_is_counted() -> None:
    series = EventSeries()
    for number in range(WAITING_MAX + 50):
        series.add(a_pod("web", uid=str(number)), "Normal", "Started", "", 100.0)
    assert series.dropped == 50
    assert len(told(series, 100.0)) == BURST and told(series, 100.0) == []
    assert series.due(100.0) == pytest.approx(100.0 + 1 / RATE)
    assert len(told(series, 101.0)) == RATE


def a_report() -> tuple[NodeReport, list[NodeStatus], list[PodEvent]]:
    statuses: list[NodeStatus] = []
    events: list[PodEvent] = []
    return NodeReport(a_node("worker"), statuses.append, events.append, is_watched=False), statuses, events


@pytest.mark.row("N5")
def test_a_status_that_did_not_change_is_told_every_five_minutes_at_most() -> None:
    report, statuses, _ = a_report()
    told_at = []
    for now in range(1800):
        if now >= report.due:
            before = len(statuses)
            report.turn(float(now), may_tell=now >= 7)
            if len(statuses) > before:
                told_at.append(now)
    assert told_at == [10, 310, 610, 910, 1210, 1510]


def test_a_cluster_that_says_otherwise_is_told_again() -> None:
    """As after a time in which the node was not heard of."""
    report, statuses, events = a_report()
    report.turn(1000.0, may_tell=True)
    node = Node(status=statuses[0])
    report.stored(node)
    report.turn(1010.0, may_tell=True)
    assert len(statuses) == 1, "it says the same"
    node.status.conditions[0].status = "Unknown"
    report.stored(node)
    assert report.due == 0.0
    report.turn(1011.0, may_tell=True)
    assert len(statuses) == 2 and statuses[0] == statuses[1]
    assert [one.reason for one in events] == ["NodeReady"], "nothing has happened here"


def conditions(status: NodeStatus) -> dict[str, str]:
    return {one.type: one.status for one in status.conditions}


def test_of_pressures_nothing_is_said_before_somebody_has_looked() -> None:
    statuses: list[NodeStatus] = []
    report = NodeReport(a_node("worker"), statuses.append, [].append)
    report.turn(1000.0, may_tell=True)
    assert conditions(statuses[-1]) == {"Ready": "True"}
    report.under([])
    assert report.due == 0.0, "that there is none is worth telling"
    report.turn(1001.0, may_tell=True)
    none = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    assert conditions(statuses[-1]) == none
    report.under([])
    assert report.due == 1011.0


def test_a_registration_has_the_conditions_of_now_and_all_of_them_are_told_again(tmp_path: Path) -> None:
    report, statuses, _ = a_report()
    registered = NodeRegistration(settings(tmp_path, "worker"), report, "an-id")
    assert registered.node == "worker"
    report.turn(1000.0, may_tell=True)
    report.under([MEMORY_PRESSURE])
    report.fault("shutdown", "node is shutting down")
    report.turn(1001.0, may_tell=True)
    request = registered.request()
    assert conditions(request.node.status)["MemoryPressure"] == "True" and conditions(request.node.status)["Ready"] == "False"
    report.registered()
    assert report.due == 0.0
    report.turn(1002.0, may_tell=True)
    assert len(statuses) == 3 and statuses[2] == statuses[1]
    registered.begun(7)
    assert registered.request().last_incarnation == 7 and len(registered.request().node.status.conditions) == 4


def test_what_changes_is_told_at_once_with_an_event() -> None:
    report, statuses, events = a_report()
    report.turn(1000.0, may_tell=True)
    assert [one.reason for one in events] == ["NodeReady"]
    report.under([MEMORY_PRESSURE])
    assert report.due == 0.0
    report.turn(1000.5, may_tell=True)
    report.fault("shutdown", "node is shutting down")
    report.turn(1001.0, may_tell=True)
    report.under([DISK_PRESSURE])
    report.fault("shutdown", "")
    report.turn(1002.0, may_tell=True)
    reasons = [one.reason for one in events]
    assert reasons[1:] == [
        "NodeHasInsufficientMemory",
        "NodeNotReady",
        "NodeReady",
        "NodeHasSufficientMemory",
        "NodeHasDiskPressure",
    ]
    assert {one.message for one in events if one.reason == "NodeReady"} == {"Node worker status is now: NodeReady"}
    (ready,) = [one for one in statuses[2].conditions if one.type == "Ready"]
    assert (ready.status, ready.reason, ready.message) == ("False", "KubeletNotReady", "node is shutting down")
    assert len(statuses) == 4


def test_events_name_what_they_are_about() -> None:
    series = EventSeries()
    about: list[Node | Pod] = [a_node("worker"), a_pod("web", namespace="team", uid="7")]
    for one in about:
        series.add(one, "Normal", "Starting", "", 1.5)
    of_node, of_pod = series.take(2.0, 10)
    assert (of_node.kind, of_node.name, of_node.first_at_ms) == ("Node", "worker", 1500)
    assert (of_pod.kind, of_pod.namespace, of_pod.name, of_pod.uid) == ("Pod", "team", "web", "7")
