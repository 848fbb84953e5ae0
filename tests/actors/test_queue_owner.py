"""The owner of the queue serves its clients one after the other, whichever threads they come from."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from rayched.actors import queue_actor
from rayched.actors.configured import ProfilesText
from rayched.actors.queue_actor import QueueActor, log_moves
from rayched.configuration.configuration import Configuration
from rayched.core.exchange.queue_core import QueueCore, queue_factory
from rayched.queue.flags import DEFAULT_FLAGS
from rayched.queue.queued_pod import Move, Place
from rayched.v1.services_pb2 import ListQueueRequest
from tests.core.test_queue_metrics import a_leader, put, put_node

PROFILES = ProfilesText("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n", "default")
HELD_SECONDS = 0.3
"""How long the first one stays inside. Without the lock the second one is in after a thousandth of that."""

CLIENTS: dict[str, Callable[[QueueActor], object]] = {
    "exchange": lambda actor: actor._exchange(b""),
    "listing": lambda actor: actor.listing(ListQueueRequest()),
    "metrics": lambda actor: actor.metrics(),
}


class Doorkeeper:
    """Stands where the core is used: the first visitor stays until another one comes in or its time is up."""

    def __init__(self) -> None:
        self.first_inside, self.second_inside = threading.Event(), threading.Event()
        self.visits: list[str] = []

    def visit(self, *_: Any) -> bytes:
        if not self.first_inside.is_set():
            self.first_inside.set()
            met = self.second_inside.wait(HELD_SECONDS)
            self.visits.append("first, met another one" if met else "first, alone")
        else:
            self.second_inside.set()
            self.visits.append("second")
        return b""


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> QueueActor:
    monkeypatch.setattr(queue_actor, "collect_rarely", lambda: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    return QueueActor(PROFILES, DEFAULT_FLAGS)


@pytest.mark.row("Q13")
@pytest.mark.parametrize(("first", "second"), list(permutations(CLIENTS, 2)))
def test_whoever_comes_while_another_one_is_served_waits(
    actor: QueueActor, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    door = Doorkeeper()
    monkeypatch.setattr(queue_actor, "unpacked_request", lambda request: request)
    monkeypatch.setattr(queue_actor, "packed", lambda response: response)
    monkeypatch.setattr(actor._core, "exchange", door.visit)
    monkeypatch.setattr(queue_actor, "list_queue", door.visit)
    monkeypatch.setattr(queue_actor, "queue_metrics", door.visit)
    threads = [threading.Thread(target=CLIENTS[name], args=(actor,)) for name in (first, second)]
    threads[0].start()
    assert door.first_inside.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join(10)
    assert door.visits == ["first, alone", "second"]


@pytest.mark.row("Q64")
def test_every_move_is_logged_with_pod_event_and_queue(caplog: pytest.LogCaptureFixture) -> None:
    replica = a_leader()
    replica.queue = QueueCore(queue_factory(Configuration(), replica.profiles), moved=log_moves)
    replica.core.queue_lost()
    put(replica, "large", cpu="6")
    with caplog.at_level(logging.DEBUG, logger="rayched.actors.queue_actor"):
        replica.settle()
        put_node(replica.store, "n2", "8")
        replica.settle()
        log_moves((Move("uid-x", "default/x", "BackoffComplete", Place.ACTIVE),))
    assert [record.getMessage() for record in caplog.records] == [
        "pod default/large moved to queue active by UnschedulablePodAdd",
        "pod default/large moved to queue unschedulable by ScheduleAttemptFailure",
        "pod default/large moved to queue backoff by NodeAdd",
        "pod default/x moved to queue active by BackoffComplete",
    ]
