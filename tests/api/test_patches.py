"""The three patches, by the examples of their documents and by what a careless one would break."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rayched.api.patches import PatchFault, json_patch, merge_patch


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_its_rfc_shows(document: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(document)
    assert merge_patch(document, patch) == result
    assert document == before


@pytest.mark.parametrize(
    ("operations", "result"),
    [
        ([{"op": "add", "path": "/a/-", "value": 3}], {"a": [1, 2, 3], "b": {"c/d": 1}}),
        ([{"op": "add", "path": "/a/0", "value": 0}], {"a": [0, 1, 2], "b": {"c/d": 1}}),
        ([{"op": "remove", "path": "/a/1"}], {"a": [1], "b": {"c/d": 1}}),
        ([{"op": "replace", "path": "/b/c~1d", "value": 2}], {"a": [1, 2], "b": {"c/d": 2}}),
        ([{"op": "move", "from": "/a/0", "path": "/b/x"}], {"a": [2], "b": {"c/d": 1, "x": 1}}),
        ([{"op": "copy", "from": "/b", "path": "/e"}], {"a": [1, 2], "b": {"c/d": 1}, "e": {"c/d": 1}}),
        ([{"op": "test", "path": "/a/0", "value": 1}, {"op": "remove", "path": "/a"}], {"b": {"c/d": 1}}),
        ([{"op": "replace", "path": "", "value": {}}], {}),
    ],
)
def test_a_json_patch_does_its_operations_in_order(operations: Any, result: Any) -> None:
    document = {"a": [1, 2], "b": {"c/d": 1}}
    assert json_patch(document, operations) == result
    assert document == {"a": [1, 2], "b": {"c/d": 1}}


@pytest.mark.parametrize(
    ("operations", "said"),
    [
        ({}, "a JSON patch is a list of operations"),
        ([{}], "operation 0: op: want one of add, remove"),
        ([{"op": "add", "path": "a", "value": 1}], "operation 0: path: want a path such as"),
        ([{"op": "add", "path": "/a"}], "operation 0: value: is required to add"),
        ([{"op": "remove", "path": "/none"}], 'operation 0: there is no "none"'),
        ([{"op": "remove", "path": "/a/7"}], 'operation 0: "7" is no place in a list of 2'),
        ([{"op": "replace", "path": "/a/x", "value": 1}], '"x" is no place in a list'),
        ([{"op": "test", "path": "/a/0", "value": 2}], "the value at /a/0 is another one"),
        ([{"op": "add", "path": "/a/0/b", "value": 2}], "/a/0 is a plain value"),
        ([{"op": "move", "path": "/x"}], "operation 0: from: want a path"),
        ([{"op": "copy", "from": "/a", "path": "/a/-"}] * 60, "the copies of this patch come to more than 262144 characters"),
        ([{"op": "test", "path": "/a/0", "value": 1}] * 10_001, "has at most 10000 operations, found 10001"),
        ([{"op": "remove", "path": "/a/" + "9" * 5_000}], "is no place in a list of 2"),
    ],
)
def test_a_json_patch_that_does_not_fit_is_told(operations: Any, said: str) -> None:
    with pytest.raises(PatchFault) as fault:
        json_patch({"a": [1, 2]}, operations)
    assert said in str(fault.value)
