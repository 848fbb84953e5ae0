"""What one reader is sent: the newest, once, and no more than it takes; and what it is told when no replica answers."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from rayched.client.async_client import AsyncClient
from rayched.client.errors import ApiError
from rayched.page.cluster_feed import ClusterFeed
from rayched.page.histories import COARSE_SAMPLES_MAX, FENCED_MAX, FINE_SAMPLES_MAX, LeaderTimeline, StatusHistory
from rayched.page.planning import PlanRefused, PlanRunner, PlanWish
from rayched.page.recent_events import KEPT_MAX, NEWS_MAX, RecentEvents
from rayched.page.streaming import TOPICS, PageStream
from rayched.v1.core_pb2 import Event
from rayched.v1.services_pb2 import GetSchedulerStatusResponse
from tests.page.test_usage_columns import a_node, pods

NOW = 1_000_000.0


def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def frames(pieces: Iterable[bytes]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for frame in b"".join(pieces).decode().split("\n\n")[:-1]:
        lines = dict(line.split(": ", 1) for line in frame.split("\n"))
        found.append((lines["event"], json.loads(lines["data"])))
    return found


async def a_feed(nodes: int) -> ClusterFeed:
    feed = ClusterFeed(AsyncClient([nobody()]), lambda: NOW)
    for number in range(nodes):
        feed.usage.see_node(a_node(f"node-{number:04}"))
    feed.has_nodes = feed.has_allocated = True
    return feed


@pytest.mark.row("UI2")
def test_zones_are_told_as_soon_as_they_are_known() -> None:
    async def play() -> None:
        feed = await a_feed(10)
        feed.status, feed.samples, feed.has_allocated = GetSchedulerStatusResponse(nodes=10), 1, False
        reader = PageStream(feed, frozenset({"status"}), "v", lambda: NOW)
        found = dict(frames(reader.news(0.0)))
        assert found["status"]["zones"] == []
        assert list(reader.news(0.25)) == []
        feed.has_allocated = True
        [(name, status)] = frames(reader.news(0.5))
        assert name == "status" and [zone["nodes"] for zone in status["zones"]] == [10]
        assert list(reader.news(0.75)) == []

    asyncio.run(play())


@pytest.mark.row("UI46")
def test_a_reader_that_takes_nothing_for_long_is_sent_the_newest_once() -> None:
    async def play() -> None:
        feed = await a_feed(100)
        reader = PageStream(feed, frozenset(TOPICS), "v", lambda: NOW)
        assert [name for name, _ in frames(reader.news(0.0))] == ["hello", "history", "leader", "usage"]
        for number in range(50_000):
            feed.usage.see_allocated(f"node-{number % 100:04}", pods(number % 500 + 1, number % 7 + 1))
        for number in range(5_000):
            feed.events.see(an_event(f"uid-{number}", number))
        sent = b"".join(reader.news(1.0))
        found = dict(frames([sent]))
        assert set(found) == {"usage", "events"} and len(sent) < 64 << 10
        assert len(found["usage"]["rows"]) == 100 and found["usage"]["sequence"] == feed.usage.sequence
        assert [event["uid"] for event in found["events"]["events"]] == [f"uid-{n}" for n in range(4_800, 5_000)]
        assert frames(reader.news(2.0)) == []

    asyncio.run(play())


@pytest.mark.row("UI13")
def test_while_nodes_come_and_go_all_columns_are_sent_once_a_second() -> None:
    async def play() -> None:
        feed = await a_feed(3)
        reader = PageStream(feed, frozenset({"usage"}), "v", lambda: NOW)
        assert [name for name, _ in frames(reader.news(10.0))] == ["hello", "usage"]
        feed.usage.see_node(a_node("node-new"))
        assert frames(reader.news(10.5)) == []
        feed.usage.see_node(a_node("node-newer"))
        (found,) = frames(reader.news(11.0))
        assert found[1]["names"][-2:] == ["node-new", "node-newer"]
        # Whoever looks again after a pause gets all of what is there then.
        feed._begin()
        feed.usage.see_node(a_node("other"))
        feed.has_nodes = feed.has_allocated = True
        (found,) = frames(reader.news(12.0))
        assert found[1]["names"] == ["other"]

    asyncio.run(play())


@pytest.mark.row("UI8")
def test_readers_are_told_that_no_replica_answers() -> None:
    async def play() -> None:
        feed = ClusterFeed(AsyncClient([nobody()]), lambda: NOW)
        reader = PageStream(feed, frozenset(TOPICS), "v", lambda: NOW)
        async with feed.watched():
            async with asyncio.timeout(30):
                while not feed.problem:
                    await asyncio.sleep(0.05)
            found = dict(frames(reader.news(0.0)))
            assert "no rayched answers" in found["problem"]["text"]
            assert "usage" not in found and "status" not in found
            feed.problem = ""
            assert frames(reader.news(0.0)) == [("problem", {"text": ""})]
        await feed.close()

    asyncio.run(play())


def test_nobody_is_asked_for_anything_while_nobody_looks() -> None:
    async def play() -> None:
        feed = ClusterFeed(AsyncClient([nobody()]), lambda: NOW)
        assert feed._tasks == []
        async with feed.watched():
            tasks = list(feed._tasks)
            async with feed.watched():
                assert feed._tasks == tasks and len(tasks) == 6
        # The next one within half a minute finds it as it is.
        async with feed.watched():
            assert feed._tasks == tasks
        await feed.close()
        assert all(task.done() for task in tasks) and feed._tasks == []

    asyncio.run(play())


class ReplicaThatRefuses:
    """Asked with the gateway's certificate, which has expired, say."""

    def __init__(self) -> None:
        self.asked = 0

    async def leader(self, *, timeout_seconds: float) -> None:
        self.asked += 1
        raise ApiError(grpc.StatusCode.UNAUTHENTICATED, "nobody")


def test_a_replica_that_refuses_the_gateway_says_nothing_of_the_reader() -> None:
    async def play() -> None:
        replica = ReplicaThatRefuses()
        feed = ClusterFeed(AsyncClient([nobody()]), lambda: NOW, lambda: [cast(AsyncClient, replica)])
        async with feed.watched():
            while not replica.asked:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            assert (feed.over, feed.denied, feed.timeline.plain()["fenced"]) == ("", frozenset(), [])
        await feed.close()

    asyncio.run(play())


class EventsThatEnd:
    """A client whose watch is over without an error."""

    async def list_all(self, _kind: object, *, namespace: str) -> SimpleNamespace:
        assert namespace == ""
        return SimpleNamespace(objects=[], revision=1)

    @asynccontextmanager
    async def watch(self, _kind: object, *, namespace: str, start_revision: int) -> AsyncIterator[AsyncIterator[object]]:
        async def nothing() -> AsyncIterator[object]:
            for event in ():
                yield event

        yield nothing()


def test_a_watch_of_all_events_that_ends_is_no_error() -> None:
    async def play() -> None:
        await ClusterFeed(cast(AsyncClient, EventsThatEnd()), lambda: NOW)._follow_events()

    asyncio.run(play())


def a_status(epoch: int, scheduled: int, **pending: int) -> GetSchedulerStatusResponse:
    found = GetSchedulerStatusResponse(holder="a", epoch=epoch)
    found.attempts["scheduled"] = scheduled
    for queue, count in pending.items():
        found.pending_pods[queue] = count
    return found


@pytest.mark.row("UI9")
def test_rates_are_differences_within_a_term() -> None:
    history = StatusHistory()
    assert history.see(a_status(1, 100, active=4), 10.0) == [10.0, None, None, None, 4, 0, 0, 0, 0, None, None, None, None]
    assert history.see(a_status(1, 150), 12.0)[1:4] == [25.0, 0.0, 0.0]
    # Another leader counts from the beginning, and a scheduler that was replaced does too.
    assert history.see(a_status(2, 900), 13.0)[1] is None
    assert history.see(a_status(2, 3), 14.0)[1] is None
    assert history.see(a_status(2, 5), 15.0)[1] == 2.0
    history.miss()
    assert history.see(a_status(2, 50), 60.0)[1] is None
    for second in range(100, 6_000):
        history.see(a_status(2, second), float(second))
    plain = history.plain()
    assert (len(plain["fine"]), len(plain["coarse"])) == (FINE_SAMPLES_MAX, COARSE_SAMPLES_MAX)
    assert len(json.dumps(plain)) < 64 << 10


BOUNDS = (0.01, 0.02, 0.04)


@pytest.mark.parametrize(
    ("before", "after", "half", "nearly_all"),
    [
        # What is new lies evenly within its bucket.
        ((0, 0, 0, 0), (10, 0, 0, 0), 0.005, 0.0099),
        ((0, 0, 0, 0), (50, 50, 0, 0), 0.01, 0.0198),
        ((50, 50, 0, 0), (50, 50, 10, 0), 0.03, 0.0398),
        ((7, 7, 7, 0), (8, 7, 7, 1), 0.01, 0.04),
        # Above all bounds no more is known than that.
        ((0, 0, 0, 0), (0, 0, 0, 3), 0.04, 0.04),
        # Nothing came.
        ((5, 5, 5, 5), (5, 5, 5, 5), None, None),
        ((), (), None, None),
        # The one before was told by a replica that knows no durations.
        ((), (10, 0, 0, 0), 0.005, 0.0099),
        ((10, 0, 0, 0), (), None, None),
    ],
)
@pytest.mark.row("UI9")
def test_quantiles_are_of_what_came_since(
    before: tuple[int, ...], after: tuple[int, ...], half: float | None, nearly_all: float | None
) -> None:
    history = StatusHistory()
    for counts, at in ((before, 1.0), (after, 2.0)):
        status = a_status(1, 100 + int(at))
        for histogram in (status.attempt_durations, status.sli_durations):
            histogram.bounds[:] = BOUNDS
            histogram.counts[:] = counts
        sample = history.see(status, at)
    assert sample[9:] == [half, nearly_all, half, nearly_all]
    # Another term is another scheduler, which counts from the beginning.
    assert history.see(a_status(2, 0), 3.0)[9:] == [None] * 4


@pytest.mark.row("UI6")
def test_terms_follow_each_other_with_the_pause_between() -> None:
    timeline = LeaderTimeline()
    timeline.see("a", 5, 100.0, 103.0)
    timeline.see("a", 5, 100.0, 104.0)
    timeline.see("", 0, 0.0, 110.0)
    timeline.see("b", 9, 110.4, 110.5)
    # Nobody saw the pause before this one.
    timeline.see("a", 12, 120.0, 120.1)
    # An answer that is late says nothing new.
    timeline.see("a", 12, 120.0, 121.0)
    # Here it was heard of after the next one had begun already.
    timeline.see("", 0, 0.0, 130.02)
    timeline.see("b", 15, 130.01, 130.3)
    found = [(term.holder, term.epoch, term.since, term.until) for term in timeline.terms]
    assert found == [("a", 5, 100.0, 110.0), ("b", 9, 110.4, 120.0), ("a", 12, 120.0, 130.01), ("b", 15, 130.01, None)]


@pytest.mark.row("UI6")
def test_writes_that_are_fenced_while_somebody_looks_are_told_with_their_time() -> None:
    timeline = LeaderTimeline()
    timeline.see_fenced("a", 7, 100.0)
    timeline.see_fenced("b", 0, 100.0)
    assert timeline.plain()["fenced"] == [] and timeline.sequence == 0
    timeline.see_fenced("a", 9, 102.0)
    timeline.see_fenced("a", 9, 104.0)
    # A new process of the replica counts from the beginning.
    timeline.see_fenced("b", 3, 106.0)
    timeline.see_fenced("b", 0, 108.0)
    timeline.see_fenced("a", 1, 110.0)
    assert timeline.plain()["fenced"] == [[102.0, "a", 2], [106.0, "b", 3], [110.0, "a", 1]]
    assert timeline.sequence == 3
    for at in range(FENCED_MAX + 2):
        timeline.see_fenced("c", at, float(at))
    assert len(timeline.plain()["fenced"]) == FENCED_MAX


def an_event(uid: str, second: int, count: int = 1) -> Event:
    event = Event(type="Normal", reason="Scheduled", message="m", count=count)
    event.metadata.uid = uid
    event.metadata.resource_version = str(second + 1)
    event.last_timestamp.FromSeconds(second + 1)
    return event


@pytest.mark.row("UI29")
def test_an_event_that_counts_further_is_one_event() -> None:
    events = RecentEvents()
    for number in range(3):
        events.see(an_event(f"uid-{number}", number))
    at = events.sequence
    events.see(an_event("uid-0", 9, count=2))
    assert [(one["uid"], one["count"]) for one in events.since(at)] == [("uid-0", 2)]
    assert [one["uid"] for one in events.since(0)] == ["uid-1", "uid-2", "uid-0"]
    for number in range(KEPT_MAX * 2):
        events.see(an_event(f"more-{number}", number))
    assert len(events.since(0)) == NEWS_MAX and events.since(events.sequence) == []


@pytest.mark.row("UI28")
def test_a_plan_that_takes_too_long_is_ended_and_says_so() -> None:
    async def play() -> None:
        runner, client = PlanRunner(seconds=0.05), AsyncClient([nobody()])
        first = asyncio.create_task(runner.run(PlanWish(manifest="x"), client))
        await asyncio.sleep(0)
        with pytest.raises(PlanRefused, match="another plan is being made"):
            await runner.run(PlanWish(), client)
        found = await first
        assert found["errors"] == ["the plan took longer than 0.05 s and was ended"]
        # And the next one may come.
        assert (await runner.run(PlanWish(drain=("a",)), client))["command"] == "rayched plan --drain=a"

    asyncio.run(play())
