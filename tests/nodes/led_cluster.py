"""A cluster for one real node: an API over etcd, the leader's care for nodes with short periods, and a way that can be cut.

A hollow node stays ready beside it, as a cluster of which nothing is left evicts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from leader.channel import open_channel
from rayched.client import Client
from rayched.controllers.node_controller import NodeController
from rayched.controllers.node_settings import NodeSettings
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Node, Pod
from tests.chaos.proxy import Link, Network
from tests.nodes.real_node import get
from tests.patience import patient_store
from tests.server.serving import serving

QUICK = NodeSettings(
    node_monitor_period=0.2,
    node_monitor_grace_period=4.0,
    node_startup_grace_period=20.0,
    node_eviction_rate=100,
    orphan_quarantine=60.0,
    termination_margin=0.5,
)


@dataclass
class LedCluster:
    """`link` is the agent's way to the replica; everybody else has another."""

    client: Client
    link: Link

    def run(self, pod: Pod, *, tolerated_seconds: int = 1) -> str:
        pod.spec.tolerations.add(
            key="node.kubernetes.io/unreachable", operator="Exists", effect="NoExecute", toleration_seconds=tolerated_seconds
        )
        self.client.submit(pod)
        return pod.metadata.name

    def is_lost(self, node: str) -> bool:
        return "unreachable" in self.taints(node)

    def is_ending(self, name: str) -> bool:
        pod = get(self.client, name)
        assert pod is not None, "its object is gone, and it may run still"
        return pod.metadata.HasField("deletion_timestamp")

    def taints(self, node: str) -> set[str]:
        found = self.client.get("node", node)
        assert isinstance(found, Node)
        return {taint.key.removeprefix("node.kubernetes.io/") for taint in found.spec.taints}


@contextmanager
def led_cluster(etcd: EtcdServer, name: str) -> Iterator[LedCluster]:
    keys = Keys(f"/{name}")
    with (
        serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], keys)) as server,
        Client(server.address, timeout_seconds=10.0) as client,
        open_channel([etcd.endpoint]) as channel,
        Network() as network,
    ):
        epoch = patient_store(channel).put(keys.epoch, b"{}")
        controller = NodeController([etcd.endpoint], keys, QUICK, lambda: epoch)
        others = HollowNodes(client, hollow_nodes(1, 0, NodeShape(), "other"), heartbeat_seconds=0.3)
        others.register()
        others.start()
        controller.start()
        try:
            yield LedCluster(client, network.link("agent", server.address))
        finally:
            controller.stop()
            others.stop()
