"""Preemptions that one write cannot make: they are made in several, or refused as an error of the pod that wants the room."""

from __future__ import annotations

import pytest

from rayched.store.transactions import ALSO_MAX, WRITE_BYTES_MAX
from tests.core.builders import a_pod
from tests.core.leading import key_of, reason_of
from tests.core.preempting import a_leader, budget_key, budget_status, ending, hard_budget, pod_of, put, until_sent
from tests.core.replica import Clock, Replica


def guarded(count: int) -> Replica:
    """A leader over one full node with so many pods, each in a hard budget of its own that allows one disruption."""
    replica = a_leader({"n1": [a_pod(f"db-{i}", cpu="1", labels={"app": f"db-{i}"}) for i in range(count)]}, cpu=str(count))
    for i in range(count):
        hard_budget(replica.store, 1, f"guard-{i}", f"db-{i}")
    replica.settle()
    return replica


def allowed_by(replica: Replica, count: int) -> list[int]:
    return [budget_status(replica.store, budget_key(f"guard-{i}")).disruptions_allowed for i in range(count)]


@pytest.mark.parametrize("count", [10, ALSO_MAX - 1, ALSO_MAX, ALSO_MAX + 1, 3 * ALSO_MAX])
def test_any_number_of_hard_budgets_with_a_victim_each_is_spent_in_the_writes_that_end_the_victims(count: int) -> None:
    replica = guarded(count)
    put(replica.store, a_pod("vip", cpu=str(count), priority=10))
    replica.settle()
    assert len(ending(replica)) == count and pod_of(replica, "vip").status.nominated_node_name == "n1"
    assert allowed_by(replica, count) == [0] * count
    for i in range(count):
        victim, budget = replica.store.now[key_of(f"db-{i}")], replica.store.now[budget_key(f"guard-{i}")]
        assert victim.mod_revision == budget.mod_revision
        assert list(budget_status(replica.store, budget_key(f"guard-{i}")).disrupted_pods) == [f"db-{i}"]


def test_a_budget_of_many_victims_is_spent_write_by_write_and_never_exceeded() -> None:
    count = 3 * ALSO_MAX
    pods = [a_pod(f"db-{i}", cpu="1", labels={"app": "db"}) for i in range(count)]
    replica = a_leader({"n1": pods}, cpu=str(count))
    key = hard_budget(replica.store, count)
    replica.settle()
    put(replica.store, a_pod("vip", cpu=str(count), priority=10))
    replica.settle()
    assert len(ending(replica)) == count
    status = budget_status(replica.store, key)
    assert status.disruptions_allowed == 0 and sorted(status.disrupted_pods) == ending(replica)


def test_budgets_that_together_allow_too_little_by_now_end_nobody() -> None:
    count = 2 * ALSO_MAX
    replica = guarded(count)
    put(replica.store, a_pod("vip", cpu=str(count), priority=10))
    # Decided on what the cache shows, and not written yet; the last of the budgets is spent by others.
    replica.watch()
    replica.turn()
    while replica.exchange():
        replica.exchanged()
    replica.core.decide()
    hard_budget(replica.store, 0, f"guard-{count - 1}", f"db-{count - 1}")
    replica.settle()
    assert ending(replica) == [] and pod_of(replica, "vip").status.nominated_node_name == ""


def test_a_victim_whose_budget_others_spent_before_its_turn_stays_and_the_pod_looks_for_room_anew() -> None:
    count = ALSO_MAX + 2
    replica = guarded(count)
    put(replica.store, a_pod("vip", cpu=str(count), priority=10))
    until_sent(replica)
    assert replica.arrive()
    first = ending(replica)
    assert 0 < len(first) < count
    other = next(i for i in range(count) if f"db-{i}" not in first)
    hard_budget(replica.store, 0, f"guard-{other}", f"db-{other}")
    replica.settle()
    assert ending(replica) == sorted(f"db-{i}" for i in range(count) if i != other)
    assert [allowed for i, allowed in enumerate(allowed_by(replica, count)) if i != other] == [0] * (count - 1)
    assert replica.core.preemptions.is_quiet


def test_a_pod_in_more_hard_budgets_than_one_write_takes_ends_the_attempt_and_nothing_else() -> None:
    count = ALSO_MAX + 1
    replica = a_leader({"n1": [a_pod("db", cpu="4", labels={"app": "db"})]}, cpu="4")
    for i in range(count):
        hard_budget(replica.store, 1, f"guard-{i}", "db")
    replica.settle()
    put(replica.store, a_pod("vip", cpu="4", priority=10))
    replica.settle()
    assert ending(replica) == [] and pod_of(replica, "vip").status.nominated_node_name == ""
    reason, message = reason_of(replica, "vip")
    assert reason == "SchedulerError"
    counted = f"{count} hard disruption budgets count pod default/db: at most {ALSO_MAX} can be taken from at once"
    assert message == f"preemption rejected: {counted}"
    assert replica.core.scheduler.nominations.node_of("uid-vip") == ""
    put(replica.store, a_pod("small", cpu="0"))
    replica.settle()
    assert replica.bound()["small"] == "n1"


def test_a_pod_whose_budgets_are_too_large_for_one_write_ends_the_attempt_and_nothing_else() -> None:
    replica = a_leader({"n1": [a_pod("db", cpu="4", labels={"app": "db"})]}, cpu="4")
    for i in range(4):
        hard_budget(replica.store, 1, f"guard-{i}", "db", size=500_000)
    replica.settle()
    put(replica.store, a_pod("vip", cpu="4", priority=10))
    replica.settle()
    assert ending(replica) == [] and pod_of(replica, "vip").status.nominated_node_name == ""
    reason, message = reason_of(replica, "vip")
    assert reason == "SchedulerError"
    assert message.startswith("preemption rejected: pod default/db and its hard disruption budgets take 200")
    assert message.endswith(f"bytes: at most {WRITE_BYTES_MAX} can be written at once")
    assert replica.core.attempts["error"] == 1


@pytest.mark.parametrize("smaller", range(3))
def test_victims_that_follow_share_a_transaction_only_as_far_as_it_holds_them(smaller: int) -> None:
    victims = [a_pod(f"db-{i}", cpu="1", labels={"app": f"db-{i}"}) for i in range(3)]
    for pod in victims:
        pod.metadata.annotations["large"] = "x" * 250_000
    replica = a_leader({"n1": victims}, cpu="3")
    for i in range(3):
        for number, size in enumerate((200_000,) if i == smaller else (500_000, 500_000)):
            hard_budget(replica.store, 1, f"guard-{i}-{number}", f"db-{i}", size=size)
    replica.settle()
    put(replica.store, a_pod("vip", cpu="3", priority=10))
    until_sent(replica)
    sizes = []
    while len(ending(replica)) < 3:
        sizes += [len(send.content) for send in replica.to_store]
        while replica.arrive():
            replica.answer()
        replica.watch()
        replica.turn()
    assert len(sizes) >= 3 and max(sizes) <= WRITE_BYTES_MAX


def test_the_next_leader_goes_on_where_the_last_one_stopped_in_the_middle() -> None:
    count = 2 * ALSO_MAX
    replica = guarded(count)
    put(replica.store, a_pod("vip", cpu=str(count), priority=10))
    until_sent(replica)
    assert replica.arrive()
    first = ending(replica)
    for name in first:
        replica.store.delete(key_of(name))
    successor = Replica(replica.store, Clock(), "b")
    successor.list()
    successor.lead()
    successor.settle()
    assert len(ending(successor)) == count - len(first)
    assert allowed_by(successor, count) == [0] * count


def test_more_nominations_than_one_write_takes_are_cleared_all_the_same() -> None:
    count = ALSO_MAX + 5
    replica = a_leader({"n1": [a_pod("low", cpu=str(count))]}, cpu=str(count))
    for i in range(count):
        put(replica.store, a_pod(f"middle-{i}", cpu="1", priority=5))
    replica.settle()
    nominated = [i for i in range(count) if pod_of(replica, f"middle-{i}").status.nominated_node_name == "n1"]
    assert len(nominated) > ALSO_MAX
    put(replica.store, a_pod("vip", cpu=str(count), priority=10))
    replica.clock.now += 11
    replica.settle()
    assert pod_of(replica, "vip").status.nominated_node_name == "n1"
    assert [pod_of(replica, f"middle-{i}").status.nominated_node_name for i in range(count)] == [""] * count
