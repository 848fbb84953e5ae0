"""One cluster for this folder, an etcd and one replica with twelve hollow nodes, and the gateway before it as a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cluster import Commands, Running, run_here, started
from tests.cli.conftest import client, cluster, cordoned, name, namespace, nodes, rayched
from tests.gateway.kubectl import KUBECTL, Kubectl

__all__ = ["client", "cluster", "cordoned", "name", "namespace", "nodes", "rayched"]


@pytest.fixture(scope="package")
def gateway(rayched: Commands) -> Iterator[tuple[Running, str]]:
    """The process, and its address."""
    with started("gateway", "--listen", "127.0.0.1:0", "--server", rayched.server) as running:
        yield running, running.line_with("is served at").rpartition(" ")[2]


@pytest.fixture(scope="package")
def url(gateway: tuple[Running, str]) -> str:
    return gateway[1]


@pytest.fixture(scope="package")
def kubectl(url: str, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    if KUBECTL is None:
        pytest.skip("there is no kubectl on this host")
    directory: Path = tmp_path_factory.mktemp("kubectl")
    file = directory / "kubeconfig"
    assert run_here(["kubeconfig", "--gateway", url, "-o", str(file)]).code == 0
    return Kubectl(file, directory)
