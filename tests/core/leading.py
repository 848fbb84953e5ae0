"""A leader at rest over a model store, for scripted histories: nothing happens by itself, see `Replica`."""

from __future__ import annotations

from collections.abc import Sequence

from leader.etcd_shim import rpc
from rayched.api import kinds
from rayched.store.transactions import GuardedPut, build
from rayched.v1.core_pb2 import Node, Pod
from tests.core.builders import a_node, stored
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Clock, Replica


def put_node(store: ModelStore, node: Node) -> int:
    return store.put(KEYS.object_key(kinds.NODE, "", node.metadata.name), stored(node))


def key_of(name: str) -> bytes:
    return KEYS.object_key(kinds.POD, "default", name)


def put_pod(store: ModelStore, pod: Pod) -> int:
    return store.put(key_of(pod.metadata.name), stored(pod))


def take_room(store: ModelStore, pod: Pod, node: str) -> None:
    """A user creates the pod with a nodeName, as the API does."""
    pod.spec.node_name = node
    write = GuardedPut(key_of(pod.metadata.name), 0, stored(pod), mark=KEYS.taken(node))
    store.txn(rpc.TxnRequest.FromString(build(None, [write])))


def reason_of(replica: Replica, name: str) -> tuple[str, str]:
    """Reason and message of the stored pod's condition."""
    pod = replica.store.pod(key_of(name))
    assert pod is not None
    (condition,) = pod.status.conditions
    return condition.reason, condition.message


def nowhere(n_nodes: int) -> str:
    """What a pod is told that asks for more CPU than any node has."""
    none = f"0/{n_nodes} nodes are available: {n_nodes}"
    return f"{none} Insufficient cpu. preemption: {none} Preemption is not helpful for scheduling."


def a_replica(*nodes: str, **options: object) -> Replica:
    """A leader at rest over these nodes of 4 CPUs."""
    store = ModelStore()
    for name in nodes:
        put_node(store, a_node(name))
    replica = Replica(store, Clock(), **options)  # type: ignore[arg-type]
    replica.list()
    replica.lead()
    replica.settle()
    return replica


def decide(replica: Replica) -> None:
    """Let the leader see the store, fetch its pods and decide them; nothing is written yet."""
    replica.watch()
    replica.turn()
    while replica.exchange():
        replica.exchanged()
        replica.turn()
    replica.exchanged()
    replica.core.decide()


def having_decided(*pods: Pod, nodes: Sequence[str] = ("n1",)) -> Replica:
    """A leader over these nodes of 4 CPUs that has decided about the pods and has written nothing yet."""
    replica = a_replica(*nodes)
    for pod in pods:
        put_pod(replica.store, pod)
    decide(replica)
    return replica


def assumed(replica: Replica) -> int:
    return replica.core.scheduler.occupancy.n_assumed
