"""One cluster for this folder: an etcd, one replica with the example profiles, twelve hollow nodes in three zones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import grpc
import pytest

from rayched.api import kinds
from rayched.api.kinds import Kind
from rayched.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_start import wait_until_up
from tests.cli.cluster import Commands, a_pod_text, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def configuration(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the user: no command finds, or makes, contexts of whoever runs the tests."""
    found = tmp_path_factory.mktemp("configuration")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(found))
    monkeypatch.delenv("RAYCHED_CONTEXT", raising=False)
    monkeypatch.delenv("RAYCHED_NAMESPACE", raising=False)
    return found


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    options = ["--workers", "0", "--config", str(EXAMPLES / "scheduler" / "profiles.yaml")]
    directory = tmp_path_factory.mktemp("cluster")
    with LocalCluster(directory, replicas=1, unsafe_no_fsync=True, options=options) as found:
        with Client(found.addresses, timeout_seconds=20.0) as client:
            wait_until_up(found, client)
        yield found


@pytest.fixture(scope="package")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.addresses, timeout_seconds=20.0) as found:
        yield found


@pytest.fixture(scope="package")
def nodes(client: Client) -> Iterator[HollowNodes]:
    agents = HollowNodes(client, hollow_nodes(12, 3, NodeShape()), heartbeat_seconds=5.0)
    agents.register()
    agents.start()
    try:
        yield agents
    finally:
        agents.stop()


@pytest.fixture(scope="package")
def rayched(cluster: LocalCluster, client: Client, nodes: HollowNodes) -> Iterator[Commands]:
    """The command, connected to the cluster."""
    commands = Commands(cluster.addresses[0], cluster.etcd_endpoints[0], client)
    try:
        yield commands
    finally:
        commands.close()


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"object-{next(_numbers)}"


@pytest.fixture
def namespace(rayched: Commands) -> Iterator[str]:
    """A namespace of the test's own; what is in it when the test ends is removed."""
    found = f"space-{next(_numbers)}"
    rayched.ok("apply", "-f", "-", stdin=f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {found}}}}}")
    yield found
    # What makes pods may have made more since they were listed, and the leader removes groups once their last member has gone.
    wait_until(lambda: _is_removed(rayched.client, found), "the namespace is empty, and has gone")


def _is_removed(client: Client, namespace: str) -> bool:
    """Deletes what is in it, what makes pods first, and then the namespace itself."""
    with ThreadPoolExecutor(16) as threads:
        for kind in reversed(kinds.KINDS):
            if kind.namespaced and kind is not kinds.EVENT:
                names = [item.metadata.name for item in client.list(kind, namespace=namespace)]
                list(threads.map(partial(_delete, client, kind, namespace), names))
    try:
        client.delete(kinds.NAMESPACE, namespace)
    except ApiError as problem:
        if problem.code is not grpc.StatusCode.FAILED_PRECONDITION:
            raise
        return False
    return True


def _delete(client: Client, kind: Kind, namespace: str, name: str) -> None:
    """Its owner may have gone before it, and it with the owner."""
    try:
        client.delete(kind, name, namespace, grace_period_seconds=0)
    except ApiError as problem:
        if problem.code is not grpc.StatusCode.NOT_FOUND:
            raise


@pytest.fixture
def cordoned(rayched: Commands) -> Iterator[str]:
    """A node that tests may do to what they like; uncordoned, untainted and without further labels afterwards."""
    yield "node-011"
    rayched("uncordon", "node-011")
    for key in ("dedicated", "other"):
        rayched("taint", "nodes", "node-011", f"{key}-")
    rayched("label", "node", "node-011", "tier-", "example.com/team-")


@pytest.fixture
def web(rayched: Commands, namespace: str) -> str:
    """A namespace with two running pods, web-0 and web-1, and one that waits, db."""
    pods = [a_pod_text(f"web-{number}", namespace=namespace, labels="{app: web}") for number in range(2)]
    pods.append(a_pod_text("db", namespace=namespace, labels="{app: db, tier: back}", cpu="17"))
    rayched.ok("apply", "-f", "-", stdin="---\n".join(pods))
    rayched.running("web-0", namespace)
    rayched.running("web-1", namespace)
    rayched.unschedulable("db", "Insufficient cpu", namespace)
    return namespace
