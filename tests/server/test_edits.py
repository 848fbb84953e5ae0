"""What administrators' edits of taints, labels and numbers of replicas leave behind, and what they say when they are refused."""

from __future__ import annotations

import re

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from rayched.server.admission.edits import EditRefused, edit_labels, edit_taints, scale
from rayched.v1.core_pb2 import Node, ReplicationController, Taint
from rayched.v1.meta_pb2 import ObjectMeta
from rayched.v1.workloads_pb2 import Job, ReplicaSet, StatefulSet
from tests.server.objects import a_node, a_pod

NOW = Timestamp(seconds=1_900_000_000)


def taint(key: str, value: str, effect: str, added: int = 0) -> Taint:
    found = Taint(key=key, value=value, effect=effect)
    if added:
        found.time_added.seconds = added
    return found


@pytest.mark.parametrize(
    ("effect", "added", "then"),
    [("NoExecute", 0, NOW.seconds), ("NoExecute", 5, 5), ("NoSchedule", 0, None), ("NoSchedule", 5, 5)],
)
def test_a_taint_that_evicts_says_since_when(effect: str, added: int, then: int | None) -> None:
    node = Node()
    edit_taints(node, [taint("a", "1", effect, added)], [], False, NOW)
    (found,) = node.spec.taints
    assert (found.time_added.seconds if found.HasField("time_added") else None) == then


def test_a_taint_that_is_there_keeps_its_time_and_the_ones_behind_it_are_added() -> None:
    node = Node()
    node.spec.taints.append(taint("a", "1", "NoExecute", 5))
    edit_taints(node, [taint("a", "1", "NoExecute"), taint("b", "", "NoSchedule")], [], False, NOW)
    assert [(one.key, one.time_added.seconds) for one in node.spec.taints] == [("a", 5), ("b", 0)]


@pytest.mark.parametrize(
    ("add", "remove", "told"),
    [
        ([], [taint("b", "", "")], 'taint "b": the node does not have it'),
        ([], [taint("a", "", "NoExecute")], 'taint "a":NoExecute: the node does not have it'),
        ([taint("a", "2", "NoSchedule")], [], 'taint "a":NoSchedule: the node has it with value "1"'),
        ([taint("a", "2", "NoExecute")], [taint("a", "", "")], 'taint "a": cannot be added and removed at once'),
        ([taint("a", "1", "NoSchedule")], [taint("a", "", "NoSchedule")], 'taint "a":NoSchedule: cannot be added and removed'),
    ],
)
def test_a_refused_taint_is_named(add: list[Taint], remove: list[Taint], told: str) -> None:
    node = Node()
    node.spec.taints.append(taint("a", "1", "NoSchedule"))
    with pytest.raises(EditRefused, match=f"^{re.escape(told)}"):
        edit_taints(node, add, remove, False, NOW)


@pytest.mark.parametrize(
    ("add", "remove", "told"),
    [({"a": "2"}, [], 'label "a": has value "1" already'), ({"b": "2"}, ["b"], 'label "b": cannot be set and removed')],
)
def test_a_refused_label_is_named(add: dict[str, str], remove: list[str], told: str) -> None:
    with pytest.raises(EditRefused, match=f"^{re.escape(told)}"):
        edit_labels(ObjectMeta(labels={"a": "1"}), add, remove, False)


Scaled = ReplicaSet | StatefulSet | ReplicationController | Job


def replicas_of(message: Scaled) -> int | None:
    name = "parallelism" if isinstance(message, Job) else "replicas"
    return int(getattr(message.spec, name)) if message.spec.HasField(name) else None


@pytest.mark.parametrize("kind", [ReplicaSet, StatefulSet, ReplicationController, Job])
@pytest.mark.parametrize(
    ("before", "wanted", "expected", "then"),
    [
        (3, 5, None, 5),
        (3, 0, None, 0),
        (3, 5, 3, 5),
        # Without a number it is one.
        (None, 5, 1, 5),
        (0, 5, 0, 5),
        # It is there already, whatever was expected.
        (3, 3, None, 3),
        (3, 3, 9, 3),
        (None, 1, None, None),
    ],
)
def test_a_controller_is_scaled(
    kind: type[Scaled], before: int | None, wanted: int, expected: int | None, then: int | None
) -> None:
    message = kind()
    message.metadata.generation = 7
    if before is not None:
        setattr(message.spec, "parallelism" if kind is Job else "replicas", before)
    was = 1 if before is None else before
    assert scale(message, wanted, expected) == was
    assert replicas_of(message) == then and message.metadata.generation == 7 + (wanted != was)


@pytest.mark.parametrize("expected", [0, 2])
def test_one_that_others_have_scaled_meanwhile_is_left_alone(expected: int) -> None:
    message = ReplicaSet()
    message.spec.replicas = 3
    with pytest.raises(EditRefused, match=f"expected replicas to be {expected}, was 3"):
        scale(message, 5, expected)
    assert message.spec.replicas == 3 and message.metadata.generation == 0


def test_what_has_no_replicas_is_not_scaled() -> None:
    for message, name in ((a_pod(), "Pod"), (a_node("n"), "Node")):
        with pytest.raises(EditRefused, match=f"a {name} cannot be scaled; want one of .*ReplicaSet.*Job"):
            scale(message, 5, None)
