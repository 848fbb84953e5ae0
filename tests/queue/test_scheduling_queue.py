"""Pods that come, change, leave and are let in or gated, one rule a test, under a clock that the test turns."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from rayched.framework.cluster_event import (
    EVERY_EVENT,
    NODE_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    Resource,
)
from rayched.framework.queueing_hints import Look, PreparedHint, Registration
from rayched.framework.status import SUCCESS, Status, error, unresolvable
from rayched.queue.hint_index import UnreadableHint
from rayched.queue.hints import HintTable
from rayched.queue.queued_pod import Move, PendingPod, Place
from rayched.queue.scheduling_queue import QueueClosed, SchedulingQueue
from rayched.v1.core_pb2 import Pod
from tests.queue.builders import (
    GATES_GONE,
    LABELS_OF_PODS,
    ON_NODES,
    Gates,
    a_pod,
    a_queue,
    by_priority,
    gated_queue,
    pending,
    to,
)

# ------------------------------------------------------------------------------------------------------ order of leaving


@pytest.mark.row("Q28", "D16")
def test_higher_priority_leaves_first_and_among_equals_who_came_first() -> None:
    q = a_queue()
    for name, priority in (("low", 1), ("first", 5), ("second", 5), ("high", 9)):
        q.after(0.001).add(name, priority=priority)
    assert [pod.pod.metadata.name for pod in q.queue.pop_batch(10, q.now)] == ["high", "first", "second", "low"]


@pytest.mark.row("Q27", "D16")
def test_another_queue_sort_gives_another_order() -> None:
    q = a_queue(sort_key=lambda pod: pod.key)
    for name in "cab":
        q.add(name, priority=ord(name))
    assert [q.pop() for _ in range(3)] == ["a", "b", "c"]


@pytest.mark.row("Q45")
def test_a_pod_in_active_q_jumps_ahead_when_its_priority_rises() -> None:
    q = a_queue()
    q.add("a", priority=5)
    q.after(1).add("b", priority=1)
    assert q.update("b", priority=9) == ()
    assert q.pod("b").timestamp == 1
    assert q.pop() == "b"


def test_a_pod_is_popped_from_backoff_q_only_when_active_q_is_empty() -> None:
    q = a_queue()
    q.add("a", priority=9)
    q.pop()
    q.queue.move_all(EVERY_EVENT, q.now)
    q.fail("a", "Fit")
    q.add("b")
    assert q.place("a") is Place.BACKOFF
    assert (q.pop(), q.pop(), q.pop()) == ("b", "a", None)
    assert q.queue.incoming["active", "PopFromBackoffQ"] == 1


def test_a_pod_in_error_backoff_waits_even_while_active_q_is_empty() -> None:
    q = a_queue()
    q.add()
    q.pop()
    assert to(Place.ERROR_BACKOFF, q.fail()) == ["a"]
    assert q.pop() is None
    assert q.queue.flush(1.999) == ()
    assert to(Place.ACTIVE, q.queue.flush(2.0)) == ["a"]


@pytest.mark.row("Q19", "Q44")
def test_each_pop_counts_an_attempt_and_a_cycle() -> None:
    q = a_queue(ON_NODES)
    q.unschedulable("a")
    q.after(5).queue.move_all(NODE_ADD, q.now)
    assert q.queue.pop(q.now) is q.pod("a")
    assert (q.pod("a").attempts, q.queue.scheduling_cycle) == (2, 2)


@pytest.mark.row("Q44", "Q59")
def test_a_closed_queue_gives_out_what_it_has_and_then_says_that_it_is_closed() -> None:
    q = a_queue()
    q.add()
    q.queue.close()
    assert q.pop() == "a"
    with pytest.raises(QueueClosed, match="scheduling queue is closed"):
        q.pop()


# -------------------------------------------------------------------------------------------------- add, update, delete


@pytest.mark.row("Q33")
def test_a_pod_that_is_submitted_twice_is_there_once() -> None:
    q = a_queue(ON_NODES)
    q.unschedulable("a")
    assert to(Place.ACTIVE, q.add("a")) == ["a"]
    assert q.queue.pending().total == 1
    assert q.pop() == "a"
    assert q.add("a") == ()
    assert q.place("a") is Place.IN_FLIGHT
    assert q.pop() is None
    assert q.queue.verify() == []


@pytest.mark.row("D2")
def test_a_pod_that_has_a_node_is_never_queued() -> None:
    q, pod = a_queue(), a_pod()
    pod.spec.node_name = "n1"
    assert q.queue.add(PendingPod.of(pod), 0.0) == ()
    assert q.queue.update(PendingPod.of(pod), 0.0) == ()
    assert q.queue.pending().total == 0


def test_a_new_pod_of_an_old_name_replaces_the_one_whose_deletion_was_missed() -> None:
    q = a_queue(ON_NODES)
    q.add("a", uid="old", nominated="n1")
    assert to(Place.ACTIVE, q.add("a", uid="new")) == ["a"]
    assert (q.queue.pending().total, q.pod("a").uid, q.queue.nominator.node_of("old")) == (1, "new", "")
    assert q.pop() == "a"
    q.add("a", uid="newest")
    assert q.queue.add_unschedulable("new", q.now, unschedulable_plugins=["Fit"]) == ()
    assert (q.place("a"), q.pod("a").uid) == (Place.ACTIVE, "newest")
    assert q.queue.verify() == []


@pytest.mark.row("Q48")
def test_an_update_of_an_unknown_pod_adds_it() -> None:
    q = a_queue()
    assert q.update("a") == (Move("uid-a", "default/a", "UnschedulablePodUpdate", Place.ACTIVE),)


@pytest.mark.row("Q46")
def test_an_update_that_a_rejecting_plugin_asked_for_wakes_the_pod() -> None:
    q = a_queue({"Fit": [Registration(LABELS_OF_PODS)], "Other": [Registration(NODE_ADD)]})
    q.unschedulable("a", "Fit")
    q.unschedulable("b", "Fit")
    q.unschedulable("c", "Other")
    assert to(Place.BACKOFF, q.update("a", labels={"app": "web"})) == ["a"]
    assert q.update("c", labels={"app": "web"}) == ()
    assert to(Place.ACTIVE, q.after(10).update("b", labels={"app": "web"})) == ["b"]


@pytest.mark.row("Q47")
def test_an_update_of_the_status_alone_is_stored_and_wakes_nobody() -> None:
    q = a_queue({"Fit": [Registration(ClusterEvent(Resource.POD, Action.UPDATE))]})
    q.unschedulable("a")
    assert q.after(10).update("a", nominated="n1") == ()
    assert q.place("a") is Place.UNSCHEDULABLE
    assert q.pod("a").pod.status.nominated_node_name == "n1"
    assert to(Place.ACTIVE, q.update("a", nominated="n1", labels={"app": "web"})) == ["a"]


def test_a_pods_own_update_during_its_attempt_wakes_it_and_no_other() -> None:
    q = a_queue({"Fit": [Registration(LABELS_OF_PODS)]})
    for name in "ab":
        q.add(name)
        q.pop()
    assert q.update("a", labels={"app": "web"}) == ()
    assert to(Place.BACKOFF, q.fail("a", "Fit")) == ["a"]
    assert q.pod("a").pod.metadata.labels["app"] == "web"
    assert to(Place.UNSCHEDULABLE, q.fail("b", "Fit")) == ["b"]


@pytest.mark.row("Q50")
def test_deleting_reaches_a_pod_wherever_it_is_and_may_be_repeated() -> None:
    q = gated_queue()
    q.unschedulable("unschedulable")
    for name in ("error", "flying", "backoff"):
        q.add(name)
        q.pop()
    q.fail("error")
    q.queue.move_all(NODE_ADD, q.now)
    q.fail("backoff", "Fit")
    q.add("gated", gates=["g"])
    q.add("active")
    where = {name: q.place(name) for name in ("error", "flying", "backoff", "gated", "active")}
    assert {str(place) for place in where.values()} == {"error_backoff", "in_flight", "backoff", "gated", "active"}
    for name, place in where.items():
        assert q.queue.delete(f"uid-{name}", f"default/{name}") is place
        assert q.queue.delete(f"uid-{name}", f"default/{name}") is Place.NOWHERE
        assert q.place(name) is Place.NOWHERE
        assert q.queue.verify() == []
    assert q.fail("flying", "Fit") == ()
    assert (q.place("flying"), q.queue.pending().in_flight) == (Place.NOWHERE, 0)


# ------------------------------------------------------------------------------------------------------------ PreEnqueue


@pytest.mark.row("Q32", "Q34", "Q35")
def test_a_pod_that_pre_enqueue_refuses_is_gated_and_says_by_whom() -> None:
    q = gated_queue()
    assert q.add("a", gates=["g"]) == (Move("uid-a", "default/a", "UnschedulablePodAdd", Place.GATED),)
    view = q.queue.view(q.pod("a"), q.now)
    assert (view.gating_plugin, view.gating_reasons, view.held_by) == ("Gates", ("gates are closed",), ("Gates",))
    assert view.woken_by == ("PodUpdatePodSchedulingGatesEliminated",)
    assert q.pop() is None


@dataclass
class Answers:
    """A PreEnqueue plugin with a fixed answer."""

    name: str
    answer: Status | Exception
    calls: list[str]

    def pre_enqueue(self, pod: Pod) -> Status:
        self.calls.append(self.name)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.row("Q35")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (unresolvable("not yet"), "not yet"),
        (error("broken"), "broken"),
        (ValueError("no"), 'running PreEnqueue plugin "Second": ValueError: no'),
    ],
)
def test_the_first_refusal_ends_pre_enqueue(answer: Status | Exception, reason: str) -> None:
    calls: list[str] = []
    plugins = [Answers("First", SUCCESS, calls), Answers("Second", answer, calls), Answers("Third", SUCCESS, calls)]
    q = a_queue(pre_enqueue={"default-scheduler": plugins})
    q.add()
    assert calls == ["First", "Second"]
    assert (q.place(), q.pod().gating_plugin, q.pod().gating_reasons) == (Place.GATED, "Second", (reason,))
    calls.clear()
    q.queue.activate(["default/a"], q.now)
    assert calls == ["Second"]


@pytest.mark.row("Q22")
def test_two_profiles_gate_differently() -> None:
    queue = SchedulingQueue(by_priority, HintTable({}), pre_enqueue={"strict": [Gates()], "lax": []})
    for scheduler, place in (("strict", Place.GATED), ("lax", Place.ACTIVE), ("", Place.ACTIVE)):
        moves = queue.add(pending(scheduler or "none", scheduler=scheduler, gates=["g"]), 0.0)
        assert [move.place for move in moves] == [place]


@pytest.mark.row("Q25")
def test_a_pod_whose_gates_are_removed_leaves_all_counters_at_zero() -> None:
    q = gated_queue()
    q.add("a", gates=["g"])
    q.add("b", gates=["g"])
    assert (q.queue.pending().gated, q.queue.pending().unschedulable) == (2, 0)
    assert q.queue.held["Gates", "default-scheduler"] == 2
    assert to(Place.ACTIVE, q.update("a")) == ["a"]
    q.queue.delete("uid-b", "default/b")
    q.pop()
    assert (q.queue.pending().gated, q.queue.pending().unschedulable) == (0, 0)
    assert q.queue.held["Gates", "default-scheduler"] == 0


def test_a_pod_that_was_let_in_is_not_asked_again_when_its_backoff_is_over() -> None:
    gates = Gates()
    q = a_queue(ON_NODES, pre_enqueue={"default-scheduler": [gates]})
    q.add()
    q.pop()
    q.fail()
    assert gates.asked == 2
    q.queue.flush(5.0)
    assert (q.place(), gates.asked) == (Place.ACTIVE, 2)


def test_events_reach_a_gated_pod_only_if_its_gate_registered_for_them() -> None:
    gates = Gates()
    q = a_queue({"Gates": GATES_GONE, **ON_NODES}, pre_enqueue={"default-scheduler": [gates]})
    q.add("a", gates=["g"])
    q.queue.move_all(NODE_ADD, q.now)
    q.queue.move_all(UNSCHEDULABLE_TIMEOUT, q.now)
    assert gates.asked == 1
    reacting = Gates()
    q = a_queue({"Gates": [Registration(NODE_ADD)]}, pre_enqueue={"default-scheduler": [reacting]})
    q.add("a", gates=["g"])
    assert q.queue.move_all(NODE_ADD, q.now) == ()
    assert (reacting.asked, q.place("a")) == (2, Place.GATED)
    reacting.name = "Gates"
    q.pod("a").pod.spec.ClearField("scheduling_gates")
    assert to(Place.ACTIVE, q.queue.move_all(NODE_ADD, q.now)) == ["a"]


def test_an_update_of_a_pod_that_took_anothers_name_puts_it_in_that_ones_place() -> None:
    q = a_queue(ON_NODES)
    q.unschedulable("a")
    assert to(Place.ACTIVE, q.update("a", uid="another")) == ["a"]
    assert (q.pod("a").uid, q.pod("a").attempts, q.queue.pending().unschedulable) == ("another", 0, 0)


def test_an_update_that_changes_nothing_does_not_bring_a_pod_in_flight_back() -> None:
    for labels, place in (({}, Place.UNSCHEDULABLE), ({"app": "web"}, Place.BACKOFF)):
        q = a_queue({"Fit": [Registration(UNSCHEDULABLE_POD_UPDATE)]})
        q.add()
        q.pop()
        q.update(labels=labels)
        q.fail("a", "Fit")
        assert q.place() is place


def test_what_is_taken_out_of_the_pods_that_wait_is_found_by_nothing_any_more() -> None:
    look = Look()
    hint = PreparedHint(lambda pod: UnreadableHint(ValueError()), lambda old, new: look)
    q = a_queue({"Gates": GATES_GONE, "Fit": [Registration(NODE_ADD, hint)]}, pre_enqueue={"default-scheduler": [Gates()]})
    pool = q.queue.places.pool
    q.unschedulable("a")
    q.unschedulable("b")
    pool.take_out(q.pod("a"))
    ((_, index),) = [one for indexes in pool._indexes.values() for one in indexes.items()]
    assert [list(entry.pods) for entry in index.askings()] == [["default/b"]] and pool.n_unschedulable == 1
    q.add("g", gates=["g"])
    version = pool.version
    pool.take_out(q.pod("g"))
    assert (pool.n_gated, pool.n_unschedulable) == (0, 1)
    q.add("h", gates=["g"])
    assert pool.version == version + 1, "its gate had nobody behind it"
