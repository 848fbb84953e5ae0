"""An attempt that awaits workers: no other begins before, everything else goes on, and nothing is lost whatever becomes of it."""

from __future__ import annotations

from collections.abc import Sequence

from rayched.engine.prepared import Answer
from rayched.engine.shards import ColumnRequest
from tests.core.builders import a_node, a_pod
from tests.core.leading import key_of, put_node, put_pod
from tests.core.model_store import ModelStore
from tests.core.replica import Clock, Replica


class Work:
    """SharedWork that is over when the test says so. Nobody answered: what was asked for is evaluated here then."""

    def __init__(self, n_requests: int) -> None:
        self.until = 1e9
        self.is_over = False
        self.seconds = [0.0] * n_requests

    def wait(self) -> None:
        raise AssertionError("whoever decides does not wait")

    def take(self) -> Sequence[Answer] | None:
        return None


class Workers:
    """A ShardEvaluator that is always asked."""

    always = True

    def __init__(self) -> None:
        self.works: list[Work] = []

    def pays(self, seconds: float) -> bool:
        return True

    def begin(self, requests: Sequence[ColumnRequest], n_rows: int, seconds: float, *, ahead: bool) -> Work:
        self.works.append(Work(len(requests)))
        return self.works[-1]

    def answer(self) -> None:
        for work in self.works:
            work.is_over = True


def a_leader() -> tuple[Replica, Workers]:
    store, workers = ModelStore(), Workers()
    for number in range(3):
        put_node(store, a_node(f"n{number}", cpu="64"))
    replica = Replica(store, Clock(), shards=lambda _: workers)
    replica.list()
    replica.lead()
    replica.settle()
    return replica, workers


def bound(replica: Replica, *names: str) -> list[str]:
    pods = {name: replica.store.pod(key_of(name)) for name in names}
    return [name for name, pod in pods.items() if pod is not None and pod.spec.node_name]


def let_answer(replica: Replica, workers: Workers) -> None:
    """Workers answer until nobody asks any more."""
    for _ in range(20):
        workers.answer()
        replica.watch()
        replica.settle()


def test_pods_behind_wait_in_their_order_and_workers_are_asked_for_them_meanwhile() -> None:
    replica, workers = a_leader()
    for number, name in enumerate(("first", "second", "third")):
        put_pod(replica.store, a_pod(name, cpu=f"{number + 1}"))
    replica.watch()
    replica.settle()
    assert bound(replica, "first", "second", "third") == []
    assert replica.decided_about == ["uid-first", ""]
    asked = len(workers.works)
    assert asked >= 3, "for the pods behind, too"
    let_answer(replica, workers)
    assert bound(replica, "first", "second", "third") == ["first", "second", "third"]
    begun = list(dict.fromkeys(uid for uid in replica.decided_about if uid))
    assert begun == ["uid-first", "uid-second", "uid-third"]


def test_what_is_known_is_written_and_told_while_an_attempt_awaits() -> None:
    replica, workers = a_leader()
    put_pod(replica.store, a_pod("before"))
    replica.watch()
    let_answer(replica, workers)
    workers.works.clear()
    put_pod(replica.store, a_pod("same"))
    put_pod(replica.store, a_pod("other", cpu="2"))
    put_pod(replica.store, a_pod("gone", cpu="3"))
    replica.watch()
    replica.settle()
    assert bound(replica, "before", "same", "other") == ["before", "same"], "a template that is known needs no worker"
    replica.store.delete(key_of("other"))
    replica.watch()
    replica.settle()
    let_answer(replica, workers)
    assert bound(replica, "gone") == ["gone"]
    link = replica.core.link
    assert link is not None and not any(link.concerns(f"uid-{name}") for name in ("before", "same", "other", "gone"))


def test_a_term_that_ends_drops_it_and_the_next_one_begins_anew() -> None:
    replica, workers = a_leader()
    put_pod(replica.store, a_pod("first"))
    replica.watch()
    replica.settle()
    replica.belief = None
    replica.settle()
    let_answer(replica, workers)
    assert bound(replica, "first") == [] and replica.core.drained
    replica.lead()
    replica.settle()
    let_answer(replica, workers)
    assert bound(replica, "first") == ["first"]


def test_the_loop_turns_when_workers_are_not_waited_for_any_longer() -> None:
    replica, workers = a_leader()
    put_pod(replica.store, a_pod("first"))
    replica.watch()
    replica.settle()
    workers.works[0].until = soon = replica.clock.now + 0.001
    replica.turn()
    assert replica.turn_at == soon
