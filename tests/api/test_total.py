"""Nothing that arrives makes the API raise anything but its own errors: junk documents, random objects, random changes."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rayched.api import kinds
from rayched.api.admission import admit_pod
from rayched.api.defaulting import default
from rayched.api.errors import FieldError
from rayched.api.manifest import ManifestErrors, read_object, write_object
from rayched.api.validation import validate, validate_update
from rayched.v1.core_pb2 import Pod
from tests.api.random_objects import SEEDS, random_object

JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    float("nan"),
    "",
    "x",
    "\ud800",
    [],
    [1],
    {},
    {"a": 1},
    {1: 2},
    [[]],
    [None],
)


def spoiled(document: Any, source: random.Random) -> Any:
    """The document with some of its parts replaced by junk."""
    if source.random() < 0.08:
        return source.choice(JUNK)
    if isinstance(document, dict):
        found = {key: spoiled(value, source) for key, value in document.items()}
        if source.random() < 0.05:
            found[source.choice(("x", "", "name", "a b", 5))] = source.choice(JUNK)
        return found
    if isinstance(document, list):
        return [spoiled(value, source) for value in document]
    return document


def all_are_field_errors(errors: list[FieldError]) -> bool:
    return all(error.message and "\n" not in str(error) for error in errors)


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_a_spoiled_document_is_read_or_refused_with_field_errors(seed: int) -> None:
    item = random_object(seed)
    document = spoiled(write_object(item), random.Random(seed))
    if not isinstance(document, dict):
        return
    document.update(apiVersion=kinds.of(item).api_version, kind=kinds.of(item).name)
    try:
        read_object(document)
    except ManifestErrors as found:
        assert found.errors
        assert all_are_field_errors(list(found.errors))


@settings(max_examples=300, deadline=None)
@given(SEEDS, st.booleans())
def test_any_object_can_be_validated_with_or_without_defaults(seed: int, defaults: bool) -> None:
    message = kinds.unwrap(random_object(seed))
    if defaults:
        default(message)
    assert all_are_field_errors(validate(message))


@settings(max_examples=150, deadline=None)
@given(SEEDS, SEEDS)
def test_any_change_can_be_validated_and_no_change_is_allowed(one: int, other: int) -> None:
    old, new = kinds.unwrap(random_object(one)), kinds.unwrap(random_object(other))
    assert all_are_field_errors(validate_update(old, new))
    assert validate_update(old, old) == []


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_any_pod_can_be_admitted_or_refused(seed: int) -> None:
    item = random_object(seed)
    pod = Pod()
    if item.HasField("pod"):
        pod.CopyFrom(item.pod)
    assert all_are_field_errors(admit_pod(pod, {}, {}))


def test_quantities_in_messages_that_no_manifest_could_hold_are_errors_too() -> None:
    pod = Pod(metadata={"name": "a"})
    found = pod.spec.containers.add(name="c")
    found.resources.requests["cpu"].string = ""
    found.resources.limits["memory"].string = "x"
    pod.spec.resources.requests["cpu"].string = "1"
    default(pod)
    assert {error.path for error in validate(pod)} == {
        'spec.containers[0].resources.requests["cpu"]',
        'spec.containers[0].resources.limits["memory"]',
        'spec.containers[0].resources.requests["memory"]',
    }
