"""Explanations: all that is said about every node. They are held against every recorded case in tests/conformance."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable

import pytest

from rayched.api.defaulting import default
from rayched.testing.in_process import InProcessCluster
from rayched.whatif.explain import NodeLook, explain, in_words, look
from tests.conformance.cases import schedule_cases
from tests.conformance.comparisons import setting_of
from tests.server.objects import a_node, a_pod


def test_every_filter_is_asked_about_every_node_not_the_first_one_alone() -> None:
    case = next(
        case
        for case in schedule_cases("mixed")
        if any(len(failing) > 1 for failing in case.expected.get("filterEach", {}).values()) and not case.expected.get("error")
    )
    setting = setting_of(case, 0)
    cluster = setting.cluster
    found = explain(setting.engine, cluster.snapshot, setting.profile.weights, cluster.template, cluster.nominated)
    nodes = {node.node_name: node for node in found.nodes}
    for name, failing in case.expected["filterEach"].items():
        assert {one.plugin for one in nodes[name].rejections} >= set(failing), name


def test_what_was_found_stays_as_it_was_and_can_be_put_into_words_elsewhere() -> None:
    """The deciding thread goes on while others read what it found."""
    shown = 0
    for case in schedule_cases("mixed"):
        if case.expected.get("error"):
            continue
        setting = setting_of(case, 0)
        cluster, weights = setting.cluster, setting.profile.weights
        found = look(setting.engine, cluster.snapshot, weights, cluster.template, cluster.nominated)
        before, sent = in_words(found), pickle.dumps(found)
        assert before == explain(setting.engine, cluster.snapshot, weights, cluster.template, cluster.nominated)
        for name in list(cluster.snapshot.rows_by_name)[:2]:
            cluster.snapshot.remove_node(name)
        explain(setting.engine, cluster.snapshot, weights, cluster.template, cluster.nominated)
        assert in_words(found) == in_words(pickle.loads(sent)) == before  # noqa: S301  # its own bytes
        shown += bool(before.nodes)
        if shown == 20:
            return
    assert shown > 3


@pytest.mark.row("B98")
def test_looking_costs_the_deciding_thread_a_fraction_of_the_words() -> None:
    """By the thread's own clock; the words are made in another process."""
    nodes = [a_node(f"node-{number}", labels={"kubernetes.io/hostname": f"node-{number}"}) for number in range(2_000)]
    cluster = InProcessCluster(nodes)
    pod = a_pod("web", namespace="default", labels={"app": "web"})
    default(pod)
    template = cluster.cluster.to_schedule(pod).template
    scheduler, snapshot, name = cluster.cluster.scheduler, cluster.cluster.snapshot, template.scheduler_name

    def seconds(work: Callable[[], object]) -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    def looked() -> NodeLook:
        return look(scheduler.engine(name), snapshot, scheduler.weights(name), template)

    found = looked()
    assert len(in_words(found).nodes) == 2_000
    assert 5 * min(seconds(looked) for _ in range(5)) < min(seconds(lambda: in_words(found)) for _ in range(5))


@pytest.mark.row("B55")
def test_no_pod_of_others_is_named_in_what_is_said_of_nodes() -> None:
    """They are why nodes are no place for it, by their ports, their own wishes, and what they use."""
    secret = "somebody-elses"
    nodes = [a_node(f"node-{number}", cpu="1", labels={"kubernetes.io/hostname": f"node-{number}"}) for number in range(4)]
    others = [a_pod(f"{secret}-{number}", namespace=secret, node=f"node-{number}", labels={"app": "web"}) for number in range(4)]
    others[0].spec.containers[0].ports.add(container_port=80, host_port=8080)
    others[1].spec.containers[0].resources.requests["cpu"].string = "1"
    term = others[2].spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add()
    term.topology_key = "kubernetes.io/hostname"
    term.label_selector.match_labels["app"] = "mine"
    term.namespaces.append("mine")
    mine = a_pod("mine", namespace="mine", labels={"app": "mine"})
    mine.spec.containers[0].ports.add(container_port=80, host_port=8080)
    apart = mine.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add()
    apart.topology_key = "kubernetes.io/hostname"
    apart.label_selector.match_labels["app"] = "web"
    apart.namespaces.append(secret)
    found = InProcessCluster([*nodes, *others]).explain(mine)
    plugins = {one.plugin for node in found.nodes for one in node.rejections}
    assert plugins >= {"NodePorts", "NodeResourcesFit", "InterPodAffinity"}
    assert secret not in repr(found)
