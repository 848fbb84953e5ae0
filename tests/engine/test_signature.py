"""What plugins see of a pod tells pods apart that any of them may treat differently, and no others."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rayched.engine.signature import SeenPod
from rayched.framework.plugin import PodPart
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Pod
from tests.snapshot.objects import a_node, a_pod

TEMPLATES = TemplateTable()

ALL, LABELS, TOLERATIONS = PodPart(0), PodPart.LABELS_BY_SELECTOR, PodPart.TOLERATIONS_OF_TAINTS
BOTH = LABELS | TOLERATIONS


def a_table() -> Snapshot:
    """A bound pod's terms mention app=web, and any value of tier; a node has a taint."""
    snapshot = Snapshot()
    snapshot.add_node(a_node("n1", taints=[("hot", "yes", "NoSchedule")]))
    pod = a_pod()
    term = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add(topology_key="zone")
    term.label_selector.match_labels["app"] = "web"
    term.label_selector.match_expressions.add(key="tier", operator="Exists")
    snapshot.mentioned_labels.add_of(pod)
    return snapshot


def a_seen(table: Snapshot, labels: Mapping[str, str] | None = None, tolerated: str = "", cpu: str = "1") -> SeenPod:
    pod = a_pod({"cpu": cpu}, labels=labels)
    if tolerated:
        pod.spec.tolerations.add(key=tolerated, operator="Exists")
    return SeenPod(TEMPLATES.intern(pod), table)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({}, {"nobody": "asks"}, True),
        ({"app": "web"}, {"app": "web", "nobody": "asks"}, True),
        ({"app": "web"}, {}, False),
        ({"app": "web"}, {"app": "db"}, False),
        ({"app": "cache"}, {"app": "db"}, True),
        ({"app": "db"}, {}, False),
        ({"tier": "1"}, {"tier": "2"}, True),
        ({"tier": "1"}, {}, False),
    ],
)
def test_labels_tell_pods_apart_where_somebody_mentions_them(one: dict[str, str], other: dict[str, str], is_same: bool) -> None:
    """Values that nobody mentions are all alike, but they are there."""
    table = a_table()
    first, second = a_seen(table, one), a_seen(table, other)
    assert (first.sight(BOTH) == second.sight(BOTH)) is is_same
    assert (first.pod(BOTH) == second.pod(BOTH)) is is_same
    assert (first.pod(TOLERATIONS) == second.pod(TOLERATIONS)) is (one == other)


def test_tolerations_tell_pods_apart_where_they_cover_a_taint_that_a_node_has() -> None:
    table = a_table()
    plain, hot, cold = a_seen(table), a_seen(table, tolerated="hot"), a_seen(table, tolerated="cold")
    assert plain.sight(BOTH) == cold.sight(BOTH) != hot.sight(BOTH)
    for labels in (LABELS, ALL):
        assert not cold.pod(labels | TOLERATIONS).spec.tolerations
        assert [one.key for one in hot.pod(labels | TOLERATIONS).spec.tolerations] == ["hot"]
        assert [one.key for one in cold.pod(labels).spec.tolerations] == ["cold"]


def test_whoever_reads_all_of_a_pod_gets_the_pod_itself() -> None:
    table = a_table()
    pod = a_pod({"cpu": "1"}, labels={"app": "web", "nobody": "asks"})
    pod.spec.tolerations.add(key="cold", operator="Exists")
    template = TEMPLATES.intern(pod)
    seen = SeenPod(template, table)
    assert seen.pod(ALL) is template.pod
    both = seen.pod(BOTH)
    assert both is seen.pod(BOTH), "made once"
    assert dict(both.metadata.labels) == {"app": "web"} and not both.spec.tolerations
    assert dict(seen.pod(TOLERATIONS).metadata.labels) == {"app": "web", "nobody": "asks"}
    assert [one.key for one in seen.pod(LABELS).spec.tolerations] == ["cold"]
    for reduced in (both, seen.pod(LABELS), seen.pod(TOLERATIONS)):
        rest = Pod()
        rest.CopyFrom(reduced)
        rest.metadata.ClearField("labels")
        rest.spec.ClearField("tolerations")
        whole = Pod()
        whole.CopyFrom(template.pod)
        whole.metadata.ClearField("labels")
        whole.spec.ClearField("tolerations")
        assert rest == whole, "nothing else is missing"
    assert dict(template.pod.metadata.labels) == {"app": "web", "nobody": "asks"}, "and the template's own is as it was"


def test_a_pod_that_says_nothing_needless_is_not_copied() -> None:
    table = a_table()
    template = TEMPLATES.intern(a_pod({"cpu": "1"}, labels={"app": "web"}))
    assert SeenPod(template, table).pod(BOTH) is template.pod


def test_all_else_that_a_pod_says_tells_it_apart() -> None:
    table = a_table()
    other, selecting = a_pod({"cpu": "1"}), a_pod({"cpu": "1"})
    other.metadata.namespace = "elsewhere"
    selecting.spec.node_selector["disk"] = "fast"
    sights = [SeenPod(TEMPLATES.intern(pod), table).sight(BOTH) for pod in (other, selecting)]
    sights += [a_seen(table, cpu="1").sight(BOTH), a_seen(table, cpu="2").sight(BOTH)]
    assert len(set(sights)) == len(sights)
