"""An exchange that needs long is answered in slices, and what comes of it is the same."""

from __future__ import annotations

from random import Random

import pytest

from rayched.actors.messages import ExchangeAnswer, ExchangeRequest
from rayched.actors.queue_core import SLICE_SECONDS, LogGap, QueueCore, queue_factory
from rayched.framework.configuration import Configuration
from tests.actors.builders import a_node, a_pod
from tests.actors.leading import put_node, put_pod
from tests.actors.model_store import ModelStore
from tests.actors.replica import Clock, Replica


class SlowQueue(QueueCore):
    """Each look at its clock takes some time; it keeps how far behind its answers were."""

    def __init__(self, replica: Replica, seconds: float) -> None:
        self.now, self.behind = 0.0, list[int]()

        def stopwatch() -> float:
            self.now += seconds
            return self.now

        super().__init__(queue_factory(Configuration(), replica.profiles), stopwatch)

    def exchange(self, request: ExchangeRequest) -> ExchangeAnswer:
        answer = super().exchange(request)
        self.behind.append(answer.behind)
        assert not answer.behind or not answer.uids, "nobody is handed out while the log is not at its end"
        return answer


def played(seed: int, seconds: float) -> tuple[Replica, SlowQueue]:
    """Pods of several priorities come and go, some fit nowhere at first, nodes come."""
    random, store = Random(seed), ModelStore()
    put_node(store, a_node("n0", cpu="20"))
    replica = Replica(store, Clock())
    queue = replica.queue = SlowQueue(replica, seconds)
    replica.list()
    replica.lead()
    for step in range(6):
        for number in range(60):
            pod = a_pod(f"p{step}-{number}", cpu=random.choice(("1", "2", "30")), priority=random.choice((0, 0, 5)))
            put_pod(store, pod)
        if step == 3:
            put_node(store, a_node("n1", cpu="400"))
        replica.settle()
        replica.clock.now += 30.0
    for _ in range(3):
        replica.settle()
        replica.clock.now += 400.0
    replica.settle()
    return replica, queue


@pytest.mark.parametrize("seed", range(4))
def test_in_slices_the_same_pods_get_their_nodes(seed: int) -> None:
    (sliced, slow), (whole, quick) = played(seed, SLICE_SECONDS * 0.7), played(seed, 0.0)
    assert max(quick.behind) == 0 and max(slow.behind) > 20
    assert set(sliced.bound()) == set(whole.bound())
    assert sliced.core.link is not None and not sliced.core.link.backlog
    assert not slow.violations and not slow.refused and not quick.refused
    assert slow.queue.pending() == quick.queue.pending()


def test_what_is_left_counts_as_received_and_a_new_session_forgets_it() -> None:
    replica = Replica(ModelStore(), Clock())
    for number in range(40):
        put_pod(replica.store, a_pod(f"p{number}"))
    replica.list()
    replica.lead()
    while not replica.to_queue:
        replica.watch()
        replica.turn()
    (request,) = replica.to_queue
    queue = SlowQueue(replica, SLICE_SECONDS * 2)
    answer = queue.exchange(request)
    assert answer.behind == len(request.entries) - 8 and answer.more
    with pytest.raises(LogGap):
        queue.exchange(ExchangeRequest(request.session, 9, request.entries[8:], 1.0, 0))
    onward = queue.exchange(ExchangeRequest(request.session, len(request.entries) + 1, (), 1.0, 5))
    assert onward.behind == answer.behind - 8
    queue.exchange(ExchangeRequest(request.session + 1, 1, (), 1.0, 0))
    assert queue.behind[-1] == 0 and queue.queue.pending().active == 0
