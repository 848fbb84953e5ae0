"""The queue's fine print: who is asked and how often, what is taken up again, and what is told with each pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from rayched.framework.cluster_event import (
    ASSIGNED_POD_DELETE,
    EVERY_EVENT,
    NODE_ADD,
    NODE_CONDITION_UPDATE,
    Action,
    ClusterEvent,
    Resource,
)
from rayched.framework.queueing_hints import Hint, Look, PreparedHint, ReadsNoLabels, Registration
from rayched.queue.audit import QueueAudit, Standing
from rayched.queue.hint_index import REMEMBERED_MIN
from rayched.queue.hints import HintTable
from rayched.queue.queued_pod import Place
from rayched.queue.requeue_matcher import PIECE
from rayched.queue.scheduling_queue import QueueClosed, finished
from rayched.v1.core_pb2 import Pod
from tests.queue.builders import LABELS_OF_PODS, ON_NODES, Clocked, Gates, a_queue, gated_queue, pending, to

BY_TOLERATION = ClusterEvent(Resource.POD, Action.UPDATE_POD_TOLERATION)


@dataclass(frozen=True)
class Wants(ReadsNoLabels):
    """Whether the app that comes is the pod's; each question is noted down."""

    app: str
    asked: list[str]

    def __hash__(self) -> int:
        return hash(self.app)

    @property
    def keys(self) -> tuple[str, ...]:
        return ("app",)

    def __call__(self, look: Look) -> Hint:
        self.asked.append(self.app)
        return Hint.QUEUE if look.after and look.after["app"] in (self.app, "all") else Hint.SKIP


def prepared(asked: list[str]) -> PreparedHint:
    return PreparedHint(lambda pod: Wants(pod.metadata.labels["app"], asked), lambda old, new: Look(after={"app": str(new)}))


# -------------------------------------------------------------------------------------------------------------- who is asked


def test_pods_without_a_template_that_ask_the_same_are_asked_together() -> None:
    asked: list[str] = []
    q = a_queue({"Fit": [Registration(NODE_ADD, prepared(asked))]})
    for number in range(6):
        q.unschedulable(f"p{number}", labels={"app": "web" if number % 2 else "db"})
    assert to(Place.BACKOFF, q.queue.move_all(NODE_ADD, q.now, new="web")) == ["p1", "p3", "p5"]
    assert sorted(asked) == ["db", "web"]
    assert q.queue.move_all(NODE_ADD, q.now, new="nobody") == () == q.queue.move_all(NODE_ADD, q.now, new="web")
    assert q.queue.verify() == []


def test_what_a_hint_asks_about_a_pod_is_worked_out_once_for_its_template() -> None:
    worked_out: list[str] = []

    def question(pod: Pod) -> Wants:
        worked_out.append(pod.metadata.name)
        return Wants(pod.metadata.labels["app"], [])

    hint = PreparedHint(question, lambda old, new: Look(after={"app": str(new)}))
    q = a_queue({"Fit": [Registration(NODE_ADD, hint)]})
    for name in "ab":
        q.add(name, labels={"app": "web"}, template="web")
        q.pop()
    for app in ("db", "cache", "db"):
        q.queue.move_all(NODE_ADD, q.now, new=app)
    for name in "ab":
        assert to(Place.UNSCHEDULABLE, q.fail(name, "Fit")) == [name]
    assert worked_out == ["a"]


def test_a_class_whose_pods_have_all_left_has_nobody_to_ask() -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD, prepared([]))]})
    q.unschedulable("a", labels={"app": "web"})
    assert to(Place.BACKOFF, q.queue.move_all(NODE_ADD, q.now, new="web")) == ["a"]
    assert q.queue.move_all(NODE_ADD, q.now, new="web") == ()


def test_pods_that_were_left_out_of_an_event_are_asked_when_it_comes_again() -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD, prepared([]))]})
    names = [f"p{number}" for number in range(2 * REMEMBERED_MIN)]
    for name in names:
        q.unschedulable(name, labels={"app": name})
    for lets in (False, True):
        moves = q.queue.move_all(NODE_ADD, q.now, new="all", pre_check=lambda pod, lets=lets: lets)  # type: ignore[misc]
        assert to(Place.BACKOFF, moves) == (names if lets else [])


def test_whoever_is_worth_an_attempt_already_is_not_asked_about_unless_it_may_go_at_once() -> None:
    asked: list[str] = []

    def hint(pod: Pod, old: object, new: object) -> Hint:
        asked.append(pod.metadata.name)
        return Hint.SKIP

    for held, questions in (({"rejected": ["Ports", "Fit"]}, []), ({"rejected": ["Fit"], "pending": ["Ports"]}, ["a"])):
        q = a_queue({"Ports": [Registration(NODE_ADD, hint)], "Fit": [Registration(NODE_ADD)]})
        q.add()
        q.pop()
        q.fail("a", *held["rejected"], pending_plugins=held.get("pending", []))
        assert to(Place.BACKOFF, q.queue.move_all(NODE_ADD, q.now)) == ["a"]
        assert asked == questions


def test_the_pods_of_a_profile_that_nobody_knows_are_woken_by_whatever_is_an_event() -> None:
    q = a_queue({**ON_NODES, "Ports": [Registration(ASSIGNED_POD_DELETE)]})
    q.unschedulable("known", "Fit")
    q.unschedulable("unknown", "Fit", scheduler="other")
    assert q.queue.is_awaited(ASSIGNED_POD_DELETE)
    assert q.queue.move_all(NODE_CONDITION_UPDATE, q.now) == ()
    assert to(Place.BACKOFF, q.queue.move_all(ASSIGNED_POD_DELETE, q.now)) == ["unknown"]


def test_an_event_is_awaited_where_a_class_or_a_gate_waits_for_it() -> None:
    registrations = {"Fit": [Registration(NODE_ADD)], "Gates": [Registration(ASSIGNED_POD_DELETE)]}
    q = a_queue(registrations, pre_enqueue={"default-scheduler": [Gates()]})
    awaited = [(NODE_ADD, "u"), (ASSIGNED_POD_DELETE, "g")]
    assert not any(q.queue.is_awaited(event) for event, _ in awaited)
    q.unschedulable("u", "Fit")
    assert [q.queue.is_awaited(event) for event, _ in awaited] == [True, False]
    q.queue.delete("uid-u", "default/u")
    q.add("g", gates=["g"])
    assert [q.queue.is_awaited(event) for event, _ in awaited] == [False, True]


def test_an_event_that_came_before_costs_no_search_until_a_class_or_gate_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[object] = []
    asked = HintTable.asked

    def counted(self: HintTable, *arguments: Any) -> Any:
        searched.append(arguments)
        return asked(self, *arguments)

    q = a_queue({**ON_NODES, "Ports": [Registration(ASSIGNED_POD_DELETE)]})
    q.unschedulable("a", "Fit")
    q.queue.move_all(ASSIGNED_POD_DELETE, q.now)
    monkeypatch.setattr(HintTable, "asked", counted)
    for _ in range(3):
        q.queue.move_all(ASSIGNED_POD_DELETE, q.now)
    assert searched == []
    q.unschedulable("b", "Ports")
    assert to(Place.BACKOFF, q.queue.move_all(ASSIGNED_POD_DELETE, q.now)) == ["b"] and searched


@pytest.mark.parametrize("n", [PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
def test_an_event_reaches_each_of_many_pods_whatever_they_have_in_common(n: int) -> None:
    names = sorted(f"p{number:03}" for number in range(n))
    for registration, fields in (
        (Registration(NODE_ADD, prepared([])), lambda name: {"labels": {"app": name}}),
        (Registration(NODE_ADD, lambda *_: Hint.QUEUE), lambda name: {"template": name}),
    ):
        q = a_queue({"Fit": [registration]})
        for name in names:
            q.unschedulable(name, **fields(name))
        assert sorted(to(Place.BACKOFF, q.queue.move_all(NODE_ADD, q.now, new="all"))) == names
    q = a_queue({"Gates": [Registration(NODE_ADD)]}, pre_enqueue={"default-scheduler": [gates := Gates()]})
    for name in names:
        q.add(name, gates=["g"])
    asked = gates.asked
    assert q.queue.move_all(NODE_ADD, q.now) == () and gates.asked - asked == n


def test_pods_whose_time_is_over_between_two_pieces_are_moved_once() -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD, lambda *_: Hint.QUEUE)]})
    for name in "abc":
        q.unschedulable(name, template=name)
    moving = q.queue.moving_all(NODE_ADD, q.now)
    next(moving)
    q.now = 301.0
    assert to(Place.ACTIVE, q.queue.flush(q.now)) == ["a", "b", "c"]
    assert finished(moving) == () and q.queue.verify() == []
    assert [q.pop() for _ in range(4)] == ["a", "b", "c", None]


# -------------------------------------------------------------------------------------------------------- adds and updates


@pytest.mark.parametrize("how", ["add", "update"])
def test_a_pod_that_was_deleted_in_flight_and_is_told_of_again_is_a_new_one(how: str) -> None:
    q = a_queue(ON_NODES)
    q.add(nominated="n1")
    q.pop()
    q.queue.delete("uid-a", "default/a")
    moves = q.add() if how == "add" else q.update()
    assert to(Place.ACTIVE, moves) == ["a"]
    assert (q.place(), q.pod().attempts, q.queue.pending().in_flight, q.queue.verify()) == (Place.ACTIVE, 0, 0, [])


def test_the_nomination_follows_the_status_wherever_the_pod_is() -> None:
    for flies in (False, True):
        q = a_queue(ON_NODES)
        q.add()
        if flies:
            q.pop()
        told = []
        for nominated in ("", "n1", "n2", ""):
            q.update(nominated=nominated)
            told.append(q.queue.view(q.pod(), q.now).nominated_node_name)
        assert told == ["", "n1", "n2", ""]


def test_an_update_of_several_events_brings_the_pod_to_its_place_once() -> None:
    q = a_queue({"Fit": [Registration(LABELS_OF_PODS), Registration(BY_TOLERATION)]})
    q.unschedulable("a")
    changed = pending("a", labels={"zone": "west"})
    changed.pod.spec.tolerations.add(key="spot")
    (move,) = q.queue.update(changed, q.now)
    assert (move.event, move.place) == ("UnschedulablePodUpdatePodLabel", Place.BACKOFF)


def test_a_pod_that_changed_is_asked_about_with_those_of_its_new_template() -> None:
    asked: list[str] = []

    def hint(pod: Pod, old: object, new: object) -> Hint:
        asked.append(pod.metadata.name)
        return Hint.SKIP

    q = a_queue({"Fit": [Registration(NODE_ADD, hint)]})
    for name in ("web", "db"):
        q.unschedulable(name, template=name, labels={"app": name})
    q.queue.update(pending("web", "db", labels={"app": "db"}), q.now)
    q.queue.move_all(NODE_ADD, q.now)
    assert asked == ["db"] and q.pod("web").template == "db" and q.queue.verify() == []


def test_only_the_pod_with_the_uid_is_deleted() -> None:
    q = a_queue(ON_NODES)
    q.add()
    assert q.queue.delete("another", "default/a") is Place.NOWHERE and q.place() is Place.ACTIVE
    q.pop()
    assert q.queue.delete("another", "default/a") is Place.NOWHERE and q.place() is Place.IN_FLIGHT


@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_a_pod_that_changed_since_it_was_woken_is_not_judged_by_what_woke_it(seconds: float) -> None:
    """What was worth an attempt then may be worth none for the pod as it is now."""

    def hint(pod: Pod, old: object, new: object) -> Hint:
        return Hint.QUEUE if pod.metadata.labels["app"] == "web" else Hint.SKIP

    q = a_queue({"Fit": [Registration(NODE_ADD, hint)]})
    audit = QueueAudit(q.queue.places, q.queue.hints)
    q.unschedulable("a", labels={"app": "web"})
    q.after(seconds)
    audit.happened(NODE_ADD, None, None, 7)
    q.queue.move_all(NODE_ADD, q.now, position=7)
    assert q.place() is (Place.ACTIVE if seconds else Place.BACKOFF)
    q.update(labels={"app": "db"})
    assert [*audit.faults("uid-a", "default/a", Standing.QUEUED, q.now)] == []


def test_what_woke_a_pod_before_its_last_attempt_is_no_reason_for_the_next_one() -> None:
    q = a_queue({**ON_NODES, "Ports": [Registration(ASSIGNED_POD_DELETE)]})
    audit = QueueAudit(q.queue.places, q.queue.hints)
    q.unschedulable("a", "Fit")
    audit.happened(NODE_ADD, None, None, 7)
    q.after(10).queue.move_all(NODE_ADD, q.now, position=7)
    assert q.pop() == "a"
    q.queue.activate(["default/a"], q.now)
    assert to(Place.BACKOFF, q.fail("a", "Ports")) == ["a"]
    assert [*audit.faults("uid-a", "default/a", Standing.QUEUED, q.now)] == []


# ---------------------------------------------------------------------------------------------------------------- attempts


def test_a_pod_that_is_put_off_needs_no_event_until_it_is_taken_up() -> None:
    q = a_queue(ON_NODES)
    q.add()
    q.pop()
    q.queue.put_off("uid-a")
    q.queue.move_all(NODE_ADD, q.now, position=5)
    assert q.queue.n_events_in_flight == 0
    q.queue.take_up("uid-a", position=9)
    assert q.queue.places.in_flight.position == 9
    q.queue.move_all(NODE_ADD, q.now, position=9)
    assert q.queue.n_events_in_flight == 1
    assert to(Place.UNSCHEDULABLE, q.fail("a", "Fit")) == ["a"], "it has seen what happened up to 9"


def test_every_entry_of_the_log_moves_its_position_also_where_nobody_cares() -> None:
    q = a_queue(ON_NODES)
    positions = []
    for step in (
        lambda: q.queue.add(pending("a"), q.now, position=3),
        lambda: q.queue.update(pending("a"), q.now, position=5),
        lambda: q.queue.move_all(NODE_CONDITION_UPDATE, q.now, position=7),
        lambda: q.queue.move_all(NODE_ADD, q.now),
        lambda: q.add("b"),
        lambda: q.update("b"),
        lambda: q.queue.take_up("uid-b"),
    ):
        step()
        positions.append(q.queue.places.in_flight.position)
    assert positions == [3, 5, 7, 8, 9, 10, 11]


def test_what_is_given_back_after_its_deletion_is_gone() -> None:
    q = a_queue()
    q.add()
    q.pop()
    q.queue.delete("uid-a", "default/a")
    assert q.queue.give_back(["uid-a"], q.now) == () and q.queue.pending().total == 0


def test_a_closed_queue_gives_batches_until_it_is_empty() -> None:
    q = a_queue()
    for name in "abc":
        q.after(1).add(name)
    assert q.queue.pop_batch(0, q.now) == []
    q.queue.close()
    assert [pod.pod.metadata.name for pod in q.queue.pop_batch(2, q.now)] == ["a", "b"]
    assert [pod.pod.metadata.name for pod in q.queue.pop_batch(5, q.now)] == ["c"]
    assert q.queue.scheduling_cycle == 3
    with pytest.raises(QueueClosed):
        q.queue.pop_batch(5, q.now)


# ------------------------------------------------------------------------------------------------------------------- views


def seconds_told(q: Clocked, name: str) -> tuple[float, float | None]:
    view = q.queue.view(q.pod(name), q.now)
    return view.backoff_left_seconds, view.flush_in_seconds


def test_what_a_pod_waits_for_is_told_where_it_waits_and_never_below_nothing() -> None:
    q = gated_queue()
    q.unschedulable("u")
    q.add("e")
    q.pop()
    q.fail("e")
    q.add("woken")
    q.pop()
    q.queue.activate(["default/woken"], q.now)
    q.fail("woken", "Fit")
    q.queue.activate(["default/woken"], q.now)
    q.add("g", gates=["g"])
    q.after(0.5)
    assert [seconds_told(q, name) for name in ("u", "e", "woken", "g")] == [(1.5, 299.5), (1.5, None), (0.0, None), (0.0, None)]
    q.now = 2.5
    assert [seconds_told(q, name)[0] for name in ("u", "e")] == [0.0, 0.0]
    q.now = 400.0
    assert seconds_told(q, "u") == (0.0, 0.0)


@pytest.mark.parametrize("rest", [0.0, 1e-9])
def test_time_that_is_over_for_nobody_but_a_gated_pod_wakes_nobody_in_flight(rest: float) -> None:
    q = gated_queue()
    q.add("g", gates=["g"])
    q.after(10.0).unschedulable("u")
    q.add("f")
    assert q.pop() == "f"
    q.now = 310.0 - rest
    assert q.queue.flush(q.now) == ()
    assert to(Place.UNSCHEDULABLE, q.fail("f", "Fit")) == ["f"]


def test_an_event_for_everybody_wakes_all_but_the_gated() -> None:
    q = gated_queue()
    q.add("g", gates=["g"])
    q.unschedulable("u")
    q.unschedulable("o", "Other")
    assert to(Place.BACKOFF, q.queue.move_all(EVERY_EVENT, q.now)) == ["u", "o"]
    assert q.place("g") is Place.GATED


def test_a_pod_that_names_its_scheduler_belongs_to_it() -> None:
    assert [pending("a", scheduler=name).scheduler_name for name in ("", "other")] == ["default-scheduler", "other"]
