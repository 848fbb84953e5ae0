"""What breaks parks itself; a queue that dies and a list that starts anew lose nothing. As scripted histories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rayched.api import kinds
from rayched.core.exchange import queue_session as queue_link
from rayched.snapshot.columns import Log
from rayched.store.entries import Entry
from rayched.store.list_watch_effects import ListedAll
from rayched.v1.core_pb2 import Pod
from tests.core.builders import a_node, a_pod, stored
from tests.core.leading import a_replica, decide, key_of, put_node, put_pod, reason_of
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Clock, Replica, default_profiles

# --------------------------------------------------------------------------------------------------- what breaks, parks


def test_one_poisoned_object_among_many_parks_itself() -> None:
    replica = a_replica("n1", "n2")
    for i in range(40):
        put_pod(replica.store, a_pod(f"p{i}", cpu="100m"))
        if i == 20:
            replica.store.put(key_of("bad-bytes"), b"\xff\xff")
            broken = a_pod("bad-quantity")
            broken.spec.containers[0].resources.requests["cpu"].string = "two"
            put_pod(replica.store, broken)
            wrong = a_node("bad-node")
            wrong.status.allocatable["cpu"].string = "many"
            put_node(replica.store, wrong)
            replica.store.put(key_of("bad-twin"), stored(a_pod("bad-twin", uid="uid-p0")))
    replica.settle()
    assert len(replica.bound()) == 40
    assert len(replica.core.cache.poisoned) == 4
    assert len(replica.core.problems.take()) == 4 and replica.core.problems.take() == []
    assert "uid" in replica.core.cache.poisoned[key_of("bad-twin")]


def test_a_node_that_becomes_unreadable_is_used_no_more_and_a_bound_pod_keeps_its_room() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web", cpu="3"))
    replica.settle()
    replica.store.put(key_of("web"), b"\xff\xff")
    put_pod(replica.store, a_pod("other", cpu="3"))
    replica.watch()
    decide(replica)
    assert replica.core.attempts["unschedulable"] == 1, "the room of the unreadable pod was given away"
    replica.store.put(KEYS.object_key(kinds.NODE, "", "n1"), b"\xff\xff")
    replica.watch()
    assert replica.core.snapshot.n_nodes == 0


class Moody:
    """A Filter plugin that raises for one pod's label."""

    name = "Moody"
    reads = Log.USAGE

    def key(self, pod: Pod) -> str | None:
        if pod.metadata.labels.get("mood") == "bad":
            raise RuntimeError("not today")
        return None

    def prepare(self, pod: Pod) -> None: ...

    def filter(self, state: object, rows: object) -> None: ...

    def reasons(self, state: object, rows: object, codes: object) -> list[object]:
        return []


@pytest.mark.row("D4", "K6.3")
def test_a_plugin_that_raises_for_one_pod_ends_its_attempt_and_no_other() -> None:
    (profile,) = default_profiles().values()
    moody = replace(profile, filter=(Moody(), *profile.filter))  # type: ignore[arg-type]
    replica = a_replica("n1", profiles={moody.scheduler_name: moody})
    put_pod(replica.store, a_pod("poison", labels={"mood": "bad"}, priority=9))
    for i in range(3):
        put_pod(replica.store, a_pod(f"p{i}"))
    replica.settle()
    assert set(replica.bound()) == {"p0", "p1", "p2"}
    (told,) = replica.core.problems.take()
    assert told.startswith('plugin "Moody", PreFilter: RuntimeError: not today\nTraceback') and "in key" in told
    reason, message = reason_of(replica, "poison")
    assert reason == "SchedulerError" and "Moody" in message and "not today" in message
    assert replica.queue.queue.pending().error_backoff == 1


# --------------------------------------------------------------------------------------------------- queue and sessions


def test_when_the_queue_dies_all_begins_anew_from_the_cache_and_nothing_is_lost_or_tried_twice() -> None:
    replica = a_replica("n1")
    for i in range(3):
        put_pod(replica.store, a_pod(f"p{i}", cpu="1"))
    put_pod(replica.store, a_pod("too-large", cpu="9"))
    decide(replica)
    replica.turn()
    session = replica.core.link.session  # type: ignore[union-attr]
    replica.exchange()
    late = replica.from_queue.pop() if replica.from_queue else None
    replica.lose_queue()
    assert replica.core.link.session > session  # type: ignore[union-attr]
    if late is not None:
        replica.core.exchange_answered(late)
    replica.settle()
    assert len(replica.bound()) == 3 and replica.core.attempts["scheduled"] == 3
    assert replica.queue.queue.pending().total == 1 and replica.queue.queue.verify() == []


def test_pods_that_a_dead_queue_handed_out_are_not_taken_into_the_hand() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    replica.watch()
    replica.turn()
    replica.exchange()
    (late,) = replica.from_queue
    assert late.uids == ("uid-web",)
    replica.lose_queue()
    replica.core.exchange_answered(late)
    assert not replica.core.decide()
    replica.settle()
    assert replica.bound() == {"web": "n1"}


def test_a_request_of_an_old_session_gets_no_pods() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    replica.watch()
    replica.turn()
    (request,) = replica.to_queue
    replica.queue.exchange(replace(request, session=request.session + 1, entries=(), want=0))
    answer = replica.queue.exchange(request)
    assert answer.uids == () and answer.session == request.session + 1


def test_at_takeover_pods_are_queued_oldest_first_and_the_urgent_ones_before_them() -> None:
    store = ModelStore()
    put_node(store, a_node("n1", cpu="100"))
    for name, priority in (("c", 0), ("a", 0), ("urgent", 7), ("b", 0)):
        put_pod(store, a_pod(name, priority=priority))
    replica = Replica(store, Clock())
    replica.list()
    replica.lead()
    replica.watch()
    replica.turn()
    replica.exchange()
    (answer,) = replica.from_queue
    assert answer.uids == ("uid-urgent", "uid-c", "uid-a", "uid-b")


# ----------------------------------------------------------------------------------------------------------------- list


def test_a_relist_is_taken_as_the_changes_that_were_missed() -> None:
    replica = a_replica("n1", "n2")
    put_pod(replica.store, a_pod("stays", selector={"kubernetes.io/hostname": "n1"}, cpu="3"))
    put_pod(replica.store, a_pod("leaves", selector={"kubernetes.io/hostname": "n2"}, cpu="3"))
    put_pod(replica.store, a_pod("waits", cpu="4"))
    replica.settle()
    assert set(replica.bound()) == {"stays", "leaves"}
    replica.store.delete(key_of("leaves"))
    put_pod(replica.store, a_pod("new", selector={"kubernetes.io/hostname": "n1"}))
    recreated = a_pod("waits", cpu="4", uid="another")
    replica.store.delete(key_of("waits"))
    put_pod(replica.store, recreated)
    replica.clock.now += 3.0
    replica.list()
    replica.settle()
    assert replica.bound() == {"stays": "n1", "new": "n1", "waits": "n2"}
    assert replica.core.scheduler.occupancy.n_observed == 3


def test_a_list_shows_signs_of_life_and_counts_pods_whose_node_comes_later_in_it() -> None:
    pods = [a_pod(f"p{i}") for i in range(2000)]
    for pod in pods:
        pod.spec.node_name = "n1"
    entries = [Entry(key_of(pod.metadata.name), stored(pod), 2, 2) for pod in pods]
    node = Entry(KEYS.object_key(kinds.NODE, "", "n1"), stored(a_node("n1", pods="5000")), 3, 3)
    replica = Replica(ModelStore(), Clock())
    signs: list[int] = []
    replica.core.cache._progress = lambda: signs.append(1)
    replica.deliver(ListedAll((*entries, node), 3))
    assert len(signs) >= 3 and replica.core.snapshot.n_pods == 2000
    assert replica.core.snapshot.requested[0, 0] == 2_000_000


def test_large_templates_cross_over_a_few_at_a_time_and_the_queue_keeps_so_many_bytes_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_link, "CALL_BYTES_MAX", 3_000)
    monkeypatch.setattr(queue_link, "TEMPLATES_BYTES_MAX", 8_000)
    replica = a_replica("n1", "n2")
    for number in range(40):
        put_pod(replica.store, a_pod(f"p{number}", cpu="100m", labels={"own": "x" * 900 + str(number)}))
    replica.watch()
    sizes = []
    for _ in range(200):
        replica.turn()
        if not replica.to_queue:
            break
        request = replica.to_queue[0]
        sizes.append(sum(map(len, request.templates.values())))
        replica.exchange()
        replica.exchanged()
    assert max(sizes) < 4_200 and sum(sizes) > 40 * 900
    replica.settle()
    assert len(replica.bound()) == 40
    link = replica.core.link
    assert link is not None and link._crossed_bytes == sum(link._crossed.values()) <= 8_000
    assert set(link._crossed) == set(replica.queue._templates)
