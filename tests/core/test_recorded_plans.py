"""Groups that no single transaction takes, bound by a recorded plan, over a model store with etcd's own limits.

Each test ends with an auditor's reading of the history: it found nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rayched.api import kinds
from rayched.core.groups.planned_group import PlannedGroup
from rayched.core.groups.planned_places import PlannedPlaces
from rayched.store.keys import Keys
from rayched.v1.storage_pb2 import GroupPlan, Stored
from tests.core.builders import a_node, a_pod
from tests.core.grouped import (
    a_group,
    audited,
    bound_of,
    change_pod,
    group_key,
    put_group,
    put_members,
    revisions_of_bindings,
    scheduled,
)
from tests.core.leading import a_replica, assumed, decide, key_of, put_node, put_pod
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Replica

PLAN = KEYS.group_plan("default", "train")
MEMBERS = 60
"""More than one transaction of 128 operations takes with these nodes."""
NODES = 40


@pytest.fixture
def leader() -> Iterator[Replica]:
    """A leader over 40 nodes of 4 CPUs."""
    replica = a_replica(*(f"n{number}" for number in range(NODES)))
    yield replica
    findings = audited(replica.store).findings
    assert findings.total == 0, findings.first


def a_large_group(store: ModelStore, least: int = MEMBERS, members: int = MEMBERS, **options: object) -> None:
    put_group(store, a_group(least=least))
    put_members(store, members, **options)


def plan_in(store: ModelStore) -> GroupPlan | None:
    entry = store.now.get(PLAN)
    return None if entry is None else Stored.FromString(entry.value).group_plan


def plans_ever(store: ModelStore) -> list[tuple[int, bool]]:
    """Revisions in which the plan's key changed, and whether it was there afterwards."""
    found = []
    for revision, changes in enumerate(store.history, 1):
        found += [(revision, hasattr(change, "value")) for change in changes if change.key == PLAN]
    return found


def send_a_plan(leader: Replica) -> None:
    """The store has refused the group in one transaction, and the plan is on its way."""
    decide(leader)
    leader.turn()
    assert [send.op for send in leader.to_store] == ["group"]
    leader.arrive()
    leader.answer()
    leader.turn()
    assert [send.op for send in leader.to_store] == ["group-plan"]


@pytest.mark.parametrize(("raised", "n_bound"), [(59, 59), (60, 0)])
def test_a_minimum_that_was_raised_before_the_plan_is_sent_is_kept(leader: Replica, raised: int, n_bound: int) -> None:
    a_large_group(leader.store, least=58, cpu="2700m")
    for number in range(NODES, 59):
        put_node(leader.store, a_node(f"n{number}", cpu="4"))
    decide(leader)
    leader.turn()
    assert [send.op for send in leader.to_store] == ["group"]
    leader.arrive()
    leader.answer()
    put_group(leader.store, a_group(least=raised))
    leader.settle()
    assert len(bound_of(leader)) == n_bound
    assert [whether for _, whether in plans_ever(leader.store)] == ([True, False] if n_bound else [])


def with_a_plan(leader: Replica) -> dict[str, str]:
    """The plan is in the store, and no member is bound yet. Gives nodes by member."""
    send_a_plan(leader)
    leader.arrive()
    plan = plan_in(leader.store)
    assert plan is not None and not leader.bound()
    return {one.name: one.node for one in plan.members}


def successor_of(leader: Replica, name: str = "b") -> Replica:
    """Another replica leads; the old one never hears of it."""
    other = Replica(leader.store, leader.clock, name)
    other.list()
    other.lead()
    return other


@pytest.mark.row("G42", "G73")
def test_a_group_beyond_the_store_s_limit_is_bound_by_a_plan_that_goes_afterwards(leader: Replica) -> None:
    a_large_group(leader.store)
    leader.settle()
    assert len(bound_of(leader)) == MEMBERS
    (written, there), (gone, still) = plans_ever(leader.store)
    assert there and not still
    revisions = revisions_of_bindings(leader.store).values()
    assert written < min(revisions) and max(revisions) < gone
    assert scheduled(leader.store) == ("True", "Scheduled", "60 of 60 members are bound; 60 are needed")
    assert leader.core.attempts == {"scheduled": MEMBERS}
    assert assumed(leader) == 0


@pytest.mark.row("G42", "G73")
@pytest.mark.parametrize("members", [200, 1_000])
def test_groups_of_hundreds_start_with_a_store_that_takes_small_transactions_alone(members: int) -> None:
    replica = a_replica(*(f"n{number}" for number in range(members // 4)))
    a_large_group(replica.store, members, members)
    replica.settle()
    assert len(bound_of(replica)) == members
    assert plan_in(replica.store) is None
    assert scheduled(replica.store)[0] == "True"
    assert audited(replica.store).findings.total == 0


@pytest.mark.row("G43")
@pytest.mark.parametrize("n_batches", [0, 1])
def test_the_next_leader_binds_the_rest_to_the_same_nodes(leader: Replica, n_batches: int) -> None:
    a_large_group(leader.store, 120, 120)
    planned = with_a_plan(leader)
    leader.answer()
    leader.turn()
    late = leader.to_store[n_batches:]
    for _ in range(n_batches):
        leader.arrive()
    successor = successor_of(leader)
    successor.settle()
    assert successor.bound() == planned
    assert plan_in(leader.store) is None and scheduled(leader.store)[0] == "True"
    revision = leader.store.revision
    for send in late:
        assert not leader.stored(send).succeeded
    assert leader.store.revision == revision


@pytest.mark.row("G43", "G72")
def test_a_leader_that_dies_before_it_hears_of_its_plan_leaves_it_to_the_next(leader: Replica) -> None:
    a_large_group(leader.store)
    planned = with_a_plan(leader)
    successor = successor_of(leader)
    successor.settle()
    assert successor.bound() == planned


@pytest.mark.row("G44")
def test_a_leader_that_dies_before_the_plan_leaves_no_trace(leader: Replica) -> None:
    a_large_group(leader.store)
    send_a_plan(leader)
    (sent,) = leader.to_store
    successor = successor_of(leader)
    assert not leader.stored(sent).succeeded
    assert plan_in(leader.store) is None
    successor.settle()
    assert len(bound_of(successor)) == MEMBERS


@pytest.mark.row("G43", "G49")
def test_the_same_process_in_a_new_term_goes_on_with_its_plan(leader: Replica) -> None:
    a_large_group(leader.store)
    planned = with_a_plan(leader)
    leader.lead()
    leader.settle()
    assert leader.bound() == planned
    assert plan_in(leader.store) is None


def test_a_lost_answer_of_the_plan_s_write_changes_nothing(leader: Replica) -> None:
    a_large_group(leader.store)
    send_a_plan(leader)
    leader.arrive(lose_answer=True)
    leader.settle()
    leader.clock.now += 1.0
    leader.settle()
    assert len(bound_of(leader)) == MEMBERS and len(plans_ever(leader.store)) == 2


@pytest.mark.parametrize("at", ["bindings", "end"])
def test_lost_answers_of_bindings_and_of_the_end_bind_nobody_twice(leader: Replica, at: str) -> None:
    a_large_group(leader.store)
    with_a_plan(leader)
    for _ in range(40):
        leader.answer()
        leader.turn()
        is_end = any(send.op == "group-plan" for send in leader.to_store)
        if leader.to_store:
            leader.arrive(lose_answer=is_end == (at == "end"))
        leader.watch()
        leader.clock.now += 1.0
    leader.settle()
    assert len(bound_of(leader)) == MEMBERS and plan_in(leader.store) is None
    assert leader.core.attempts == {"scheduled": MEMBERS}


@pytest.mark.row("G45")
@pytest.mark.parametrize("who", ["the same leader", "the next leader"])
def test_nobody_else_gets_planned_room_whatever_its_priority(leader: Replica, who: str) -> None:
    a_large_group(leader.store, 80, 80, cpu="2")
    planned = with_a_plan(leader)
    put_pod(leader.store, a_pod("high", cpu="2", priority=1_000))
    replica = leader if who == "the same leader" else successor_of(leader)
    replica.settle()
    assert "high" not in replica.bound()
    assert replica.bound() == planned


@pytest.mark.row("G46")
@pytest.mark.parametrize("who", ["the same leader", "the next leader"])
def test_a_planned_member_whose_node_goes_gets_another_one_and_others_stay(leader: Replica, who: str) -> None:
    a_large_group(leader.store)
    planned = with_a_plan(leader)
    gone = planned["train-0"]
    leader.store.delete(KEYS.object_key(kinds.NODE, "", gone))
    replica = leader if who == "the same leader" else successor_of(leader)
    replica.settle()
    bound = replica.bound()
    assert len(bound) == MEMBERS and gone not in bound.values()
    stayed = {name: node for name, node in planned.items() if node != gone}
    assert stayed.items() <= bound.items()
    assert plan_in(leader.store) is None and scheduled(leader.store)[0] == "True"


@pytest.mark.row("G46")
@pytest.mark.parametrize("how", ["cordoned", "taken", "changed and still good"])
def test_a_node_that_changes_while_bindings_are_under_way(leader: Replica, how: str) -> None:
    a_large_group(leader.store, cpu="2")
    planned = with_a_plan(leader)
    leader.answer()
    leader.turn()
    assert leader.to_store
    node = planned["train-0"]
    if how == "cordoned":
        put_node(leader.store, a_node(node, unschedulable=True))
    elif how == "taken":
        taker = a_pod("taker", cpu="4")
        taker.spec.node_name = node
        put_pod(leader.store, taker)
        leader.store.put(KEYS.taken(node), b"")
    else:
        put_node(leader.store, a_node(node, labels={"new": "label"}))
    leader.settle()
    assert len(bound_of(leader)) == MEMBERS
    assert (leader.bound()["train-0"] == node) == (how == "changed and still good")
    assert len(plans_ever(leader.store)) == (2 if how.startswith("changed") else 3)


@pytest.mark.parametrize("what", ["member", "status"])
def test_a_member_that_goes_or_changes_leaves_the_others_where_they_are(leader: Replica, what: str) -> None:
    a_large_group(leader.store, MEMBERS - 1, MEMBERS)
    planned = with_a_plan(leader)
    leader.answer()
    leader.turn()
    if what == "member":
        leader.store.delete(key_of("train-0"))
        del planned["train-0"]
    else:
        change_pod(leader.store, "train-0", message="somebody wrote")
    leader.settle()
    assert leader.bound() == planned
    assert plan_in(leader.store) is None and scheduled(leader.store)[0] == "True"


def test_a_plan_that_ends_below_the_minimum_does_not_say_that_the_group_was_scheduled(leader: Replica) -> None:
    a_large_group(leader.store)
    with_a_plan(leader)
    leader.store.delete(key_of("train-0"))
    leader.settle()
    assert len(bound_of(leader)) == MEMBERS - 1
    assert plan_in(leader.store) is None and scheduled(leader.store)[0] != "True"
    put_members(leader.store, 1, first=MEMBERS)
    leader.settle()
    assert len(bound_of(leader)) == MEMBERS and scheduled(leader.store)[0] == "True"


@pytest.mark.row("G68")
@pytest.mark.parametrize("how", ["deleted", "made again"])
def test_a_group_that_goes_while_its_plan_is_carried_out_ends_the_plan(leader: Replica, how: str) -> None:
    a_large_group(leader.store, 120, 120)
    with_a_plan(leader)
    leader.store.delete(group_key())
    if how == "made again":
        put_group(leader.store, a_group(least=120, uid="another"))
    leader.settle()
    assert plan_in(leader.store) is None
    assert len(bound_of(leader)) == (0 if how == "deleted" else 120)
    assert assumed(leader) == 0


@pytest.mark.row("G68")
def test_a_plan_that_is_seen_while_its_end_is_written_holds_no_room_when_it_is_over(leader: Replica) -> None:
    a_large_group(leader.store)
    planned = with_a_plan(leader)
    leader.answer()
    leader.watch()
    leader.store.delete(KEYS.object_key(kinds.NODE, "", planned["train-0"]))
    leader.watch()
    leader.turn()
    assert [send.op for send in leader.to_store] == ["group-plan"], "another place for a member"
    # The group goes before that is written, and is seen to go before the plan is seen.
    leader.store.delete(group_key())
    leader.arrive()
    leader.answer()
    leader.watch(revisions=1)
    leader.turn()
    leader.settle()
    assert plan_in(leader.store) is None and not leader.bound() and assumed(leader) == 0


def test_a_higher_minimum_does_not_stop_a_plan_and_is_not_reached_by_it(leader: Replica) -> None:
    a_large_group(leader.store)
    with_a_plan(leader)
    put_group(leader.store, a_group(least=MEMBERS + 1))
    leader.settle()
    assert len(bound_of(leader)) == MEMBERS
    assert plan_in(leader.store) is None and scheduled(leader.store)[0] != "True"


@pytest.mark.row("G41")
@pytest.mark.parametrize("what", ["group", "a node among few", "a node among many", "room taken among many"])
def test_what_changed_since_the_decision_makes_the_plan_void(leader: Replica, what: str) -> None:
    few = what == "a node among few"
    if few:
        put_node(leader.store, a_node("n0", cpu="400", pods="400"))
        put_members(leader.store, 150, selector={"kubernetes.io/hostname": "n0"})
        put_group(leader.store, a_group(least=150))
    else:
        for number in range(NODES, 60):
            put_node(leader.store, a_node(f"n{number}"))
        a_large_group(leader.store, 60, 60, cpu="3")
    send_a_plan(leader)
    if what == "group":
        put_group(leader.store, a_group(least=61))
    elif what == "room taken among many":
        leader.store.put(KEYS.taken("n3"), b"")
    else:
        put_node(leader.store, a_node("n0", cpu="400", pods="400", unschedulable=True))
    leader.arrive()
    assert plan_in(leader.store) is None
    leader.settle()
    # What is left of the nodes has room for all but one of them.
    assert len(bound_of(leader)) == (60 if what == "room taken among many" else 0)
    assert assumed(leader) == 0


def test_a_plan_that_cannot_be_read_holds_its_group_and_nobody_else() -> None:
    leader = a_replica("n1", "n2")
    leader.store.put(PLAN, b"\xff\xff")
    a_large_group(leader.store, 2, 2)
    put_group(leader.store, a_group("other", 2))
    put_members(leader.store, 2, "other")
    leader.settle()
    leader.clock.now += 5.0
    leader.settle()
    assert bound_of(leader) == [] and len(bound_of(leader, "other")) == 2
    assert "its plan in the store cannot be read" in scheduled(leader.store)[2]
    leader.store.delete(PLAN)
    leader.settle()
    assert len(bound_of(leader)) == 2


def test_a_plan_that_somebody_deletes_binds_nobody_else_and_the_group_is_decided_anew() -> None:
    replica = a_replica(*(f"n{number}" for number in range(NODES)))
    a_large_group(replica.store)
    with_a_plan(replica)
    replica.store.delete(PLAN)
    replica.settle()
    assert len(bound_of(replica)) == MEMBERS
    assert plan_in(replica.store) is None
    findings = audited(replica.store).findings
    assert findings.plan_broken == 1 == findings.total
    assert "went while 60 of its members have no node" in findings.first["plan_broken"]


def test_a_queue_that_is_lost_does_not_disturb_a_plan(leader: Replica) -> None:
    a_large_group(leader.store)
    planned = with_a_plan(leader)
    leader.lose_queue()
    leader.settle()
    assert leader.bound() == planned and leader.queue.queue.pending().total == 0


def test_members_that_come_while_a_plan_is_carried_out_follow_it(leader: Replica) -> None:
    a_large_group(leader.store)
    with_a_plan(leader)
    put_members(leader.store, 3, first=MEMBERS)
    leader.settle()
    assert len(bound_of(leader)) == MEMBERS + 3


def test_a_group_that_no_plan_takes_is_refused_with_a_clear_condition() -> None:
    replica = a_replica(*(f"n{number}" for number in range(6)))
    for number in range(6):
        put_node(replica.store, a_node(f"n{number}", cpu="400", pods="400"))
    a_large_group(replica.store, 2_001, 2_001)
    replica.settle()
    status, reason, message = scheduled(replica.store)
    assert (status, reason) == ("False", "SchedulerError")
    assert "2001 members have to be bound together, and a plan takes 2000 of them" in message
    assert bound_of(replica) == [] and assumed(replica) == 0


def test_a_plan_s_key_names_its_group() -> None:
    keys = Keys("/t")
    assert keys.group_of_plan(keys.group_plan("a", "b")) == "a/b"
    for key in (b"/t/cluster/groupplans/a", b"/t/cluster/groupplans/a/b/c", b"/t/cluster/pods/a/b", b"/t/cluster/groupplans//b"):
        assert keys.group_of_plan(key) is None


def test_while_nothing_can_be_written_for_a_plan_nobody_looks_at_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = a_replica(*(f"n{number}" for number in range(150)))
    a_large_group(replica.store, 600, 600)
    with_a_plan(replica)
    looks: list[str] = []
    real = PlannedPlaces.look_at

    def counted(places: PlannedPlaces, planned: PlannedGroup, now: float, now_unix: float) -> None:
        looks.append(planned.uid)
        real(places, planned, now, now_unix)

    monkeypatch.setattr(PlannedPlaces, "look_at", counted)
    replica.answer()
    replica.turn()
    assert looks and replica.core.window.room == 0
    looks.clear()
    for _ in range(10):
        replica.turn()
    assert looks == []
    replica.settle()
    assert looks and len(bound_of(replica)) == 600
    assert audited(replica.store).findings.total == 0
