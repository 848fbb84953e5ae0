"""Scrapes of metrics: one at a time, and one a second of each other host."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator

import pytest

from rayched.server.http.http_endpoint import Answer, HttpEndpoint, Request
from rayched.server.http.scrapes import LimitedScrapes


class ScrapeClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def statuses(route: LimitedScrapes, address: str, count: int) -> list[int]:
    return [route(Request("", {}, address=address)).status for _ in range(count)]


def test_another_host_scrapes_once_a_second_and_keeps_nobody_else_from_it() -> None:
    clock = ScrapeClock()
    route = LimitedScrapes(lambda _: Answer(b"metrics"), clock)

    assert statuses(route, "10.0.0.1", 3) == [200, 200, 429], "a burst of two seconds, and no more"
    assert statuses(route, "::ffff:10.0.0.1", 1) == [429], "another spelling is no other host"
    assert statuses(route, "10.0.0.2", 1) == [200]
    clock.now += 1.0
    assert statuses(route, "10.0.0.1", 2) == [200, 429]
    text = route(Request("", {}, address="10.0.0.1")).body.decode()
    assert text == "429 10.0.0.1 scrapes more than 1 time a second\n"


def test_who_is_on_this_host_scrapes_as_often_as_it_likes() -> None:
    route = LimitedScrapes(lambda _: Answer(b"metrics"), ScrapeClock())

    for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        assert set(statuses(route, address, 20)) == {200}


def test_scrapes_go_one_at_a_time() -> None:
    entered, leave = threading.Semaphore(0), threading.Semaphore(0)

    def slow(_: Request) -> Answer:
        entered.release()
        assert leave.acquire(timeout=10)
        return Answer(b"metrics")

    route = LimitedScrapes(slow, ScrapeClock())
    threads = [threading.Thread(target=statuses, args=(route, "127.0.0.1", 1)) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert entered.acquire(timeout=10)
    assert not entered.acquire(timeout=0.3), "the second one waits"
    leave.release()
    assert entered.acquire(timeout=10)
    leave.release()
    for thread in threads:
        thread.join(10)


@pytest.fixture
def endpoint() -> Iterator[HttpEndpoint]:
    own = LimitedScrapes(lambda request: Answer(request.address.encode()), ScrapeClock())
    foreign = LimitedScrapes(lambda _: Answer(b""), ScrapeClock())
    found = HttpEndpoint("127.0.0.1", 0, {"/metrics": own, "/foreign": lambda _: foreign(Request("", {}, address="10.0.0.1"))})
    found.start()
    yield found
    found.stop()


def test_the_endpoint_says_who_asks_and_when_to_come_back(endpoint: HttpEndpoint) -> None:
    def ask(path: str) -> tuple[int, str | None, bytes]:
        connection = http.client.HTTPConnection(endpoint.address, timeout=10)
        connection.request("GET", path)
        answer = connection.getresponse()
        found = answer.status, answer.getheader("Retry-After"), answer.read()
        connection.close()
        return found

    assert ask("/metrics") == (200, None, b"127.0.0.1")
    assert [ask("/foreign")[:2] for _ in range(3)] == [(200, None), (200, None), (429, "1")]
