"""How often the watcher looks at its clock, and how long it pauses."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from itertools import pairwise

import pytest

from leader.channel import open_channel
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.io.watcher import Watcher
from rayched.store.list_watch import ListWatchCore, Pace
from rayched.store.list_watch_effects import Broken, Delivery, Resumed

pytestmark = pytest.mark.cluster

PREFIX = b"/paced/"


class CountedClock:
    """The machine's, and how often it was read."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return time.monotonic()


def test_a_pause_lasts_as_long_as_the_core_says_and_nobody_spins_meanwhile() -> None:
    moments: list[float] = []
    enough, clock = threading.Event(), CountedClock()

    def handler(delivery: Delivery) -> None:
        if isinstance(delivery, Broken):
            moments.append(time.monotonic())
            if len(moments) >= 8:
                enough.set()

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        core = ListWatchCore(PREFIX, pace=Pace(pause_seconds_min=0.2, pause_seconds_max=0.2))
        with (
            contextlib.closing(open_channel([f"127.0.0.1:{unused.getsockname()[1]}"])) as channel,
            Watcher(channel, PREFIX, handler, core=core, clock=clock),
        ):
            assert enough.wait(60.0)
    pauses = [later - earlier for earlier, later in pairwise(moments)][1:]
    assert min(pauses) >= 0.19, "the core's pause is waited for"
    assert min(pauses) < 0.45, "and no longer"
    assert clock.reads < 100 * (moments[-1] - moments[0]) + 200


def test_who_follows_in_silence_looks_at_the_clock_a_few_times_a_second(etcd: EtcdServer) -> None:
    follows, clock = threading.Event(), CountedClock()

    def handler(delivery: Delivery) -> None:
        if isinstance(delivery, Resumed):
            follows.set()

    core = ListWatchCore(PREFIX, pace=Pace(ask_seconds=0.6, answer_seconds=30.0))
    with (
        contextlib.closing(open_channel([etcd.endpoint])) as channel,
        Watcher(channel, PREFIX, handler, core=core, clock=clock),
    ):
        assert follows.wait(60.0)
        before = clock.reads
        time.sleep(2.0)
        # Two for the time until it asks, one at the question, one for its answer.
        assert 4 <= clock.reads - before <= 30 and not core.breaks
