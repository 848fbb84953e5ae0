"""Gangs in the load of chaos: they come whole, and the judge of liveness sees those that wait without a reason."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from rayched.audit.auditor import Auditor, KeyChange
from rayched.v1.core_pb2 import Node
from rayched.v1.storage_pb2 import Stored
from tests.chaos.gangs import GANG_MEMBERS, feasible_pending, gang_of, group_for, members_missing, with_gangs
from tests.chaos.load import pods_of_many_kinds


def test_gangs_are_among_ordinary_pods_whole_and_alike() -> None:
    pods = list(itertools.islice(with_gangs(pods_of_many_kinds("s0", random.Random(5)), "s0", random.Random(6)), 500))
    members = Counter(gang_of(pod) for pod in pods)
    ordinary = members.pop("")
    assert 0.05 < sum(members.values()) / len(pods) < 0.4 and ordinary > 250
    assert set(list(members.values())[:-1]) == {GANG_MEMBERS}
    assert len({pod.metadata.uid for pod in pods}) == len({pod.metadata.name for pod in pods}) == len(pods)
    first = next(place for place, pod in enumerate(pods) if gang_of(pod))
    assert [members_missing(pods[: first + n]) for n in range(5)] == [0, 3, 2, 1, 0]


@pytest.mark.parametrize(("nodes", "waits"), [(3, 0), (4, 4)])
def test_a_gang_that_waits_counts_where_all_of_it_fits(nodes: int, waits: int) -> None:
    auditor = Auditor("/t")
    changes: list[tuple[bytes, Stored]] = []
    for number in range(nodes):
        node = Node(metadata={"name": f"n{number}"})
        for resource, amount in (("cpu", "150m"), ("memory", "1Gi"), ("pods", "10")):
            node.status.allocatable[resource].string = amount
        changes.append((f"/t/cluster/nodes/n{number}".encode(), Stored(object={"node": node})))
    pods = with_gangs(pods_of_many_kinds("s0", random.Random(5)), "s0", random.Random(6))
    members = list(itertools.islice((pod for pod in pods if gang_of(pod)), GANG_MEMBERS))
    group = group_for(gang_of(members[0]))
    group.metadata.uid = "g"
    changes.append((f"/t/cluster/podgroups/default/{group.metadata.name}".encode(), Stored(object={"pod_group": group})))
    for pod in members:
        pod.spec.preemption_policy = "PreemptLowerPriority"
        changes.append((f"/t/cluster/pods/default/{pod.metadata.name}".encode(), Stored(object={"pod": pod})))
    for revision, (key, stored) in enumerate(changes, 2):
        auditor.replay(revision, [KeyChange(key, stored.SerializeToString())])
    assert len(feasible_pending(auditor)) == waits
