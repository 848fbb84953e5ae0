"""What one attempt may take, and whose turn it is: a pod that takes long ends its own attempt and holds up nobody."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rayched.api import kinds
from rayched.core.costly_pods import (
    CONDITIONS_MAX,
    COSTLY_SECONDS,
    DEATHS_MAX,
    HEAVY_SECONDS,
    MODEST,
    SHARE,
    SLICES,
    SMALL_BYTES,
    SUSPECT_PAUSE_SECONDS,
    SUSPECT_SECONDS,
    SUSPECT_WAIT_SECONDS,
    CostlyPods,
    Level,
    Trial,
    conditions_of,
)
from rayched.scheduler.scheduler import ATTEMPT_SECONDS
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Suspect
from tests.core.builders import a_node, a_pod
from tests.core.leading import put_node, put_pod, reason_of
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Clock, Replica

HOST = "kubernetes.io/hostname"


class WorkClock:
    """Each look at it takes some time, as the work between two looks does."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.now = 0.0

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def asking(pod: Pod, terms: int, conditions: int = 1, of: str = "") -> Pod:
    """The pod with so many preferred terms, each another; `of`: others than other pods have."""
    for number in range(terms):
        one = pod.spec.affinity.pod_anti_affinity.preferred_during_scheduling_ignored_during_execution.add(weight=1)
        one.pod_affinity_term.topology_key = HOST
        for place in range(conditions):
            one.pod_affinity_term.label_selector.match_expressions.add(
                key=f"k{place}", operator="NotIn", values=[f"v{number}{of}"]
            )
    return pod


def leading(work: WorkClock, *pods: Pod, suspects: Mapping[str, int] | None = None, nodes: int = 3) -> Replica:
    store = ModelStore()
    for number in range(nodes):
        put_node(store, a_node(f"n{number}", cpu="64"))
    for uid, deaths in (suspects or {}).items():
        store.put(KEYS.suspect(uid), Suspect(deaths=deaths).SerializeToString())
    for pod in pods:
        put_pod(store, pod)
    replica = Replica(store, Clock(), work_clock=work)
    replica.list()
    replica.lead()
    return replica


def test_an_attempt_over_its_budget_ends_as_that_pods_error_and_the_others_are_bound() -> None:
    # A tenth of the budget between two looks at the clock: 30 counters are more than fit in.
    work = WorkClock(ATTEMPT_SECONDS / 10)
    replica = leading(work, asking(a_pod("much"), 30), *(a_pod(f"p{i}") for i in range(20)))
    replica.settle()
    assert set(replica.bound()) == {f"p{i}" for i in range(20)}
    reason, message = reason_of(replica, "much")
    assert reason == "SchedulerError"
    assert message.startswith("the attempt takes more than 1 s of the scheduler's time: its affinity, topology spread")
    assert replica.core.scheduler.over_budget == {"default-scheduler": 1}
    assert replica.core.attempts == {"scheduled": 20, "error": 1}
    assert replica.signs_of_life > 5, "long work gives signs of life"


def test_what_an_attempt_over_its_budget_found_out_is_kept_so_that_a_later_one_succeeds() -> None:
    replica = leading(WorkClock(ATTEMPT_SECONDS / 10), asking(a_pod("much"), 30))
    for attempts in range(1, 20):
        replica.settle()
        if replica.bound():
            break
        assert replica.core.scheduler.over_budget["default-scheduler"] == attempts
        replica.clock.now += 11.0
    assert set(replica.bound()) == {"much"} and 2 <= attempts <= 6


def test_a_scheduler_that_was_over_budget_in_the_middle_decides_like_one_that_never_was() -> None:
    """Whatever the moment at which the budget ends."""
    for part in (1.01, 2.3, 3.7, 5.1, 8.3, 13.9):
        replicas = []
        for work in (WorkClock(ATTEMPT_SECONDS / part), WorkClock()):
            there = [asking(a_pod(f"b{i}", labels={"k0": f"v{i}", "own": str(i)}), 1 + i % 3) for i in range(6)]
            replica = leading(work, *there, nodes=4)
            for _ in range(40):
                replica.settle()
                replica.clock.now += 11.0
            last = asking(a_pod("last", labels={"k0": "v1"}), 12)
            put_pod(replica.store, last)
            for _ in range(40):
                replica.settle()
                replica.clock.now += 11.0
            replicas.append(replica)
        often, never = replicas
        assert set(often.bound()) == set(never.bound()) == {*(f"b{i}" for i in range(6)), "last"}
        # Where the pods are may differ, as draws do; what is known of the cluster as it is may not.
        template = often.core.cache.find("default", "last")
        assert template is not None
        engine = often.core.scheduler.engine("default-scheduler")
        fresh = leading(WorkClock(), nodes=4)
        for entry in often.store.now.values():
            if entry.key != KEYS.epoch:
                fresh.store.put(entry.key, entry.value)
        fresh.watch()
        anew = fresh.core.scheduler.engine("default-scheduler").evaluate(fresh.core.snapshot.known("uid-last").template)
        found = engine.evaluate(often.core.snapshot.known("uid-last").template)
        assert found.total[:4].tolist() == anew.total[:4].tolist()


# ------------------------------------------------------------------------------------------------------ stepping aside


def template_of(pod: Pod) -> PodTemplate:
    return TemplateTable().intern(pod)


@pytest.mark.parametrize(
    ("pod", "conditions"),
    [
        (a_pod("plain"), 0),
        (a_pod("selector", selector={"a": "1", "b": "2"}), 2),
        (asking(a_pod("terms"), 5, conditions=3), 25),
        (asking(a_pod("many"), 32, conditions=32), 32 * 34),
    ],
)
def test_what_a_pod_asks_is_counted(pod: Pod, conditions: int) -> None:
    assert conditions_of(pod) == conditions
    template = template_of(pod)
    expected = Level.COSTLY if conditions > CONDITIONS_MAX else Level.HEAVY if conditions > MODEST else Level.ORDINARY
    assert CostlyPods().level(template) is (expected if len(template.content) > SMALL_BYTES else Level.ORDINARY)


def test_an_attempt_tells_what_pods_that_ask_the_same_cost_whatever_their_labels() -> None:
    costly = CostlyPods()
    modest, much = (template_of(asking(a_pod(f"p{n}", labels={"own": "1"}), n)) for n in (12, 40))
    same = template_of(asking(a_pod("other", labels={"own": "2"}), 12))
    assert [costly.level(one) for one in (modest, same, much)] == [Level.HEAVY, Level.HEAVY, Level.COSTLY]
    costly.took(modest, COSTLY_SECONDS)
    costly.took(much, COSTLY_SECONDS / 2)
    assert [costly.level(one) for one in (modest, same, much)] == [Level.COSTLY, Level.COSTLY, Level.HEAVY]
    costly.took(same, HEAVY_SECONDS / 2)
    assert [costly.level(one) for one in (modest, same, much)] == [Level.ORDINARY, Level.ORDINARY, Level.HEAVY]


def test_costly_pods_have_their_share_while_others_come_and_all_of_it_when_nobody_does() -> None:
    costly, much = CostlyPods(), template_of(asking(a_pod("much"), 60))
    for number in range(100):
        assert costly.steps_aside(str(number), much, 0, 0.0)
    now, spent, order = 50.0, 0.0, []
    began = now
    while now < began + 40:
        costly.ordinary(now, 0.01)
        turn = costly.take(now, in_hand=False, in_queue=False)
        if turn is not None:
            assert turn.allowed == SLICES[0] and turn.goes_on
            order.append(turn.uid)
            now += 0.2
            spent += 0.2
            costly.was_aside(now - 0.2, now)
        now += 0.01
    assert order == [str(number) for number in range(len(order))]
    assert SHARE * 0.8 <= spent / (now - began) <= SHARE * 1.05
    # Nobody else comes for a while: one after the other.
    now += 1.0
    for number in range(len(order), 100):
        assert costly.take(now, in_hand=False, in_queue=False) == Trial(str(number), ATTEMPT_SECONDS)
        costly.was_aside(now, now + 0.2)
        now += 0.2
    assert costly.take(now, in_hand=False, in_queue=False) is None and costly.due() is None and not len(costly)


def test_heavy_pods_come_whenever_no_ordinary_one_is_there_and_have_their_share_beside_others() -> None:
    costly, heavy, much = CostlyPods(), template_of(asking(a_pod("heavy"), 12)), template_of(asking(a_pod("much"), 60))
    for number in range(10):
        assert costly.steps_aside(f"heavy-{number}", heavy, 0, 0.0)
        assert costly.steps_aside(f"much-{number}", much, 0, 0.0)
    costly.ordinary(5.0, 0.01)
    first, second = costly.take(5.0, in_hand=True, in_queue=True), costly.take(5.0, in_hand=False, in_queue=False)
    assert first == Trial("heavy-0", ATTEMPT_SECONDS) and second == Trial("heavy-1", ATTEMPT_SECONDS)
    costly.was_aside(5.0, 5.1)
    # Beside ordinary ones they wait now, and the costly ones have a share of their own.
    turn = costly.take(5.1, in_hand=True, in_queue=True)
    assert turn is not None and turn.uid == "much-0"
    costly.was_aside(5.1, 5.2)
    assert costly.take(5.2, in_hand=True, in_queue=True) is None
    assert costly.due() == pytest.approx(5.2 + 0.1 * (1 / SHARE - 1))
    again = costly.take(5.2, in_hand=False, in_queue=False)
    assert again is not None and again.uid == "heavy-2"


@pytest.mark.parametrize("overhead", [0.0, 0.02, 0.2])
def test_beside_a_backlog_shares_are_of_the_time_that_decisions_take(overhead: float) -> None:
    """However much else the loop does in its turns."""
    costly, much = CostlyPods(), template_of(asking(a_pod("much"), 60))
    for number in range(200):
        assert costly.steps_aside(str(number), much, 0, 0.0)
    now = aside = ordinary = 0.0
    for _ in range(2_000):
        now += 0.005
        ordinary += 0.005
        costly.ordinary(now, 0.005)
        if costly.take(now, in_hand=True, in_queue=True) is not None:
            now += 0.04
            aside += 0.04
            costly.was_aside(now - 0.04, now)
        now += overhead
    assert SHARE * 0.9 <= aside / (aside + ordinary) <= SHARE * 1.05


def test_a_costly_pod_goes_on_in_larger_slices_behind_the_others_and_has_a_whole_attempt_at_last() -> None:
    costly, much = CostlyPods(), template_of(asking(a_pod("much"), 60))
    for uid in ("one", "two"):
        assert costly.steps_aside(uid, much, 0, 0.0)
    now, seen = 10.0, []
    for _ in range(2 * len(SLICES)):
        costly.ordinary(now, 1.0 / SHARE)
        turn = costly.take(now, in_hand=True, in_queue=True)
        assert turn is not None
        seen.append(turn)
        costly.was_aside(now, now + turn.allowed)
        now += turn.allowed / SHARE + 0.001
        if turn.goes_on:
            costly.goes_on()
    assert seen == [Trial(uid, allowed, allowed < ATTEMPT_SECONDS) for allowed in SLICES for uid in ("one", "two")]
    assert not len(costly)


def test_suspects_are_last_alone_and_cheap_but_not_for_ever() -> None:
    costly, plain = CostlyPods(), template_of(a_pod("plain"))
    for uid in ("one", "two", "three"):
        assert costly.steps_aside(uid, plain, 1, 100.0)
    assert costly.take(100.0, in_hand=True, in_queue=True) is None
    assert costly.take(100.0, in_hand=False, in_queue=False) == Trial("one", SUSPECT_SECONDS)
    assert costly.take(100.0 + SUSPECT_PAUSE_SECONDS / 2, in_hand=False, in_queue=False) is None
    assert costly.due() == 100.0 + SUSPECT_PAUSE_SECONDS
    assert costly.take(100.0 + SUSPECT_PAUSE_SECONDS, in_hand=False, in_queue=False) == Trial("two", SUSPECT_SECONDS)
    assert costly.take(99.0 + SUSPECT_WAIT_SECONDS, in_hand=True, in_queue=True) is None
    assert costly.take(100.0 + SUSPECT_WAIT_SECONDS, in_hand=True, in_queue=True) == Trial("three", SUSPECT_SECONDS)


def test_ordinary_pods_do_not_wait_behind_many_that_cost_much() -> None:
    pods = [asking(a_pod(f"much-{i}", labels={"own": str(i)}), 60, of=f"-{i}") for i in range(60)]
    replica = leading(WorkClock(COSTLY_SECONDS / 20), *pods, *(a_pod(f"p{i}") for i in range(30)))
    for _ in range(40):
        replica.watch(), replica.exchanged(), replica.turn(), replica.core.decide(), replica.exchange(), replica.arrive()
        replica.answer()
    # All that are ordinary were decided at once, beside one or two of the others at a time.
    tried = [uid for uid in replica.decided_about if uid]
    assert {f"uid-p{i}" for i in range(30)} <= set(tried)
    last = max(tried.index(f"uid-p{i}") for i in range(30))
    assert last < 30 + 5
    for _ in range(60):
        replica.settle()
        replica.clock.now += 11.0
    assert len(replica.bound()) == len(pods) + 30


def test_pods_that_step_aside_are_passed_over_by_the_hundred() -> None:
    pods = [asking(a_pod(f"much-{i}", labels={"own": str(i)}), 60) for i in range(1_500)]
    replica = leading(WorkClock(COSTLY_SECONDS / 20), *pods, *(a_pod(f"p{i}") for i in range(30)))
    for _ in range(12):
        replica.watch(), replica.exchanged(), replica.turn(), replica.core.decide(), replica.exchange(), replica.arrive()
        replica.answer()
        replica.clock.now += 0.001
    assert {f"uid-p{i}" for i in range(30)} <= set(replica.decided_about)


def test_pods_that_stand_aside_keep_no_events_and_miss_none() -> None:
    much = [asking(a_pod(f"much-{i}", cpu="30", labels={"own": str(i)}), 60, of=f"-{i}") for i in range(9)]
    replica = leading(WorkClock(COSTLY_SECONDS / 20), *much, *(a_pod(f"p{i}") for i in range(30)))
    for _ in range(3):
        replica.watch(), replica.exchanged(), replica.turn(), replica.core.decide(), replica.exchange(), replica.arrive()
        replica.answer()
    assert len(replica.core._costly) >= 6
    assert replica.queue.queue.pending().in_flight >= 6 and replica.queue.queue.n_events_in_flight == 0
    assert not replica.queue.queue.verify()
    for _ in range(40):
        replica.settle()
        replica.clock.now += 11.0
    waiting = {pod.metadata.name for pod in much} - set(replica.bound())
    assert waiting, "there is not room for all"
    for number in range(len(waiting)):
        put_node(replica.store, a_node(f"more-{number}", cpu="30"))
    for _ in range(40):
        replica.settle()
        replica.clock.now += 11.0
    assert {pod.metadata.name for pod in much} <= set(replica.bound())
    assert not replica.queue.violations


def test_a_pod_in_whose_cycle_schedulers_died_waits_for_the_others_and_is_given_up_after_some() -> None:
    suspects = {"uid-sick": 1, "uid-worse": DEATHS_MAX, "uid-gone": 2}
    replica = leading(WorkClock(), a_pod("sick"), a_pod("worse"), *(a_pod(f"p{i}") for i in range(5)), suspects=suspects)
    replica.settle()
    tried = [uid for uid in replica.decided_about if uid]
    assert tried[-1] == "uid-sick" and len(tried) == 6
    assert set(replica.bound()) == {"sick", *(f"p{i}" for i in range(5))}
    reason, message = reason_of(replica, "worse")
    assert reason == "SchedulerError" and message.startswith("schedulers ended in 3 attempts for this pod")
    # Its record expires: it is tried like any other.
    replica.store.delete(KEYS.suspect("uid-worse"))
    replica.clock.now += 400.0
    replica.settle()
    assert "worse" in replica.bound() and replica.core.cache.suspects == {"uid-sick": 1, "uid-gone": 2}


def test_the_pod_of_the_cycle_is_told_before_it_begins_and_taken_back_after_the_batch() -> None:
    replica = leading(WorkClock(), a_pod("one"), a_pod("two"))
    replica.settle()
    assert replica.decided_about == ["uid-one", "uid-two", ""]
    assert kinds.POD.name == "Pod"
