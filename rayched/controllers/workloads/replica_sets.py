"""What a ReplicaSet wants done, from its pods and the time; and its status.

    fewer active pods than replicas   create the rest, 500 at most in a turn
    more                              delete as many, in this order:

| goes first | over |
|---|---|
| without a node | on one |
| Pending | Unknown, over Running |
| not ready | ready |
| the lower annotation pod-deletion-cost | the higher |
| on a node with more pods of the set | with fewer |
| ready for the shorter time | the longer; times count by their order of magnitude, or the newest would always be the ones to go |
| restarted more often | less often |
| the younger | the older, as with times of being ready; the uid decides what is left |

Pods that have ended, or that were asked to, do not count: they are replaced at once, and removed by whoever removes ended pods.

Pure; times are Unix seconds. Source: the ReplicaSet controller and ActivePodsWithRanks of Kubernetes 1.34, whose order is none
where times differ and are of one magnitude: there the uid decides before restarts and age, here after them.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from rayched.controllers.workloads.owned_pods import OwnedPod, PodSet
from rayched.v1.workloads_pb2 import ReplicaSet, ReplicaSetStatus

AT_ONCE_MAX: Final = 500
"""Pods that one controller has created or deleted in one turn."""
REPLICA_FAILURE: Final = "ReplicaFailure"
FAILED_CREATE: Final = "FailedCreate"
_PHASE_ORDER: Final = {"Pending": 0, "": 0, "Unknown": 1, "Running": 2}


@dataclass(frozen=True, slots=True)
class ReplicaTurn:
    """What is to be done now."""

    create: int = 0
    delete: tuple[OwnedPod, ...] = ()


def turn_of(replica_set: ReplicaSet, pods: PodSet, now: float) -> ReplicaTurn:
    wanted = replica_set.spec.replicas if replica_set.spec.HasField("replicas") else 1
    missing = wanted - len(pods.active)
    if missing > 0:
        return ReplicaTurn(create=min(missing, AT_ONCE_MAX))
    if missing < 0:
        return ReplicaTurn(delete=first_to_go(pods.active.values(), min(-missing, AT_ONCE_MAX), now))
    return ReplicaTurn()


def first_to_go(pods: Collection[OwnedPod], count: int, now: float) -> tuple[OwnedPod, ...]:
    """In the order of the table."""
    on_node = Counter(pod.node_name for pod in pods)

    def order(pod: OwnedPod) -> tuple[object, ...]:
        return (
            bool(pod.node_name),
            _PHASE_ORDER.get(pod.phase, 2),
            pod.ready_since is not None,
            pod.cost,
            -on_node[pod.node_name],
            0 if pod.ready_since is None else _magnitude(now - pod.ready_since),
            -pod.restarts,
            _magnitude(now - pod.created_at),
            pod.uid,
        )

    return tuple(heapq.nsmallest(count, pods, key=order))


def _magnitude(seconds: float) -> int:
    return int(math.log2(seconds)) if seconds >= 1 else -1 if seconds >= 0 else -2


@dataclass(frozen=True, slots=True)
class JudgedReplicas:
    """`recheck_at`: when the status is another although nothing has changed; None: never."""

    status: ReplicaSetStatus
    recheck_at: float | None


def status_of(replica_set: ReplicaSet, pods: PodSet, now: float, failure: str = "") -> JudgedReplicas:
    """`failure`: why no pod can be created; empty: nothing is in the way."""
    spec = replica_set.spec
    pods.expect(spec.template.metadata.labels, spec.min_ready_seconds)
    recheck_at = pods.ripen(now)
    status = ReplicaSetStatus(
        replicas=len(pods.active),
        fully_labeled_replicas=len(pods.active) - len(pods.unlabelled),
        ready_replicas=pods.n_ready,
        available_replicas=pods.n_ready - len(pods.ripening),
        observed_generation=max(replica_set.metadata.generation, replica_set.status.observed_generation),
    )
    for found in replica_set.status.conditions:
        if found.type != REPLICA_FAILURE:
            status.conditions.add().CopyFrom(found)
    if failure:
        old = next((found for found in replica_set.status.conditions if found.type == REPLICA_FAILURE), None)
        condition = status.conditions.add(type=REPLICA_FAILURE, status="True", reason=FAILED_CREATE, message=failure)
        condition.last_transition_time.seconds = int(now) if old is None else old.last_transition_time.seconds
    return JudgedReplicas(status, recheck_at)
