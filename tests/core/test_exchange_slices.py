"""An exchange that needs long is answered in slices, and what comes of it is the same."""

from __future__ import annotations

from random import Random

import pytest

from rayched.configuration.configuration import Configuration
from rayched.core.exchange.messages import AssignedPods, ExchangeAnswer, ExchangeRequest
from rayched.core.exchange.queue_core import SLICE_SECONDS, LogGap, QueueCore, queue_factory
from rayched.framework.cluster_event import ASSIGNED_POD_ADD
from rayched.v1.core_pb2 import Pod
from tests.core.builders import a_node, a_pod
from tests.core.leading import put_node, put_pod
from tests.core.model_store import ModelStore
from tests.core.replica import Clock, Replica


class SlowQueue(QueueCore):
    """Each look at its clock takes some time; it keeps how far behind its answers were."""

    def __init__(self, replica: Replica, seconds: float) -> None:
        self.now, self.behind, self.pace = 0.0, list[int](), seconds

        def stopwatch() -> float:
            self.now += self.pace
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


def with_selectors(name: str, number: int) -> Pod:
    """Wants to be where no pod is, and says so in words that no other pod uses."""
    pod = a_pod(name)
    term = pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add(topology_key="zone")
    term.label_selector.match_expressions.add(key="own", operator="NotIn", values=[f"nobody-{number}"])
    term.label_selector.match_labels["there"] = "later"
    return pod


def test_one_entry_that_concerns_many_waiting_pods_takes_several_exchanges() -> None:
    replica = Replica(ModelStore(), Clock())
    put_node(replica.store, a_node("n0", cpu="64", pods="500", labels={"zone": "a"}))
    for number in range(700):
        put_pod(replica.store, with_selectors(f"p{number}", number))
    queue = replica.queue = SlowQueue(replica, 0.0)
    replica.list()
    replica.lead()
    replica.settle()
    assert queue.queue.pending().unschedulable == 700
    event = AssignedPods(ASSIGNED_POD_ADD, (7,) * 3, ("n0",) * 3)
    now, answers = replica.clock.now, list[ExchangeAnswer]()
    arrived = a_pod("arrived")
    arrived.metadata.labels.update({"own": "arrived", "there": "later"})
    link = replica.core.link
    assert link is not None and link.session == queue.session
    queue.pace = SLICE_SECONDS
    first = ExchangeRequest(link.session, link.end + 1, (event,), now, 5, {7: arrived.SerializeToString()})
    answers.append(queue.exchange(first))
    while answers[-1].behind:
        answers.append(queue.exchange(ExchangeRequest(link.session, link.end + 2, (), now, 5)))
    assert len(answers) > 1 and all(answer.behind == 1 and not answer.uids for answer in answers[:-1])
    pending = queue.queue.pending()
    assert (pending.unschedulable, pending.backoff + pending.active + pending.in_flight) == (0, 700)
    assert not queue.violations and not queue.refused
