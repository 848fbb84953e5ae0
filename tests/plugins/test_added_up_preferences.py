"""Preferences of bound pods of many weights are added up by domain: scores are the same, also where they cancel out."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rayched.framework.plugin_args import InterPodAffinityArgs
from rayched.plugins.inter_pod_affinity import counts as inter_pod_affinity_counts
from rayched.plugins.inter_pod_affinity.counts import AffinityCounts
from rayched.plugins.inter_pod_affinity.plugin import InterPodAffinity
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Node, Pod

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def a_pod(random: Random) -> Pod:
    pod = Pod()
    pod.metadata.namespace = "default"
    pod.metadata.labels["app"] = "web"
    affinity = pod.spec.affinity
    for _ in range(random.choice((0, 1, 3))):
        side = random.choice((affinity.pod_affinity, affinity.pod_anti_affinity))
        one = side.preferred_during_scheduling_ignored_during_execution.add(weight=random.choice((1, 2, 50, 99, 100)))
        one.pod_affinity_term.topology_key = random.choice((HOST, ZONE))
        one.pod_affinity_term.label_selector.match_labels["app"] = random.choice(("web", "db"))
    return pod


@pytest.mark.parametrize("seed", range(6))
def test_scores_do_not_depend_on_whether_weights_are_counted_apart_or_added_up(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, snapshot, templates = Random(seed), Snapshot(), TemplateTable()
    for number in range(6):
        node = Node()
        node.metadata.name = node.metadata.labels[HOST] = f"n{number}"
        node.metadata.labels[ZONE] = "ab"[number % 2]
        snapshot.add_node(node)
    plugin = InterPodAffinity(InterPodAffinityArgs())
    incoming = plugin.prepare(a_pod(Random(0)))
    states: dict[int, AffinityCounts | None] = {0: None, 1_000: None}
    there: list[str] = []
    for step in range(80):
        if there and random.random() < 0.4:
            snapshot.unbind(there.pop(random.randrange(len(there))))
        else:
            snapshot.bind(str(step), templates.intern(a_pod(random)), f"n{random.randrange(6)}")
            there.append(str(step))
        found = []
        for weights_max in states:
            monkeypatch.setattr(inter_pod_affinity_counts, "WEIGHTS_MAX", weights_max)
            state = states[weights_max] = plugin.count(incoming, snapshot, states[weights_max])
            score = plugin.score(state, Rows(snapshot, slice(0, 6)))
            found.append(np.zeros(6, np.int64) if score is None else score)
        assert found[0].tolist() == found[1].tolist(), step
