"""A replica that answers, and does not know what became of an entry, as its etcd is silent: the next one is asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from rayched.client import AsyncClient, Client
from rayched.client.submissions import Submitted
from rayched.v1.services_pb2 import Outcome, SubmitManyRequest, SubmitManyResponse
from tests.client.losing import answering
from tests.server.objects import a_pod

UNKNOWN = Outcome(code=grpc.StatusCode.UNAVAILABLE.value[0], message="not known whether it was written")
NO_ROOM = Outcome(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message="no room", retry_after_milliseconds=1)
REFUSED = Outcome(code=grpc.StatusCode.INVALID_ARGUMENT.value[0], message="no")


class Answering(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Knows this of pods by their names, and has stored all others."""

    def __init__(self, outcomes: dict[str, Outcome]) -> None:
        self.asked: list[list[str]] = []
        self._outcomes = outcomes

    def service(self, _: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._submit)

    def _submit(self, request: bytes, _: Any) -> bytes:
        names = [item.pod.metadata.name for item in SubmitManyRequest.FromString(request).objects]
        self.asked.append(names)
        response = SubmitManyResponse()
        for name in names:
            outcome = self._outcomes.get(name)
            response.results.add(revision=0 if outcome else 7, outcome=outcome)
        return response.SerializeToString()


@contextlib.contextmanager
def replica(outcomes: dict[str, Outcome]) -> Iterator[tuple[Answering, str]]:
    handler = Answering(outcomes)
    with answering(handler) as address:
        yield handler, address


Submit = Callable[[list[str], list[str], float], tuple[Submitted, ...]]
"""Pods of these names, at these addresses, the first one first; within so many seconds."""


def submit(addresses: list[str], names: list[str], seconds: float) -> tuple[Submitted, ...]:
    with Client(addresses) as client:
        client._transport.endpoints.prefer(addresses[0])
        return client.submit_many([a_pod(name) for name in names], timeout_seconds=seconds)


def submit_asynchronously(addresses: list[str], names: list[str], seconds: float) -> tuple[Submitted, ...]:
    async def run() -> tuple[Submitted, ...]:
        async with AsyncClient(addresses) as client:
            client._transport.endpoints.prefer(addresses[0])
            return await client.submit_many([a_pod(name) for name in names], timeout_seconds=seconds)

    return asyncio.run(run())


BOTH = pytest.mark.parametrize("submitted", [submit, submit_asynchronously])


@BOTH
@pytest.mark.parametrize("outcome", [UNKNOWN, NO_ROOM])
def test_what_one_replica_does_not_know_the_next_one_is_asked(submitted: Submit, outcome: Outcome) -> None:
    with replica({"b": outcome, "c": REFUSED}) as (first, address), replica({}) as (second, other):
        results = submitted([address, other], ["a", "b", "c"], 60.0)
    assert [(one.name, one.revision, one.error is None) for one in results] == [("a", 7, True), ("b", 7, True), ("c", 0, False)]
    assert (first.asked, second.asked) == ([["a", "b", "c"]], [["b"]])


@BOTH
def test_what_no_replica_knows_within_the_time_is_told_as_unknown(submitted: Submit) -> None:
    with replica({"b": UNKNOWN}) as (first, address), replica({"b": UNKNOWN}) as (second, other):
        results = submitted([address, other], ["a", "b"], 0.5)
    assert [one.error is None for one in results] == [True, False]
    error = results[1].error
    assert error is not None and error.code is grpc.StatusCode.UNAVAILABLE and "not known whether" in error.message
    assert first.asked and second.asked and all(names == ["b"] for names in (*first.asked[1:], *second.asked))


@BOTH
def test_what_was_refused_is_asked_of_nobody_else(submitted: Submit) -> None:
    with replica({"c": REFUSED}) as (first, address), replica({}) as (second, other):
        results = submitted([address, other], ["a", "c"], 60.0)
    assert results[1].error is not None and (first.asked, second.asked) == ([["a", "c"]], [])
