"""Watch streams at 1,000 events a second, through the deaths of the replicas that serve them; one beside them is never read."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import pytest

from rayched.client.client import Client
from rayched.replica.etcd_binary import find_etcd
from rayched.v1.core_pb2 import Pod
from tests.chaos.histogram_png import quantile
from tests.chaos.stage import Stage
from tests.chaos.watchers import NeverReading, Watcher, wrong_in

EVENTS_PER_SECOND = 1_000
SECONDS = 8.0
STREAMS = 4
BATCH = 100
DELAY_SECONDS_MAX = 2.0
"""From one stream to another while nothing dies. On a machine that has nothing else to do a quarter of a second is enough."""


class Flood:
    """A thread that submits pods of a scheduler that is not there, so that each is one event."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.submitted = 0
        self.errors: list[str] = []

    def start(self) -> Flood:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(30.0)

    def _run(self) -> None:
        numbers = itertools.count()
        due = time.monotonic()
        while not self._stopped.is_set():
            outcomes = self._client.submit_many([_pod(next(numbers)) for _ in range(BATCH)], timeout_seconds=30.0)
            self.errors += [str(outcome.error) for outcome in outcomes if outcome.error is not None]
            self.submitted += len(outcomes)
            due = max(due + BATCH / EVENTS_PER_SECOND, time.monotonic() - 1.0)
            self._stopped.wait(max(0.0, due - time.monotonic()))


def _pod(number: int) -> Pod:
    pod = Pod(api_version="v1", kind="Pod")
    pod.metadata.namespace, pod.metadata.name = "default", f"event-{number}"
    pod.spec.scheduler_name = "nobody"
    pod.spec.containers.add(name="main", image="registry.example/main:1")
    return pod


@pytest.mark.cluster
def test_each_event_comes_once_and_in_order_through_the_deaths_of_replicas(tmp_path: Path) -> None:
    with Stage(tmp_path, find_etcd(), replicas=2, members=1, workers=0) as stage:
        start = stage.ask(lambda auditor: auditor.revision) + 1
        addresses = list(stage.cluster.addresses)
        watchers = [Watcher(addresses[turn % 2 :] + addresses[: turn % 2], start).start() for turn in range(STREAMS)]
        never = NeverReading(addresses[0], start)
        flood = Flood(stage.client).start()
        try:
            time.sleep(SECONDS / 2)
            calm = [dict(zip((one.revision for one in watcher.seen), watcher.times, strict=False)) for watcher in watchers]
            for replica in stage.cluster.replicas:
                stage.kill(replica)
                stage.wait_until_standing(1)
                stage.heal()
                stage.wait_until_standing(2)
            time.sleep(SECONDS / 2)
        finally:
            flood.stop()
            never.close()
        assert flood.errors == []
        last = stage.ask(lambda _: stage.history[-1])
        deadline = time.monotonic() + 10.0
        while not all(watcher.seen and watcher.seen[-1] == last for watcher in watchers) and time.monotonic() < deadline:
            time.sleep(0.05)
        for watcher in watchers:
            watcher.stop()
        history = list(stage.history)
        assert {watcher.failure for watcher in watchers} == {None}
        for watcher in watchers:
            assert wrong_in(watcher.seen, history, start) == []
            assert watcher.seen[-1] == last
    spread = [
        max(times) - min(times) for revision in calm[0] if len(times := [one[revision] for one in calm if revision in one]) > 1
    ]
    assert quantile(spread, 0.99) < DELAY_SECONDS_MAX
