"""The table of kinds, and the words that name them."""

from __future__ import annotations

import pytest

from rayched.api import kinds
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Object


def test_the_table_has_every_kind_that_an_object_can_hold() -> None:
    fields = {field.name: field.message_type.name for field in Object.DESCRIPTOR.oneofs_by_name["kind"].fields}
    assert {kind.field: kind.name for kind in kinds.KINDS} == fields
    assert all(kind.message.DESCRIPTOR.name == kind.name for kind in kinds.KINDS)


@pytest.mark.parametrize("word", ["po", "pod", "pods", "Pod", "PODS"])
def test_a_person_names_a_kind_in_several_ways(word: str) -> None:
    assert kinds.by_word(word) is kinds.POD


@pytest.mark.parametrize(
    ("word", "name"),
    [("rs", "ReplicaSet"), ("replicasets.apps", "ReplicaSet"), ("pc", "PriorityClass"), ("pdb", "PodDisruptionBudget")],
)
def test_other_kinds_have_their_usual_words(word: str, name: str) -> None:
    assert kinds.by_word(word).name == name


def test_no_word_names_two_kinds() -> None:
    words = [word for kind in kinds.KINDS for word in (kind.singular, kind.plural, *kind.short_names)]
    assert len(words) == len(set(words))


def test_an_unknown_word_is_refused_with_the_words_that_are_known() -> None:
    with pytest.raises(kinds.UnknownKind, match=r'there is no kind "deploy"; allowed are pods\|po, nodes\|no'):
        kinds.by_word("deploy")
    with pytest.raises(kinds.UnknownKind, match="allowed are Pod, Node"):
        kinds.by_name("pods")
    with pytest.raises(kinds.UnknownKind, match=r'; did you mean "Pod"[?]$'):
        kinds.by_name("pod")
    with pytest.raises(kinds.UnknownKind, match="a ReplicaSet keeps so many pods running here"):
        kinds.by_word("deployments.apps")


def test_wrapping_copies_and_unwrapping_does_not() -> None:
    pod = Pod(metadata={"name": "a"})
    item = kinds.wrap(pod)
    pod.metadata.name = "b"
    inside = kinds.unwrap(item)
    assert kinds.of(item) is kinds.POD
    assert inside.metadata.name == "a"
    inside.metadata.name = "c"
    assert item.pod.metadata.name == "c"


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.name)
def test_an_object_without_content_still_has_its_kind(kind: kinds.Kind) -> None:
    assert kinds.of(kinds.wrap(kind.message())) is kind


def test_an_empty_object_is_of_no_kind() -> None:
    with pytest.raises(kinds.UnknownKind, match="the object is empty"):
        kinds.of(Object())
