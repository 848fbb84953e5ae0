"""Conditions become taints: a table, properties over random nodes, and what a lost node's conditions become."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.controllers.node_taints import NoExecute, reconciled
from rayched.v1.core_pb2 import Node

NOW = 5_000
PREFIX = "node.kubernetes.io/"

# What is expected, written down without the code's own names.
EXPECTED = {
    ("Ready", "True"): None,
    ("Ready", "False"): "not-ready",
    ("Ready", "Unknown"): "unreachable",
    ("MemoryPressure", "True"): "memory-pressure",
    ("MemoryPressure", "False"): None,
    ("MemoryPressure", "Unknown"): None,
    ("DiskPressure", "True"): "disk-pressure",
    ("DiskPressure", "Unknown"): None,
    ("PIDPressure", "True"): "pid-pressure",
    ("PIDPressure", "False"): None,
    ("NetworkUnavailable", "True"): "network-unavailable",
    ("NetworkUnavailable", "False"): None,
    ("SomethingElse", "True"): None,
}


def a_node(*conditions: tuple[str, str], unschedulable: bool = False) -> Node:
    node = Node()
    node.metadata.name = "n"
    for kind, status in conditions:
        node.status.conditions.add(type=kind, status=status)
    node.spec.unschedulable = unschedulable
    return node


def taints(node: Node) -> set[tuple[str, str]]:
    return {(taint.key.removeprefix(PREFIX), taint.effect) for taint in node.spec.taints}


def after(node: Node, no_execute: NoExecute = NoExecute.HOLD, *, lost: bool = False, now: int = NOW) -> Node:
    """As it is after the edit, which changes nothing when it is made again."""
    result = reconciled(node, no_execute, now, lost=lost) or node
    assert reconciled(result, no_execute, now + 100, lost=lost) is None
    return result


@pytest.mark.row("K5.5", "K5.6")
@pytest.mark.parametrize(("kind", "status"), EXPECTED)
def test_each_condition_has_its_taint(kind: str, status: str) -> None:
    expected = EXPECTED[kind, status]
    assert taints(after(a_node((kind, status)))) == ({(expected, "NoSchedule")} if expected else set())


@pytest.mark.row("K5.5")
def test_a_cordoned_node_has_a_taint_until_it_is_uncordoned() -> None:
    node = after(a_node(("Ready", "True"), unschedulable=True))
    assert taints(node) == {("unschedulable", "NoSchedule")}
    node.spec.unschedulable = False
    assert taints(after(node)) == set()


def test_only_the_limit_lets_a_node_be_emptied() -> None:
    node = a_node(("Ready", "Unknown"))
    assert taints(after(node)) == {("unreachable", "NoSchedule")}
    allowed = after(node, NoExecute.ALLOW)
    assert taints(allowed) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
    assert {taint.time_added.seconds for taint in allowed.spec.taints} == {NOW}
    assert taints(after(allowed, NoExecute.HOLD)) == taints(allowed)
    assert taints(after(allowed, NoExecute.WITHDRAW)) == {("unreachable", "NoSchedule")}


def test_a_node_that_is_ready_again_loses_its_taints() -> None:
    node = after(a_node(("Ready", "Unknown")), NoExecute.ALLOW)
    node.status.conditions[0].status = "True"
    assert taints(after(node)) == set()


def test_a_taint_that_is_swapped_keeps_the_time_since_when_it_counts() -> None:
    node = after(a_node(("Ready", "False")), NoExecute.ALLOW)
    node.status.conditions[0].status = "Unknown"
    swapped = after(node, now=NOW + 60)
    assert taints(swapped) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
    assert {taint.effect: taint.time_added.seconds for taint in swapped.spec.taints} == {"NoSchedule": NOW + 60, "NoExecute": NOW}


def test_taints_of_others_stay_as_they_are_and_one_that_evicts_gets_its_time() -> None:
    node = a_node(("Ready", "True"))
    node.spec.taints.add(key="dedicated", value="x", effect="NoSchedule")
    node.spec.taints.add(key=f"{PREFIX}out-of-service", effect="NoExecute")
    node.spec.taints.add(key="old", effect="NoExecute").time_added.seconds = 7
    node.spec.taints.add(key=f"{PREFIX}not-ready", effect="PreferNoSchedule")
    found = after(node)
    assert [(taint.key, taint.value, taint.effect) for taint in found.spec.taints] == [
        (taint.key, taint.value, taint.effect) for taint in node.spec.taints
    ]
    assert [taint.time_added.seconds for taint in found.spec.taints] == [0, NOW, 7, 0]


def test_a_lost_node_is_unknown_in_all_that_its_agent_would_say() -> None:
    node = a_node(("Ready", "True"), ("MemoryPressure", "True"), ("NetworkUnavailable", "False"))
    found = {one.type: (one.status, one.reason) for one in after(node, lost=True).status.conditions}
    assert found == {
        "Ready": ("Unknown", "NodeStatusUnknown"),
        "MemoryPressure": ("Unknown", "NodeStatusUnknown"),
        "DiskPressure": ("Unknown", "NodeStatusNeverUpdated"),
        "PIDPressure": ("Unknown", "NodeStatusNeverUpdated"),
        "NetworkUnavailable": ("False", ""),
    }


some_taints = st.lists(
    st.tuples(
        st.sampled_from(["not-ready", "unreachable", "memory-pressure", "unschedulable", "out-of-service", "mine"]),
        st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    ),
    unique=True,
    max_size=6,
)


@given(
    conditions=st.dictionaries(
        st.sampled_from(["Ready", "MemoryPressure", "PIDPressure", "Other"]), st.sampled_from(["True", "False", "Unknown"])
    ),
    present=some_taints,
    unschedulable=st.booleans(),
    allowed=st.sampled_from(NoExecute),
)
def test_whatever_was_there_what_results_follows_from_conditions_and_what_is_allowed(
    conditions: dict[str, str], present: list[tuple[str, str]], unschedulable: bool, allowed: NoExecute
) -> None:
    node = a_node(*conditions.items(), unschedulable=unschedulable)
    for key, effect in present:
        node.spec.taints.add(key=PREFIX + key, effect=effect)
    ours = {"not-ready", "unreachable", "memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable"}
    expected = {
        one
        for one in present
        if not (one[1] == "NoSchedule" and one[0] in ours | {"unschedulable"})
        and not (one[1] == "NoExecute" and one[0] in ("not-ready", "unreachable"))
    }
    expected |= {(found, "NoSchedule") for pair in conditions.items() if (found := EXPECTED.get(pair))}
    if unschedulable:
        expected.add(("unschedulable", "NoSchedule"))
    lost_key = {"False": "not-ready", "Unknown": "unreachable"}.get(conditions.get("Ready", ""))
    emptied = any(key in ("not-ready", "unreachable") and effect == "NoExecute" for key, effect in present)
    if lost_key and (allowed is NoExecute.ALLOW or (allowed is NoExecute.HOLD and emptied)):
        expected.add((lost_key, "NoExecute"))
    assert taints(after(node, allowed)) == expected
