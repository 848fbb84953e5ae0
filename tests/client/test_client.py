"""The SDK without a server: endpoints, batches, errors."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.client import ApiError, Client, NotBound
from rayched.client.batches import batches
from rayched.client.endpoints import DEFAULT_ENDPOINTS, endpoints_of
from rayched.v1.services_pb2 import ListRequest


@pytest.mark.parametrize(
    ("given_text", "environment", "expected"),
    [
        (None, "", DEFAULT_ENDPOINTS),
        (None, "a:1, b:2", ("a:1", "b:2")),
        ("c:3", "a:1", ("c:3",)),
        (["c:3", "d:4"], "", ("c:3", "d:4")),
        ("", "a:1", DEFAULT_ENDPOINTS),
    ],
)
def test_endpoints_come_from_the_caller_then_the_environment(
    given_text: str | None, environment: str, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYCHED_SERVER", environment)
    assert endpoints_of(given_text) == expected


@pytest.mark.parametrize("text", ["host", "host:", ":1", "host:port", "host:0", "host:70000"])
def test_an_endpoint_without_host_or_port_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="want host:port"):
        Client(text)


@given(st.lists(st.integers(0, 40), max_size=50), st.integers(1, 7), st.integers(50, 90))
def test_batches_keep_the_order_and_both_bounds(sizes: list[int], count_max: int, bytes_max: int) -> None:
    messages = [ListRequest(kind=f"{number:03}" + "x" * size) for number, size in enumerate(sizes)]
    found = list(batches(messages, count_max, bytes_max))
    assert [message for batch in found for message in batch] == messages
    for batch in found:
        assert 1 <= len(batch) <= count_max
        assert len(batch) == 1 or sum(len(message.SerializeToString()) + 8 for message in batch) <= bytes_max
    for batch, following in itertools.pairwise(found):
        one_more = [*batch, following[0]]
        assert len(one_more) > count_max or sum(len(message.SerializeToString()) + 8 for message in one_more) > bytes_max


def test_nobody_there_is_told_in_one_line_and_in_time() -> None:
    with Client("127.0.0.1:1,127.0.0.1:2", timeout_seconds=0.5) as client:
        began_at = time.monotonic()
        with pytest.raises(ApiError) as caught:
            client.leader()
        assert time.monotonic() - began_at < 30.0
        assert str(caught.value) == "no rayched answers at 127.0.0.1:1, 127.0.0.1:2 (UNAVAILABLE)"
        with pytest.raises(ApiError):
            next(client.watch("pods", start_revision=1, patience_seconds=0.3))


def test_a_watch_and_a_wait_end_with_their_time_also_where_nobody_answers() -> None:
    with Client("127.0.0.1:1") as client:
        began_at = time.monotonic()
        assert list(client.watch("pods", start_revision=1, timeout_seconds=0.2)) == []
        assert list(client.watch("pods", timeout_seconds=0.2)) == []
        with pytest.raises((NotBound, ApiError)):
            client.wait_bound("web", timeout_seconds=0.2)
        assert time.monotonic() - began_at < 60.0


def test_a_closed_client_ends_its_watches_at_once() -> None:
    client = Client("127.0.0.1:1")
    stream = client.watch("pods", start_revision=1)
    client.close()
    began_at = time.monotonic()
    with pytest.raises(ApiError, match="the client is closed"):
        next(stream)
    assert time.monotonic() - began_at < 30.0


def test_a_closed_client_says_so() -> None:
    client = Client("127.0.0.1:1")
    client.close()
    with pytest.raises(ApiError, match="closed"):
        client.leader()


def test_an_unknown_kind_is_refused_before_anything_is_sent() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(ValueError, match="deployments"):
        client.get("deployments", "web")
