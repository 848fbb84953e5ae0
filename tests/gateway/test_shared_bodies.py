"""What watches tell of an object is made once, and is what the object is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rayched.api.kinds import POD
from rayched.gateway import rendering, shared_bodies
from rayched.gateway.shared_bodies import SharedBodies
from rayched.v1.core_pb2 import Pod


def a_pod(name: str, text: str = "") -> Pod:
    pod = Pod(api_version="v1", kind="Pod", metadata={"name": name, "namespace": "default", "annotations": {"note": text}})
    pod.spec.containers.add(name="main", image="registry.example/web:1")
    return pod


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of objects, each time that JSON is made of one."""
    made: list[str] = []
    plain = shared_bodies.json_bytes

    def noted(value: Any) -> bytes:
        made.append(value["metadata"]["name"])
        return plain(value)

    monkeypatch.setattr(shared_bodies, "json_bytes", noted)
    return made


def test_an_object_is_told_as_it_is_and_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch)
    shared = SharedBodies()
    for _ in range(3):
        assert json.loads(shared.of(POD, a_pod("web", "ü"), False)) == rendering.document(a_pod("web", "ü"))
        assert json.loads(shared.of(POD, a_pod("web", "ü"), True))["kind"] == "PartialObjectMetadata"
    assert len(made) == 2
    assert json.loads(shared.of(POD, a_pod("web", "changed"), False))["metadata"]["annotations"] == {"note": "changed"}
    assert len(made) == 3


def test_what_is_kept_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch)
    shared = SharedBodies(bytes_max=20_000)
    for number in range(100):
        shared.of(POD, a_pod(f"pod-{number}", "x" * 1_000), False)
        shared.of(POD, a_pod("often", "x" * 1_000), False)
    assert made.count("often") == 1
    made.clear()
    shared.of(POD, a_pod("pod-99", "x" * 1_000), False)
    shared.of(POD, a_pod("pod-0", "x" * 1_000), False)
    assert made == ["pod-0"]
    assert json.loads(SharedBodies(bytes_max=10).of(POD, a_pod("large"), False))["metadata"]["name"] == "large"
