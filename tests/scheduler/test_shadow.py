"""Shadow plugins: asked beside the others, without a say; what they would decide is recorded."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rayched.configuration.configuration_file import ConfigurationErrors
from rayched.framework.simple_plugin import NodeView
from rayched.scheduler.shadow import ShadowResult
from rayched.testing import InProcessCluster, a_node, a_pod
from rayched.v1.core_pb2 import Pod


class Tidy:
    """Prefers the node that the pod names in a label, and nodes named "no" never."""

    def __init__(self, args: Any) -> None:
        pass

    def filter_node(self, pod: Pod, node: NodeView) -> bool | str:
        if pod.metadata.labels.get("likes") == "trouble":
            raise ValueError("trouble")
        return pod.metadata.labels.get("likes") != "none" or "node(s) were untidy"

    def score_node(self, pod: Pod, node: NodeView) -> int:
        return 100 if node.metadata.name == pod.metadata.labels.get("likes") else 0


class Reserving:
    def __init__(self, args: Any) -> None:
        pass

    name = "Reserving"

    def reserve(self, state: Any, pod: Pod, node_name: str) -> Any:
        raise AssertionError("a shadow is not called where it could do something")

    unreserve = reserve


def config_of(shadows: str) -> str:
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
    return f"{text}- schedulerName: default-scheduler\n  shadowPlugins: {shadows}\n"


PLUGINS = {"Tidy": Tidy, "Reserving": Reserving}
NODES = [a_node("big", cpu="64", memory="256Gi"), a_node("small", cpu="2", memory="4Gi")]


def a_cluster(shadows: str = "[{name: Tidy, weight: 1000}]") -> InProcessCluster:
    return InProcessCluster(NODES, plugins=PLUGINS, config=config_of(shadows))


@pytest.mark.parametrize(
    ("likes", "result", "would_be"),
    [
        ("small", ShadowResult.OTHER, "With Tidy the pod would be on small, not on big"),
        ("none", ShadowResult.PENDING, "With Tidy the pod would be pending: 0/2 nodes are available: 2 node(s) were untidy."),
        (
            "trouble",
            ShadowResult.ERROR,
            'Tidy failed beside the decision: plugin "Tidy", Filter: ValueError: trouble (about node big)',
        ),
    ],
)
def test_what_a_shadow_would_decide_otherwise_is_recorded_and_changes_nothing(
    likes: str, result: ShadowResult, would_be: str
) -> None:
    cluster = a_cluster()
    cluster.place(a_pod("web", labels={"likes": likes})).assert_on("web", "big")
    (found,) = cluster.shadow_decisions()
    assert (found.pod, found.node_name, found.plugins, found.result) == ("default/web", "big", ("Tidy",), result)
    assert found.message() == would_be
    assert cluster.cluster.scheduler.shadows.counts == {("default-scheduler", result): 1}


def test_a_shadow_that_agrees_is_only_counted() -> None:
    cluster = a_cluster()
    cluster.place(a_pod("web", labels={"likes": "big"})).assert_on("web", "big")
    assert cluster.shadow_decisions() == []
    assert cluster.cluster.scheduler.shadows.counts == {("default-scheduler", ShadowResult.SAME): 1}


def test_decisions_are_those_of_a_cluster_without_shadows() -> None:
    chosen = random.Random(7)
    pods = [
        a_pod(f"p{i}", cpu=f"{chosen.randint(1, 90)}0m", labels={"likes": chosen.choice(["small", "none", "x"])})
        for i in range(60)
    ]
    nodes = [a_node(f"n{i}", cpu=str(chosen.randint(2, 9))) for i in range(9)]
    found = [
        InProcessCluster(nodes, plugins=PLUGINS, config=config_of(shadows)).place(*pods).nodes
        for shadows in ("[{name: Tidy}]", "[]")
    ]
    assert found[0] == found[1] and len(set(found[0].values())) > 3


def test_a_pod_that_finds_no_node_is_not_asked_about() -> None:
    cluster = a_cluster()
    cluster.place(a_pod("web", cpu="100")).assert_pending("web", "Insufficient cpu")
    assert not cluster.cluster.scheduler.shadows.counts


def test_a_shadow_is_asked_about_nodes_and_never_called_where_it_could_act() -> None:
    cluster = a_cluster("[{name: Tidy}, {name: Reserving}]")
    cluster.place(a_pod("web")).assert_on("web", "big", "small")


@pytest.mark.parametrize(
    ("shadows", "message"),
    [
        ("[{name: Nobody}]", '"Nobody" is no plugin that is installed; there are '),
        ("[{name: Reservign}]", '; did you mean "Reserving"?'),
        ("[{name: NodeName}]", '"NodeName" is enabled in this profile already'),
        ("[{name: Tidy}, {name: Tidy}]", '"Tidy" is enabled in this profile already'),
        ("[{weight: 3}]", "is required"),
        ("[{name: Tidy, weight: -1}]", "must not be negative, found -1"),
    ],
)
def test_a_shadow_that_makes_no_sense_is_told_with_its_place(shadows: str, message: str) -> None:
    with pytest.raises(ConfigurationErrors) as caught:
        a_cluster(shadows)
    assert "config:5: profiles[0].shadowPlugins[" in str(caught.value) and message in str(caught.value)
