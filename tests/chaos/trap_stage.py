"""A stage with traps on the way between each replica and its etcd, of which there is one member."""

from __future__ import annotations

from pathlib import Path

from rayched.replica.cluster.local_cluster import ReplicaProcess
from rayched.replica.etcd.etcd_binary import EtcdBinary
from tests.chaos.stage import Stage
from tests.chaos.traps import TrapLink, TrapNetwork


class TrapStage(Stage):
    """A context manager."""

    def __init__(self, directory: Path, binary: EtcdBinary, *, replicas: int, operations: int) -> None:
        """`operations`: as many as a transaction may have."""
        super().__init__(directory, binary, replicas=replicas, members=1, workers=0, operations=operations)
        self.network = TrapNetwork()

    def link(self, replica: ReplicaProcess) -> TrapLink:
        """Its way to etcd."""
        link = self.network.links[f"etcd-{replica.number}-0"]
        assert isinstance(link, TrapLink)
        return link
