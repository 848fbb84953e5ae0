"""Timers that the audit holds against a pod, and what a repair leaves alone."""

from __future__ import annotations

from collections import Counter

import pytest

from rayched.framework.cluster_event import INVARIANT_REPAIR
from rayched.queue.audit import Invariant, QueueAudit, Standing
from rayched.queue.queued_pod import Place
from tests.queue.builders import ON_NODES, a_queue, gated_queue
from tests.queue.test_audit_causes import audit_of, wrong

# ---------------------------------------------------------------------------------------------------------------- timers


@pytest.mark.parametrize(
    ("seconds", "found"),
    [(1.999, []), (2.0, ["is still in backoff after its end"]), (60.0, ["is still in backoff after its end"])],
)
def test_a_backoff_that_is_over_is_a_fault_once_time_has_done_its_work(seconds: float, found: list[str]) -> None:
    for plugins in ((), ("Fit",)):
        q = a_queue(ON_NODES)
        q.add()
        q.pop()
        q.queue.activate(["default/a"], q.now)
        q.fail("a", *plugins)
        assert q.place() is (Place.BACKOFF if plugins else Place.ERROR_BACKOFF)
        q.now = seconds
        assert wrong(audit_of(q), q, flushed=False) == []
        assert wrong(audit_of(q), q) == found
        told, _ = audit_of(q).check("uid-a", "default/a", Standing.QUEUED, q.now)
        assert [violation.what for violation in told] == found and q.queue.verify() == []


@pytest.mark.parametrize(("seconds", "found"), [(300.0, []), (300.001, ["is still unschedulable after its time"])])
def test_a_pod_that_was_unschedulable_for_too_long_is_a_fault_once_time_has_done_its_work(
    seconds: float, found: list[str]
) -> None:
    q = a_queue(ON_NODES)
    q.unschedulable("a")
    q.now = seconds
    assert wrong(audit_of(q), q) == found
    assert wrong(audit_of(q), q, flushed=False) == []


@pytest.mark.parametrize(("ends", "found"), [(15.0, []), (15.001, ["backs off for longer than the maximum"])])
def test_no_backoff_lasts_longer_than_the_maximum(ends: float, found: list[str]) -> None:
    q = a_queue()
    q.after(5.0).add()
    q.pop()
    q.fail()
    q.pod().backoff_until = ends
    assert wrong(audit_of(q), q) == found


@pytest.mark.parametrize(("due", "found"), [(305.0, []), (305.001, ["has a timer that rings too late"])])
def test_no_timer_of_an_unschedulable_pod_rings_too_late(due: float, found: list[str]) -> None:
    q = a_queue(ON_NODES)
    q.after(5.0).unschedulable("a")
    pool, pod = q.queue.places.pool, q.pod()
    pool.remove(pod)
    pool.add(pod, due)
    assert wrong(audit_of(q), q) == found


def test_a_gated_pod_may_have_a_later_timer_or_none() -> None:
    q = gated_queue()
    q.add("a", gates=["g"])
    pool, pod = q.queue.places.pool, q.pod()
    assert pod.flush_due is None and wrong(audit_of(q), q) == []
    pool.remove(pod)
    pool.add(pod, 1000.0)
    q.now = 1000.0
    assert wrong(audit_of(q), q) == []
    q.now = 1000.001
    assert wrong(audit_of(q), q) == ["is still unschedulable after its time"]


# --------------------------------------------------------------------------------------------------------------- repairs


def test_another_pod_of_the_same_name_is_neither_accused_nor_touched() -> None:
    for flies in (False, True):
        q = a_queue(ON_NODES)
        if flies:
            q.add()
            q.pop()
        else:
            q.unschedulable("a")
        audit = audit_of(q)
        where = q.place()
        assert wrong(audit, q, standing=Standing.NOWHERE, uid="another") == []
        assert wrong(audit, q, uid="another") == ["waits for a node, but is nowhere"]
        assert wrong(audit, q, standing=Standing.IN_FLIGHT, uid="another") == ["is being scheduled, but is nowhere"]
        found, moves = audit.check("another", "default/a", Standing.QUEUED, q.now)
        assert ([one.invariant for one in found], moves) == ([Invariant.LOST], ())
        assert (q.place(), q.pod().uid, q.queue.verify()) == (where, "uid-a", [])


@pytest.mark.parametrize("standing", list(Standing))
def test_a_pod_in_flight_and_in_a_queue_is_queued_once_unless_nobody_wants_it(standing: Standing) -> None:
    q = a_queue(ON_NODES)
    q.add()
    q.pop()
    pod = q.pod()
    q.queue.places.active.add(pod)
    audit = audit_of(q)
    assert wrong(audit, q, standing=standing) == ["is in 2 places: active, in_flight"]
    audit.check("uid-a", "default/a", standing, q.now)
    assert q.place() is (Place.NOWHERE if standing is Standing.NOWHERE else Place.ACTIVE)
    assert len(q.queue.places.in_flight) == 0 and q.queue.verify() == []


def test_a_pod_in_flight_that_nobody_schedules_is_queued_again() -> None:
    q = a_queue(ON_NODES)
    q.add()
    q.pop()
    found, moves = audit_of(q).check("uid-a", "default/a", Standing.QUEUED, q.now)
    assert [one.what for one in found] == ["is in flight, but nobody schedules it"]
    assert [(move.key, move.event, move.place) for move in moves] == [("default/a", INVARIANT_REPAIR, Place.ACTIVE)]
    assert (q.place(), q.pop(), q.queue.verify()) == (Place.ACTIVE, "a", [])


def test_a_pod_that_the_queue_lies_about_is_told_by_both_places() -> None:
    q = gated_queue()
    q.add("a", gates=["g"])
    q.pod().place = Place.NOWHERE
    assert wrong(audit_of(q), q) == ["is gated, but known as nowhere"]
    q = a_queue(ON_NODES)
    q.unschedulable("a")
    pod = q.pod()
    del q.queue.places.queued["default/a"]
    assert wrong(audit_of(q), q) == ["is unschedulable, but known as unschedulable"]
    audit_of(q).check(pod.uid, pod.key, Standing.QUEUED, q.now)
    assert wrong(audit_of(q), q) == [] and q.queue.verify() == []


def test_what_is_sound_is_left_where_it_is() -> None:
    q = gated_queue()
    for name, gates in (("g", ["g"]), ("u", []), ("f", []), ("e", []), ("a", [])):
        q.add(name, gates=gates)
    for name in ("u", "f", "e"):
        assert q.pop() == name
    q.fail("u", "Fit")
    q.fail("e")
    audit = audit_of(q)
    places = {name: q.place(name) for name in "gufea"}
    for name in "gufea":
        standing = Standing.IN_FLIGHT if name == "f" else Standing.QUEUED
        assert audit.check(f"uid-{name}", f"default/{name}", standing, q.now) == ([], ())
    assert {name: q.place(name) for name in "gufea"} == places and not audit.violations


def test_the_counts_of_violations_go_on_in_the_next_queues_audit() -> None:
    counted = Counter({"lost": 3})
    q = a_queue(ON_NODES)
    audit = QueueAudit(q.queue.places, q.queue.hints, counted)
    audit.check("uid-a", "default/a", Standing.QUEUED, q.now)
    assert counted == {"lost": 4} and audit.violations is counted
    assert QueueAudit(q.queue.places, q.queue.hints).violations == {}
