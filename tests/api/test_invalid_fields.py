"""One wrong field at a time, through reading, defaulting and validation: the path and the sentence that a user gets."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.api import kinds
from rayched.api.defaulting import default
from rayched.api.errors import FieldError
from rayched.api.manifest import ManifestErrors, read_object
from rayched.api.validation import validate
from tests.api.invalid_fields import (
    CONTAINERS,
    METADATA,
    NODE_AFFINITY,
    OTHER_KINDS,
    POD_AFFINITY,
    RESOURCES,
    SPREADING,
    STRUCTURE,
    TOLERATIONS,
    VALID,
    Row,
    changed,
)


def errors_of(document: dict[str, Any]) -> list[FieldError]:
    try:
        message = kinds.unwrap(read_object(document).object)
    except ManifestErrors as found:
        return list(found.errors)
    default(message)
    return validate(message)


@pytest.mark.parametrize("kind", [kind.name for kind in kinds.KINDS])
def test_the_valid_object_of_each_kind_has_no_errors(kind: str) -> None:
    assert errors_of(VALID[kind]) == []


def check(row: Row) -> None:
    kind, path, value, error_path, message = row
    errors = errors_of(changed(kind, path, value))
    wanted = {"": path, "the object": ""}.get(error_path, error_path)
    assert [error for error in errors if error.path == wanted and message in error.message], [str(error) for error in errors]
    # One mistake gives errors about one place, not a shower.
    assert len(errors) <= 2, [str(error) for error in errors]


def rows(table: list[Row]) -> Any:
    return pytest.mark.parametrize("row", table, ids=[f"{row[0]}-{row[1][-60:]}-{str(row[2])[:20]}" for row in table])


@rows([*METADATA, *STRUCTURE, *CONTAINERS, *RESOURCES])
def test_one_wrong_field_gives_its_path_and_what_is_allowed(row: Row) -> None:
    check(row)


@rows([*NODE_AFFINITY, *TOLERATIONS])
def test_one_wrong_field_of_node_affinity_tolerations_or_gates_gives_its_path(row: Row) -> None:
    check(row)


@pytest.mark.row("K2.8")
@rows(POD_AFFINITY)
def test_one_wrong_field_of_pod_affinity_gives_its_path(row: Row) -> None:
    check(row)


@rows(SPREADING)
def test_one_wrong_field_of_a_spread_constraint_gives_its_path(row: Row) -> None:
    check(row)


@pytest.mark.row("K9.1")
@rows([row for row in OTHER_KINDS if row[0] == "PriorityClass"])
def test_one_wrong_field_of_a_priority_class_gives_its_path(row: Row) -> None:
    check(row)


@rows([row for row in OTHER_KINDS if row[0] != "PriorityClass"])
def test_one_wrong_field_of_another_kind_gives_its_path(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("kind", [kind.name for kind in kinds.KINDS])
def test_a_message_may_leave_its_kind_open_but_not_name_another(kind: str) -> None:
    message = kinds.unwrap(read_object(VALID[kind]).object)
    default(message)
    own = message.kind, message.api_version
    for said in (own, ("", own[1]), (own[0], ""), ("", "")):
        message.kind, message.api_version = said
        assert validate(message) == []
    message.kind, message.api_version = "Gadget", "v7"
    assert [error.path for error in validate(message)] == ["apiVersion", "kind"]


@pytest.mark.parametrize(("name", "value"), [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)])
def test_a_class_of_the_system_has_the_value_that_kubernetes_gives_it_and_no_other(name: str, value: int) -> None:
    for said in (value, value - 1, value + 1, 5):
        errors = errors_of(VALID["PriorityClass"] | {"metadata": {"name": name}, "value": said})
        assert (errors == []) is (said == value)
