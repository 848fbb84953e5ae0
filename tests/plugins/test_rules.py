"""The plugins' rules as tables: each case of the Kubernetes documentation, and the corners that recordings do not reach."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from rayched.framework.cycle_state import CycleState
from rayched.framework.plugin_args import (
    NodeAffinityArgs,
)
from rayched.framework.plugin_error import PluginError
from rayched.framework.status import Code
from rayched.plugins.default_binder import DefaultBinder
from rayched.plugins.priority_sort import PrioritySort
from rayched.plugins.scheduling_gates import SchedulingGates
from rayched.v1.core_pb2 import NodeAffinity, Pod
from tests.plugins.builders import a_node, a_pod, a_term
from tests.plugins.engine_case import Case

# ---------------------------------------------------------------------------------------------- gates, order, binding


def test_a_pod_with_gates_waits_and_the_reason_lists_them() -> None:
    pod = a_pod().pod
    assert SchedulingGates().pre_enqueue(pod).ok
    pod.spec.scheduling_gates.add(name="example.com/b")
    pod.spec.scheduling_gates.add(name="example.com/a")
    status = SchedulingGates().pre_enqueue(pod)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons == ("waiting for scheduling gates: [example.com/b example.com/a]",)


@dataclass(frozen=True)
class Waiting:
    priority: int
    timestamp: float
    key: str


@pytest.mark.row("Q28")
def test_higher_priority_comes_first_and_among_equals_the_older_pod() -> None:
    pods = [Waiting(0, 1.0, "a"), Waiting(10, 5.0, "b"), Waiting(10, 2.0, "c"), Waiting(-1, 0.0, "d"), Waiting(0, 1.0, "A")]
    assert [pod.key for pod in sorted(pods, key=PrioritySort().sort_key)] == ["c", "b", "A", "a", "d"]


def test_the_default_binder_takes_every_binding() -> None:
    assert DefaultBinder().bind(CycleState(), Pod(), "n").ok


# ------------------------------------------------------------------------------------------- cordons, names, and taints


def test_the_scheduler_looks_at_taints_and_cordons_not_at_conditions() -> None:
    case = Case(a_node("pressed").with_condition("MemoryPressure"), a_node("cordoned").cordoned())
    assert case.feasible(a_pod()) == ["pressed"]
    assert case.code(a_pod(), "cordoned") is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    daemon = a_pod().tolerating("node.kubernetes.io/unschedulable", operator="Exists", effect="NoSchedule")
    assert case.feasible(daemon) == ["pressed", "cordoned"]


def test_a_pod_that_names_its_node_fits_there_alone() -> None:
    case = Case(a_node("a"), a_node("b"))
    pod = a_pod()
    pod.pod.spec.node_name = "b"
    assert case.feasible(pod) == ["b"]
    pod.pod.spec.node_name = "gone"
    assert case.message(pod) == "0/2 nodes are available: 2 node(s) didn't match the requested node name."


@pytest.mark.row("K5.2")
@pytest.mark.parametrize(
    ("key", "value", "operator", "effect", "fits"),
    [
        ("k", "v", "", "NoSchedule", True),
        ("k", "v", "Equal", "", True),
        ("k", "other", "Equal", "NoSchedule", False),
        ("k", "", "Equal", "NoSchedule", False),
        ("k", "", "Exists", "NoSchedule", True),
        ("k", "", "Exists", "", True),
        ("", "", "Exists", "", True),
        ("", "", "Exists", "NoExecute", False),
        ("", "v", "Equal", "", True),
        ("", "", "Equal", "", False),
        ("other", "", "Exists", "", False),
        ("k", "v", "", "PreferNoSchedule", False),
    ],
)
def test_which_tolerations_cover_a_taint(key: str, value: str, operator: str, effect: str, fits: bool) -> None:
    case = Case(a_node("n").with_taint("k", "v"))
    assert bool(case.feasible(a_pod().tolerating(key, value, operator, effect))) is fits


@pytest.mark.row("K5.3")
def test_of_three_taints_the_one_that_is_not_tolerated_decides() -> None:
    case = Case(
        a_node("node1")
        .with_taint("key1", "value1", "NoSchedule")
        .with_taint("key1", "value1", "NoExecute")
        .with_taint("key2", "value2", "NoSchedule")
    )
    pod = a_pod().tolerating("key1", "value1", "Equal", "NoSchedule").tolerating("key1", "value1", "Equal", "NoExecute")
    assert case.message(pod) == "0/1 nodes are available: 1 node(s) had untolerated taint {key2: value2}."
    assert case.feasible(pod.tolerating("key2", "value2", "Equal", "NoSchedule")) == ["node1"]


def test_nodes_without_unwanted_soft_taints_are_preferred() -> None:
    case = Case(
        a_node("none"),
        a_node("one").with_taint("a", effect="PreferNoSchedule"),
        a_node("two").with_taint("a", effect="PreferNoSchedule").with_taint("b", effect="PreferNoSchedule"),
    )
    assert case.scores(a_pod(), "TaintToleration") == {"none": (0, 300), "one": (1, 150), "two": (2, 0)}
    assert case.scores(a_pod().tolerating(operator="Exists"), "TaintToleration") == dict.fromkeys(
        ("none", "one", "two"), (0, 300)
    )
    # A toleration of another effect does not cover a soft taint.
    hard = a_pod().tolerating("a", operator="Exists", effect="NoSchedule")
    assert case.scores(hard, "TaintToleration")["one"] == (1, 150)


@pytest.mark.row("K5.9")
def test_dedicated_nodes_take_a_taint_and_a_label() -> None:
    case = Case(a_node("own").with_taint("dedicated", "team").labelled(dedicated="team"), a_node("free"))
    team = a_pod().tolerating("dedicated", "team").selecting(dedicated="team")
    assert case.feasible(team) == ["own"]
    assert case.feasible(a_pod()) == ["free"]


# ------------------------------------------------------------------------------------------------------- node affinity


@pytest.mark.row("K2.2")
def test_all_labels_of_the_node_selector_must_match() -> None:
    case = Case(a_node("both").labelled(disktype="ssd", zone="a"), a_node("one").labelled(disktype="ssd"), a_node("none"))
    assert case.feasible(a_pod().selecting(disktype="ssd")) == ["both", "one"]
    assert case.feasible(a_pod().selecting(disktype="ssd", zone="a")) == ["both"]
    assert case.feasible(a_pod().selecting(disktype="tape")) == []


@pytest.mark.row("K2.3")
@pytest.mark.parametrize(
    ("operator", "values", "nodes"),
    [
        ("In", ("4", "16"), ["four", "sixteen"]),
        ("In", ("5",), []),
        ("NotIn", ("4",), ["sixteen", "word", "huge", "none"]),
        ("Exists", (), ["four", "sixteen", "word", "huge"]),
        ("DoesNotExist", (), ["none"]),
        ("Gt", ("4",), ["sixteen"]),
        ("Gt", ("3",), ["four", "sixteen"]),
        ("Lt", ("16",), ["four"]),
        # What does not parse matches nothing: no integer, a value that no label may have, too many values, none.
        ("Gt", ("x",), []),
        ("Gt", ("-1",), []),
        ("Lt", ("1", "2"), []),
        ("In", (), []),
        ("Exists", ("4",), []),
        ("Near", ("4",), []),
    ],
)
def test_operators_of_required_node_affinity(operator: str, values: tuple[str, ...], nodes: list[str]) -> None:
    case = Case(
        a_node("four").labelled(cores="4"),
        a_node("sixteen").labelled(cores="16"),
        a_node("word").labelled(cores="many"),
        a_node("huge").labelled(cores="9223372036854775808"),
        a_node("none"),
    )
    assert case.feasible(a_pod().requiring(a_term(("cores", operator, values)))) == nodes


@pytest.mark.row("K2.3")
def test_terms_are_alternatives_and_expressions_of_a_term_all_count() -> None:
    case = Case(a_node("a").labelled(x="1", y="1"), a_node("b").labelled(x="1"), a_node("c").labelled(z="1"))
    both = a_term(("x", "Exists", ()), ("y", "Exists", ()))
    assert case.feasible(a_pod().requiring(both)) == ["a"]
    assert case.feasible(a_pod().requiring(both, a_term(("z", "Exists", ())))) == ["a", "c"]
    assert case.feasible(a_pod().requiring()) == [], "no term matches no node"
    assert case.feasible(a_pod().requiring(a_term())) == [], "an empty term matches no node"
    broken = a_term(("x", "Gt", ("-1",)))
    assert case.feasible(a_pod().requiring(broken, both)) == ["a"], "the other terms hold"


@pytest.mark.row("K2.4")
def test_weights_of_matching_preferences_add_up() -> None:
    case = Case(a_node("one").labelled(x="1"), a_node("fifty").labelled(y="1"), a_node("none"))
    pod = a_pod().preferring(1, a_term(("x", "Exists", ()))).preferring(50, a_term(("y", "Exists", ())))
    assert case.scores(pod, "NodeAffinity") == {"one": (1, 4), "fifty": (50, 200), "none": (0, 0)}
    assert case.best(pod) == ["fifty"]


def test_a_preference_that_does_not_parse_ends_the_attempt_once_there_are_nodes_to_score() -> None:
    pod = a_pod().preferring(1, a_term(("x", "Gt", ("-1",))))
    with pytest.raises(PluginError, match=r"NodeAffinity.*preferredDuringSchedulingIgnoredDuringExecution"):
        Case(a_node("a"), a_node("b")).feasible(pod)
    assert Case(a_node("a").cordoned()).feasible(pod) == []
    assert Case(a_node("a"), a_node("b").cordoned()).feasible(pod) == ["a"], "a single node is not scored"
    ignored = a_pod().preferring(0, a_term(("x", "Gt", ("-1",)))).preferring(1, a_term())
    assert Case(a_node("a"), a_node("b")).feasible(ignored) == ["a", "b"]


@pytest.mark.parametrize(
    ("no_score", "ends"),
    [((), True), (("NodeAffinity",), True), (("NodeAffinity", "ImageLocality"), True), (("*",), False)],
)
def test_a_bad_preference_ends_the_attempt_also_where_only_its_score_is_switched_off(
    no_score: tuple[str, ...], ends: bool
) -> None:
    """PreScore is asked then all the same, unless nothing scores at all; what it finds good counts nothing."""
    case = Case(a_node("a"), a_node("b").labelled(x="1"), no_score=no_score)
    bad = a_pod().preferring(1, a_term(("x", "Gt", ("-1",))))
    if ends:
        with pytest.raises(PluginError, match=r"NodeAffinity.*preferredDuringSchedulingIgnoredDuringExecution"):
            case.feasible(bad)
        assert Case(a_node("a"), a_node("b").cordoned(), no_score=no_score).feasible(bad) == ["a"]
    else:
        assert case.feasible(bad) == ["a", "b"]
    good = a_pod().preferring(100, a_term(("x", "Exists", ())))
    assert case.best(good) == (["b"] if no_score == () else ["a", "b"])


@pytest.mark.row("K2.6")
def test_added_affinity_of_a_profile_holds_besides_the_pods_own() -> None:
    added = NodeAffinity()
    added.required_during_scheduling_ignored_during_execution.node_selector_terms.append(
        a_term(("scheduler-profile", "In", ("foo",)))
    )
    added.preferred_during_scheduling_ignored_during_execution.add(weight=5, preference=a_term(("fast", "Exists", ())))
    case = Case(
        a_node("foo").labelled(**{"scheduler-profile": "foo"}),
        a_node("fast").labelled(**{"scheduler-profile": "foo", "fast": ""}),
        a_node("bar").labelled(**{"scheduler-profile": "bar", "disktype": "ssd"}),
        NodeAffinity=NodeAffinityArgs(added),
    )
    assert case.feasible(a_pod()) == ["foo", "fast"]
    assert case.best(a_pod()) == ["fast"]
    assert case.message(a_pod().selecting(disktype="ssd")) == (
        "0/3 nodes are available: 1 node(s) didn't match scheduler-enforced node affinity, "
        "2 node(s) didn't match Pod's node affinity/selector."
    )


def test_a_profile_may_prefer_nodes_without_requiring_any() -> None:
    added = NodeAffinity()
    added.preferred_during_scheduling_ignored_during_execution.add(weight=5, preference=a_term(("fast", "Exists", ())))
    case = Case(a_node("slow"), a_node("quick").labelled(fast=""), NodeAffinity=NodeAffinityArgs(added))
    assert case.feasible(a_pod()) == ["slow", "quick"] and case.best(a_pod()) == ["quick"]


@pytest.mark.parametrize(
    ("operator", "values", "found"), [("In", ["a"], []), ("NotIn", ["a"], ["a", "b"]), ("In", [""], ["a", "b"])]
)
def test_any_other_field_than_the_name_reads_as_empty_in_a_term(operator: str, values: list[str], found: list[str]) -> None:
    case = Case(a_node("a"), a_node("b"))
    term = a_term()
    term.match_fields.add(key="metadata.namespace", operator=operator, values=values)
    assert case.feasible(a_pod().requiring(term)) == found


def test_terms_that_name_nodes_narrow_the_search_and_contradictions_reject_the_pod() -> None:
    case = Case(a_node("a"), a_node("b"), a_node("c").labelled(x="1"))
    named = a_pod().requiring(a_term(name="a"), a_term(name="b"))
    assert case.engine.explain(case._template(named)).narrowed == frozenset({"a", "b"})
    assert case.feasible(named) == ["a", "b"]
    open_term = a_pod().requiring(a_term(name="a"), a_term(("x", "Exists", ())))
    assert case.engine.explain(case._template(open_term)).narrowed is None
    assert case.feasible(open_term) == ["a", "c"]
    contradiction = a_term(name="a")
    contradiction.match_fields.add(key="metadata.name", operator="In", values=["b"])
    rejected = a_pod().requiring(contradiction)
    assert case.message(rejected) == "0/3 nodes are available: pod affinity terms conflict."
