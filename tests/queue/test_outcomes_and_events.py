"""What becomes of a pod whose attempt failed, and which events wake it, under a clock that the test turns."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.framework.cluster_event import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    EVERY_EVENT,
    NODE_ADD,
    NODE_LABEL_UPDATE,
    Action,
    ClusterEvent,
    Resource,
)
from rayched.framework.queueing_hints import Hint, HintFunction, Registration
from rayched.queue.audit import QueueAudit, Standing
from rayched.queue.event_batch import EventBatch
from rayched.queue.hints import default_events
from rayched.queue.in_flight import InFlightPods
from rayched.queue.queued_pod import Move, Place
from rayched.queue.scheduling_queue import AlreadyQueued, NotInFlight
from rayched.snapshot.columns import Log
from rayched.v1.core_pb2 import Pod
from tests.queue.builders import ON_NODES, a_pod, a_queue, gated_queue, to

# -------------------------------------------------------------------------------------------------------------- outcomes


@pytest.mark.row("D5")
def test_a_pod_that_was_scheduled_is_in_no_queue() -> None:
    q = a_queue()
    q.add(nominated="n1")
    q.pop()
    assert q.queue.done("uid-a")
    assert not q.queue.done("uid-a")
    assert (q.queue.pending().total, q.queue.nominator.node_of("uid-a")) == (0, "")


@pytest.mark.row("Q40")
@pytest.mark.parametrize("queue", ["active", "backoff", "unschedulable"])
def test_an_outcome_for_a_pod_that_is_in_a_queue_is_an_error(queue: str) -> None:
    q = a_queue(ON_NODES)
    q.add()
    if queue != "active":
        q.pop()
        q.fail("a", *(["Fit"] if queue == "unschedulable" else []))
    with pytest.raises(AlreadyQueued, match=f"pod default/a is already present in the {queue} queue"):
        q.fail("a", "Fit")


def test_an_outcome_for_a_pod_that_was_never_handed_out_is_an_error() -> None:
    with pytest.raises(NotInFlight, match="uid-a is neither in flight nor in the queue"):
        a_queue().fail("a", "Fit")


def test_nobody_makes_the_objects_of_events_that_the_pods_plugins_did_not_register_for() -> None:
    def make() -> list[object]:
        raise AssertionError("the objects were made")

    q = a_queue({**ON_NODES, "Other": [Registration(ASSIGNED_POD_ADD)]})
    audit = QueueAudit(q.queue.places, q.queue.hints)
    q.unschedulable("w")
    q.add()
    assert q.pop() == "a"
    news = EventBatch(2, make)
    audit.happened(ASSIGNED_POD_ADD, None, None, 7, news=news)
    q.queue.move_all_for_each(ASSIGNED_POD_ADD, q.now, news, position=7)
    q.fail("a", "Fit")
    assert (q.place("a"), q.place("w")) == (Place.UNSCHEDULABLE, Place.UNSCHEDULABLE)
    assert list(audit.faults("uid-w", "default/w", Standing.QUEUED, q.now)) == []
    q.after(60).add("b")
    assert q.pop() == "b"
    q.queue.move_all_for_each(ASSIGNED_POD_ADD, q.now, news, position=20)
    with pytest.raises(AssertionError, match="the objects were made"):
        q.fail("b", "Other")


@pytest.mark.row("Q41")
def test_a_failed_attempt_starts_a_new_wait_and_says_who_rejected_the_pod() -> None:
    q = a_queue(ON_NODES)
    q.add(priority=7)
    q.after(3).pop()
    q.after(0.5).fail("a", "Fit", "Ports", pending_plugins=["Volumes"])
    assert q.queue.held == {(plugin, "default-scheduler"): 1 for plugin in ("Fit", "Ports", "Volumes")}
    pod, view = q.pod(), q.queue.view(q.pod(), 4.0)
    assert (pod.timestamp, pod.initial_attempt, pod.attempts, pod.unschedulable_count) == (3.5, 0, 1, 1)
    assert (view.place, view.priority, view.attempts, view.held_by) == (Place.UNSCHEDULABLE, 7, 1, ("Fit", "Ports", "Volumes"))
    assert (view.backoff_left_seconds, view.flush_in_seconds) == (1.0, 299.5)
    assert view.woken_by == ("NodeAdd", "NodeUpdateNodeTaint")


def test_errors_and_rejections_are_counted_apart() -> None:
    q = a_queue(ON_NODES)
    q.add()
    seen = []
    for plugins in ([], [], ["Fit"], [], ["Fit"]):
        assert q.pop() == "a"
        q.fail("a", *plugins)
        seen.append((q.pod().unschedulable_count, q.pod().consecutive_errors, q.queue.places.backoff.ends(q.pod()) - q.now))
        q.after(20).queue.move_all(EVERY_EVENT, q.now)
        q.queue.flush(q.now)
    assert seen == [(0, 1, 1), (0, 2, 2), (1, 0, 1), (1, 1, 1), (2, 0, 2)]


@pytest.mark.row("Q43", "Q16")
@pytest.mark.parametrize(("given", "kept"), [(None, "n1"), ("", ""), ("n2", "n2")])
def test_a_failed_attempt_keeps_ends_or_changes_the_nomination(given: str | None, kept: str) -> None:
    q = a_queue(ON_NODES)
    q.add(nominated="n1")
    q.pop()
    q.queue.add_unschedulable("uid-a", q.now, unschedulable_plugins=["Fit"], nominated_node_name=given)
    assert q.queue.nominator.node_of("uid-a") == q.queue.view(q.pod(), q.now).nominated_node_name == kept
    q.queue.delete("uid-a", "default/a")
    assert q.queue.nominator.node_of("uid-a") == ""


@pytest.mark.row("Q42", "D12", "D13")
def test_an_event_during_the_attempt_sends_the_pod_to_backoff() -> None:
    q = a_queue(ON_NODES)
    q.add()
    q.pop()
    q.queue.move_all(NODE_ADD, q.now)
    assert q.fail("a", "Fit") == (Move("uid-a", "default/a", "ScheduleAttemptFailure", Place.BACKOFF),)


@pytest.mark.row("D4")
@pytest.mark.parametrize(
    ("plugins", "event", "place"),
    [
        ([], None, Place.ERROR_BACKOFF),
        (["Fit"], None, Place.UNSCHEDULABLE),
        (["Fit"], NODE_ADD, Place.BACKOFF),
        (["Fit"], ASSIGNED_POD_DELETE, Place.UNSCHEDULABLE),
        (["Fit"], EVERY_EVENT, Place.BACKOFF),
    ],
)
def test_where_a_failed_pod_goes(plugins: list[str], event: ClusterEvent | None, place: Place) -> None:
    q = a_queue(ON_NODES)
    q.add()
    q.pop()
    if event is not None:
        q.queue.move_all(event, q.now)
    q.fail("a", *plugins)
    assert q.place() is place


def test_only_events_after_the_cycle_began_are_replayed() -> None:
    q = a_queue(ON_NODES)
    for name in "ab":
        q.add(name)
        q.pop()
    q.queue.move_all(NODE_ADD, q.now, position=7)
    outcome = {"unschedulable_plugins": ["Fit"]}
    assert to(Place.BACKOFF, q.queue.add_unschedulable("uid-a", q.now, began=6, **outcome)) == ["a"]  # type: ignore[arg-type]
    assert to(Place.UNSCHEDULABLE, q.queue.add_unschedulable("uid-b", q.now, began=7, **outcome)) == ["b"]  # type: ignore[arg-type]


def test_a_cycle_cannot_have_begun_before_its_pod_was_popped() -> None:
    q = a_queue(ON_NODES)
    q.unschedulable("early")
    q.queue.move_all(NODE_ADD, q.now, position=5)
    assert q.pop() == "early"
    moves = q.queue.add_unschedulable("uid-early", q.now, unschedulable_plugins=["Fit"], began=4)
    assert to(Place.UNSCHEDULABLE, moves) == ["early"]


def test_a_pod_in_flight_for_so_long_that_events_were_forgotten_is_tried_again() -> None:
    q = a_queue({**ON_NODES, "Ports": [Registration(ASSIGNED_POD_DELETE)]})
    q.queue.places.in_flight = InFlightPods(limit=10)
    for name in "ab":
        q.add(name)
    assert q.pop() == "a"
    for _ in range(50):
        q.queue.move_all(ASSIGNED_POD_DELETE, q.now)
    assert q.pop() == "b"
    assert to(Place.BACKOFF, q.fail("a", "Fit")) == ["a"]
    assert to(Place.UNSCHEDULABLE, q.fail("b", "Fit")) == ["b"]


def test_a_pod_that_was_not_begun_goes_back_as_if_it_had_not_been_popped() -> None:
    q = a_queue()
    for name in "abc":
        q.after(1).add(name)
    assert len(q.queue.pop_batch(3, q.now)) == 3
    q.queue.delete("uid-c", "default/c")
    assert to(Place.ACTIVE, q.queue.give_back(["uid-b", "uid-a", "uid-c", "unknown"], q.now)) == ["b", "a"]
    assert (q.pod("a").attempts, q.pod("a").timestamp) == (0, 1)
    assert (q.pop(), q.pop(), q.pop()) == ("a", "b", None)
    assert q.queue.verify() == []


# ---------------------------------------------------------------------------------------------------------------- events


@pytest.mark.row("Q21", "Q52")
def test_an_event_moves_only_pods_whose_plugins_registered_for_it() -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD)], "Ports": [Registration(ASSIGNED_POD_DELETE)]})
    q.unschedulable("a", "Fit")
    q.unschedulable("b", "Ports")
    q.unschedulable("c", "Fit", "Ports")
    assert to(Place.BACKOFF, q.queue.move_all(ASSIGNED_POD_DELETE, q.now)) == ["b", "c"]
    assert q.place("a") is Place.UNSCHEDULABLE


@pytest.mark.row("Q51")
def test_a_pod_that_the_pre_check_leaves_out_is_not_moved() -> None:
    q = a_queue(ON_NODES)
    q.unschedulable("low", priority=1)
    q.unschedulable("high", priority=9)
    assert to(Place.BACKOFF, q.queue.move_all(NODE_ADD, q.now, pre_check=lambda pod: pod.priority < 5)) == ["low"]
    assert q.place("high") is Place.UNSCHEDULABLE


@pytest.mark.row("Q54")
@pytest.mark.parametrize(("seconds", "place"), [(0.0, Place.BACKOFF), (1.999, Place.BACKOFF), (2.0, Place.ACTIVE)])
def test_a_woken_pod_goes_to_backoff_while_it_is_backing_off_and_else_to_active(seconds: float, place: Place) -> None:
    q = a_queue(ON_NODES)
    q.unschedulable()
    assert q.queue.move_all(NODE_ADD, seconds) == (Move("uid-a", "default/a", "NodeAdd", place),)


def test_a_pending_plugin_that_says_queue_skips_the_backoff() -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD)], "Volumes": [Registration(NODE_ADD)]})
    q.add()
    q.pop()
    q.fail("a", "Fit", pending_plugins=["Volumes"])
    assert to(Place.ACTIVE, q.queue.move_all(NODE_ADD, q.now)) == ["a"]


@pytest.mark.parametrize(("says", "place"), [(Hint.QUEUE, Place.ACTIVE), (Hint.SKIP, Place.BACKOFF)])
def test_a_pending_plugin_is_asked_although_another_has_said_queue(says: Hint, place: Place) -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD)], "Volumes": [Registration(NODE_ADD, lambda *_: says)]})
    q.add()
    q.pop()
    q.fail("a", "Fit", pending_plugins=["Volumes"])
    assert to(place, q.queue.move_all(NODE_ADD, q.now)) == ["a"]


@pytest.mark.parametrize(
    ("plugin", "pending", "events", "place", "told", "woken_at"),
    [
        ("Fit", "", ["Fit", "Fit"], Place.BACKOFF, ["Fit 11"], 11),
        ("Fit", "", ["", "Fit", "Fit"], Place.BACKOFF, [" 11", "Fit 12"], 12),
        ("Fit", "Volumes", ["Fit", "Volumes", "Fit"], Place.ACTIVE, ["Fit 11", "Volumes 12"], 12),
        ("Fit", "Volumes", ["Volumes", "Fit"], Place.ACTIVE, ["Volumes 11"], 11),
        ("Fit", "Volumes", ["Fit", ""], Place.BACKOFF, ["Fit 11", " 12"], 11),
        ("Fit", "Volumes", ["", ""], Place.UNSCHEDULABLE, [" 11", " 12"], 0),
    ],
)
def test_a_replay_ends_with_the_first_event_after_which_no_other_could_do_more(
    plugin: str, pending: str, events: list[str], place: Place, told: list[str], woken_at: int
) -> None:
    """Each event here helps one plugin. `told`: the events that hints were asked about, and their positions."""
    asked: list[str] = []

    def hint_of(name: str) -> HintFunction:
        def hint(pod: Pod, old: object, new: object) -> Hint:
            asked.append(str(new))
            return Hint.QUEUE if str(new).startswith(name) else Hint.SKIP

        return hint

    q = a_queue({name: [Registration(NODE_ADD, hint_of(name))] for name in ("Fit", "Volumes")})
    q.add()
    q.pop()
    for position, helped in enumerate(events, start=11):
        q.queue.move_all(NODE_ADD, q.now, new=f"{helped} {position}", position=position)
    assert asked == []
    q.fail("a", plugin, pending_plugins=[pending] if pending else [])
    assert (q.place(), list(dict.fromkeys(asked)), q.pod().woken_at) == (place, told, woken_at)


def test_hints_see_the_pod_and_the_objects_before_and_after() -> None:
    seen: list[Any] = []

    def hint(pod: Pod, old: object, new: object) -> Hint:
        seen.append((pod.metadata.name, old, new))
        return Hint.SKIP

    q = a_queue({"Fit": [Registration(NODE_LABEL_UPDATE, hint)]})
    q.unschedulable("a")
    q.queue.move_all(NODE_LABEL_UPDATE, q.now, old="before", new="after")
    assert seen == [("a", "before", "after")]
    assert q.place("a") is Place.UNSCHEDULABLE


def test_one_hint_answers_for_all_pods_of_a_template() -> None:
    asked: list[str] = []

    def hint(pod: Pod, old: object, new: object) -> Hint:
        asked.append(pod.metadata.name)
        return Hint.QUEUE if pod.metadata.labels["app"] == "web" else Hint.SKIP

    q = a_queue({"Fit": [Registration(NODE_ADD, hint)]})
    for i in range(20):
        q.unschedulable(f"web-{i}", labels={"app": "web"}, template="web")
        q.unschedulable(f"db-{i}", labels={"app": "db"}, template="db")
    q.unschedulable("loner", labels={"app": "db"})
    assert len(to(Place.BACKOFF, q.queue.move_all(NODE_ADD, q.now))) == 20
    assert asked == ["web-0", "db-0", "loner"]


@pytest.mark.row("Q56")
def test_a_shrunken_pod_wakes_pods_that_lacked_resources() -> None:
    q = a_queue(
        {"Fit": [Registration(event) for event in default_events(Log.USAGE)], "Affinity": [Registration(ASSIGNED_POD_ADD)]}
    )
    q.unschedulable("a", "Fit")
    q.unschedulable("b", "Affinity")
    shrunk = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
    assert to(Place.BACKOFF, q.queue.move_all(shrunk, q.now)) == ["a"]


@pytest.mark.row("D1", "D13")
def test_a_binding_wakes_the_pod_whose_affinity_it_satisfies() -> None:
    def matches_the_term(pod: Pod, old: object, new: object) -> Hint:
        assert isinstance(new, Pod)
        return Hint.QUEUE if new.metadata.labels["app"] == pod.metadata.labels["near"] else Hint.SKIP

    q = a_queue({"InterPodAffinity": [Registration(ASSIGNED_POD_ADD, matches_the_term)]})
    q.unschedulable("a", "InterPodAffinity", labels={"near": "db"})
    q.unschedulable("b", "InterPodAffinity", labels={"near": "web"})
    bound = a_pod("db", labels={"app": "db"})
    assert to(Place.BACKOFF, q.queue.move_all(ASSIGNED_POD_ADD, q.now, new=bound)) == ["a"]
    assert q.place("b") is Place.UNSCHEDULABLE


@pytest.mark.row("D11")
@pytest.mark.parametrize("resource", [resource for resource in Resource if resource is not Resource.WILDCARD])
def test_every_kind_of_object_can_wake_a_pod(resource: Resource) -> None:
    q = a_queue({"P": [Registration(ClusterEvent(resource, Action.ADD))]})
    q.unschedulable("a", "P")
    moves = q.queue.move_all(ClusterEvent(resource, Action.ADD), q.now)
    assert [(move.event, move.place) for move in moves] == [(f"{resource}Add", Place.BACKOFF)]


def test_an_event_that_nobody_registered_for_is_not_even_kept_for_pods_in_flight() -> None:
    q = a_queue(ON_NODES)
    q.add()
    q.pop()
    q.queue.move_all(ASSIGNED_POD_DELETE, q.now)
    assert q.queue.n_events_in_flight == 0
    q.queue.move_all(NODE_ADD, q.now)
    assert q.queue.n_events_in_flight == 1


def test_a_hint_that_raises_wakes_the_pod_and_is_counted() -> None:
    def broken(pod: Pod, old: object, new: object) -> Hint:
        raise KeyError("zone")

    q = a_queue({"Fit": [Registration(NODE_ADD, broken)]})
    q.unschedulable("a")
    assert to(Place.BACKOFF, q.queue.move_all(NODE_ADD, q.now)) == ["a"]
    assert q.queue.hint_failures == {"Fit": 1}
    (told,) = q.queue.raised.take()
    assert told.startswith('a queueing hint of plugin "Fit" failed\nTraceback') and told.endswith("KeyError: 'zone'")
    assert 'raise KeyError("zone")' in told


@pytest.mark.row("Q38")
def test_activating_ignores_the_backoff_and_leaves_active_pods_alone() -> None:
    q = a_queue(ON_NODES)
    q.unschedulable("a")
    q.add("b")
    q.pop()
    q.fail("b")
    q.add("c")
    moves = q.queue.activate(["default/a", "default/b", "default/c", "default/absent"], q.now)
    assert [(move.key, move.event, move.place) for move in moves] == [
        ("default/a", "ForceActivate", Place.ACTIVE),
        ("default/b", "ForceActivate", Place.ACTIVE),
    ]


def test_activating_a_pod_in_flight_has_it_tried_again_after_it_fails() -> None:
    q = a_queue(ON_NODES)
    for name in "ab":
        q.add(name)
        q.pop()
    assert q.queue.activate(["default/a"], q.now) == ()
    assert to(Place.BACKOFF, q.fail("a", "Fit")) == ["a"]
    assert to(Place.UNSCHEDULABLE, q.fail("b", "Fit")) == ["b"]


@pytest.mark.row("Q39")
def test_activating_a_gated_pod_leaves_it_gated() -> None:
    q = gated_queue()
    q.add("a", gates=["g"])
    assert q.queue.activate(["default/a"], q.now) == ()
    assert q.place("a") is Place.GATED
