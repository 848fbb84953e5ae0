"""Whatever the leader has to write, each request stays within etcd's limits of operations and bytes: worlds drawn from a seed,
over a store that refuses as etcd does. Pods and budgets have any size that the API admits, and there are any number of them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from leader.etcd_shim import rpc
from rayched.api import kinds
from rayched.api.validation.limits import OBJECT_BYTES, POD_BYTES
from rayched.core.writes.window import Send
from rayched.snapshot.budgets import LIMIT_ANNOTATION
from rayched.store.codec import encode
from rayched.store.transactions import ALSO_MAX
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored
from rayched.v1.workloads_pb2 import PodDisruptionBudget
from tests.core.builders import a_node, a_pod, stored
from tests.core.leading import reason_of
from tests.core.model_store import ModelStore
from tests.core.preempting import budget_key, on_node, put
from tests.core.replica import KEYS, Clock, Replica

LARGEST_POD, LARGEST_OBJECT = POD_BYTES - 2_048, OBJECT_BYTES - 2_048
"""Less what else they hold."""


class WithinLimits(Replica):
    """Every request has to be taken, and none may have been given up before it was sent."""

    last_number = 0

    def stored(self, send: Send) -> Any:
        # Numbers count what was built: a gap is a request that no etcd would be asked to take.
        assert send.number == self.last_number + 1 and send.problem is None
        self.last_number = send.number
        return self.store.txn(rpc.TxnRequest.FromString(send.content))


def a_size(rng: Random, most: int, share: float) -> int:
    """Small, but for a share of any size up to the most."""
    return rng.choice([rng.randrange(10_000), rng.randrange(most), most]) if rng.random() < share else 0


def large(pod: Pod, size: int) -> Pod:
    pod.metadata.annotations["large"] = "x" * size
    return pod


def hard_budgets(rng: Random, store: ModelStore, apps: int, share: float) -> dict[bytes, int]:
    """Up to three for each app; what each allows, by its key."""
    allowed: dict[bytes, int] = {}
    for app in range(apps):
        for number in range(rng.choice([0, 1, 1, 1, 2, 3])):
            name = f"guard-{app}-{number}"
            budget = PodDisruptionBudget()
            budget.metadata.namespace, budget.metadata.name = "default", name
            budget.metadata.annotations[LIMIT_ANNOTATION] = "hard"
            budget.metadata.annotations["large"] = "x" * a_size(rng, LARGEST_OBJECT, share)
            budget.spec.selector.match_labels["app"] = f"app-{app}"
            budget.status.disruptions_allowed = allowed[budget_key(name)] = rng.choice([0, 1, 2, 100, 100])
            store.put(budget_key(name), encode(kinds.wrap(budget)))
    return allowed


def a_world(rng: Random, share: float) -> tuple[WithinLimits, dict[bytes, int], list[str]]:
    """A full cluster; the budgets in it, and the pods that now want room."""
    store = ModelStore()
    apps = rng.choice([1, 5, 50])
    for number in range(rng.randint(1, 4)):
        count = rng.choice([1, ALSO_MAX, ALSO_MAX + 1, 60])
        store.put(KEYS.object_key(kinds.NODE, "", f"n{number}"), stored(a_node(f"n{number}", cpu=str(count))))
        for i in range(count):
            pod = a_pod(f"db-{number}-{i}", cpu="1", labels={"app": f"app-{rng.randrange(apps)}"})
            put(store, on_node(large(pod, a_size(rng, LARGEST_POD, share)), f"n{number}"))
    allowed = hard_budgets(rng, store, apps, share)
    replica = WithinLimits(store, Clock(), events=True)
    replica.list()
    replica.lead()
    replica.settle()
    # Those of lower priority come first: they are nominated, and lose that to the others.
    wanting = [
        large(a_pod(f"vip-{i}", cpu=str(rng.choice([1, 5, 21, 60])), priority=1 + i // 10), a_size(rng, LARGEST_POD, share))
        for i in range(rng.choice([1, 5, 40]))
    ]
    for pod in wanting:
        put(store, pod)
        if rng.random() < 0.2:
            replica.settle()
    return replica, allowed, [pod.metadata.name for pod in wanting]


def spent(store: ModelStore, key: bytes) -> tuple[int, Sequence[str]]:
    status = Stored.FromString(store.now[key].value).object.pod_disruption_budget.status
    return status.disruptions_allowed, sorted(status.disrupted_pods)


@pytest.mark.parametrize("seed", range(24))
def test_every_request_of_a_leader_is_one_that_etcd_takes_and_no_budget_is_exceeded(seed: int) -> None:
    rng = Random(seed)
    share = rng.choice([0.0, 0.2, 1.0])
    replica, allowed, wanting = a_world(rng, share)
    store = replica.store
    burst = [f"small-{i}" for i in range(rng.choice([0, 3, 250]))]
    for name in burst:
        put(store, large(a_pod(name, cpu="0", priority=100), a_size(rng, LARGEST_POD, share / 2)))
    for _ in range(6):
        replica.settle()
        replica.clock.now += 11
    ending = {pod.metadata.name: pod for pod in store.pods().values() if pod.metadata.HasField("deletion_timestamp")}
    apps = {name: pod.metadata.labels["app"] for name, pod in ending.items()}
    for key, before in allowed.items():
        left, entered = spent(store, key)
        assert left == before - len(entered) >= 0
        app = "app-" + key.decode().rsplit("guard-", 1)[1].split("-")[0]
        assert entered == sorted(name for name, of in apps.items() if of == app)
    # Nobody has been left without an answer, and nobody else has been held up.
    assert all(reason_of(replica, name)[0] for name in wanting if name not in replica.bound())
    assert replica.core.preemptions.is_quiet and replica.core.window.quiet
    capacity = 110 * sum(key.startswith(KEYS.object_key(kinds.NODE, "", "n")) for key in store.now)
    taken = sum(1 for name in replica.bound() if name not in burst)
    assert len(set(burst) & set(replica.bound())) == min(len(burst), capacity - taken)
