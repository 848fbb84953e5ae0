"""A watch whose consumer knows that there is more does not wait for a member that is silent. Times are seconds."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from leader.etcd_shim import rpc
from leader.successive_channel import SuccessiveChannel
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.io.watcher import Watcher
from rayched.store.list_watch_effects import Break, Broken, CloseStream, ListedAll, OpenStream, Resumed, SendOnStream
from tests.chaos.proxy import Network
from tests.store.test_list_watch import PACE, a_core_that_follows, created, header, kinds_of, opened
from tests.store.test_watcher import PREFIX, Consumer, client_of

SOON_SECONDS = 2.0
"""Silence alone is noticed after three."""


def test_a_stream_that_is_hurried_is_asked_at_once_and_given_up_soon() -> None:
    core, _ = a_core_that_follows()
    assert core.due_at == PACE.ask_seconds
    core.hurry(0.5)
    assert core.due_at == 0.5
    assert kinds_of(core.tick(0.5)) == [SendOnStream]
    assert core.due_at == pytest.approx(0.5 + PACE.hurry_seconds)
    assert core.tick(0.6) == []
    assert kinds_of(core.tick(0.7)) == [CloseStream, Broken, OpenStream]


def test_each_stream_that_is_silent_makes_it_more_patient() -> None:
    core, _ = a_core_that_follows()
    core.hurry(0.5)
    waits, now = [], 0.5
    core.tick(now)
    for _ in range(8):
        asked, now = now, core.due_at or 0.0
        waits.append(round(now - asked, 3))
        core.tick(now)
        while not core.reads:
            now = core.due_at or 0.0
            core.tick(now)
    assert waits == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0]


def test_a_sign_of_life_ends_the_hurry() -> None:
    core, stream = a_core_that_follows()
    core.hurry(0.5)
    core.tick(0.5)
    assert core.stream_message(stream, rpc.WatchResponse(header=header(10)), 0.6) == []
    assert core.due_at == pytest.approx(0.6 + PACE.ask_seconds)


def test_a_new_stream_that_is_open_has_all_its_time_to_tell_what_was_delivered() -> None:
    core, _ = a_core_that_follows()
    core.hurry(0.5)
    core.tick(0.5)
    stream = opened(core.tick(0.7)).stream
    assert core.stream_message(stream, created(10), 0.8) == []
    assert core.due_at == pytest.approx(0.8 + PACE.answer_seconds), "too late would be a list of all there is"


def test_who_asked_before_it_was_hurried_gets_the_short_time_from_then_on() -> None:
    core, _ = a_core_that_follows()
    assert kinds_of(core.tick(1.0)) == [SendOnStream]
    core.hurry(1.5)
    assert core.due_at == pytest.approx(1.7)


@pytest.mark.cluster
def test_what_a_silent_member_keeps_back_is_told_by_the_next_one(tmp_path: Path) -> None:
    consumer = Consumer()
    with (
        EtcdServer(tmp_path / "etcd", unsafe_no_fsync=True, client_port=0) as etcd,
        Network() as network,
        client_of(etcd) as client,
    ):
        links = [network.link(name, etcd.endpoint) for name in ("one", "two")]
        followed = SuccessiveChannel([link.address for link in links], uniform=lambda: 0.0)
        with contextlib.closing(followed), Watcher(followed, PREFIX, consumer) as watcher:
            consumer.wait_until(lambda c: c.count(Resumed) > 0)
            client.put(PREFIX + b"hurried-a", b"1")
            consumer.wait_until(lambda c: PREFIX + b"hurried-a" in c.map)
            links[0].silent_to_client = links[0].silent_to_target = True
            client.put(PREFIX + b"hurried-b", b"1")
            began = time.monotonic()
            watcher.hurry()
            consumer.wait_until(lambda c: PREFIX + b"hurried-b" in c.map)
            assert time.monotonic() - began < SOON_SECONDS
            assert watcher.core.breaks[Break.SILENT] == 1 and consumer.count(ListedAll) == 1
