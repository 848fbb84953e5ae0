"""What the thread that decides takes in, and when."""

from __future__ import annotations

from functools import partial
from threading import Thread
from types import SimpleNamespace

from rayched.actors.inbox import Inbox
from rayched.actors.scheduler_actor import SchedulerActor
from rayched.core.exchange.audit_sample import RollCall
from rayched.core.exchange.messages import LogEntry
from rayched.core.exchange.queue_session import ENTRIES_AT_FIRST, QueueLink
from tests.core.model_store import ModelStore
from tests.core.replica import Clock, Replica
from tests.core.test_short_ways import pods


def test_inputs_wait_for_a_turn_once_there_is_a_full_call_for_the_queue() -> None:
    link, inbox = QueueLink(1), Inbox()
    roll_call = RollCall(Replica(ModelStore(), Clock()).core.cache, lambda record: True)
    actor = SchedulerActor.__new__(SchedulerActor)
    actor._inbox, actor._core = inbox, SimpleNamespace(link=link)  # type: ignore[assignment]

    def told(entries: list[LogEntry]) -> None:
        for entry in entries:
            link.tell(entry)

    for first in range(0, 4 * ENTRIES_AT_FIRST, ENTRIES_AT_FIRST // 2):
        inbox.put(partial(told, pods(ENTRIES_AT_FIRST // 2, first=first)))
    actor._take_inputs(0.0)
    assert link.backlog == ENTRIES_AT_FIRST
    assert link.request(1.0, roll_call) is not None
    actor._take_inputs(0.0)
    assert link.backlog == 3 * ENTRIES_AT_FIRST, "the queue has something to do"
    actor._core.link = None  # type: ignore[misc]
    inbox.put(lambda: None)
    actor._take_inputs(0.0)
    assert inbox.take() is None


def test_a_loop_that_sleeps_looks_at_the_belief_when_it_is_told() -> None:
    actor = SchedulerActor.__new__(SchedulerActor)
    actor._inbox, actor._core = Inbox(), SimpleNamespace(link=None)  # type: ignore[assignment]
    sleeper = Thread(target=actor._take_inputs, args=(3_600.0,), daemon=True)
    sleeper.start()
    actor.wake()
    sleeper.join(60.0)
    assert not sleeper.is_alive()
