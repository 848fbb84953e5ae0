"""RunningCluster: a real cluster on this host: an etcd, replicas and their Ray, gone with the block. Five seconds to start.

    with RunningCluster([a_node("a"), a_node("b", labels={"tier": "gold"})], plugins={"LabelWeight": LabelWeight}) as cluster:
        cluster.place(a_pod("web")).assert_on("web", "b")

The nodes have no agents: pods are bound, and nothing runs. Nobody misses the nodes for a day.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, cast

from rayched.api.kinds import AnyObject
from rayched.client import EventType
from rayched.client.bindings import waiting_reason
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_start import NotUpInTime, wait_until_up
from rayched.replica.cluster.session import ClusterSession
from rayched.testing.placements import Placements
from rayched.testing.plugins import Plugins, configuration_with, python_path_with
from rayched.v1.core_pb2 import Node, Pod

START_SECONDS_MAX: Final = 300.0
"""A busy host takes its time; a replica that ends is noticed at once."""
PLACED_SECONDS_MAX: Final = 30.0


class RunningCluster(ClusterSession):
    """A context manager. `client` reaches it."""

    def __init__(
        self,
        objects: Iterable[AnyObject] = (),
        *,
        plugins: Plugins | None = None,
        config: str = "",
        replicas: int = 1,
        workers: int = 0,
        directory: Path | None = None,
        options: Sequence[str] = (),
        start_seconds_max: float = START_SECONDS_MAX,
    ) -> None:
        """Objects that are there from the start; `plugins` and `config` as for InProcessCluster, but plugins have to be at the
        top of a module, as other processes import them. `options`: further flags of the replicas. The directory is a temporary
        one where none is given. `start_seconds_max`: when the `with` gives up on the start; 0: never.
        """
        self._start_seconds_max = start_seconds_max
        self._objects = list(objects)
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="rayched-test-"))
        environment = {}
        if plugins:
            environment["PYTHONPATH"] = python_path_with(plugins, self.directory / "plugins")
        if config or plugins:
            file = self.directory / "config.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(config or configuration_with(plugins or {}), encoding="utf-8")
            options = [*options, "--config", str(file)]
        flags = ["--workers", str(workers), "--node-monitor-grace-period", "24h", *options]
        self.local = LocalCluster(
            self.directory / "cluster",
            replicas,
            unsafe_no_fsync=True,
            options=flags,
            environment=environment,
        )
        self.client = self.local.client(timeout_seconds=20.0)

    def open(self) -> None:
        """Raises ReplicaFailed where a replica ends, and its subclass NotUpInTime with what was waited for and the logs' ends."""
        self.local.start()
        self._wait_until_up()
        for item in self._objects:
            if isinstance(item, Node):
                self.client.register_node(item)
            else:
                self.client.submit(item)

    def close(self) -> None:
        self.client.close()
        self.local.stop()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the replicas listen: what RAYCHED_SERVER, Client and AsyncClient take."""
        return self.local.addresses

    def place(self, *pods: Pod, timeout_seconds: float = PLACED_SECONDS_MAX) -> Placements:
        """Submits the pods; what became of each at its first attempt. AssertionError where the scheduler is silent about one."""
        submitted = [self.client.submit(pod) for pod in pods]
        names = {response.uid: f"{r.namespace}/{r.name}" for response in submitted for r in (response.object.pod.metadata,)}
        nodes: dict[str, str] = {}
        reasons: dict[str, str] = {}
        if not names:
            return Placements()
        start = min(response.revision for response in submitted)
        with self.client.watch("pods", start_revision=start, timeout_seconds=timeout_seconds) as events:
            for event in events:
                pod = cast(Pod, event.object)
                name = names.get(pod.metadata.uid)
                if name is None or event.type is EventType.DELETED:
                    continue
                if pod.spec.node_name:
                    nodes[name] = pod.spec.node_name
                    reasons.pop(name, None)
                elif reason := waiting_reason(pod):
                    reasons[name] = reason
                if len(nodes) + len(reasons) == len(set(names.values())):
                    return Placements(nodes, reasons)
        silent = sorted(set(names.values()) - nodes.keys() - reasons.keys())
        raise AssertionError(f"nothing was decided within {timeout_seconds:g} s about {', '.join(silent[:5])}")

    def _wait_until_up(self) -> None:
        try:
            wait_until_up(self.local, self.client, self._start_seconds_max)
        except NotUpInTime as error:
            # A temporary directory is gone before anybody could look.
            logs = [f"{replica.log_file.name} ends with:\n{replica.log_tail()}" for replica in self.local.replicas]
            raise NotUpInTime("\n".join([f"{error}; start_seconds_max gives more time", *logs])) from None
