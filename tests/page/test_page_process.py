"""The page's process: there where it was asked for alone, level whatever happens, and what it starts ends with it."""

from __future__ import annotations

import asyncio
import os
import pickle
from pathlib import Path

import pytest

from rayched.client.async_client import AsyncClient
from rayched.page.histories import TERMS_MAX, LeaderTimeline, StatusHistory
from rayched.page.planning import PlanRunner, PlanWish
from rayched.page.recent_events import RecentEvents
from rayched.page.usage_columns import UsageColumns
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.ray.processes import alive, descendants
from rayched.replica.settings import GATEWAY_PORT_DISTANCE
from rayched.v1.services_pb2 import GetSchedulerStatusResponse
from tests.cli.cluster import Commands, wait_until
from tests.gateway.requests import ask
from tests.listening import listening
from tests.page.test_streaming import an_event
from tests.page.test_usage_columns import a_node, pods

pytestmark = pytest.mark.cluster

HOUR = 3_600


def words_of(pid: int) -> list[bytes]:
    """Its command line; none: it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if alive(pid) else []
    except OSError:
        return []


@pytest.mark.row("UI51")
def test_a_replica_without_a_gateway_has_no_page_and_no_port_for_it(rayched: Commands, cluster: LocalCluster) -> None:
    replica, port = cluster.replicas[0].pid, int(rayched.server.rpartition(":")[2])
    below = [words for pid in descendants(replica) if (words := words_of(pid))]
    assert below and not [words for words in below if b"gateway" in words]
    ports = {found for _, found in listening([replica])}
    assert port in ports and port + GATEWAY_PORT_DISTANCE not in ports
    words = words_of(replica)
    health = words[words.index(b"--http-address") + 1].decode()
    assert ask(f"http://{health}", "/ui/").status == 404, "health and metrics are no page either"


@pytest.mark.row("UI28")
def test_a_plan_that_is_ended_leaves_no_process(rayched: Commands) -> None:
    async def play() -> list[str]:
        async with AsyncClient(rayched.server) as client:
            found = await PlanRunner(seconds=0.4).run(PlanWish(drain=("node-001",)), client)
        return list(found["errors"])

    assert asyncio.run(play()) == ["the plan took longer than 0.4 s and was ended"]

    def is_planning(pid: int) -> bool:
        return any(word.startswith(b"--handed-over") for word in words_of(pid))

    wait_until(lambda: not any(map(is_planning, descendants(os.getpid()))), "its process is gone")


class Kept:
    """All that is kept for a reader of the page."""

    def __init__(self) -> None:
        self.usage = UsageColumns()
        self.history = StatusHistory()
        self.timeline = LeaderTimeline()
        self.events = RecentEvents()
        for number in range(50):
            self.usage.see_node(a_node(f"node-{number:04}", zone=f"zone-{number % 3}"))

    def an_hour(self, hour: int) -> None:
        """Of a cluster in which nothing stays as it is."""
        for second in range(0, HOUR, 2):
            status = GetSchedulerStatusResponse(epoch=1, attempts={"scheduled": hour * HOUR + second})
            self.history.see(status, float(hour * HOUR + second))
        for number in range(TERMS_MAX):
            epoch = hour * TERMS_MAX + number + 1
            self.timeline.see(f"replica-{number % 3}", epoch, float(epoch), float(epoch))
            self.timeline.see_fenced(f"replica-{number % 3}", hour * TERMS_MAX + number, float(epoch))
            self.timeline.see_fenced(f"replica-{hour}-{number}", 0, float(epoch))
        for number in range(1_000):
            self.events.see(an_event(f"uid-{hour:02}-{number:04}", number))
            self.usage.see_allocated(f"node-{number % 50:04}", pods(number % 20))
        for number in range(10):
            self.usage.forget_node(f"node-{number:04}")
            self.usage.see_node(a_node(f"node-{number:04}", zone=f"zone-{hour % 3}"))
        self.usage.full()
        # What comes after a node went.
        self.usage.see_all_allocated({f"node-{number:04}": pods(number % 20) for number in range(50)})

    def size(self) -> int:
        return len(pickle.dumps((self.usage, self.history, self.timeline, self.events)))


@pytest.mark.row("UI52")
@pytest.mark.slow
def test_a_day_leaves_no_more_behind_than_an_hour() -> None:
    kept = Kept()
    kept.an_hour(0)
    first = kept.size()
    for hour in range(1, 24):
        kept.an_hour(hour)
    assert kept.size() < 1.1 * first
