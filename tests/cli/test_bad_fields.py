"""Every kind of invalid field, through the API and through the command: refused with its path, and etcd is as it was.

The table is that of the manifests' own tests: one mistake a row, at most one place where it is told. Rows whose mistake is in the
structure cannot even become a message; these end in the command.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from rayched.api import kinds
from rayched.api.manifest import ManifestErrors, read_object
from rayched.client import ApiError, Client
from tests.api.invalid_fields import TABLES, Row, changed
from tests.cli.cluster import Commands, Dump

pytestmark = pytest.mark.cluster

ROWS = [row for table in TABLES.values() for row in table]
SET_BY_THE_SERVER = ("metadata.generation",)
"""What comes with a new object is not looked at, so nothing can be wrong with it."""
KINDS_OF_FIELD_MIN = 50
"""How many different fields, at least, are refused by the API itself."""


def a_message(row: Row) -> kinds.AnyObject | None:
    """The wrong object as a message; None where the mistake is one of structure."""
    kind, path, value, _, _ = row
    if path in SET_BY_THE_SERVER:
        return None
    try:
        return copy.deepcopy(kinds.unwrap(read_object(changed(kind, path, value)).object))
    except ManifestErrors:
        return None


def submit(client: Client, message: Any) -> object:
    return client.submit(message)


def apply(client: Client, message: Any) -> object:
    return client.apply(message)


def refused(call: Callable[[Client, Any], object], client: Client, message: Any) -> ApiError:
    with pytest.raises(ApiError) as refusal:
        call(client, message)
    return refusal.value


def faults(error: ApiError, row: Row) -> list[str]:
    """What is wrong with how a row was refused."""
    _, path, _, error_path, _ = row
    if error_path == "the object":
        return [] if error.code.name in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED") else [error.code.name]
    wanted = error_path or path
    found = [] if error.code.name == "INVALID_ARGUMENT" else [error.code.name]
    if not any(violation.field == wanted and violation.message for violation in error.violations):
        found.append(f"no violation of {wanted}: {error}")
    if wanted not in str(error) and len(str(error)) < 500:
        found.append(f"{wanted} is not in the message: {error}")
    return found


@pytest.mark.parametrize("call", [submit, apply], ids=["Submit", "Apply"])
@pytest.mark.parametrize("table", TABLES)
def test_the_api_refuses_each_wrong_field_by_its_path_and_changes_nothing(
    rayched: Commands, call: Callable[[Client, Any], object], table: str
) -> None:
    before = rayched.quiet_dump()
    wrong: dict[str, list[str]] = {}
    for row in TABLES[table]:
        message = a_message(row)
        if message is None:
            continue
        found = faults(refused(call, rayched.client, message), row)
        if rayched.dump() != before:
            found.append("etcd has changed")
        if found:
            wrong[f"{row[0]} {row[1]} {str(row[2])[:30]}"] = found
    assert wrong == {}


def test_many_kinds_of_field_get_as_far_as_the_api() -> None:
    fields = {(row[0], row[1].split("[")[0]) for row in ROWS if a_message(row) is not None}
    rows = [row for row in ROWS if a_message(row) is not None]
    assert len(rows) >= 2 * KINDS_OF_FIELD_MIN
    assert len(fields) >= KINDS_OF_FIELD_MIN


@pytest.mark.parametrize("table", TABLES)
def test_the_command_refuses_each_wrong_field_in_one_line_with_its_path(rayched: Commands, table: str) -> None:
    before: Dump = rayched.quiet_dump()
    wrong: dict[str, object] = {}
    for row in TABLES[table]:
        kind, path, value, error_path, words = row
        if path in SET_BY_THE_SERVER:
            continue
        if a_message(row) is not None:
            # Admission may have a word of its own, before validation.
            words = ""
        result = rayched("apply", "-f", "-", stdin=json.dumps(changed(kind, path, value)))
        place = "" if error_path == "the object" else error_path or path
        told = [line for line in result.errors if line.startswith("error: ") and place in line and words in line]
        if result.code != 1 or result.out or not told or rayched.dump() != before:
            wrong[f"{kind} {path} {str(value)[:30]}"] = result
    assert wrong == {}
