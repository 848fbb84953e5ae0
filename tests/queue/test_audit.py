"""What the audit says of one pod, one fault a case; the faults of a whole queue behind the exchange are in tests/core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rayched.framework.cluster_event import ASSIGNED_POD_DELETE, INVARIANT_REPAIR, NODE_ADD, Action, ClusterEvent, Resource
from rayched.framework.queueing_hints import Hint, Registration
from rayched.plugins.in_tree import IN_TREE
from rayched.queue.audit import JOURNAL_MAX, WAKES_PER_LOOK, Invariant, QueueAudit, Standing
from rayched.queue.hints import registrations_of
from rayched.queue.queued_pod import Move, Place
from rayched.v1.core_pb2 import Pod
from tests.queue.builders import Clocked, a_queue, gated_queue, pending


def assert_held_counts(q: Clocked) -> None:
    """How many pods each plugin holds is told as it is."""
    held = Counter((plugin, pod.scheduler_name) for pod in q.queue.places.queued.values() for plugin in pod.rejectors)
    assert +q.queue.places.held == held


def audit_of(q: Clocked) -> QueueAudit:
    return QueueAudit(q.queue.places, q.queue.hints)


def faults(q: Clocked, standing: Standing = Standing.QUEUED) -> list[Invariant]:
    found = audit_of(q).faults("uid-a", "default/a", standing, q.now)
    return [violation.invariant for violation in found]


def is_active(q: Clocked) -> None:
    q.add()


def is_unschedulable(q: Clocked) -> None:
    q.unschedulable("a", "Fit")


def is_gated(q: Clocked) -> None:
    q.add(gates=["g"])


def is_in_flight(q: Clocked) -> None:
    q.add()
    q.pop()


def is_in_error_backoff(q: Clocked) -> None:
    q.add()
    q.pop()
    q.fail()


def is_gone(q: Clocked) -> None:
    pass


PLACES = [is_active, is_unschedulable, is_gated, is_in_error_backoff]


@pytest.mark.parametrize("where", PLACES)
def test_a_sound_pod_has_no_faults_and_one_that_nobody_wants_is_a_stranger(where: Callable[[Clocked], None]) -> None:
    q = gated_queue()
    where(q)
    assert faults(q) == []
    assert faults(q, Standing.NOWHERE) == [Invariant.STRANGER]
    assert faults(q, Standing.IN_FLIGHT) == [Invariant.IN_FLIGHT]
    audit_of(q).check("uid-a", "default/a", Standing.NOWHERE, q.now)
    assert q.queue.pending().total == 0 and q.queue.verify() == []
    assert_held_counts(q)


@pytest.mark.parametrize(
    ("where", "standing", "found"),
    [
        (is_gone, Standing.NOWHERE, []),
        (is_gone, Standing.QUEUED, [Invariant.LOST]),
        (is_gone, Standing.IN_FLIGHT, [Invariant.IN_FLIGHT]),
        (is_in_flight, Standing.IN_FLIGHT, []),
        (is_in_flight, Standing.QUEUED, [Invariant.IN_FLIGHT]),
        (is_in_flight, Standing.NOWHERE, [Invariant.IN_FLIGHT]),
    ],
)
def test_the_queue_and_the_scheduler_agree_on_who_is_in_flight(
    where: Callable[[Clocked], None], standing: Standing, found: list[Invariant]
) -> None:
    q = gated_queue()
    where(q)
    assert faults(q, standing) == found


@pytest.mark.parametrize("where", PLACES)
def test_a_pod_in_two_places_is_found_and_afterwards_is_in_one(where: Callable[[Clocked], None]) -> None:
    q = gated_queue()
    where(q)
    pod = q.pod()
    other = q.queue.places.active if where is not is_active else q.queue.places.backoff
    place = pod.place
    other.add(pod)
    pod.place = place
    assert faults(q) == [Invariant.ONE_PLACE]
    audit = audit_of(q)
    found, moves = audit.check(pod.uid, pod.key, Standing.QUEUED, q.now)
    assert [violation.text.split(" places: ")[0] for violation in found] == ["queue: pod default/a: is in 2"]
    assert [move.event for move in moves] == [INVARIANT_REPAIR]
    assert faults(q) == [] and q.queue.verify() == []
    assert_held_counts(q)
    assert audit.violations == {"one_place": 1}


@pytest.mark.parametrize("where", PLACES)
def test_a_pod_whose_record_names_another_place_is_found_and_queued_again(where: Callable[[Clocked], None]) -> None:
    q = gated_queue()
    where(q)
    q.pod().place = Place.NOWHERE
    assert faults(q)[0] is Invariant.ONE_PLACE
    audit_of(q).check("uid-a", "default/a", Standing.QUEUED, q.now)
    assert faults(q) == [] and q.queue.verify() == []


def test_a_flight_that_nobody_flies_is_ended_and_its_events_with_it() -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD)]})
    q.add()
    q.pop()
    q.queue.delete("uid-a", "default/a")
    q.queue.move_all(NODE_ADD, q.now)
    assert q.queue.n_events_in_flight == 1
    audit_of(q).check("uid-a", "default/a", Standing.NOWHERE, q.now)
    assert q.queue.n_events_in_flight == 0 and q.queue.pending().total == 0


def test_an_outcome_that_is_awaited_is_left_to_come() -> None:
    q = a_queue()
    is_in_flight(q)
    found, moves = audit_of(q).check("uid-a", "default/a", Standing.IN_FLIGHT, q.now)
    assert (found, moves, q.place()) == ([], (), Place.IN_FLIGHT)


def test_only_events_after_the_attempt_and_of_interest_to_those_who_hold_the_pod_count() -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD)], "Ports": [Registration(ASSIGNED_POD_DELETE)]})
    audit = audit_of(q)
    audit.happened(NODE_ADD, None, None, 1)
    q.queue.move_all(NODE_ADD, q.now, position=1)
    q.unschedulable("a", "Fit")
    seen = q.pod().seen_through
    audit.happened(ASSIGNED_POD_DELETE, None, None, seen + 1)
    assert [*audit.faults("uid-a", "default/a", Standing.QUEUED, q.now)] == []
    audit.happened(NODE_ADD, None, None, seen + 2, lambda pod: pod.priority > 0)
    assert [*audit.faults("uid-a", "default/a", Standing.QUEUED, q.now)] == []
    audit.happened(NODE_ADD, None, None, seen + 3)
    (violation,) = audit.faults("uid-a", "default/a", Standing.QUEUED, q.now)
    assert violation.text == "queue: pod default/a: still waits, although NodeAdd was worth an attempt (invariant missed_event)"


def test_the_journal_is_bounded_and_what_it_has_forgotten_accuses_nobody() -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD)], "Ports": [Registration(ASSIGNED_POD_DELETE)]})
    audit = audit_of(q)
    q.unschedulable("a", "Fit")
    position = q.queue.places.in_flight.position
    audit.happened(NODE_ADD, None, None, position + 1)
    q.queue.move_all(NODE_ADD, q.now, position=position + 1)
    assert q.place() is Place.BACKOFF
    for later in range(JOURNAL_MAX):
        audit.happened(ASSIGNED_POD_DELETE, None, None, position + 2 + later)
    assert [*audit.faults("uid-a", "default/a", Standing.QUEUED, q.now)] == []


def test_the_queue_suggests_each_of_its_pods_in_turn() -> None:
    q = gated_queue()
    for name in "abcde":
        q.add(name, gates=["g"] if name == "e" else [])
    q.pop()
    audit = audit_of(q)
    suggested = [uid for _ in range(3) for uid, _ in audit.suggest(2)]
    assert sorted(suggested) == [f"uid-{name}" for name in "abcde"]


def test_what_a_pod_was_told_anew_is_an_event_only_for_the_attempt_that_it_is_in() -> None:
    labelled = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL)
    changed = pending("a", labels={"zone": "west"})
    for flies, is_new, found in [
        (False, True, []),
        (False, False, [Invariant.MISSED_EVENT]),
        (True, True, [Invariant.MISSED_EVENT]),
    ]:
        q = a_queue({"Fit": [Registration(labelled)]})
        audit = audit_of(q)
        q.add() if flies else q.unschedulable("a", "Fit")
        if flies:
            q.pop()
        audit.updated(changed, 5, is_new=is_new)
        if flies:
            q.fail("a", "Fit")
        assert [one.invariant for one in audit.faults("uid-a", "default/a", Standing.QUEUED, q.now)] == found


def test_a_pod_that_is_gone_or_another_one_by_now_is_not_asked_why_it_was_woken() -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD)]})
    move = Move("uid-a", "default/a", NODE_ADD.label, Place.BACKOFF)
    assert audit_of(q).woke((move,), q.now) == []
    q.unschedulable("a", "Fit")
    q.pod().woken_by, q.pod().woken_at = NODE_ADD.label, 1
    (violation,) = audit_of(q).woke((move,), q.now)
    assert violation.what == "was woken by NodeAdd, which did not happen"
    assert audit_of(q).woke((move._replace(uid="another"),), q.now) == []


def test_one_wake_of_sixteen_is_looked_at() -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD)]})
    q.unschedulable("a", "Fit")
    q.pod().woken_by, q.pod().woken_at = NODE_ADD.label, 1
    audit = audit_of(q)
    move = Move("uid-a", "default/a", NODE_ADD.label, Place.BACKOFF)
    looked = [bool(audit.woke((move,), q.now)) for _ in range(2 * WAKES_PER_LOOK + 1)]
    assert looked == [True, *([False] * (WAKES_PER_LOOK - 1)), True, *([False] * (WAKES_PER_LOOK - 1)), True]
    assert audit.violations == {"cause": 3}


def test_a_hint_is_asked_once_for_all_pods_of_a_template() -> None:
    asked: list[str] = []

    def hint(pod: Pod, old: object, new: object) -> Hint:
        asked.append(pod.metadata.name)
        return Hint.SKIP

    q = a_queue({"Fit": [Registration(NODE_ADD, hint)]})
    names = ["web-0", "db-0", "web-1", "db-1"]
    for name in names:
        q.unschedulable(name, "Fit", template=name[:2])
    audit = audit_of(q)
    audit.happened(NODE_ADD, None, None, 7)
    for name in names:
        assert [*audit.faults(f"uid-{name}", f"default/{name}", Standing.QUEUED, q.now)] == []
    assert asked == ["web-0", "db-0"]


@pytest.mark.parametrize(
    ("woken_by", "reasons", "found"),
    [
        ("Label", ["Label"], []),
        ("Toleration", ["Toleration"], []),
        ("Toleration", ["Label"], ["was woken by UnschedulablePodUpdatePodToleration, which is not worth an attempt"]),
        ("Label", ["Toleration"], ["was woken by UnschedulablePodUpdatePodLabel, which is not worth an attempt"]),
        ("ScaleDown", ["Label"], ["was woken by UnschedulablePodUpdatePodScaleDown, which did not happen"]),
    ],
)
def test_of_several_events_of_one_update_the_one_that_woke_the_pod_has_to_be_worth_it(
    woken_by: str, reasons: list[str], found: list[str]
) -> None:
    events = {
        "Label": ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL),
        "Toleration": ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION),
        "ScaleDown": ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_SCALE_DOWN),
    }
    helps = {name: Hint.QUEUE if name in reasons else Hint.SKIP for name in events}
    registrations = [Registration(event, lambda *_, says=helps[name]: says) for name, event in events.items()]
    q = a_queue({"Fit": registrations})
    audit = audit_of(q)
    q.unschedulable("a", "Fit")
    changed = pending("a", labels={"zone": "west"})
    changed.pod.spec.tolerations.add(key="spot")
    audit.updated(changed, 5)
    q.queue.activate(["default/a"], q.now)
    q.pod().woken_by, q.pod().woken_at = events[woken_by].label, 5
    violations = audit.faults("uid-a", "default/a", Standing.QUEUED, q.now)
    assert [violation.what for violation in violations] == found


def test_a_misplaced_pod_that_is_queued_again_holds_nothing_in_the_places_that_it_left() -> None:
    q = a_queue({"NodePorts": registrations_of(IN_TREE["NodePorts"](None))})
    q.unschedulable("a", "NodePorts")
    assert q.pod().askings
    q.queue.places.active.add(q.pod())
    audit_of(q).check("uid-a", "default/a", Standing.QUEUED, q.now)
    assert (q.pod().askings, [*q.queue.places.pool.classes()], q.queue.verify()) == ((), [], [])


def test_a_deleted_pod_whose_flight_nobody_ends_does_not_come_back() -> None:
    q = a_queue()
    is_in_flight(q)
    q.queue.delete("uid-a", "default/a")
    found, moves = audit_of(q).check("uid-a", "default/a", Standing.QUEUED, q.now)
    assert [violation.invariant for violation in found] == [Invariant.IN_FLIGHT]
    assert (moves, q.queue.pending().total, q.queue.verify()) == ((), 0, [])


@pytest.mark.parametrize(("position", "found"), [(6, []), (7, [Invariant.MISSED_EVENT]), (8, [Invariant.MISSED_EVENT])])
def test_a_pod_that_changed_is_judged_as_it_is_by_what_came_with_the_change_and_later(
    position: int, found: list[Invariant]
) -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD)]})
    q.unschedulable("a", "Fit")
    q.queue.update(pending("a", labels={"zone": "west"}), q.now, position=7)
    assert q.place() is Place.UNSCHEDULABLE
    audit = audit_of(q)
    audit.happened(NODE_ADD, None, None, position)
    assert [one.invariant for one in audit.faults("uid-a", "default/a", Standing.QUEUED, q.now)] == found
