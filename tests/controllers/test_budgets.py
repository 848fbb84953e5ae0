"""The loop that keeps budgets' statuses, against a real etcd: only the leader writes, and only what it has seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from leader.channel import open_channel
from rayched.api.kinds import POD, POD_DISRUPTION_BUDGET, unwrap, wrap
from rayched.controllers.budgets import BudgetStatus
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.codec import decode_entry, decode_stored, encode
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodDisruptionBudget
from tests.patience import patient_store

pytestmark = pytest.mark.cluster


@pytest.fixture
def store(etcd: EtcdServer) -> Iterator[StoreClient]:
    with open_channel([etcd.endpoint]) as channel:
        yield patient_store(channel)


@pytest.fixture
def keys(etcd_root: str) -> Keys:
    return Keys(etcd_root)


@contextmanager
def loop(etcd: EtcdServer, keys: Keys, epoch: Callable[[], int | None]) -> Iterator[None]:
    running = BudgetStatus([etcd.endpoint], keys, epoch)
    running.start()
    try:
        yield
    finally:
        running.stop()


def put_budget(store: StoreClient, keys: Keys, name: str, least: int) -> None:
    budget = PodDisruptionBudget()
    budget.metadata.namespace, budget.metadata.name, budget.metadata.generation = "default", name, 1
    budget.spec.selector.SetInParent()
    budget.spec.min_available.int_value = least
    store.put(keys.object_key(POD_DISRUPTION_BUDGET, "default", name), encode(wrap(budget)))


def put_pod(store: StoreClient, keys: Keys, name: str) -> None:
    pod = Pod()
    pod.metadata.namespace, pod.metadata.name = "default", name
    pod.status.conditions.add(type="Ready", status="True")
    store.put(keys.object_key(POD, "default", name), encode(wrap(pod)))


def allowed(store: StoreClient, keys: Keys, name: str) -> int | None:
    """None: nobody has written a status."""
    entry = store.get(keys.object_key(POD_DISRUPTION_BUDGET, "default", name))
    assert entry is not None
    budget = unwrap(decode_entry(entry))
    assert isinstance(budget, PodDisruptionBudget)
    return budget.status.disruptions_allowed if budget.status.observed_generation else None


def becomes(store: StoreClient, keys: Keys, name: str, wanted: int) -> None:
    deadline = time.monotonic() + 10
    while allowed(store, keys, name) != wanted:
        assert time.monotonic() < deadline, f"{name} allows {allowed(store, keys, name)}, not {wanted}"
        time.sleep(0.01)


def test_statuses_follow_the_pods_under_the_leaders_epoch(etcd: EtcdServer, store: StoreClient, keys: Keys) -> None:
    epoch = store.put(keys.epoch, b"{}")
    with loop(etcd, keys, lambda: epoch):
        put_pod(store, keys, "one")
        put_budget(store, keys, "web", 1)
        becomes(store, keys, "web", 0)
        put_pod(store, keys, "two")
        becomes(store, keys, "web", 1)
        # All budgets go, and one comes again.
        store.delete(keys.object_key(POD_DISRUPTION_BUDGET, "default", "web"))
        put_budget(store, keys, "late", 0)
        becomes(store, keys, "late", 2)
    entry = store.get(keys.object_key(POD_DISRUPTION_BUDGET, "default", "late"))
    assert entry is not None
    write = decode_stored(entry.value, entry.mod_revision).leader_write
    assert (write.op, write.epoch) == ("budget", epoch)
    assert write.decided_at_revision >= epoch


def test_neither_a_standby_nor_a_leader_whose_epoch_is_over_writes_a_status(
    etcd: EtcdServer, store: StoreClient, keys: Keys
) -> None:
    old = store.put(keys.epoch, b"{}")
    new = store.put(keys.epoch, b"{}")
    put_pod(store, keys, "one")
    put_budget(store, keys, "web", 0)
    with loop(etcd, keys, lambda: None), loop(etcd, keys, lambda: old):
        time.sleep(1.0)
        assert allowed(store, keys, "web") is None
        with loop(etcd, keys, lambda: new):
            becomes(store, keys, "web", 1)


def test_a_new_leader_takes_over_the_statuses(etcd: EtcdServer, store: StoreClient, keys: Keys) -> None:
    terms: list[int | None] = [None]
    put_budget(store, keys, "web", 0)
    with loop(etcd, keys, lambda: terms[0]):
        terms[0] = store.put(keys.epoch, b"{}")
        put_pod(store, keys, "one")
        becomes(store, keys, "web", 1)
        terms[0] = None
        put_pod(store, keys, "two")
        terms[0] = store.put(keys.epoch, b"{}")
        becomes(store, keys, "web", 2)
