"""Watch streams at 1,000 events a second, through the deaths of the replicas that serve them; one is hardly ever read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rayched.replica.etcd.etcd_binary import find_etcd
from tests.chaos.flood import Flood
from tests.chaos.histogram import quantile
from tests.chaos.stage import Stage
from tests.chaos.watchers import SlowWatcher, Watcher

EVENTS_PER_SECOND = 1_000
SECONDS = 8.0
STREAMS = 4
DELAY_SECONDS_MAX = 2.0
"""From one stream to another while nothing dies. On a machine that has nothing else to do a quarter of a second is enough."""


@pytest.mark.long
@pytest.mark.cluster
def test_each_event_comes_once_and_in_order_through_the_deaths_of_replicas(tmp_path: Path) -> None:
    with Stage(tmp_path, find_etcd(), replicas=2, members=1, workers=0) as stage:
        addresses = list(stage.cluster.addresses)
        watchers = [Watcher(addresses[turn % 2 :] + addresses[: turn % 2], stage.listen) for turn in range(STREAMS)]
        for watcher in watchers:
            watcher.keep_times = True
            watcher.start()
        slow = SlowWatcher(addresses, stage.listen).start()
        flood = Flood(stage.etcd.endpoints, EVENTS_PER_SECOND).start()
        try:
            time.sleep(SECONDS / 2)
            calm = [dict(watcher.times) for watcher in watchers]
            for replica in stage.cluster.replicas:
                stage.kill(replica)
                stage.wait_until_standing(1)
                stage.heal()
                stage.wait_until_standing(2)
            time.sleep(SECONDS / 2)
        finally:
            flood.stop()
        slow.hurry()
        streams: list[Watcher | SlowWatcher] = [*watchers, slow]
        deadline = time.monotonic() + 30.0
        while not all(stream.has_caught_up for stream in streams) and time.monotonic() < deadline:
            time.sleep(0.05)
        for stream in streams:
            stream.stop()
        assert {stream.failure for stream in streams} == {None}
        assert {stream.verdict() for stream in streams} == {None}
        assert all(stream.has_caught_up for stream in streams)
        assert {stream.events for stream in streams} == {watchers[0].events}
        assert watchers[0].events >= flood.written > 0
    spread = [
        max(times) - min(times) for revision in calm[0] if len(times := [one[revision] for one in calm if revision in one]) > 1
    ]
    assert quantile(spread, 0.99) < DELAY_SECONDS_MAX
