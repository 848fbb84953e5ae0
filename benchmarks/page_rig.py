"""Where `python -m benchmarks.page` and the pictures of the page are made: a cluster with much in it, its gateway, a browser.

One replica and no agents: nodes are registered and stay ready. Most pods are placed by name, fuller nodes first in each zone.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.gateway_rig import answers, wait_for
from rayched.client import Client, new_pod
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.free_ports import free_ports
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_start import wait_until_up
from rayched.replica.gateway_keeper import GatewayKeeper, GatewayPlace
from rayched.v1.core_pb2 import Pod, Taint

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
BROWSER_FLAGS: Final = ("--no-sandbox", "--disable-dev-shm-usage")
_ZONES: Final = 5
_UP_SECONDS_MAX: Final = 60.0
_OPTIONS: Final = ("--workers", "0", "--node-monitor-grace-period", "24h")
"""Nobody sends heartbeats."""


class NoBrowser(Exception):
    """There is no Chromium or no Playwright. The message is for a person."""


def chromium() -> str | None:
    """The program; None: there is none on this host."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


@contextlib.contextmanager
def browsing() -> Iterator[Any]:
    """Chromium, by Playwright. Raises NoBrowser."""
    program = chromium()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NoBrowser("there is no Playwright; `make test-browser` installs it") from None
    if program is None:
        raise NoBrowser(f"there is no Chromium on $PATH, by none of the names {', '.join(BROWSERS)}")
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=program, args=list(BROWSER_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass(frozen=True, slots=True)
class PageRig:
    """Ready for readers."""

    client: Client
    cluster: LocalCluster
    gateway: GatewayKeeper
    url: str
    """Of the gateway."""
    nodes: tuple[str, ...]


def a_pod(name: str, cpu: int, memory: int, node: str = "") -> Pod:
    """`cpu` in thousandths of a core, `memory` in MiB. `node`: where it is placed by name; empty: by the scheduler."""
    pod = new_pod(name, image="registry.example/shop:1", cpu=f"{cpu}m", memory=f"{memory}Mi")
    pod.spec.node_name = node
    return pod


@contextlib.contextmanager
def page_rig(directory: Path, nodes: int, pods: int) -> Iterator[PageRig]:
    """Raises ReplicaFailed, ApiError, RehearsalFailed."""
    with (
        LocalCluster(directory, replicas=1, unsafe_no_fsync=True, options=_OPTIONS) as cluster,
        Client(cluster.addresses, timeout_seconds=120.0) as client,
    ):
        wait_until_up(cluster, client)
        HollowNodes(client, hollow_nodes(nodes, _ZONES, NodeShape())).register()
        names = tuple(node.metadata.name for node in client.list("nodes"))
        _fill(client, names, pods)
        [port] = free_ports(1)
        keeper = GatewayKeeper(GatewayPlace(f"127.0.0.1:{port}", None).command(cluster.addresses[0]))
        keeper.start()
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: answers(url), _UP_SECONDS_MAX, f"the gateway at {url} answers")
            yield PageRig(client, cluster, keeper, url, names)
        finally:
            keeper.stop()


def _fill(client: Client, names: Sequence[str], pods: int) -> None:
    draw = random.Random(5)
    weights = list(itertools.accumulate(2.0 - index / len(names) for index in range(len(names))))
    chosen = draw.choices(names, cum_weights=weights, k=pods)
    submitted = client.submit_many(
        a_pod(f"web-{number}", draw.randrange(100, 1_500, 50), draw.randrange(200, 4_500, 100), node)
        for number, node in enumerate(chosen)
    )
    for one in submitted:
        if one.error is not None:
            raise one.error
    for name in names[3::97]:
        client.cordon(name)
    for name in names[5::101]:
        client.taint(name, add=[Taint(key="dedicated", value="batch", effect="NoSchedule")])
