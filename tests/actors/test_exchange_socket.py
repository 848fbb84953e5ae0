"""The socket between scheduler and queue, and the inbox that waits for it: real sockets, real threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rayched.actors.exchange_socket import ExchangeCaller, serve_exchanges
from rayched.actors.inbox import Inbox

WAIT_SECONDS = 60.0


class Scheduler:
    """The caller and what it was told."""

    def __init__(self, directory: Path) -> None:
        self.inbox = Inbox()
        self.answers: list[bytes] = []
        self.failures: list[str] = []
        self.caller = ExchangeCaller(directory, self.inbox, self.answers.append, self.failures.append)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, (self.answers, self.failures)
            self.inbox.wait(min(left, 0.1))
            while (call := self.inbox.take()) is not None:
                call()

    def wait_for_answers(self, count: int) -> None:
        self.until(lambda: len(self.answers) == count)


def attended(scheduler: Scheduler, exchange: Callable[[bytes], bytes]) -> threading.Thread:
    thread = threading.Thread(target=serve_exchanges(scheduler.caller.path, exchange), daemon=True)
    thread.start()
    return thread


def test_requests_are_answered_one_after_the_other_also_one_sent_before_the_queue_has_connected(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path)
    scheduler.caller.send(b"early")
    thread = attended(scheduler, bytes.upper)
    scheduler.until(lambda: len(scheduler.answers) == 1)
    for number in range(50):
        scheduler.caller.send(b"x%d" % number)
        scheduler.wait_for_answers(number + 2)
    assert scheduler.answers == [b"EARLY", *(b"X%d" % number for number in range(50))]
    # Nobody else can connect, and the end of the scheduler ends the queue's thread.
    assert list(tmp_path.iterdir()) == []
    scheduler.caller.close()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()


def test_a_connection_that_is_noticed_twice_is_taken_once(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path)
    thread = attended(scheduler, bytes.upper)
    scheduler.inbox.wait(WAIT_SECONDS)
    scheduler.inbox.wait(0.0)
    scheduler.caller.send(b"x")
    scheduler.wait_for_answers(1)
    assert scheduler.answers == [b"X"]
    scheduler.caller.close()
    thread.join(WAIT_SECONDS)


def test_what_is_larger_than_a_socket_takes_crosses_whole_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path)
    goes_on = threading.Event()

    def slow(request: bytes) -> bytes:
        assert goes_on.wait(WAIT_SECONDS)
        return request[::-1]

    attended(scheduler, slow)
    large = bytes(range(256)) * 40_000
    scheduler.caller.send(b"first")
    scheduler.until(lambda: not list(tmp_path.iterdir()))
    scheduler.caller.send(large)
    goes_on.set()
    scheduler.until(lambda: len(scheduler.answers) == 2)
    assert scheduler.answers[1] == large[::-1]


def test_an_exchange_that_raises_is_told_and_the_next_one_is_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler(tmp_path)

    def exchange(request: bytes) -> bytes:
        if request == b"bad":
            raise ValueError("no such thing")
        return request

    attended(scheduler, exchange)
    scheduler.caller.send(b"bad")
    scheduler.until(lambda: bool(scheduler.failures))
    assert scheduler.failures == ["ValueError: no such thing"] and scheduler.answers == []
    scheduler.caller.send(b"good")
    scheduler.until(lambda: bool(scheduler.answers))
    assert scheduler.answers == [b"good"]
    assert "no such thing" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_queue_that_is_gone_answers_nothing_and_harms_nobody(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path)

    def die(request: bytes) -> bytes:
        raise SystemExit

    thread = attended(scheduler, die)
    scheduler.caller.send(b"one")
    scheduler.until(lambda: not thread.is_alive() and not list(tmp_path.iterdir()))
    scheduler.caller.send(b"two")
    scheduler.caller.send(b"three")
    assert scheduler.answers == [] and scheduler.failures == []
    with pytest.raises(OSError):
        serve_exchanges(scheduler.caller.path, bytes.upper)


def test_who_sleeps_is_woken_by_what_is_put_and_wakes_by_itself_when_the_time_is_over() -> None:
    inbox = Inbox()
    began = time.monotonic()
    inbox.wait(0.05)
    assert time.monotonic() - began >= 0.05 and inbox.take() is None
    taken: list[int] = []
    threading.Timer(0.05, lambda: inbox.put(lambda: taken.append(1))).start()
    inbox.wait(WAIT_SECONDS)
    assert time.monotonic() - began < WAIT_SECONDS
    call = inbox.take()
    assert call is not None
    call()
    assert taken == [1]


def test_nothing_that_is_put_while_the_owner_falls_asleep_is_overslept() -> None:
    inbox, count = Inbox(), 20_000
    taken: list[int] = []

    def put() -> None:
        for number in range(count):
            inbox.put(partial(taken.append, number))

    thread = threading.Thread(target=put)
    thread.start()
    began = time.monotonic()
    while len(taken) < count:
        inbox.wait(WAIT_SECONDS)
        while (call := inbox.take()) is not None:
            call()
    thread.join()
    assert taken == list(range(count)) and time.monotonic() - began < WAIT_SECONDS
