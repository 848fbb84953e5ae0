"""Preemption as a decision: who may make room, where, at whose cost; and the two limits that kube-scheduler does not have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rayched.api import kinds
from rayched.configuration.profile_building import default_profile
from rayched.framework import names
from rayched.framework.cycle_state import CycleState
from rayched.framework.plugin import PostFilterResult
from rayched.framework.plugin_args import DefaultPreemptionArgs
from rayched.framework.preemption import FAILED_ATTEMPT, FailedAttempt
from rayched.framework.status import SUCCESS, Status
from rayched.plugins.default_preemption import DefaultPreemption
from rayched.plugins.in_tree import IN_TREE
from rayched.scheduler.attempt import AttemptFailure
from rayched.scheduler.candidates import PreemptionCandidate, Victim, best, candidate
from rayched.scheduler.potential_victims import PotentialVictims
from rayched.scheduler.preemption import Evaluator, Preemptor
from rayched.scheduler.scheduler import PodToSchedule, Scheduler
from rayched.scheduler.selection import SeededTieBreaker
from rayched.snapshot.budgets import LIMIT_ANNOTATION
from rayched.snapshot.pod_facts import PodFacts
from rayched.snapshot.snapshot import BoundPod, Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodDisruptionBudget
from tests.core.builders import a_node, a_pod

NOW = 1_000_000.0


class Bench:
    """A scheduler over nodes of 4 CPUs."""

    def __init__(self, *nodes: str, args: DefaultPreemptionArgs | None = None, seed: int = 1) -> None:
        self.snapshot, self.templates = Snapshot(), TemplateTable()
        for name in nodes:
            self.snapshot.add_node(a_node(name))
        profile = default_profile(IN_TREE)
        profile = replace(profile, post_filter=(DefaultPreemption(args or DefaultPreemptionArgs()),))
        self.scheduler = Scheduler(self.snapshot, {profile.scheduler_name: profile}, seed)

    def bind(self, pod: Pod, node: str, *, started: float = 100.0, terminating: bool = False, preempted: bool = False) -> None:
        name = pod.metadata.name
        facts = PodFacts(f"default/{name}", started, preempted)
        self.scheduler.occupancy.observe(name, self.templates.intern(pod), node, terminating=terminating, facts=facts)

    def budget(self, name: str, app: str, allowed: int, *, hard: bool = False) -> None:
        budget = PodDisruptionBudget()
        budget.spec.selector.match_labels["app"] = app
        budget.status.disruptions_allowed = allowed
        if hard:
            budget.metadata.annotations[LIMIT_ANNOTATION] = "hard"
        self.snapshot.set_object(kinds.POD_DISRUPTION_BUDGET.name, "default", name, budget)

    def fail(self, pod: Pod) -> AttemptFailure:
        name = pod.metadata.name
        result = self.scheduler.schedule(PodToSchedule(name, f"default/{name}", self.templates.intern(pod), pod), 0, 0.0, NOW)
        assert isinstance(result, AttemptFailure)
        return result

    def victims(self, pod: Pod) -> tuple[str, tuple[str, ...]]:
        """The nominated node and who has to go there."""
        failure = self.fail(pod)
        evicted = failure.preemption.victims if failure.preemption is not None else ()
        return failure.nominated_node_name or "", evicted


def app(name: str, of: str, *, cpu: str = "1", priority: int = 0) -> Pod:
    return a_pod(name, cpu=cpu, priority=priority, labels={"app": of})


# ------------------------------------------------------------------------------------------------------------ who may


@pytest.mark.row("K9.13")
@pytest.mark.parametrize(("priority", "makes_room"), [(4, False), (5, False), (6, True)])
def test_only_pods_of_lower_priority_give_way(priority: int, makes_room: bool) -> None:
    bench = Bench("n1")
    bench.bind(a_pod("low", cpu="4", priority=5), "n1")
    assert bench.victims(a_pod("vip", cpu="4", priority=priority)) == (("n1", ("low",)) if makes_room else ("", ()))


@pytest.mark.row("K9.4")
def test_a_pod_that_never_preempts_ends_nobody_and_can_be_preempted() -> None:
    bench = Bench("n1")
    bench.bind(a_pod("low", cpu="4"), "n1")
    pod = a_pod("patient", cpu="4", priority=10)
    pod.spec.preemption_policy = "Never"
    failure = bench.fail(pod)
    assert failure.preemption is None and failure.nominated_node_name is None
    assert failure.message.endswith("preemption: not eligible due to preemptionPolicy=Never.")
    bench.scheduler.occupancy.remove("low")
    bench.bind(pod, "n1")
    assert bench.victims(a_pod("vip", cpu="4", priority=11)) == ("n1", ("patient",))


@pytest.mark.parametrize(("preempted", "victim_priority", "waits"), [(True, 0, True), (False, 0, False), (True, 10, False)])
def test_a_pod_waits_for_its_own_victims_only(preempted: bool, victim_priority: int, waits: bool) -> None:
    bench = Bench("n1", "n2")
    bench.bind(a_pod("ending", cpu="4", priority=victim_priority), "n1", terminating=True, preempted=preempted)
    bench.bind(a_pod("low", cpu="4"), "n2")
    pod = a_pod("vip", cpu="4", priority=10)
    bench.scheduler.nominations.nominate("vip", bench.templates.intern(pod), "n1")
    failure = bench.fail(pod)
    assert ("terminating pod on the nominated node" in failure.message) is waits
    assert bench.scheduler.nominations.node_of("vip") in (("n1",) if waits else ("n1", "n2"))


@pytest.mark.row("K9.14")
def test_quality_of_service_plays_no_part() -> None:
    bench = Bench("n1", "n2")
    best_effort, guaranteed = a_pod("best-effort", cpu="4", priority=2), a_pod("guaranteed", cpu="4", priority=1)
    container = guaranteed.spec.containers[0]
    for resource, amount in container.resources.requests.items():
        container.resources.limits[resource].string = amount.string
    guaranteed.status.qos_class, best_effort.status.qos_class = "Guaranteed", "BestEffort"
    bench.bind(best_effort, "n1")
    bench.bind(guaranteed, "n2")
    assert bench.victims(a_pod("vip", cpu="4", priority=10)) == ("n2", ("guaranteed",))


# ---------------------------------------------------------------------------------------------------- whose end it is


@pytest.mark.row("F16", "F17", "F18")
def test_no_more_pods_go_than_must_and_the_more_important_ones_stay() -> None:
    bench = Bench("n1")
    for name, priority, started in (("old", 1, 10.0), ("young", 1, 20.0), ("high", 2, 30.0), ("low", 0, 5.0)):
        bench.bind(a_pod(name, cpu="1", priority=priority), "n1", started=started)
    assert bench.victims(a_pod("vip", cpu="1", priority=10)) == ("n1", ("low",))
    assert bench.victims(a_pod("vip", cpu="2", priority=10)) == ("n1", ("young", "low"))
    assert bench.victims(a_pod("vip", cpu="3", priority=10)) == ("n1", ("old", "young", "low"))


@pytest.mark.row("F17", "F2")
def test_a_pod_with_a_budget_is_put_back_before_more_important_ones_without() -> None:
    bench = Bench("n1")
    bench.bind(app("guarded", "db", cpu="2", priority=1), "n1")
    bench.bind(app("other", "web", cpu="2", priority=2), "n1")
    assert bench.victims(a_pod("vip", cpu="2", priority=10)) == ("n1", ("guarded",))
    bench.budget("db", "db", 0)
    assert bench.victims(a_pod("vip", cpu="2", priority=10)) == ("n1", ("other",))


@pytest.mark.row("F2", "K9.10")
def test_budgets_are_violated_only_where_nothing_else_helps() -> None:
    bench = Bench("n1", "n2")
    bench.budget("db", "db", 0)
    bench.bind(app("guarded", "db", cpu="4", priority=1), "n1")
    bench.bind(app("dear", "web", cpu="4", priority=9), "n2")
    assert bench.victims(a_pod("vip", cpu="4", priority=10)) == ("n2", ("dear",))
    bench.scheduler.nominations.forget("vip")
    assert bench.victims(a_pod("less", cpu="4", priority=9)) == ("n1", ("guarded",))


@pytest.mark.parametrize(("priority_of_other", "victims"), [(10, ("", ())), (1, ("n1", ("low", "other")))])
def test_a_host_port_that_two_pods_share_is_free_only_when_both_go(
    priority_of_other: int, victims: tuple[str, tuple[str, ...]]
) -> None:
    bench = Bench("n1")
    for name, priority in (("low", 0), ("other", priority_of_other), ("vip", 10)):
        pod = a_pod(name, priority=priority)
        pod.spec.containers[0].ports.add(host_port=80)
        if name != "vip":
            bench.bind(pod, "n1")
    found = bench.victims(pod)
    assert (found[0], tuple(sorted(found[1]))) == victims


@pytest.mark.row("K9.11", "F19")
def test_a_node_is_no_candidate_where_the_pod_needs_the_victims_and_their_dependants_stay() -> None:
    bench = Bench("n1")
    bench.bind(app("db", "db", cpu="2", priority=1), "n1")
    bench.bind(app("server", "server", cpu="2", priority=5), "n1")
    needs = a_pod("vip", cpu="4", priority=10)
    term = needs.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add(
        topology_key="kubernetes.io/hostname"
    )
    term.label_selector.match_labels["app"] = "db"
    failure = bench.fail(needs)
    assert failure.preemption is None
    assert failure.message.endswith("preemption: 0/1 nodes are available: 1 node(s) didn't match pod affinity rules.")
    assert bench.victims(a_pod("other", cpu="2", priority=10)) == ("n1", ("db",))


@pytest.mark.row("K4.2")
@pytest.mark.parametrize(
    ("min_domains", "stays", "chosen"),
    [
        (None, "app", ("n1", ("low",))),
        (2, "app", ("n1", ("low",))),
        (3, "app", ("", ())),
        (3, "other", ("n1", ("low",))),
    ],
)
def test_where_domains_are_too_few_the_emptiest_counts_as_none_once_victims_are_gone_too(
    min_domains: int | None, stays: str, chosen: tuple[str, tuple[str, ...]]
) -> None:
    bench = Bench("n1", "n2")
    bench.bind(app("kept", stays, priority=20), "n1")
    bench.bind(app("low", "other", cpu="3"), "n1")
    bench.bind(app("full", "app", cpu="4", priority=20), "n2")
    pod = app("vip", "app", cpu="3", priority=10)
    constraint = pod.spec.topology_spread_constraints.add(
        max_skew=1, topology_key="kubernetes.io/hostname", when_unsatisfiable="DoNotSchedule"
    )
    constraint.label_selector.match_labels["app"] = "app"
    if min_domains is not None:
        constraint.min_domains = min_domains
    assert bench.victims(pod) == chosen


@pytest.mark.row("K9.12")
def test_nobody_on_another_node_is_ended_for_a_pod() -> None:
    bench = Bench()
    for name in ("n1", "n2"):
        bench.snapshot.add_node(a_node(name, labels={"zone": "z"}))
    bench.bind(app("q", "q", cpu="1", priority=0), "n2")
    # What else there is on n2 may not go, so that room can be made on n1 alone.
    bench.bind(app("firm", "firm", cpu="3", priority=100), "n2")
    bench.bind(app("low", "low", cpu="4"), "n1")
    pod = app("p", "p", cpu="4", priority=10)
    term = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add(topology_key="zone")
    term.label_selector.match_labels["app"] = "q"
    failure = bench.fail(pod)
    assert failure.preemption is None and failure.nominated_node_name == ""


# ------------------------------------------------------------------------------------------------------------- choice


def a_victim(priority: int, started: float = 100.0) -> Victim:
    template = TemplateTable().intern(a_pod("v", priority=priority))
    return Victim(f"{priority}-{started}", BoundPod(template, "n", facts=PodFacts("default/v", started)))


def a_candidate(*victims: Victim, violating: int = 0) -> PreemptionCandidate:
    return candidate(0, victims, violating)


@pytest.mark.row("F25", "F13")
@pytest.mark.parametrize(
    ("better", "worse"),
    [
        # fewer violations, whatever else
        (a_candidate(a_victim(9), a_victim(9)), a_candidate(a_victim(0), violating=1)),
        (a_candidate(a_victim(9), violating=1), a_candidate(a_victim(0), violating=2)),
        # lower highest priority, whatever the number
        (a_candidate(a_victim(3), a_victim(3), a_victim(3)), a_candidate(a_victim(4))),
        # lower sum; more pods never sum up to less, not even with negative priorities
        (a_candidate(a_victim(4), a_victim(1)), a_candidate(a_victim(4), a_victim(2))),
        (a_candidate(a_victim(-5)), a_candidate(a_victim(-5), a_victim(-9))),
        # later start among those of the highest priority
        (a_candidate(a_victim(4, 200.0), a_victim(1, 10.0)), a_candidate(a_victim(4, 150.0), a_victim(1, 900.0))),
        (a_candidate(a_victim(4, float("inf"))), a_candidate(a_victim(4, 9e9))),
        (a_candidate(a_victim(4, 20.0), a_victim(4, 30.0)), a_candidate(a_victim(4, 10.0), a_victim(4, 90.0))),
    ],
)
def test_candidates_are_chosen_by_the_criteria_in_order(better: PreemptionCandidate, worse: PreemptionCandidate) -> None:
    assert best([worse, better]) == [better] == best([better, worse])


@pytest.mark.row("F25")
def test_candidates_that_no_criterion_tells_apart_stay_for_the_draw() -> None:
    equal = [a_candidate(a_victim(4), a_victim(1)), a_candidate(a_victim(4), a_victim(1))]
    assert best([*equal, a_candidate(a_victim(5))]) == equal
    chosen = set()
    for seed in range(20):
        bench = Bench("n1", "n2", seed=seed)
        for node in ("n1", "n2"):
            bench.bind(a_pod(f"on-{node}", cpu="4"), node)
        chosen.add(bench.victims(a_pod("vip", cpu="4", priority=10))[0])
    assert chosen == {"n1", "n2"}


@pytest.mark.parametrize(
    ("percentage", "absolute", "tried"), [(10, 100, 100), (50, 10, 150), (10, 1, 30), (1, 5, 5), (100, 0, 300)]
)
def test_a_search_ends_with_a_share_of_the_nodes(percentage: int, absolute: int, tried: int) -> None:
    bench = Bench(*(f"n{number}" for number in range(300)))
    for number in range(300):
        bench.bind(a_pod(f"p{number}", cpu="4"), f"n{number}")
    pod = a_pod("vip", cpu="4", priority=10)
    template = bench.templates.intern(pod)
    engine = bench.scheduler.engine(template.scheduler_name)
    potential = PotentialVictims(bench.snapshot)
    evaluator = Evaluator(bench.snapshot, engine, bench.scheduler.nominations, SeededTieBreaker(3), potential)
    preemptor = Preemptor("vip", template, engine.diagnose(template), 0, (), NOW, evaluator)
    args = DefaultPreemptionArgs(percentage, absolute)
    assert len(evaluator.candidates(preemptor, args)[0]) == tried


class LastComeFirstGone:
    """A PostFilter plugin that goes by something else than priority."""

    name = "LastComeFirstGone"

    def post_filter(self, state: CycleState, pod: Pod) -> tuple[PostFilterResult | None, Status]:
        failed = state.read(FAILED_ATTEMPT)
        assert isinstance(failed, FailedAttempt) and failed.template.priority == pod.spec.priority
        assert failed.diagnosis.unschedulable_plugins == {names.NODE_RESOURCES_FIT}
        return PostFilterResult("n1", ("young",)), SUCCESS


@pytest.mark.row("F22")
def test_a_plugin_that_orders_pods_in_its_own_way_chooses_victims_itself_and_nominations_go_by_priority_still() -> None:
    bench = Bench("n1")
    profile = replace(default_profile(IN_TREE), post_filter=(LastComeFirstGone(),))
    bench.scheduler = Scheduler(bench.snapshot, {profile.scheduler_name: profile}, 1)
    bench.bind(a_pod("old", cpu="2", priority=0), "n1", started=1.0)
    bench.bind(a_pod("young", cpu="2", priority=9), "n1", started=2.0)
    assert bench.victims(a_pod("vip", cpu="2", priority=5)) == ("n1", ("young",))
    assert bench.scheduler.nominations.beside("other", 5) and not bench.scheduler.nominations.beside("other", 6)


# ------------------------------------------------------------------------------------------- limits of our own, both off


@pytest.mark.row("F2")
def test_a_hard_budget_is_never_violated() -> None:
    bench = Bench("n1")
    bench.budget("db", "db", 1, hard=True)
    bench.bind(app("one", "db", cpu="2", priority=2), "n1")
    bench.bind(app("two", "db", cpu="2", priority=1), "n1")
    assert bench.victims(a_pod("vip", cpu="2", priority=10)) == ("n1", ("two",))
    bench.scheduler.nominations.forget("vip")
    failure = bench.fail(a_pod("big", cpu="4", priority=10))
    assert failure.preemption is None
    bench.budget("db", "db", 1)
    assert bench.victims(a_pod("big", cpu="4", priority=10)) == ("n1", ("one", "two"))


@pytest.mark.parametrize(("ran", "gives_way"), [(599.0, False), (600.0, True), (None, False)])
def test_a_pod_is_not_preempted_before_its_minimum_runtime(ran: float | None, gives_way: bool) -> None:
    bench = Bench("n1", args=DefaultPreemptionArgs(min_runtime_seconds=600))
    bench.bind(a_pod("low", cpu="4"), "n1", started=float("inf") if ran is None else NOW - ran)
    assert (bench.victims(a_pod("vip", cpu="4", priority=10))[0] == "n1") is gives_way


def test_both_limits_are_off_by_default() -> None:
    bench = Bench("n1")
    bench.budget("db", "db", 0)
    bench.bind(app("fresh", "db", cpu="4"), "n1", started=NOW)
    assert bench.victims(a_pod("vip", cpu="4", priority=10)) == ("n1", ("fresh",))
    assert names.DEFAULT_PREEMPTION in IN_TREE
