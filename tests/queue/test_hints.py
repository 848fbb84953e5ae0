"""Registrations and hints: which events are worth an attempt of which pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from rayched.framework import cluster_event as ce
from rayched.framework import names
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.queueing_hints import Hint, Look, PreparedHint, Registration
from rayched.framework.status import SUCCESS, Status
from rayched.plugins.in_tree import IN_TREE
from rayched.queue import hint_index, hints
from rayched.queue.durations import PreEnqueueDurations
from rayched.queue.hint_index import TemplateHints, UnreadableHint
from rayched.queue.hints import HintTable, Requeue, default_events, registrations_of
from rayched.queue.queued_pod import QueuedPodInfo
from rayched.snapshot.columns import Log
from rayched.v1.core_pb2 import Pod
from tests.queue.builders import pending


def say(hint: Hint) -> Any:
    return lambda pod, old, new: hint


def a_table(*registrations: tuple[str, ClusterEvent, Hint | None]) -> HintTable:
    plugins: dict[str, list[Registration]] = {}
    for plugin, event, hint in registrations:
        plugins.setdefault(plugin, []).append(Registration(event, None if hint is None else say(hint)))
    return HintTable({"default-scheduler": plugins})


def a_rejected(*plugins: str, pending_for: tuple[str, ...] = (), scheduler: str = "") -> QueuedPodInfo:
    pod = QueuedPodInfo(pending(scheduler=scheduler), 0.0)
    pod.unschedulable_plugins, pod.pending_plugins = frozenset(plugins), frozenset(pending_for)
    return pod


def judge(table: HintTable, pod: QueuedPodInfo, event: ClusterEvent) -> Requeue:
    def failed(plugin: str, problem: Exception) -> None:
        raise AssertionError(f"{plugin}: {problem}")

    return table.judge(pod, event, None, None, failed)


# ------------------------------------------------------------------------------------------------------------- events


@pytest.mark.row("Q63")
@pytest.mark.parametrize(
    ("event", "label"),
    [
        (ce.NODE_ADD, "NodeAdd"),
        (ce.NODE_DELETE, "NodeDelete"),
        (ce.NODE_ALLOCATABLE_UPDATE, "NodeUpdateNodeAllocatable"),
        (ce.NODE_LABEL_UPDATE, "NodeUpdateNodeLabel"),
        (ce.NODE_TAINT_UPDATE, "NodeUpdateNodeTaint"),
        (ce.NODE_CONDITION_UPDATE, "NodeUpdateNodeCondition"),
        (ce.NODE_ANNOTATION_UPDATE, "NodeUpdateNodeAnnotation"),
        (ce.ASSIGNED_POD_ADD, "AssignedPodAdd"),
        (ce.ASSIGNED_POD_DELETE, "AssignedPodDelete"),
        (ce.UNSCHEDULABLE_POD_ADD, "UnschedulablePodAdd"),
        (ce.UNSCHEDULABLE_POD_UPDATE, "UnschedulablePodUpdate"),
        (ce.FORCE_ACTIVATE, "ForceActivate"),
        (ce.UNSCHEDULABLE_TIMEOUT, "UnschedulableTimeout"),
        (ClusterEvent(Resource.CSI_NODE, Action.ADD), "storage.k8s.io/CSINodeAdd"),
        (ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_OTHER), "AssignedPodUpdate"),
        (ClusterEvent(Resource.NODE, Action.ADD | Action.DELETE), "NodeAdd|Delete"),
    ],
)
def test_events_have_the_labels_of_kube_scheduler(event: ClusterEvent, label: str) -> None:
    assert event.label == label


_SCALE_DOWN_OF_ASSIGNED = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)


@pytest.mark.row("Q53")
@pytest.mark.parametrize(
    ("registered", "incoming", "covers"),
    [
        (ce.NODE_ADD, ce.NODE_ADD, True),
        (ce.NODE_ADD, ce.NODE_DELETE, False),
        (ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL), ce.NODE_LABEL_UPDATE, True),
        (ClusterEvent(Resource.NODE, Action.ALL), ce.ASSIGNED_POD_ADD, False),
        (ClusterEvent(Resource.POD, Action.DELETE), ce.ASSIGNED_POD_DELETE, True),
        (ClusterEvent(Resource.POD, Action.UPDATE_POD_SCALE_DOWN), _SCALE_DOWN_OF_ASSIGNED, True),
        (ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE), _SCALE_DOWN_OF_ASSIGNED, False),
        (ce.EVERY_EVENT, ce.NODE_DELETE, True),
        (ClusterEvent(Resource.WILDCARD, Action.ADD), ce.NODE_ADD, True),
        (ClusterEvent(Resource.WILDCARD, Action.ADD), ce.NODE_DELETE, False),
        (ce.NODE_ADD, ce.UNSCHEDULABLE_TIMEOUT, False),
    ],
)
def test_a_registration_covers_an_event_of_its_resource_with_one_of_its_actions(
    registered: ClusterEvent, incoming: ClusterEvent, covers: bool
) -> None:
    assert registered.matches(incoming) is covers


# ------------------------------------------------------------------------------------------------------ registrations


def labels(events: frozenset[ClusterEvent]) -> set[str]:
    return {f"{event.resource}{action.name}" for event in events for action in event.action}


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        (Log.USAGE, {"NodeADD", "NodeUPDATE_NODE_ALLOCATABLE", "PodDELETE", "PodUPDATE_POD_SCALE_DOWN"}),
        (Log.LABELS, {"NodeADD", "NodeUPDATE_NODE_LABEL"}),
        (Log.TAINTS, {"NodeADD", "NodeUPDATE_NODE_TAINT", "UnschedulablePodUPDATE_POD_TOLERATION"}),
        (Log.UNSCHEDULABLE, {"NodeADD", "NodeUPDATE_NODE_TAINT", "UnschedulablePodUPDATE_POD_TOLERATION"}),
        (Log.PORTS, {"NodeADD", "AssignedPodDELETE"}),
        (Log.IMAGES, {"NodeADD"}),
        (Log.LABELS | Log.PORTS, {"NodeADD", "NodeUPDATE_NODE_LABEL", "AssignedPodDELETE"}),
    ],
)
def test_what_a_plugin_reads_gives_the_events_it_registers_for(reads: Log, expected: set[str]) -> None:
    assert labels(default_events(reads)) == expected


@pytest.mark.parametrize(
    "name",
    [names.NODE_RESOURCES_FIT, names.NODE_AFFINITY, names.TAINT_TOLERATION, names.NODE_UNSCHEDULABLE, names.NODE_PORTS],
)
def test_what_an_in_tree_plugin_registers_for_follows_from_what_it_reads(name: str) -> None:
    plugin: Any = IN_TREE[name](None)
    registered = [registration.event for registration in registrations_of(plugin)]
    occurrences = [
        ClusterEvent(resource, action)
        for resource in (Resource.NODE, Resource.ASSIGNED_POD, Resource.UNSCHEDULABLE_POD)
        for action in Action.ALL
        # A pending pod that goes away is no event.
        if (resource, action) != (Resource.UNSCHEDULABLE_POD, Action.DELETE)
        and ("NODE" in str(action.name)) <= (resource is Resource.NODE)
        and ("POD" in str(action.name)) <= (resource is not Resource.NODE)
        # Only an unscheduled pod may be given further tolerations with any effect.
        and (resource, action) != (Resource.ASSIGNED_POD, Action.UPDATE_POD_TOLERATION)
    ]
    for occurrence in occurrences:
        assert any(event.matches(occurrence) for event in default_events(plugin.reads)) == any(
            event.matches(occurrence) for event in registered
        ), occurrence.label


@dataclass
class ReadsUsage:
    name: str = "ReadsUsage"
    reads: Log = Log.USAGE

    def key(self, pod: Pod) -> int:
        return 0

    def prepare(self, pod: Pod) -> None: ...

    def filter(self, state: None, rows: Any) -> None: ...

    def reasons(self, state: None, rows: Any, codes: Any) -> list[Any]:
        return []


@dataclass
class StatesItsEvents(ReadsUsage):
    def registrations(self) -> list[Registration]:
        return [Registration(ce.NODE_DELETE)]


@dataclass
class OnlyGates:
    name: str = "OnlyGates"

    def pre_enqueue(self, pod: Pod) -> Status:
        return SUCCESS


@dataclass
class OnlySorts:
    name: str = "OnlySorts"

    def sort_key(self, pod: Any) -> int:
        return 0


@dataclass
class OnlyPermits:
    name: str = "OnlyPermits"

    def permit(self, state: Any, pod: Pod, node_name: str) -> tuple[Status, float]:
        return SUCCESS, 0.0


@pytest.mark.parametrize(
    ("plugin", "events"),
    [
        (ReadsUsage(), default_events(Log.USAGE)),
        (StatesItsEvents(), {ce.NODE_DELETE}),
        (OnlyGates(), {ce.UNSCHEDULABLE_POD_UPDATE}),
        (OnlyPermits(), {ce.EVERY_EVENT}),
        (OnlySorts(), set()),
    ],
)
def test_every_plugin_that_can_reject_a_pod_has_events_that_wake_it(plugin: Any, events: set[ClusterEvent]) -> None:
    assert {registration.event for registration in registrations_of(plugin)} == events


# -------------------------------------------------------------------------------------------------------------- table


@pytest.mark.row("Q21", "Q53")
def test_a_label_update_of_a_node_is_for_pods_that_node_affinity_rejected() -> None:
    table = a_table(("NodeAffinity", ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL), None))
    assert judge(table, a_rejected("NodeAffinity"), ce.NODE_LABEL_UPDATE) is Requeue.AFTER_BACKOFF
    assert judge(table, a_rejected("NodeAffinity"), ce.NODE_ALLOCATABLE_UPDATE) is Requeue.SKIP
    assert judge(table, a_rejected("NodeResourcesFit"), ce.NODE_LABEL_UPDATE) is Requeue.SKIP
    assert judge(table, a_rejected("NodeResourcesFit", "NodeAffinity"), ce.NODE_LABEL_UPDATE) is Requeue.AFTER_BACKOFF
    assert table.waking_events("default-scheduler", frozenset({"NodeAffinity"})) == (
        "NodeAdd",
        "NodeUpdateNodeLabel",
        "NodeUpdateNodeTaint",
    )


@pytest.mark.parametrize(
    ("first", "second", "rejected", "pending_for", "verdict"),
    [
        (Hint.SKIP, Hint.SKIP, ("P", "Q"), (), Requeue.SKIP),
        (Hint.SKIP, Hint.QUEUE, ("P", "Q"), (), Requeue.AFTER_BACKOFF),
        (Hint.QUEUE, Hint.SKIP, ("P",), ("Q",), Requeue.AFTER_BACKOFF),
        (Hint.QUEUE, Hint.QUEUE, ("P",), ("Q",), Requeue.IMMEDIATELY),
        (Hint.QUEUE, Hint.QUEUE, ("Q",), ("P",), Requeue.IMMEDIATELY),
        (Hint.SKIP, Hint.QUEUE, ("P",), ("Q",), Requeue.IMMEDIATELY),
        (Hint.QUEUE, Hint.QUEUE, (), ("P",), Requeue.IMMEDIATELY),
        (Hint.SKIP, Hint.QUEUE, (), ("P",), Requeue.SKIP),
        (None, Hint.SKIP, ("P",), (), Requeue.AFTER_BACKOFF),
    ],
)
def test_one_plugin_that_says_queue_is_enough_and_one_that_was_pending_skips_the_backoff(
    first: Hint | None, second: Hint, rejected: tuple[str, ...], pending_for: tuple[str, ...], verdict: Requeue
) -> None:
    table = a_table(("P", ce.NODE_ADD, first), ("Q", ce.NODE_ADD, second))
    assert judge(table, a_rejected(*rejected, pending_for=pending_for), ce.NODE_ADD) is verdict


def test_a_hint_that_raises_counts_as_queue_and_is_reported() -> None:
    def broken(pod: Pod, old: Any, new: Any) -> Hint:
        raise ValueError("no such thing")

    failures: list[tuple[str, str]] = []
    table = HintTable({"default-scheduler": {"P": [Registration(ce.NODE_ADD, broken)]}})
    verdict = table.judge(
        a_rejected("P"), ce.NODE_ADD, None, None, lambda plugin, problem: failures.append((plugin, str(problem)))
    )
    assert verdict is Requeue.AFTER_BACKOFF
    assert failures == [("P", "no such thing")]


def test_a_pod_that_no_plugin_holds_or_no_profile_knows_is_worth_an_attempt() -> None:
    table = a_table(("P", ce.NODE_ADD, Hint.SKIP))
    assert judge(table, a_rejected(), ce.NODE_ADD) is Requeue.AFTER_BACKOFF
    assert judge(table, a_rejected("P", scheduler="elsewhere"), ce.NODE_ADD) is Requeue.AFTER_BACKOFF
    assert judge(table, a_rejected("P"), ce.UNSCHEDULABLE_TIMEOUT) is Requeue.AFTER_BACKOFF


def test_an_event_is_of_interest_where_any_plugin_of_any_profile_registered_for_it() -> None:
    table = HintTable({"one": {"P": [Registration(ce.NODE_ADD)]}, "two": {"Q": [Registration(ce.ASSIGNED_POD_DELETE)]}})
    assert table.is_of_interest(ce.NODE_ADD)
    assert table.is_of_interest(ce.ASSIGNED_POD_DELETE)
    assert not table.is_of_interest(ce.NODE_DELETE)
    assert table.is_of_interest(ce.FORCE_ACTIVATE)


def test_a_plugin_registered_for_new_nodes_alone_is_woken_by_every_change_of_taints() -> None:
    table = a_table(
        ("P", ce.NODE_ADD, Hint.SKIP), ("Q", ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT), Hint.SKIP)
    )
    assert judge(table, a_rejected("P"), ce.NODE_ADD) is Requeue.SKIP
    assert judge(table, a_rejected("P"), ce.NODE_TAINT_UPDATE) is Requeue.AFTER_BACKOFF
    assert judge(table, a_rejected("Q"), ce.NODE_TAINT_UPDATE) is Requeue.SKIP


def test_hints_answer_the_same_under_a_stopwatch_that_runs_for_one_in_ten() -> None:
    def moody(pod: Pod, old: Any, new: Any) -> Hint:
        if old == "broken":
            raise ValueError("no such thing")
        return Hint.QUEUE if old else Hint.SKIP

    ticks = iter(range(1_000))
    durations = PreEnqueueDurations(lambda: next(ticks) * 0.0004)
    plain, timed = (HintTable({"default-scheduler": {"P": [Registration(ce.NODE_ADD, moody)]}}) for _ in range(2))
    timed.time_with(durations.timed_hint)
    failures: list[str] = []
    for old in [True] * 10 + [False] * 10 + ["broken"] * 10:
        failures.clear()
        verdicts = [
            table.judge(a_rejected("P"), ce.NODE_ADD, old, None, lambda plugin, _: failures.append(plugin))
            for table in (plain, timed)
        ]
        assert verdicts[0] is verdicts[1]
        assert failures == (["P", "P"] if old == "broken" else [])
    found = {labels: (buckets[-1][1], seconds) for labels, buckets, seconds in durations.hints.histograms()}
    assert found == {("P", "NodeAdd", label): (1, pytest.approx(0.0004)) for label in ("Queue", "QueueSkip", "Error")}


def test_what_was_looked_up_is_kept_until_there_are_more_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "ASKED_MAX", 2)
    monkeypatch.setattr(hint_index, "QUESTIONS_MAX", 2)
    prepared = PreparedHint(lambda pod: UnreadableHint(ValueError(pod.metadata.name)), lambda old, new: Look())
    table = HintTable({"default-scheduler": {name: [Registration(ce.NODE_ADD, prepared)] for name in "PQR"}})
    templates = TemplateHints()

    def found(name: str) -> list[object]:
        pod = QueuedPodInfo(pending(name, template=name), 0.0)
        plugins = frozenset(name)
        return [
            table.prepared("default-scheduler", plugins),
            table.asked("default-scheduler", ce.NODE_ADD, plugins),
            templates.of(pod, prepared),
        ]

    def same(one: list[object], other: list[object]) -> list[bool]:
        return [first is second for first, second in zip(one, other, strict=True)]

    first, second = found("P"), found("Q")
    assert same(found("P"), first) == same(found("Q"), second) == [True] * 3
    third = found("R")
    assert same(found("P"), first) == [False] * 3, "there was room for two"
    assert same(found("R"), third) == [True] * 3
