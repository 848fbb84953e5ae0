"""What the audit says of one pod, one fault a case; the faults of a whole queue behind the exchange are in tests/actors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rayched.framework.cluster_event import ASSIGNED_POD_DELETE, INVARIANT_REPAIR, NODE_ADD
from rayched.framework.queueing_hints import Registration
from rayched.queue.audit import JOURNAL_MAX, Invariant, QueueAudit, Standing
from rayched.queue.queued_pod import Place
from tests.queue.builders import Clocked, a_queue, gated_queue


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
