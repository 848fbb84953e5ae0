"""kubectl as its own oracle: what `apply` makes of an object that is there is what it makes of one that is not.

kubectl works out a strategic merge patch from what was applied last, what is there and what is wanted; the gateway makes it.
Whatever either of them took for granted, in the end the object has to be the manifest, as one has that is created from it.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from tests.gateway.kubectl import Kubectl

pytestmark = pytest.mark.cluster

PAIRS = 40
SEED = 24


def some(draw: random.Random, of: list[Any], least: int = 0) -> list[Any]:
    """Some of these, in any order."""
    return draw.sample(of, draw.randint(least, len(of)))


def a_container(draw: random.Random, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "image": f"registry.example/{name}:{draw.randint(1, 3)}"}
    if env := some(draw, ["A", "B", "C", "D"]):
        found["env"] = [{"name": one, "value": str(draw.randint(1, 2))} for one in env]
    if ports := some(draw, [80, 443, 8080]):
        found["ports"] = [{"containerPort": one, "protocol": "TCP"} for one in ports]
    if args := some(draw, ["-v", "-q", "-x"]):
        found["args"] = args
    if draw.random() < 0.5:
        requests = {one: draw.choice(["1", "2"]) for one in some(draw, ["cpu", "memory", "example.com/gpu"], 1)}
        found["resources"] = {"requests": requests, "limits": dict(requests)}
    return found


def a_template(draw: random.Random) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [a_container(draw, name) for name in some(draw, ["a", "b", "c"], 1)]}
    if names := some(draw, ["x", "y"]):
        spec["initContainers"] = [a_container(draw, name) for name in names]
    if keys := some(draw, ["dedicated", "gpu", "spot"]):
        effects = ["NoSchedule", "NoExecute"]
        spec["tolerations"] = [{"key": one, "operator": "Exists", "effect": draw.choice(effects)} for one in keys]
    if labels := some(draw, ["disk", "arch"]):
        spec["nodeSelector"] = {one: draw.choice(["ssd", "hdd"]) for one in labels}
    if keys := some(draw, ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]):
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": draw.randint(1, 2),
                "topologyKey": one,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
            for one in keys
        ]
    labels = {"app": "web", **dict.fromkeys(some(draw, ["tier", "team"]), "x")}
    return {"metadata": {"labels": labels}, "spec": spec}


def a_list(names: list[str], templates: list[dict[str, Any]], marks: list[dict[str, str]]) -> str:
    sets = [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name, "annotations": mark},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        }
        for name, template, mark in zip(names, templates, marks, strict=True)
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": sets})


def wanted_of(found: dict[str, Any]) -> tuple[Any, Any]:
    """What a manifest says of it."""
    marks = copy.deepcopy(found["metadata"].get("annotations", {}))
    marks.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    return found["spec"], marks


@pytest.mark.row("KC7")
def test_an_object_that_is_changed_by_apply_is_as_one_that_is_made_by_it(kubectl: Kubectl, namespace: str) -> None:
    draw = random.Random(SEED)
    here = ("-n", namespace)

    def marks() -> list[dict[str, str]]:
        return [{f"example.com/{key}": draw.choice("12") for key in some(draw, ["a", "b", "c"])} for _ in range(PAIRS)]

    before, after = ([a_template(draw) for _ in range(PAIRS)] for _ in range(2))
    old_marks, new_marks = marks(), marks()
    changed, fresh = ([f"{name}-{number}" for number in range(PAIRS)] for name in ("changed", "fresh"))
    kubectl.ok("apply", *here, "-f", "-", stdin=a_list(changed, before, old_marks))
    # What somebody else has added stays, and is in nobody's way.
    kubectl.ok("label", "rs", "--all", *here, "by=another")
    told = kubectl.ok("apply", *here, "-f", "-", stdin=a_list(changed, after, new_marks))
    assert sum(line.endswith(" configured") for line in told) > PAIRS // 2
    kubectl.ok("apply", *here, "-f", "-", stdin=a_list(fresh, after, new_marks))
    found = {one["metadata"]["name"]: one for one in kubectl.object("get", "rs", *here)["items"]}
    for one, other, template in zip(changed, fresh, after, strict=True):
        assert wanted_of(found[one]) == wanted_of(found[other]), (SEED, one, template)
        assert found[one]["metadata"]["labels"] == {"by": "another"}
    again = kubectl.ok("apply", *here, "-f", "-", stdin=a_list(changed, after, new_marks))
    assert [line for line in again if not line.endswith(" unchanged")] == []
    kubectl.ok("delete", "rs", "--all", *here)
