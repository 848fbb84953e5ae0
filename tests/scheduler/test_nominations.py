"""Nominated pods: their room is kept from lower pods, nobody relies on them, and they go where they were nominated to."""

from __future__ import annotations

import pytest

from rayched.configuration.profile_building import default_profile
from rayched.framework.status import Code
from rayched.plugins.in_tree import IN_TREE
from rayched.scheduler.attempt import Attempt, AttemptFailure
from rayched.scheduler.nominations import Nominations
from rayched.scheduler.scheduler import PodToSchedule, Scheduler
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Pod
from rayched.whatif.explain import explain
from tests.core.builders import a_node, a_pod


class Bench:
    """A scheduler over nodes of 4 CPUs."""

    def __init__(self, *nodes: str) -> None:
        self.snapshot, self.templates = Snapshot(), TemplateTable()
        for name in nodes:
            self.snapshot.add_node(a_node(name))
        profile = default_profile(IN_TREE)
        self.scheduler = Scheduler(self.snapshot, {profile.scheduler_name: profile}, seed=1)

    def nominate(self, pod: Pod, node: str) -> None:
        self.scheduler.nominations.nominate(pod.metadata.uid, self.templates.intern(pod), node)

    def schedule(self, pod: Pod) -> str:
        """The node's name, or the message."""
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        result = self.scheduler.schedule(PodToSchedule(pod.metadata.uid, name, self.templates.intern(pod), pod), 0, 0.0)
        assert isinstance(result, Attempt | AttemptFailure)
        return result.node_name if isinstance(result, Attempt) else result.message


@pytest.mark.row("F20", "K9.8")
@pytest.mark.parametrize(("priority", "goes"), [(9, "n2"), (10, "n2"), (11, "n1")])
def test_room_of_a_nominated_pod_is_kept_from_pods_of_no_higher_priority(priority: int, goes: str) -> None:
    bench = Bench("n1", "n2")
    bench.snapshot.bind("filler", bench.templates.intern(a_pod("filler")), "n2")
    bench.nominate(a_pod("nominated", cpu="3", priority=10), "n1")
    # n1 is emptier, and so the better node, for whoever may have it.
    assert bench.schedule(a_pod("web", cpu="2", priority=priority)) == goes


@pytest.mark.row("F20")
def test_a_pod_that_no_node_takes_beside_a_nominated_one_is_told_what_it_lacks() -> None:
    bench = Bench("n1")
    bench.nominate(a_pod("nominated", cpu="3", priority=10), "n1")
    assert bench.schedule(a_pod("web", cpu="2")).startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert bench.schedule(a_pod("small", cpu="1")) == "n1"


@pytest.mark.row("F21")
def test_nobody_relies_on_a_nominated_pod_that_may_never_come() -> None:
    bench = Bench("n1")
    bench.nominate(a_pod("nominated", priority=10, labels={"app": "db"}), "n1")
    pod = a_pod("web")
    term = pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add(
        topology_key="kubernetes.io/hostname"
    )
    term.label_selector.match_labels["app"] = "db"
    assert "1 node(s) didn't match pod affinity rules" in bench.schedule(pod)
    bench.snapshot.bind("db", bench.templates.intern(a_pod("db", labels={"app": "db"})), "n1")
    assert bench.schedule(pod) == "n1"


@pytest.mark.row("F1", "K9.8")
def test_a_pod_goes_where_it_is_nominated_to_even_if_another_node_is_better() -> None:
    bench = Bench("n1", "n2")
    bench.snapshot.bind("filler", bench.templates.intern(a_pod("filler", cpu="2")), "n2")
    pod = a_pod("web", cpu="2", priority=10)
    bench.nominate(pod, "n2")
    assert bench.schedule(pod) == "n2"
    assert not bench.scheduler.nominations.of


@pytest.mark.row("F1")
def test_a_nomination_is_a_hope_and_no_promise() -> None:
    bench = Bench("n1", "n2")
    bench.snapshot.bind("filler", bench.templates.intern(a_pod("filler", cpu="3")), "n2")
    pod = a_pod("web", cpu="2", priority=10)
    bench.nominate(pod, "n2")
    assert bench.schedule(pod) == "n1"


def test_a_nominated_pod_does_not_stand_in_its_own_way() -> None:
    bench = Bench("n1")
    pod = a_pod("web", cpu="3", priority=10)
    bench.nominate(pod, "n1")
    assert bench.schedule(pod) == "n1"


def nominations_over(*nodes: str) -> tuple[Snapshot, Nominations]:
    snapshot = Snapshot()
    for name in nodes:
        snapshot.add_node(a_node(name))
    return snapshot, Nominations(snapshot)


@pytest.mark.parametrize(
    ("known", "before", "now", "expected"),
    [
        ("n1", "", "", "n1"),
        ("n1", "n1", "n1", "n1"),
        ("n1", "n1", "n2", "n2"),
        ("n1", "n1", "", ""),
        ("n1", "", "n2", "n2"),
        ("", "", "n1", "n1"),
        ("", "", "", ""),
    ],
)
def test_an_update_that_knows_nothing_of_a_nomination_keeps_it(known: str, before: str, now: str, expected: str) -> None:
    _, nominations = nominations_over("n1", "n2")
    template = TemplateTable().intern(a_pod("web"))
    nominations.nominate("web", template, known)
    nominations.status_seen("web", template, before, now)
    assert nominations.node_of("web") == expected


def test_a_nomination_to_a_node_that_left_counts_again_when_the_node_returns() -> None:
    snapshot, nominations = nominations_over("n1")
    nominations.nominate("web", TemplateTable().intern(a_pod("web", priority=5)), "n1")
    assert len(nominations.beside("other", 5)) == 1
    snapshot.remove_node("n1")
    assert not nominations.beside("other", 5)
    snapshot.add_node(a_node("n1"))
    assert len(nominations.beside("other", 5)) == 1 and not nominations.beside("other", 6)


def test_only_lower_pods_on_the_node_lose_their_nomination_to_a_preemptor() -> None:
    _, nominations = nominations_over("n1", "n2")
    templates = TemplateTable()
    for name, priority, node in (("a", 1, "n1"), ("b", 5, "n1"), ("c", 2, "n1"), ("d", 1, "n2")):
        nominations.nominate(name, templates.intern(a_pod(name, priority=priority)), node)
    assert nominations.below(5, "n1") == ("a", "c")


@pytest.mark.row("K9.8")
def test_a_new_term_takes_nominations_of_nodes_that_are_there() -> None:
    _, nominations = nominations_over("n1")
    template = TemplateTable().intern(a_pod("web"))
    nominations.nominate("old", template, "n1")
    nominations.restart([("a", template, "n1"), ("b", template, "gone"), ("c", template, "")])
    assert [nominations.node_of(uid) for uid in ("a", "b", "c", "old")] == ["n1", "", "", ""]


def test_the_node_a_pod_is_nominated_to_says_why_not_also_where_a_pre_filter_left_it_out() -> None:
    bench = Bench("n1", "n2", "n3")
    for name in ("n1", "n2"):
        bench.snapshot.bind(f"filler-{name}", bench.templates.intern(a_pod(f"filler-{name}", cpu="4")), name)
    pod = a_pod("web", cpu="2")
    term = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms.add()
    term.match_fields.add(key="metadata.name", operator="In", values=["n2"])
    left_out = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
    assert bench.schedule(pod).startswith(f"0/3 nodes are available: 1 Insufficient cpu, 2 {left_out}.")
    bench.nominate(pod, "n1")
    said = bench.schedule(pod)
    # NodeAffinity is asked before the room is looked at.
    assert said.startswith(
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, 1 node"
    ), said


def test_a_node_that_fails_with_and_without_nominated_pods_counts_as_what_it_is_with_them() -> None:
    bench = Bench("n1")
    bench.nominate(a_pod("nominated", cpu="3", priority=10), "n1")
    pod = a_pod("web", cpu="2")
    constraint = pod.spec.topology_spread_constraints.add(max_skew=1, topology_key="rack", when_unsatisfiable="DoNotSchedule")
    constraint.label_selector.match_labels["app"] = "web"
    engine = bench.scheduler.engine("default-scheduler")
    template = bench.templates.intern(pod)
    alone = engine.diagnose(template)
    assert (alone.reasons, alone.codes[0]) == (
        {"node(s) didn't match pod topology spread constraints (missing required label)": 1},
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    )
    beside = engine.diagnose(template, bench.scheduler.nominations.beside(pod.metadata.uid, 0))
    assert (beside.reasons, beside.codes[0]) == ({"Insufficient cpu": 1}, Code.UNSCHEDULABLE)
    weights, nominated = bench.scheduler.weights("default-scheduler"), bench.scheduler.nominations.beside(pod.metadata.uid, 0)
    (verdict,) = explain(engine, bench.snapshot, weights, template, nominated).nodes
    assert [(one.plugin, one.reasons, one.resolvable) for one in verdict.rejections] == [
        ("NodeResourcesFit", ("Insufficient cpu (with the pods nominated there)",), True),
        ("PodTopologySpread", ("node(s) didn't match pod topology spread constraints (missing required label)",), False),
    ]
    # So a preemption looks at it, and finds that it helps nobody.
    assert bench.schedule(pod).endswith("preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.")


def test_an_explanation_has_the_reasons_that_a_plugin_gives_beside_nominated_pods() -> None:
    """They may be more than it gives of the node as it is, and they are what counts."""
    bench = Bench("n1")
    bench.snapshot.bind("filler", bench.templates.intern(a_pod("filler", cpu="4")), "n1")
    nominated = a_pod("nominated", priority=10)
    nominated.spec.containers[0].resources.requests["memory"].string = "1000Gi"
    bench.nominate(nominated, "n1")
    pod = a_pod("web", cpu="2")
    pod.spec.containers[0].resources.requests["memory"].string = "1Mi"
    engine, weights = bench.scheduler.engine("default-scheduler"), bench.scheduler.weights("default-scheduler")
    (alone,) = explain(engine, bench.snapshot, weights, bench.templates.intern(pod)).nodes
    assert [one.reasons for one in alone.rejections] == [("Insufficient cpu",)]
    beside = bench.scheduler.nominations.beside(pod.metadata.uid, 0)
    (verdict,) = explain(engine, bench.snapshot, weights, bench.templates.intern(pod), beside).nodes
    assert [one.reasons for one in verdict.rejections] == [("Insufficient cpu", "Insufficient memory")]
