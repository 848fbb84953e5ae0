"""The auditor's own reading of the hard constraints, held against the naive scheduler's, on random clusters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from rayched.audit.capacity import Capacity
from rayched.audit.constraints import against_node, against_pods
from rayched.audit.view import AuditView, resident
from rayched.v1.core_pb2 import Pod
from tests.oracle.naive import NaiveScheduler
from tests.plugins.clusters import World
from tests.plugins.random_worlds import seeds
from tests.plugins.test_topology_against_naive import RoomyWorld


@pytest.mark.parametrize("kind", [World, RoomyWorld])
@given(seed=seeds)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_auditor_and_naive_scheduler_allow_the_same_nodes(kind: type[World], seed: int) -> None:
    world = kind(seed, n_nodes=8, n_pods=12)
    for number in range(4):
        pod = world.draw_pod()
        pod.metadata.uid, pod.metadata.name = f"incoming-{number}", f"incoming-{number}"
        attempt = world.naive.attempt(pod)
        # What NodeResourcesFit leaves out (extended resources that a node does not name) is the same for both.
        assert _allowed(world.naive, pod) == set(attempt.feasible), f"seed {seed}, pod {number}"
        world.change()


def _allowed(naive: NaiveScheduler, pod: Pod) -> set[str]:
    view, capacity = AuditView(namespaces=dict(naive.around.namespaces)), Capacity()
    for name, node in naive.nodes.items():
        view.put("nodes", name, node)
        capacity.offer(name, node)
    for uid, (other, where) in naive.pods.items():
        there = Pod()
        there.CopyFrom(other)
        there.metadata.uid, there.metadata.name, there.spec.node_name = uid, uid, where
        if uid in naive.terminating:
            there.metadata.deletion_timestamp.seconds = 1
        view.put("residents", uid, resident(there))
        capacity.enter(uid, there, where)
    return {
        name
        for name, node in naive.nodes.items()
        if against_node(pod, node) is None and against_pods(pod, node, view) is None and capacity.exceeded_by(pod, name) is None
    }
