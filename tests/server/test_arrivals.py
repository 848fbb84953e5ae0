"""Objects as they arrive, in which order they are created, and the records of their submissions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rayched.api.kinds import AnyObject, wrap
from rayched.server.admission.submission_records import answer_again, may_have_been_accepted, record_keys
from rayched.server.admission.submissions import Arrival, Created, Creation, Submission, are_in_one_namespace, waves
from rayched.server.errors import ApiFailure, Code
from rayched.store.entries import Entry
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import SubmissionRecord
from tests.server.api_over_model import KEYS, ApiOverModel
from tests.server.objects import a_namespace, a_node, a_pod, a_priority_class, a_runtime_class
from tests.server.test_creations import a_generated_pod, created, refused


def submission_of(message: AnyObject) -> Submission:
    arrival = Arrival()
    arrival.add_item(wrap(message), wrap(message).SerializeToString(deterministic=True))
    assert arrival.results == [None]
    return arrival.submissions[0]


@pytest.mark.parametrize(
    ("message", "subject"),
    [
        (a_pod("a"), "Pod default/a"),
        (a_pod("a", namespace="x"), "Pod x/a"),
        (a_pod("", namespace="x"), "Pod x/without a name"),
        (a_generated_pod(), "Pod default/web-?"),
        (a_node("n"), "Node n"),
        (a_namespace(""), "Namespace without a name"),
        (a_pod("a" * 400), "Pod default/" + "a" * 308),
    ],
)
def test_what_messages_call_an_object(message: AnyObject, subject: str) -> None:
    assert submission_of(message).subject == subject


@pytest.mark.parametrize(("uid", "by_client"), [("uid-a", True), ("", False)])
def test_a_uid_of_the_clients_is_kept(uid: str, by_client: bool) -> None:
    found = submission_of(a_pod("a", uid=uid))
    assert found.by_client is by_client and found.uid and (found.uid == uid or not uid)
    assert found.message.metadata.uid == found.uid


def test_what_is_not_the_clients_is_cleared() -> None:
    pod, node = a_pod("a"), a_node("n")
    pod.status.phase = "Running"
    for message in (pod, node):
        metadata = message.metadata
        metadata.generation = 7
        metadata.creation_timestamp.seconds = metadata.deletion_timestamp.seconds = 5
        metadata.deletion_grace_period_seconds = 5
    given: list[tuple[AnyObject, int]] = [(pod, 1), (node, 0), (a_pod("b"), 0), (a_priority_class("c", 1), 0)]
    for given_one, n_warnings in given:
        found = submission_of(given_one)
        metadata = found.message.metadata
        assert metadata.generation == 1 and len(found.warnings) == n_warnings
        for field in ("creation_timestamp", "deletion_timestamp", "deletion_grace_period_seconds"):
            assert not metadata.HasField(field)
    kept, cleared = submission_of(node).message, submission_of(pod).message
    assert isinstance(kept, Node) and kept.status == node.status
    assert isinstance(cleared, Pod) and not cleared.HasField("status")


def test_one_that_is_too_large_is_not_looked_at() -> None:
    pod = a_pod("a")
    pod.metadata.annotations["text"] = "x" * (256 << 10)
    found = refused(ApiOverModel().create(pod)[0])
    assert found.code is Code.RESOURCE_EXHAUSTED and found.message.startswith("Pod default/a: ")


@pytest.mark.parametrize(
    ("messages", "order"),
    [
        ([], []),
        ([a_pod("a"), a_node("n")], [["a", "n"]]),
        ([a_namespace("x")], [["x"]]),
        (
            [a_pod("a"), a_namespace("x"), a_node("n"), a_priority_class("p", 1), a_runtime_class("r")],
            [["x", "p", "r"], ["a", "n"]],
        ),
    ],
)
def test_what_others_may_refer_to_comes_first(messages: Sequence[AnyObject], order: list[list[str]]) -> None:
    found = waves(submission_of(message) for message in messages)
    assert [[one.message.metadata.name for one in wave] for wave in found] == order


@pytest.mark.parametrize(
    ("messages", "is_one"),
    [
        ([a_pod("a")], True),
        ([a_pod("a"), a_pod("b", namespace="default")], True),
        ([a_pod("a"), a_pod("b", namespace="x")], False),
        ([a_node("n")], False),
        ([a_node("n"), a_node("m")], False),
        ([a_pod("a"), a_node("n")], False),
    ],
)
def test_whether_all_are_in_one_namespace(messages: Sequence[AnyObject], is_one: bool) -> None:
    assert are_in_one_namespace([submission_of(message) for message in messages]) is is_one


# ------------------------------------------------------------------------------------------------------------ the record


def a_record(namespace: str = "default", expires: int = 0, digest: bytes = b"") -> Entry:
    found = SubmissionRecord(digest=digest, uid="uid-a", warnings=["w"], expires_at_ms=expires)
    found.key.kind, found.key.namespace, found.key.name = "Pod", namespace, "a"
    return Entry(KEYS.submission("uid-a"), found.SerializeToString(), 7, 9)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (a_record(), "belongs to Pod default/a, submitted"),
        (a_record(expires=5), "belongs to Pod default/a, which was deleted, submitted"),
    ],
)
def test_a_uid_of_another_object_of_the_namespace_is_told_with_its_place(record: Entry, told: str) -> None:
    found = refused(answer_again(submission_of(a_pod("b", uid="uid-a")), record))
    assert found.code is Code.ALREADY_EXISTS
    assert found.message.startswith("Pod default/b: uid uid-a ") and told in found.message


def test_the_answer_of_a_record_is_that_of_the_creation() -> None:
    submission = submission_of(a_pod("a", uid="uid-a"))
    found = created(answer_again(submission, a_record(digest=submission.digest)))
    assert (found.uid, found.revision, found.warnings, found.item) == ("uid-a", 7, ("w",), None)
    assert (found.key.kind, found.key.namespace, found.key.name) == ("Pod", "default", "a")


def a_success() -> Created:
    return created(answer_again(submission := submission_of(a_pod("a", uid="uid-a")), a_record(digest=submission.digest)))


@pytest.mark.parametrize(
    ("uid", "result", "may_be"),
    [
        ("uid-a", ApiFailure(Code.NOT_FOUND, ""), True),
        ("uid-a", ApiFailure(Code.INVALID_ARGUMENT, ""), True),
        ("uid-a", ApiFailure(Code.UNAVAILABLE, ""), False),
        ("uid-a", a_success(), False),
        ("uid-a", None, False),
        ("", ApiFailure(Code.NOT_FOUND, ""), False),
    ],
)
def test_which_refused_ones_may_have_been_accepted_before(uid: str, result: Creation | None, may_be: bool) -> None:
    submission = submission_of(a_pod("a", uid=uid))
    submission.result = result
    assert may_have_been_accepted(submission) is may_be


@pytest.mark.parametrize(
    ("namespace", "uid"), [("default", "uid/a"), ("default", "uid\0a"), ("a/b", "uid-a"), ("_cluster", "uid-a")]
)
def test_what_cannot_be_a_key_has_no_record(namespace: str, uid: str) -> None:
    assert record_keys(submission_of(a_pod("a", namespace=namespace, uid=uid)), KEYS) is None
    own, first = KEYS.submission_in("default", "uid-a"), KEYS.submission("uid-a")
    assert record_keys(submission_of(a_pod("a", uid="uid-a")), KEYS) == (own, first)
