"""The audit's fine print: which event is a reason, what is judged and what is not."""

from __future__ import annotations

import pytest

from rayched.framework.cluster_event import (
    ASSIGNED_POD_DELETE,
    BACKOFF_COMPLETE,
    FORCE_ACTIVATE,
    GIVEN_BACK,
    INVARIANT_REPAIR,
    NODE_ADD,
    NODE_CONDITION_UPDATE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    Resource,
)
from rayched.framework.queueing_hints import Hint, Registration
from rayched.queue import audit as audit_module
from rayched.queue.audit import JOURNAL_MAX, JUDGED_MAX, Invariant, QueueAudit, Standing
from rayched.queue.event_batch import EventBatch
from rayched.queue.queued_pod import Place
from rayched.v1.core_pb2 import Pod
from tests.queue.builders import GATES_GONE, ON_NODES, Clocked, Gates, a_queue, gated_queue, pending

BY_LABEL = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL)
BY_TOLERATION = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION)
TWO_PLUGINS = {"Fit": [Registration(NODE_ADD)], "Ports": [Registration(ASSIGNED_POD_DELETE)]}
MISSED = "still waits, although NodeAdd was worth an attempt"


def audit_of(q: Clocked) -> QueueAudit:
    return QueueAudit(q.queue.places, q.queue.hints)


def wrong(
    audit: QueueAudit, q: Clocked, name: str = "a", standing: Standing = Standing.QUEUED, *, uid: str = "", flushed: bool = True
) -> list[str]:
    found = audit.faults(uid or f"uid-{name}", f"default/{name}", standing, q.now, flushed=flushed)
    return [violation.what for violation in found]


def skips(*_: object) -> Hint:
    return Hint.SKIP


# ---------------------------------------------------------------------------------------------------------------- causes


@pytest.mark.parametrize(
    ("label", "woken_at", "seconds", "found"),
    [
        (UNSCHEDULABLE_POD_ADD.label, 1, 0.0, []),
        (UNSCHEDULABLE_POD_UPDATE.label, 1, 0.0, []),
        (FORCE_ACTIVATE.label, 1, 0.0, []),
        (GIVEN_BACK, 1, 0.0, []),
        (INVARIANT_REPAIR, 1, 0.0, []),
        (BACKOFF_COMPLETE, 1, 1.999, ["left backoff before its end"]),
        (BACKOFF_COMPLETE, 1, 2.0, []),
        (UNSCHEDULABLE_TIMEOUT.label, 1, 1.0, ["left the unschedulable pods before its time"]),
        (UNSCHEDULABLE_TIMEOUT.label, 1, 300.0, ["left the unschedulable pods before its time"]),
        (UNSCHEDULABLE_TIMEOUT.label, 1, 300.001, []),
        (NODE_ADD.label, 0, 0.0, []),
        (NODE_ADD.label, 1, 0.0, ["was woken by NodeAdd, which did not happen"]),
        (NODE_ADD.label, 1, 400.0, ["was woken by NodeAdd, which did not happen"]),
        (NODE_ADD.label, 7, 0.0, []),
    ],
)
def test_a_pod_that_waits_for_its_next_attempt_has_to_have_been_woken_by_a_reason(
    label: str, woken_at: int, seconds: float, found: list[str]
) -> None:
    q = a_queue(ON_NODES)
    q.unschedulable("a")
    audit = audit_of(q)
    audit.happened(NODE_ADD, None, None, 7)
    q.queue.activate(["default/a"], q.now)
    q.pod().woken_by, q.pod().woken_at = label, woken_at
    q.now = seconds
    assert wrong(audit, q) == found


def test_a_pod_that_no_plugin_has_rejected_needs_no_reason() -> None:
    q = a_queue(ON_NODES)
    q.add()
    q.pod().woken_by, q.pod().woken_at = NODE_ADD.label, 1
    assert wrong(audit_of(q), q) == []


def test_a_pod_that_was_woken_and_then_asked_for_is_active_for_that_reason() -> None:
    q = a_queue(ON_NODES)
    q.unschedulable("a")
    audit = audit_of(q)
    audit.happened(NODE_ADD, None, None, 7)
    q.queue.move_all(NODE_ADD, q.now, position=7)
    assert q.place() is Place.BACKOFF and wrong(audit, q) == []
    q.queue.activate(["default/a"], q.now)
    assert q.place() is Place.ACTIVE and wrong(audit, q) == []


@pytest.mark.parametrize("missing", [0, 1])
def test_an_event_that_the_journal_may_have_forgotten_is_believed(missing: int) -> None:
    """Where the journal is full, others at the position of its oldest event may have been dropped."""
    q = a_queue(TWO_PLUGINS)
    q.unschedulable("a", "Fit")
    audit = audit_of(q)
    for position in range(10, 10 + JOURNAL_MAX - missing):
        audit.happened(ASSIGNED_POD_DELETE, None, None, position)
    q.queue.activate(["default/a"], q.now)
    q.pod().woken_by = NODE_ADD.label
    accused = []
    for woken_at in (5, 9, 10, 11, 12):
        q.pod().woken_at = woken_at
        accused.append(bool(wrong(audit, q)))
    assert accused == ([True] * 5 if missing else [False, False, False, True, True])


@pytest.mark.parametrize(("position", "found"), [(6, False), (7, True), (8, False)])
def test_the_event_has_to_have_happened_at_the_position_that_the_pod_names(position: int, found: bool) -> None:
    q = a_queue(TWO_PLUGINS)
    q.unschedulable("a", "Fit")
    audit = audit_of(q)
    for at, event in ((6, ASSIGNED_POD_DELETE), (7, NODE_ADD), (8, ASSIGNED_POD_DELETE)):
        audit.happened(event, None, None, at)
    q.queue.activate(["default/a"], q.now)
    q.pod().woken_by, q.pod().woken_at = NODE_ADD.label, position
    assert (wrong(audit, q) == []) is found


@pytest.mark.parametrize("worth", [[BY_LABEL], [BY_TOLERATION], [BY_LABEL, BY_TOLERATION]])
def test_of_the_events_of_one_update_that_were_replayed_one_has_to_be_worth_an_attempt(worth: list[ClusterEvent]) -> None:
    registrations = [Registration(event, None if event in worth else skips) for event in (BY_LABEL, BY_TOLERATION)]
    q = a_queue({"Fit": registrations})
    audit = audit_of(q)
    q.add()
    q.pop()
    changed = pending("a", labels={"zone": "west"})
    changed.pod.spec.tolerations.add(key="spot")
    audit.updated(changed, 5)
    q.queue.update(changed, q.now, position=5)
    q.fail("a", "Fit")
    assert (q.place(), q.pod().woken_at, wrong(audit, q)) == (Place.BACKOFF, 5, [])


def test_a_replay_of_an_event_that_is_worth_nothing_is_no_reason() -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD, skips)]})
    audit = audit_of(q)
    q.add()
    q.pop()
    audit.happened(NODE_ADD, None, None, 5)
    q.queue.activate(["default/a"], q.now)
    q.fail("a", "Fit")
    assert q.place() is Place.BACKOFF and wrong(audit, q) == []
    q.pod().woken_at = 5
    assert wrong(audit, q) == ["was woken by NodeAdd, which is not worth an attempt"]


# ---------------------------------------------------------------------------------------------------------------- missed


@pytest.mark.parametrize(("later", "found"), [(JUDGED_MAX - 1, [MISSED]), (JUDGED_MAX, [])])
def test_the_newest_events_are_judged_and_those_before_them_are_taken_as_handled(later: int, found: list[str]) -> None:
    q = a_queue(TWO_PLUGINS)
    q.unschedulable("a", "Fit")
    audit = audit_of(q)
    audit.happened(NODE_ADD, None, None, 7)
    for position in range(8, 8 + later):
        audit.happened(ASSIGNED_POD_DELETE, None, None, position)
    assert wrong(audit, q) == found


def test_what_is_no_event_takes_no_other_ones_place_among_the_newest() -> None:
    q = gated_queue()
    q.unschedulable("a", "Fit")
    q.add("active")
    q.add("same", gates=["g"])
    audit = audit_of(q)
    audit.happened(NODE_ADD, None, None, 7)
    for position in range(8, 8 + 2 * JUDGED_MAX):
        audit.happened(NODE_CONDITION_UPDATE, None, None, position)
        audit.updated(pending("active", labels={"at": str(position)}), position)
        audit.updated(pending("unknown", labels={"at": str(position)}), position)
        audit.updated(pending("a", uid="another", labels={"at": str(position)}), position)
        audit.updated(pending("a", labels={"at": str(position)}), position, is_new=True)
        audit.updated(pending("same", gates=["g"], nominated="n1"), position)
    assert wrong(audit, q) == [MISSED]


@pytest.mark.parametrize(("priority", "found"), [(5, [MISSED]), (4, [])])
def test_an_event_that_was_for_some_is_judged_for_those(priority: int, found: list[str]) -> None:
    q = a_queue(ON_NODES)
    q.unschedulable("a", priority=priority)
    audit = audit_of(q)
    audit.happened(NODE_ADD, None, None, 7, lambda pod: pod.priority > 4)
    assert wrong(audit, q) == found


def test_pods_without_a_template_are_judged_each_by_itself() -> None:
    def hint(pod: Pod, old: object, new: object) -> Hint:
        return Hint.QUEUE if pod.metadata.labels["app"] == "web" else Hint.SKIP

    q = a_queue({"Fit": [Registration(NODE_ADD, hint)]})
    for app in ("db", "web"):
        q.unschedulable(app, "Fit", labels={"app": app})
    audit = audit_of(q)
    audit.happened(NODE_ADD, None, None, 7)
    assert [wrong(audit, q, app) for app in ("db", "web", "db")] == [[], [MISSED], []]


def test_two_events_that_were_missed_are_one_fault() -> None:
    q = a_queue(ON_NODES)
    q.unschedulable("a")
    audit = audit_of(q)
    for position in (7, 8):
        audit.happened(NODE_ADD, None, None, position)
    assert wrong(audit, q) == [MISSED]
    found, moves = audit.check("uid-a", "default/a", Standing.QUEUED, q.now)
    assert ([one.invariant for one in found], [move.event for move in moves]) == ([Invariant.MISSED_EVENT], [INVARIANT_REPAIR])
    assert (audit.violations, q.place()) == ({"missed_event": 1}, Place.BACKOFF)


def test_a_pod_that_waits_for_an_event_although_no_plugin_holds_it_is_found() -> None:
    q = a_queue(ON_NODES)
    q.add()
    q.pop()
    flight = q.queue.places.in_flight.get("uid-a")
    assert flight is not None
    q.queue.places.pool.add(q.queue.places.land(flight), 300.0)
    audit = audit_of(q)
    audit.happened(NODE_ADD, None, None, 7)
    assert wrong(audit, q) == ["waits for an event, but no plugin holds it"]


def test_a_gated_pod_is_not_asked_about_the_events_that_its_gate_has_answered() -> None:
    q = a_queue({"Gates": [*GATES_GONE, Registration(NODE_ADD)]}, pre_enqueue={"default-scheduler": [Gates()]})
    q.add("a", gates=["g"])
    audit = audit_of(q)
    audit.happened(NODE_ADD, None, None, 7)
    q.queue.move_all(NODE_ADD, q.now, position=7)
    assert q.place() is Place.GATED and wrong(audit, q) == []


def test_an_update_of_one_pod_is_no_event_for_another_one() -> None:
    q = a_queue({"Fit": [Registration(BY_LABEL)]})
    for name in "ab":
        q.unschedulable(name, "Fit")
    audit = audit_of(q)
    audit.updated(pending("b", labels={"zone": "west"}), 7)
    assert wrong(audit, q, "a") == []
    assert wrong(audit, q, "b") == ["still waits, although UnschedulablePodUpdatePodLabel was worth an attempt"]


@pytest.mark.parametrize("helps", [BY_LABEL, BY_TOLERATION])
def test_the_events_of_one_update_are_judged_one_by_one_also_where_the_pod_has_a_template(helps: ClusterEvent) -> None:
    registrations = [Registration(event, None if event == helps else skips) for event in (BY_LABEL, BY_TOLERATION)]
    q = a_queue({"Fit": registrations})
    q.unschedulable("a", "Fit", template="web")
    audit = audit_of(q)
    changed = pending("a", "web", labels={"zone": "west"})
    changed.pod.spec.tolerations.add(key="spot")
    audit.updated(changed, 5)
    assert wrong(audit, q) == [f"still waits, although {helps.label} was worth an attempt"]


@pytest.mark.parametrize(("helping", "found"), [("none", []), ("first", [MISSED]), ("last", [MISSED])])
def test_of_events_told_together_one_that_helps_is_enough(helping: str, found: list[str]) -> None:
    q = a_queue({"Fit": [Registration(NODE_ADD, lambda pod, old, new: Hint.QUEUE if new == helping else Hint.SKIP)]})
    q.unschedulable("a", "Fit")
    audit = audit_of(q)
    audit.happened(NODE_ADD, None, None, 7, news=EventBatch(2, lambda: ["first", "last"]))
    assert wrong(audit, q) == found


def test_the_answers_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "ANSWERS_MAX", 8)
    asked: list[object] = []

    def hint(pod: Pod, old: object, new: object) -> Hint:
        asked.append(new)
        return Hint.SKIP

    q = a_queue({"Fit": [Registration(NODE_ADD, hint)]})
    for number in range(20):
        q.unschedulable(f"p{number}", "Fit", template=f"t{number}")
    audit = audit_of(q)
    audit.happened(NODE_ADD, None, "node", 50)
    for turn in (1, 2):
        for number in range(20):
            assert wrong(audit, q, f"p{number}") == []
            assert len(audit._answers) <= 8
        assert len(asked) == 20 * turn
