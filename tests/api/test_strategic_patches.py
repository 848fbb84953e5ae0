"""Strategic merges as Kubernetes makes them, by kind."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rayched.api.patches import PatchFault
from rayched.api.strategic_patches import strategic_patch


def _pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": list(containers), **spec}}


@pytest.mark.row("KC7")
def test_a_strategic_patch_merges_containers_by_name_and_orders_them_as_it_says() -> None:
    before = _pod({"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "1"})
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}],
            "containers": [{"name": "a", "image": "2", "args": None}, {"name": "c", "image": "1"}],
        }
    }
    after = strategic_patch(before, patch, "Pod")
    assert after["spec"]["containers"] == [{"name": "c", "image": "1"}, {"name": "a", "image": "2"}, {"name": "b", "image": "1"}]
    assert before == _pod({"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "1"})


@pytest.mark.parametrize(
    ("kind", "before", "patch", "after"),
    [
        (
            "Node",
            {"spec": {"taints": [{"key": "a"}]}},
            {"spec": {"taints": [{"key": "b"}]}},
            {"spec": {"taints": [{"key": "b"}]}},
        ),
        ("Node", {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}}, {"spec": {}}),
        (
            "Pod",
            _pod({"name": "a"}, {"name": "b"}),
            {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}},
            _pod({"name": "b"}),
        ),
        ("Pod", _pod({"name": "a"}), {"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}, _pod({"name": "z"})),
        (
            "Pod",
            _pod({"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}),
            {"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "3"}]}]}},
            _pod({"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}]}),
        ),
        (
            "Pod",
            _pod(volumes=[{"name": "v", "emptyDir": {}}]),
            {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}]}},
            _pod(volumes=[{"name": "v", "hostPath": {"path": "/x"}}]),
        ),
        (
            "Pod",
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}},
            {"metadata": {"finalizers": ["b", "c"]}},
        ),
        (
            "PodDisruptionBudget",
            {"spec": {"selector": {"matchLabels": {"a": "1"}}}},
            {"spec": {"selector": {"matchLabels": {"b": "2"}}}},
            {"spec": {"selector": {"matchLabels": {"b": "2"}}}},
        ),
        (
            "ReplicaSet",
            {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "1"}]}}}},
            {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "2"}]}}}},
            {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "2"}]}}}},
        ),
        (
            "PriorityClass",
            {"metadata": {"labels": {"a": "1"}}},
            {"metadata": {"$patch": "replace", "name": "x"}},
            {"metadata": {"name": "x"}},
        ),
    ],
)
def test_what_a_strategic_patch_makes_of_each_kind(kind: str, before: Any, patch: Any, after: Any) -> None:
    assert strategic_patch(before, patch, kind) == after


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers: each item needs its name"),
        ({"spec": {"containers": {}}}, "spec.containers: must be a list"),
        ({"spec": {"containers": [{"name": ["a"]}]}}, "the name of an item is neither an object nor a list"),
        ({"spec": {"$patch": "explode"}}, "found 'explode', want merge, replace or delete"),
        ([], "must be an object"),
    ],
)
def test_a_strategic_patch_that_makes_no_sense_is_refused_by_its_place(patch: Any, words: str) -> None:
    with pytest.raises(PatchFault, match=words):
        strategic_patch(_pod({"name": "a"}), patch, "Pod")


def test_lists_of_many_items_are_merged_in_a_time_that_grows_as_they_do() -> None:
    names = [f"c{number}" for number in range(20_000)]
    patch = {"spec": {"containers": [{"name": one} for one in names], "$setElementOrder/containers": [{"name": names[-1]}]}}
    began = time.process_time()
    merged = strategic_patch(_pod({"name": "c7", "image": "a"}), patch, "Pod")["spec"]["containers"]
    assert merged[0] == {"name": "c7", "image": "a"} and {one["name"] for one in merged} == set(names)
    assert len(merged) == len(names)
    assert time.process_time() - began < 10.0, "each item looks at all others"
