"""Turns of namespaces through scheduler core, exchange and queue: what attempts take reaches the queue, and others go first."""

from __future__ import annotations

import pytest

from rayched.api.kinds import POD
from rayched.core.exchange.fair_link import FAIR_HAND_MIN, FairLink
from rayched.core.exchange.messages import PODS_MAX, ExchangeAnswer
from rayched.core.exchange.queue_metrics import queue_metrics
from tests.core.builders import a_node, a_pod, stored
from tests.core.leading import put_node
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Clock, Replica

COST = 0.01
FLOOD = 200
OTHERS = 20


class Costly(Replica):
    """Each cycle takes a hundredth of a second."""

    def decides_about(self, uid: str) -> None:
        super().decides_about(uid)
        if uid:
            self.clock.now += COST

    def cycles(self) -> list[str]:
        """Namespaces in the order of their cycles."""
        return [uid.partition("-")[0] for uid in self.decided_about if uid]


def put(store: ModelStore, namespace: str, number: int, priority: int = 0) -> None:
    pod = a_pod(f"{namespace}-{number}", cpu="1m", priority=priority, uid=f"{namespace}-{number}")
    pod.metadata.namespace = namespace
    store.put(KEYS.object_key(POD, namespace, pod.metadata.name), stored(pod))


def played(*, fair: bool, priority_of_others: int = 0) -> Costly:
    store = ModelStore()
    for number in range(3):
        put_node(store, a_node(f"node-{number}", cpu="1000"))
    for number in range(FLOOD):
        put(store, "flood", number)
    for number in range(OTHERS):
        put(store, "other", number, priority_of_others)
    replica = Costly(store, Clock(), fair_namespaces=fair)
    replica.list()
    replica.lead()
    replica.settle()
    assert len(replica.cycles()) == FLOOD + OTHERS
    assert all(entry.node_name for entry in map(replica.core.cache.pod, replica.core.cache.uids()) if entry is not None)
    assert replica.queue.queue.verify() == [] and not replica.queue.violations and not replica.queue.refused
    return replica


def turns(replica: Costly) -> float:
    (family,) = [one for one in queue_metrics(replica.queue) if one.name == "rayched_queue_namespace_turns"]
    return float(family.samples[0].value)


def test_who_had_half_of_a_second_lets_others_go_first() -> None:
    replica = played(fair=True)
    cycles = replica.cycles()
    half, short_hand = round(0.5 / COST), 2 * FAIR_HAND_MIN
    assert cycles.index("other") <= half + short_hand
    assert cycles[cycles.index("other") :][:OTHERS] == ["other"] * OTHERS
    assert turns(replica) == OTHERS
    flood = [uid for uid in replica.decided_about if uid.startswith("flood")]
    assert flood == [f"flood-{number}" for number in range(FLOOD)], "order within a namespace stays"


def test_without_it_pods_are_tried_in_their_order_alone() -> None:
    replica = played(fair=False)
    assert replica.cycles() == ["flood"] * FLOOD + ["other"] * OTHERS
    assert turns(replica) == 0


def test_another_priority_has_no_turn() -> None:
    assert played(fair=True, priority_of_others=-1).cycles() == ["flood"] * FLOOD + ["other"] * OTHERS


@pytest.mark.parametrize(("pods", "seconds", "wanted"), [(1, 0.01, FAIR_HAND_MIN), (50, 0.005, 100), (9, 0.0, PODS_MAX)])
def test_the_hand_is_two_batches(pods: int, seconds: float, wanted: int) -> None:
    link = FairLink(1, lambda: 0.0)
    link.taken(pods, seconds, 0.005)
    link.taken(0, 0.0, 0.005)
    assert link._hand_wanted == wanted


def test_time_is_of_whom_it_was_spent_for() -> None:
    clock = Clock()
    link = FairLink(1, clock)
    link.answered(ExchangeAnswer(1, ("u", "v", "w"), namespaces=("a", "b", "a")), {"u": 0, "v": 0, "w": 0})
    for uid, seconds in (("u", 0.1), ("v", 0.2), ("w", 0.3)):
        assert link.take() == uid
        clock.now += seconds
    link.taken(3, 0.6, 0.005)
    clock.now += 5.0
    link.take_up("v")
    clock.now += 0.4
    assert link.take() is None
    clock.now += 7.0
    link.taken(0, 0.0, 0.005)
    assert link._spent == pytest.approx({"a": 0.4, "b": 0.6})


def test_namespaces_of_pods_that_have_landed_are_forgotten() -> None:
    link = FairLink(1, lambda: 0.0)
    for number in range(3):
        uids = tuple(f"{number}-{place}" for place in range(PODS_MAX))
        link.answered(ExchangeAnswer(1, uids, namespaces=("a",) * PODS_MAX), dict.fromkeys(uids, 0))
        while (uid := link.take()) is not None:
            link.ended(uid)
    assert len(link._namespaces) <= 2 * PODS_MAX
