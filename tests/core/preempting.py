"""Leaders that make room, over a model store: pods on nodes, hard budgets, and who ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rayched.api import kinds
from rayched.snapshot.budgets import LIMIT_ANNOTATION
from rayched.store.codec import encode
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored
from rayched.v1.workloads_pb2 import PodDisruptionBudget, PodDisruptionBudgetStatus
from tests.core.builders import a_node, a_pod, stored
from tests.core.leading import key_of
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Clock, Replica


def put(store: ModelStore, pod: Pod) -> None:
    store.put(key_of(pod.metadata.name), stored(pod))


def on_node(pod: Pod, node: str, *, started: int = 100) -> Pod:
    pod.spec.node_name = node
    pod.spec.termination_grace_period_seconds = 30
    pod.status.phase = "Running"
    pod.status.start_time.seconds = started
    return pod


def a_leader(bound: Mapping[str, Sequence[Pod]], *, cpu: str = "4", events: bool = False) -> Replica:
    """A leader at rest over these nodes and the pods on them."""
    store = ModelStore()
    for node, pods in bound.items():
        store.put(KEYS.object_key(kinds.NODE, "", node), stored(a_node(node, cpu=cpu)))
        for pod in pods:
            put(store, on_node(pod, node))
    replica = Replica(store, Clock(), events=events)
    replica.list()
    replica.lead()
    replica.settle()
    return replica


def full_of(*names: str, cpu: str = "1", priority: int = 0) -> list[Pod]:
    return [a_pod(name, cpu=cpu, priority=priority) for name in names]


def ending(replica: Replica) -> list[str]:
    return sorted(pod.metadata.name for pod in replica.store.pods().values() if pod.metadata.HasField("deletion_timestamp"))


def stop_ending(replica: Replica) -> None:
    """The node's agent does its work."""
    for name in ending(replica):
        replica.store.delete(key_of(name))


def pod_of(replica: Replica, name: str) -> Pod:
    pod = replica.store.pod(key_of(name))
    assert pod is not None
    return pod


def until_sent(replica: Replica) -> None:
    """Let the leader see the store and decide, until it has sent something; nothing of it has arrived."""
    for _ in range(20):
        replica.watch()
        replica.exchange()
        replica.exchanged()
        replica.core.decide()
        if replica.turn() and replica.to_store:
            return
    raise AssertionError("nothing was sent")


def budget_key(name: str) -> bytes:
    return KEYS.object_key(kinds.POD_DISRUPTION_BUDGET, "default", name)


def hard_budget(store: ModelStore, allowed: int, name: str = "guard", app: str = "db", *, size: int = 0) -> bytes:
    budget = PodDisruptionBudget()
    budget.metadata.namespace, budget.metadata.name = "default", name
    budget.metadata.annotations[LIMIT_ANNOTATION] = "hard"
    budget.metadata.annotations["large"] = "x" * size
    budget.spec.selector.match_labels["app"] = app
    budget.status.disruptions_allowed = allowed
    key = budget_key(name)
    store.put(key, encode(kinds.wrap(budget)))
    return key


def budget_status(store: ModelStore, key: bytes) -> PodDisruptionBudgetStatus:
    return Stored.FromString(store.now[key].value).object.pod_disruption_budget.status
