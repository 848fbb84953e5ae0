"""Batches whose outcomes are partly unknown."""

from __future__ import annotations

import uuid

import grpc
import pytest

from rayched.api.kinds import wrap
from rayched.client import ApiError, NotAllSubmitted, SubmitOutcomes
from rayched.client.endpoints import worth_repeating
from rayched.client.errors import ClientClosed
from rayched.client.sources import objects_of
from rayched.client.submissions import BatchOutcomes, all_submitted, outgoing, tried
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import Outcome, SubmitManyRequest, SubmitManyResponse, SubmitResponse
from rayched.v1.workloads_pb2 import Object
from tests.server.objects import a_pod

UNKNOWN, TAKEN = grpc.StatusCode.UNAVAILABLE.value[0], grpc.StatusCode.ALREADY_EXISTS.value[0]


def answer(*codes: int | Outcome) -> SubmitManyResponse:
    found = SubmitManyResponse()
    for revision, code in enumerate(codes, start=5):
        result = found.results.add(revision=0 if code else revision)
        if isinstance(code, Outcome):
            result.outcome.CopyFrom(code)
            continue
        result.outcome.code = code
        result.outcome.message = "so it is" if code else ""
    return found


def asked(outcomes: BatchOutcomes) -> list[tuple[str, str]]:
    """Name and uid of what the next request has."""
    request = SubmitManyRequest.FromString(outcomes.request())
    return [(item.pod.metadata.name, item.pod.metadata.uid) for item in request.objects]


def test_only_what_is_unknown_is_asked_again_and_with_the_same_uid() -> None:
    batch = [outgoing(a_pod(name)) for name in "abc"]
    outcomes = BatchOutcomes(batch)
    assert asked(outcomes) == [(item.name, item.uid) for item in batch]
    assert len({item.uid for item in batch}) == 3
    with pytest.raises(ApiError):
        outcomes.take(answer(0, UNKNOWN, TAKEN))
    assert asked(outcomes) == [("b", batch[1].uid)]
    outcomes.take(answer(0))
    assert [(one.name, one.revision, one.error is None) for one in outcomes.results()] == [
        ("a", 5, True),
        ("b", 5, True),
        ("c", 0, False),
    ]


NO_ROOM = Outcome(code=8, message="no room", retry_after_milliseconds=30_000)


def test_what_there_is_no_room_for_is_asked_again_and_keeps_its_delay_when_the_time_is_over() -> None:
    outcomes = BatchOutcomes([outgoing(a_pod(name)) for name in "abc"])
    assert [name for name, _ in asked(outcomes)] == ["a", "b", "c"]
    with pytest.raises(ApiError) as unknown:
        outcomes.take(answer(NO_ROOM, UNKNOWN, 0))
    # Of the two it is the one that may be asked for again at once.
    assert unknown.value.code is grpc.StatusCode.UNAVAILABLE
    assert [name for name, _ in asked(outcomes)] == ["a", "b"]
    with pytest.raises(ApiError) as refused:
        outcomes.take(answer(NO_ROOM, UNKNOWN))
    outcomes.give_up(refused.value)
    a, b, c = outcomes.results()
    assert a.error is not None and (a.error.code.name, a.error.retry_after_seconds) == ("RESOURCE_EXHAUSTED", 30.0)
    assert b.error is not None and b.error.code is grpc.StatusCode.UNAVAILABLE
    assert c.error is None


def test_what_there_was_no_room_for_is_unknown_when_the_next_attempt_has_no_answer() -> None:
    outcomes = BatchOutcomes([outgoing(a_pod("a"))])
    outcomes.request()
    with pytest.raises(ApiError):
        outcomes.take(answer(NO_ROOM))
    outcomes.request()
    outcomes.give_up(ApiError(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time"))
    (found,) = outcomes.results()
    assert found.error is not None and found.error.code is grpc.StatusCode.DEADLINE_EXCEEDED


def test_what_goes_out_is_the_object_with_a_uid_of_its_own_and_the_item_stays_as_it_is() -> None:
    pod = a_pod("a")
    uids = [uuid.UUID(outgoing(pod).uid) for _ in range(200)]
    assert len(set(uids)) == 200 and {(uid.version, uid.variant) for uid in uids} == {(4, uuid.RFC_4122)}
    assert not pod.metadata.uid
    item = outgoing(pod)
    sent = Object.FromString(item.content).pod
    assert sent.metadata.uid == item.uid
    sent.metadata.uid = ""
    assert sent == pod
    sent.metadata.uid = "given"
    assert outgoing(sent).uid == outgoing(wrap(sent)).uid == "given"


def test_an_empty_object_goes_out_as_it_is_and_the_server_says_what_is_wrong() -> None:
    outcomes = BatchOutcomes([outgoing(Object())])
    assert SubmitManyRequest.FromString(outcomes.request()).objects == [Object()]
    outcomes.take(answer(TAKEN))
    (found,) = outcomes.results()
    assert (found.kind, found.uid, found.error is None) == ("", "", False)


def test_what_is_unknown_at_the_end_has_the_last_error_and_the_rest_stays() -> None:
    outcomes = BatchOutcomes([outgoing(a_pod(name)) for name in "abc"])
    outcomes.request()
    with pytest.raises(ApiError):
        outcomes.take(answer(0, UNKNOWN, TAKEN))
    outcomes.give_up(ApiError(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time"))
    found = outcomes.results()
    assert [one.error.code.name if one.error else "" for one in found] == ["", "DEADLINE_EXCEEDED", "ALREADY_EXISTS"]


def test_many_refusals_are_told_in_one_line() -> None:
    read = objects_of([a_pod(f"pod-{number}") for number in range(5)])
    outcomes = BatchOutcomes([outgoing(result.object) for result in read])
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


def test_an_answer_has_one_shape_and_that_of_one_object_can_be_read_as_it() -> None:
    pod = Pod(metadata={"name": "", "generate_name": "web-"})
    stored = wrap(Pod(metadata={"name": "web-x", "namespace": "team", "uid": "7"}))
    one = SubmitOutcomes([tried(wrap(pod), SubmitResponse(uid="7", revision=3, object=stored, warnings=["w"]))])
    assert [(item.kind, item.namespace, item.name, item.error) for item in one] == [("Pod", "team", "web-x", None)]
    assert (one.uid, one.revision, one.warnings, one.object) == ("7", 3, ("w",), stored)
    without = SubmitOutcomes([one[0]._replace(object=None)])
    with pytest.raises(ValueError, match="Pod web-x did not come back; get reads it"):
        _ = without.object
    for several in (SubmitOutcomes(), SubmitOutcomes([*one, *one])):
        with pytest.raises(ValueError, match=f"{len(several)} objects were submitted, and each has an outcome of its own"):
            _ = several.uid
