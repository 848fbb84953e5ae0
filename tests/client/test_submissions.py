"""Batches whose outcomes are partly unknown."""

from __future__ import annotations

import grpc
import pytest

from rayched.client import ApiError, NotAllSubmitted
from rayched.client.calls import with_uid
from rayched.client.endpoints import worth_repeating
from rayched.client.errors import ClientClosed
from rayched.client.sources import objects_of
from rayched.client.submissions import BatchOutcomes, all_submitted
from rayched.v1.services_pb2 import SubmitManyRequest, SubmitManyResponse
from tests.server.objects import a_pod

UNKNOWN, TAKEN = grpc.StatusCode.UNAVAILABLE.value[0], grpc.StatusCode.ALREADY_EXISTS.value[0]


def answer(*codes: int) -> SubmitManyResponse:
    found = SubmitManyResponse()
    for revision, code in enumerate(codes, start=5):
        result = found.results.add(revision=0 if code else revision)
        result.outcome.code = code
        result.outcome.message = "so it is" if code else ""
    return found


def names(request: SubmitManyRequest) -> list[str]:
    return [item.pod.metadata.name for item in request.objects]


def test_only_what_is_unknown_is_asked_again_and_with_the_same_uid() -> None:
    batch = [with_uid(a_pod(name)) for name in "abc"]
    outcomes = BatchOutcomes(batch)
    assert names(outcomes.request()) == ["a", "b", "c"]
    with pytest.raises(ApiError):
        outcomes.take(answer(0, UNKNOWN, TAKEN))
    again = outcomes.request()
    assert names(again) == ["b"]
    assert again.objects[0].pod.metadata.uid == batch[1].pod.metadata.uid
    outcomes.take(answer(0))
    assert [(one.name, one.revision, one.error is None) for one in outcomes.results()] == [
        ("a", 5, True),
        ("b", 5, True),
        ("c", 0, False),
    ]


def test_what_is_unknown_at_the_end_has_the_last_error_and_the_rest_stays() -> None:
    outcomes = BatchOutcomes([with_uid(a_pod(name)) for name in "abc"])
    outcomes.request()
    with pytest.raises(ApiError):
        outcomes.take(answer(0, UNKNOWN, TAKEN))
    outcomes.give_up(ApiError(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time"))
    found = outcomes.results()
    assert [one.error.code.name if one.error else "" for one in found] == ["", "DEADLINE_EXCEEDED", "ALREADY_EXISTS"]


def test_many_refusals_are_told_in_one_line() -> None:
    read = objects_of([a_pod(f"pod-{number}") for number in range(5)])
    outcomes = BatchOutcomes([with_uid(result.object) for result in read])
    outcomes.request()
    outcomes.take(answer(0, TAKEN, TAKEN, TAKEN, TAKEN))
    with pytest.raises(NotAllSubmitted) as caught:
        all_submitted(read, outcomes.results())
    assert str(caught.value) == (
        "4 of 5 objects were refused: Pod pod-1: so it is; Pod pod-2: so it is; Pod pod-3: so it is; and 1 more (ALREADY_EXISTS)"
    )


@pytest.mark.parametrize(
    ("code", "is_repeated"),
    [
        (grpc.StatusCode.UNAVAILABLE, True),
        (grpc.StatusCode.DEADLINE_EXCEEDED, True),
        (grpc.StatusCode.CANCELLED, True),
        (grpc.StatusCode.UNKNOWN, True),
        (grpc.StatusCode.INTERNAL, False),
        (grpc.StatusCode.ALREADY_EXISTS, False),
        (grpc.StatusCode.INVALID_ARGUMENT, False),
    ],
)
def test_a_call_is_made_again_where_a_replica_may_have_gone(code: grpc.StatusCode, is_repeated: bool) -> None:
    assert worth_repeating(ApiError(code, "any")) is is_repeated
    assert not worth_repeating(ClientClosed())
