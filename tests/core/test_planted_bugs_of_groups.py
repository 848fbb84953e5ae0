"""Each planted bug of pod groups, in a history in which it matters: an auditor that reads the store alone names it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rayched.api.incomplete_groups import RELEASE_ANNOTATION
from tests.core.builders import a_node, a_pod
from tests.core.grouped import a_group, audited, change_pod, put_group, put_members
from tests.core.leading import a_replica, decide, key_of, put_node, put_pod
from tests.core.replica import Replica
from tests.planted_bugs import GROUPS, planted

MEMBERS = 120


def a_cluster() -> Replica:
    """A leader over 40 nodes of 4 CPUs whose store takes 128 operations, and a gang that no transaction takes."""
    replica = a_replica(*(f"n{number}" for number in range(40)))
    put_group(replica.store, a_group(least=MEMBERS))
    put_members(replica.store, MEMBERS)
    return replica


def until_the_plan_is_sent(replica: Replica) -> None:
    decide(replica)
    replica.turn()
    replica.arrive()
    replica.answer()
    replica.turn()


def successor_of(replica: Replica) -> Replica:
    other = Replica(replica.store, replica.clock, "b")
    other.list()
    other.lead()
    return other


def what_fits() -> Replica:
    replica = a_replica("n1", "n2")
    put_group(replica.store, a_group(least=3))
    put_members(replica.store, 3, cpu="3")
    replica.settle()
    return replica


def killed_after_the_first_batch() -> Replica:
    replica = a_cluster()
    until_the_plan_is_sent(replica)
    replica.arrive()
    successor_of(replica).settle()
    return replica


def group_changes_before_the_plan() -> Replica:
    replica = a_cluster()
    until_the_plan_is_sent(replica)
    put_group(replica.store, a_group(least=MEMBERS + 10))
    replica.settle()
    return replica


def killed_after_the_plan() -> Replica:
    replica = a_cluster()
    until_the_plan_is_sent(replica)
    replica.arrive()
    for number in range(40, 45):
        put_node(replica.store, a_node(f"n{number}"))
    for number in range(10):
        put_pod(replica.store, a_pod(f"single-{number}", cpu="4", priority=9))
    successor = successor_of(replica)
    for _ in range(200):
        for step in (successor.watch, successor.answer, successor.exchanged, successor.turn, successor.core.decide):
            step()
        successor.exchange()
        successor.arrive()
    return replica


def late_bindings() -> Replica:
    replica = a_cluster()
    until_the_plan_is_sent(replica)
    replica.arrive()
    replica.answer()
    replica.turn()
    late = replica.to_store[:]
    successor = successor_of(replica)
    replica.stored(late[0])
    successor.settle()
    return replica


def to_its_end() -> Replica:
    replica = a_cluster()
    replica.settle()
    return replica


def members_fail() -> Replica:
    replica = a_replica("n1", "n2")
    put_group(replica.store, a_group(least=3))
    put_members(replica.store, 3)
    replica.settle()
    for number in range(3):
        change_pod(replica.store, f"train-{number}", phase="Failed")
    replica.settle()
    put_members(replica.store, 1, first=3)
    replica.settle()
    return replica


def released() -> Replica:
    replica = a_replica("n1", "n2", "n3", "n4")
    group = a_group(least=4)
    group.metadata.annotations[RELEASE_ANNOTATION] = "10"
    put_group(replica.store, group)
    put_members(replica.store, 4, cpu="3")
    replica.settle()
    replica.store.delete(key_of("train-0"))
    replica.settle()
    replica.clock.now += 11.0
    replica.settle()
    return replica


HISTORIES: dict[str, tuple[Callable[[], Replica], str]] = {
    "a group binds what fits": (what_fits, "gang_partial"),
    "members are bound before the plan": (killed_after_the_first_batch, "gang_unplanned"),
    "a plan forgets the group's revision": (group_changes_before_the_plan, "plan_broken"),
    "a new leader forgets plans": (killed_after_the_plan, "over_capacity"),
    "planned bindings are not guarded": (late_bindings, "stale"),
    "the condition comes first": (to_its_end, "condition_wrong"),
    "failed members count": (members_fail, "gang_partial"),
    "a release ends half a group": (released, "unit_split"),
}


@pytest.mark.row("G74")
@pytest.mark.parametrize("bug", GROUPS)
def test_the_auditor_notices(bug: str) -> None:
    history, kind = HISTORIES[bug]
    with planted(bug):
        found = audited(history().store).findings
    assert getattr(found, kind) > 0, found.first


@pytest.mark.row("G74")
@pytest.mark.parametrize("bug", GROUPS)
def test_and_finds_nothing_in_the_same_history_without_the_bug(bug: str) -> None:
    history, _ = HISTORIES[bug]
    found = audited(history().store).findings
    assert found.total == 0, found.first
