"""The pictures of docs/web.md: `python -m tests.page.pictures [--nodes 5000] [--pods 50000] [--all DIRECTORY]`.

A cluster of one replica with hollow nodes, most pods placed by name, some by the scheduler, some that wait; the gateway before
it; Chromium by Playwright. `--all` draws every view, wide and narrow, light and dark, into another directory: to be looked at.
Exit code 2 where there is no Playwright or no Chromium.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rayched.client import Client, new_pod
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_start import wait_until_up
from rayched.v1.core_pb2 import Pod, Taint
from tests.cli.cluster import started

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDE, PHONE = {"width": 1280, "height": 1000}, {"width": 390, "height": 844}
SAMPLES_SECONDS = 20.0
OPTIONS = ["--workers", "0", "--node-monitor-grace-period", "24h"]
"""Agents on a busy host may be late with heartbeats."""
IN_DOCS = {"overview": "#/", "nodes": "#/nodes?by=cpu", "pod": "#/pod/default/shop-1"}
VIEWS = {**IN_DOCS, "queue": "#/queue", "plan": "#/plan", "events": "#/events", "replicas": "#/replicas", "node": "#/node/{node}"}
ON_PHONES = ("overview", "queue")


def a_pod(name: str, cpu: int, memory: int, node: str = "") -> Pod:
    pod = new_pod(name, image="registry.example/shop:1", cpu=f"{cpu}m", memory=f"{memory}Mi")
    pod.spec.node_name = node
    return pod


def fill(client: Client, names: list[str], pods: int) -> None:
    """Fuller nodes first in each zone, so that there is something to see."""
    draw = random.Random(5)
    weights = list(itertools.accumulate(2.0 - index / len(names) for index in range(len(names))))
    chosen = draw.choices(names, cum_weights=weights, k=pods)
    submitted = client.submit_many(
        a_pod(f"web-{number}", draw.randrange(100, 1_500), draw.randrange(200, 4_500), node) for number, node in enumerate(chosen)
    )
    failed = [one for one in submitted if one.error is not None]
    assert not failed, failed[0].error


@contextmanager
def a_cluster(directory: Path, nodes: int, pods: int) -> Iterator[Client]:
    with (
        LocalCluster(directory, replicas=1, unsafe_no_fsync=True, options=OPTIONS) as cluster,
        Client(cluster.addresses, timeout_seconds=120.0) as client,
    ):
        wait_until_up(cluster, client)
        agents = HollowNodes(client, hollow_nodes(nodes, 5, NodeShape()), heartbeat_seconds=10.0)
        agents.register()
        agents.start()
        try:
            names = [node.metadata.name for node in client.list("nodes")]
            fill(client, names, pods)
            for name in names[3::97]:
                client.cordon(name)
            for name in names[5::101]:
                client.taint(name, add=[Taint(key="dedicated", value="batch", effect="NoSchedule")])
            yield client
        finally:
            agents.stop()


def submit_some(client: Client) -> None:
    """What the scheduler has to do while histories fill."""
    client.submit_many(a_pod(f"shop-{number}", 250, 512) for number in range(200))
    client.submit_many(a_pod(f"huge-{number}", 99_000, 512) for number in range(40))
    client.wait_bound([f"shop-{number}" for number in range(200)], timeout_seconds=300.0)


def draw(
    browser: Any, url: str, views: dict[str, str], directory: Path, viewport: dict[str, int], scheme: str, suffix: str
) -> None:
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    page = context.new_page()
    began = time.monotonic()
    page.goto(f"{url}/ui/")
    page.wait_for_function("() => rayched.state.columns.length && rayched.state.status !== null", timeout=120_000)
    print(f"the overview is there after {time.monotonic() - began:.2f} s")
    page.wait_for_function("() => rayched.state.samples.fine.length > 3", timeout=120_000)
    for name, address in views.items():
        page.evaluate("address => { location.hash = address }", address)
        page.wait_for_timeout(1_000)
        page.evaluate("() => rayched.view.ready")
        page.wait_for_timeout(3_000)
        page.screenshot(path=directory / f"page-{name}{suffix}.png")
        print(directory / f"page-{name}{suffix}.png")
    context.close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--all", type=Path)
    given = parser.parse_args(arguments)
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if program is None or sync_playwright is None:
        print("there is no Chromium, or no Playwright; make test-browser installs the latter", file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory() as scratch,
        a_cluster(Path(scratch), given.nodes, given.pods) as client,
        started("gateway", "--listen", "127.0.0.1:0", "--server", client.endpoints[0]) as running,
        sync_playwright() as tool,
    ):
        url = running.line_with("is served at").rpartition(" ")[2]
        browser = tool.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        browser.new_page().goto(f"{url}/ui/")
        submit_some(client)
        time.sleep(SAMPLES_SECONDS)
        draw(browser, url, IN_DOCS, PICTURES, WIDE, "light", "")
        if given.all is not None:
            given.all.mkdir(parents=True, exist_ok=True)
            node = next(client.list("nodes")).metadata.name
            views = {name: address.format(node=node) for name, address in VIEWS.items()}
            for scheme in ("light", "dark"):
                draw(browser, url, views, given.all, WIDE, scheme, f"-1280-{scheme}")
                draw(browser, url, {name: views[name] for name in ON_PHONES}, given.all, PHONE, scheme, f"-390-{scheme}")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
