"""The page while replicas die: two replicas, and a gateway that is killed as well."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from rayched.client import Client
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_start import wait_until_up
from tests.cli.cluster import started, wait_until
from tests.gateway.requests import ask
from tests.page.streams import PageFrames, SeenColumns

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two replicas with eight hollow nodes."""
    directory = tmp_path_factory.mktemp("pair")
    with (
        LocalCluster(directory, replicas=2, unsafe_no_fsync=True, options=["--workers", "0"]) as found,
        Client(found.addresses, timeout_seconds=30.0) as client,
    ):
        wait_until_up(found, client)
        agents = HollowNodes(client, hollow_nodes(8, 2, NodeShape()), heartbeat_seconds=5.0)
        agents.register()
        agents.start()
        try:
            yield found
        finally:
            agents.stop()


def columns_at(server: str) -> SeenColumns:
    """What the page of a gateway before this replica shows."""
    seen = SeenColumns()
    with started("gateway", "--listen", "127.0.0.1:0", "--server", server) as running:
        url = running.line_with("is served at").rpartition(" ")[2]
        with PageFrames(url, "usage") as frames:
            seen.take(frames.until(lambda name, found: name == "usage")[1])
    return seen


@pytest.mark.row("UI7")
def test_each_replicas_page_shows_the_same(pair: LocalCluster) -> None:
    first, second = (columns_at(address) for address in pair.addresses)
    assert first.rows == second.rows and first.zone == second.zone and len(first.rows) == 8


@pytest.mark.row("UI6", "UI8", "UI49")
def test_a_killed_leader_is_a_pause_and_a_killed_gateway_is_nobodys(pair: LocalCluster) -> None:
    with (
        Client(pair.addresses, timeout_seconds=30.0) as client,
        started("gateway", "--listen", "127.0.0.1:0", "--server", ",".join(pair.addresses)) as running,
    ):
        url = running.line_with("is served at").rpartition(" ")[2]
        before = client.leader()
        with PageFrames(url, "usage,status,leader") as frames:
            _, found = frames.until(lambda name, found: name == "leader" and bool(found["terms"]))
            assert found["terms"][-1]["epoch"] == before.epoch
            frames.until(lambda name, found: name == "status")
            killed = pair.replica_at(before.address)
            killed.signal(signal.SIGKILL)
            killed.wait(60)
            _, found = frames.until(lambda name, found: name == "leader" and found["terms"][-1]["epoch"] > before.epoch)
            frames.until(lambda name, status: name == "status" and status["epoch"] > before.epoch)
            after = client.leader()
        last, next_one = found["terms"][-2:]
        assert (last["epoch"], next_one["epoch"], next_one["until"]) == (before.epoch, after.epoch, None)
        assert next_one["since"] == pytest.approx(after.acquired_at_ms / 1000, abs=0.05)
        assert last["since"] < last["until"] <= next_one["since"]
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()
        assert (client.leader().holder, client.leader().epoch) == (after.holder, after.epoch)
        port = url.rpartition(":")[2]
        with started("gateway", "--listen", f"127.0.0.1:{port}", "--server", ",".join(pair.addresses)) as again:
            again.line_with("is served at")
            with PageFrames(url, "leader") as frames:
                _, found = frames.until(lambda name, found: name == "leader" and bool(found["terms"]))
            assert found["terms"][-1]["epoch"] == after.epoch
            # One of the two is gone, and says so by its silence.
            wait_until(
                lambda: len([one for one in ask(url, "/ui/api/replicas").document["replicas"] if "error" in one]) == 1, "seen"
            )


@pytest.mark.row("UI50")
def test_a_port_that_is_taken_is_told(pair: LocalCluster) -> None:
    with started("gateway", "--listen", "127.0.0.1:0", "--server", pair.addresses[0]) as running:
        address = running.line_with("is served at").rpartition("/")[2]
        with started("gateway", "--listen", address, "--server", pair.addresses[0]) as second:
            assert second.process.wait(60) == 1
        assert ask(f"http://{address}", "/ui/").status == 200
