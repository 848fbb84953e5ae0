"""A whole replica over an etcd that fills: pods go on, and what would be told of them is given up."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from leader.channel import open_channel
from rayched.client import ApiError, Client
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.v1.core_pb2 import Event, Pod
from tests.patience import patient_store
from tests.replica.clusters import scheduler_status, small_pod, until_true
from tests.replica.test_observability import Scrape
from tests.server.objects import a_node

QUOTA = 32 << 20
SECONDS_MAX = 60.0


@pytest.mark.cluster
def test_pods_are_bound_and_not_told_of_while_room_is_kept_for_what_matters_more(tmp_path: Path) -> None:
    with (
        EtcdServer(tmp_path / "etcd", unsafe_no_fsync=True, quota_bytes=QUOTA) as etcd,
        LocalCluster(
            tmp_path / "cluster", 1, etcd_endpoints=[etcd.endpoint], options=("--workers", "0", "--no-compact")
        ) as cluster,
        Client(cluster.addresses, timeout_seconds=20.0) as client,
        contextlib.closing(open_channel([etcd.endpoint])) as channel,
    ):
        scheduler_status(client)
        client.register_node(a_node("n1", cpu="4"))
        bound(client, "told")
        until_true(lambda: told_of(client) == {"told"}, SECONDS_MAX, "an Event says so")
        store, (replica,) = patient_store(channel), cluster.replicas
        for number in range(int(0.73 * QUOTA) // 100_000):
            store.put(b"/somebody/%d" % number, bytes(100_000))
            time.sleep(0.01)
        until_true(
            lambda: Scrape(replica).sum("rayched_etcd_in_use_bytes") >= 0.7 * QUOTA, SECONDS_MAX, "the replica has seen it"
        )
        bound(client, "untold")
        until_true(
            lambda: Scrape(replica).sum("rayched_events_total", outcome="given_up") >= 1,
            SECONDS_MAX,
            "what would be told is counted",
        )
        assert told_of(client) == {"told"}


def bound(client: Client, name: str) -> None:
    def is_taken() -> bool:
        """What was written in the last seconds is expected twice more, so that a pod may have to wait for a moment."""
        try:
            client.submit(small_pod(name))
        except ApiError as error:
            assert "for a moment" in error.message
            return False
        return True

    def is_bound() -> bool:
        pod = client.get("pod", name)
        assert isinstance(pod, Pod)
        return bool(pod.spec.node_name)

    until_true(is_taken, SECONDS_MAX, f"{name} is taken")
    until_true(is_bound, SECONDS_MAX, f"{name} is bound")


def told_of(client: Client) -> set[str]:
    """Pods of which an Event says where they are."""
    events = client.list("events")
    return {one.involved_object.name for one in events if isinstance(one, Event) and one.reason == "Scheduled"}
