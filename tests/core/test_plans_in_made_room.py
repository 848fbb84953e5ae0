"""Recorded plans of groups that made room for themselves or have a topology, over a model store with etcd's own limits.

Each test ends with an auditor's reading of the history: it found nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rayched.api import kinds
from rayched.store.entries import Entry
from rayched.v1.storage_pb2 import GroupPlan, Stored
from tests.core.builders import a_node
from tests.core.grouped import (
    a_group,
    audited,
    bound_of,
    put_group,
    put_members,
    revisions_of_bindings,
    scheduled,
)
from tests.core.leading import a_replica, decide, put_node
from tests.core.model_store import ModelStore
from tests.core.preempting import a_leader, ending, full_of, pod_of, stop_ending
from tests.core.replica import KEYS, Replica

PLAN = KEYS.group_plan("default", "train")
ZONE = "topology.kubernetes.io/zone"
MEMBERS = 60
"""More than one transaction of 128 operations takes with as many nodes."""
LOW = 40
"""Of the nodes so many have a pod that has to go."""


@pytest.fixture
def crowded() -> Iterator[Replica]:
    """A leader over 60 nodes that take one member each, once pods of lower priority have left 40 of them."""
    replica = a_leader({f"n{number}": full_of(f"low-{number}", cpu="3") if number < LOW else [] for number in range(MEMBERS)})
    yield replica
    nothing_found(replica.store)


def nothing_found(store: ModelStore) -> None:
    assert audited(store).findings.counts() == dict.fromkeys(audited(ModelStore()).findings.counts(), 0)


def put_train(replica: Replica) -> None:
    put_group(replica.store, a_group(least=MEMBERS, priority=10))
    put_members(replica.store, MEMBERS, cpu="3", priority=10)


def plan_in(store: ModelStore) -> GroupPlan | None:
    entry = store.now.get(PLAN)
    return None if entry is None else Stored.FromString(entry.value).group_plan


def until_planned(replica: Replica) -> dict[str, str]:
    """The plan is in the store, and no member is bound yet. Gives nodes by member."""
    for _ in range(20):
        decide(replica)
        replica.turn()
        for _ in list(replica.to_store):
            replica.arrive()
            plan = plan_in(replica.store)
            if plan is not None:
                assert bound_of(replica) == []
                return {one.name: one.node for one in plan.members}
        while replica.answer():
            pass
    raise AssertionError("no plan was written")


def successor_of(leader: Replica) -> Replica:
    """Another replica leads; the old one never hears of it."""
    other = Replica(leader.store, leader.clock, "b")
    other.list()
    other.lead()
    return other


@pytest.mark.row("G42", "G50")
def test_the_plan_is_written_once_all_victims_have_gone(crowded: Replica) -> None:
    put_train(crowded)
    crowded.settle()
    assert len(ending(crowded)) == LOW and plan_in(crowded.store) is None and bound_of(crowded) == []
    stop_ending(crowded)
    gone = crowded.store.revision
    crowded.settle()
    assert len(bound_of(crowded)) == MEMBERS and scheduled(crowded.store)[:2] == ("True", "Scheduled")
    written = [
        revision
        for revision, changes in enumerate(crowded.store.history, 1)
        if any(change.key == PLAN and isinstance(change, Entry) for change in changes)
    ]
    assert len(written) == 1 and gone < written[0] < min(
        revision for name, revision in revisions_of_bindings(crowded.store).items() if name.startswith("train-")
    )
    assert plan_in(crowded.store) is None
    assert {pod_of(crowded, f"train-{number}").status.nominated_node_name for number in range(MEMBERS)} == {""}


@pytest.mark.row("G43", "G57")
def test_the_next_leader_follows_the_plan_and_not_the_nominations(crowded: Replica) -> None:
    put_train(crowded)
    crowded.settle()
    stop_ending(crowded)
    planned = until_planned(crowded)
    successor = successor_of(crowded)
    successor.settle()
    assert {name: node for name, node in successor.bound().items() if name.startswith("train-")} == planned
    assert plan_in(crowded.store) is None and scheduled(crowded.store)[0] == "True"
    assert not successor.core.scheduler.nominations.of


@pytest.mark.row("G46", "GT3")
@pytest.mark.parametrize("how", ["goes", "changes its zone"])
def test_a_planned_member_that_loses_its_node_stays_in_the_zone_of_the_others(how: str) -> None:
    leader = a_replica()
    for zone, count in (("a", 3 * MEMBERS), ("b", MEMBERS + 1), ("c", 2 * MEMBERS)):
        for number in range(count):
            put_node(leader.store, a_node(f"{zone}-{number}", cpu="4", labels={ZONE: zone}))
    put_group(leader.store, a_group(least=MEMBERS, topology=ZONE))
    put_members(leader.store, MEMBERS, cpu="3")
    planned = until_planned(leader)
    assert {node[0] for node in planned.values()} == {"b"}
    lost = planned["train-0"]
    if how == "goes":
        leader.store.delete(KEYS.object_key(kinds.NODE, "", lost))
    else:
        put_node(leader.store, a_node(lost, cpu="4", labels={ZONE: "a"}))
    successor = successor_of(leader)
    successor.settle()
    bound = successor.bound()
    assert len(bound_of(successor)) == MEMBERS and lost not in bound.values()
    assert {node[0] for node in bound.values()} == {"b"}
    nothing_found(leader.store)
