"""Client and AsyncClient are two drivers of one set of calls: what one has, the other has."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from rayched.client.access import AccessCalls
from rayched.client.async_access import AsyncAccessCalls
from rayched.client.async_client import AsyncClient
from rayched.client.async_editing import AsyncEditingCalls
from rayched.client.async_reading import AsyncReadingCalls
from rayched.client.async_streaming import AsyncStreamingCalls
from rayched.client.async_workloads import AsyncWorkloadCalls
from rayched.client.client import Client
from rayched.client.editing import EditingCalls
from rayched.client.reading import ReadingCalls
from rayched.client.streaming import StreamingCalls
from rayched.client.workloads import WorkloadCalls
from rayched.store.io.async_client import AsyncStoreClient
from rayched.store.io.client import StoreClient


def calls(kind: type) -> dict[str, Callable[..., object]]:
    return {name: value for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("_")}


def parameters(call: Callable[..., object]) -> list[tuple[str, object, object]]:
    found = inspect.signature(call).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


def test_both_clients_have_the_same_calls() -> None:
    assert calls(Client).keys() == calls(AsyncClient).keys()
    assert calls(StreamingCalls).keys() == calls(AsyncStreamingCalls).keys()


@pytest.mark.parametrize("name", sorted(calls(Client)))
def test_a_call_takes_the_same_arguments(name: str) -> None:
    sync, asynchronous = calls(Client)[name], calls(AsyncClient)[name]
    assert parameters(sync) == parameters(asynchronous)


@pytest.mark.parametrize("name", sorted(calls(StreamingCalls)))
def test_a_stream_takes_the_same_arguments(name: str) -> None:
    sync, asynchronous = calls(StreamingCalls)[name], calls(AsyncStreamingCalls)[name]
    assert [one[:2] for one in parameters(sync)] == [one[:2] for one in parameters(asynchronous)]


@pytest.mark.parametrize(
    ("part", "asynchronous_part"),
    [
        (WorkloadCalls, AsyncWorkloadCalls),
        (EditingCalls, AsyncEditingCalls),
        (ReadingCalls, AsyncReadingCalls),
        (AccessCalls, AsyncAccessCalls),
    ],
)
def test_each_part_has_the_same_calls_in_both(part: type, asynchronous_part: type) -> None:
    sync, asynchronous = calls(part), calls(asynchronous_part)
    assert sync and {name: parameters(call) for name, call in sync.items()} == {
        name: parameters(call) for name, call in asynchronous.items()
    }


def test_the_stores_client_for_an_event_loop_has_no_call_of_its_own() -> None:
    sync, asynchronous = calls(StoreClient), calls(AsyncStoreClient)
    assert asynchronous.keys() <= sync.keys()
    # The synchronous one can end a page early, for the collection of garbage.
    names = asynchronous.keys() - {"list_page"}
    assert {name: parameters(sync[name]) for name in names} == {name: parameters(asynchronous[name]) for name in names}
