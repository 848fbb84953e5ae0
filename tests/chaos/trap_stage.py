"""A stage with traps on the way between each replica and its etcd, of which there is one member."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from rayched.client.errors import ApiError
from rayched.replica.cluster.local_cluster import ReplicaProcess
from rayched.replica.etcd.etcd_binary import EtcdBinary
from rayched.v1.core_pb2 import Pod
from tests.chaos.stage import Stage
from tests.chaos.traps import TrapLink, TrapNetwork

_DELETED_AT_ONCE = 8


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

    def delete(self, pods: Iterable[Pod]) -> None:
        """Those of them that are there. Raises ApiError."""

        def delete(pod: Pod) -> None:
            try:
                self.client.delete("pods", pod.metadata.name, uid=pod.metadata.uid)
            except ApiError as error:
                if error.code is not grpc.StatusCode.NOT_FOUND:
                    raise

        with ThreadPoolExecutor(_DELETED_AT_ONCE) as threads:
            list(threads.map(delete, pods))
