"""What may be submitted: manifests as text, plain data and path, typed objects, and mixtures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rayched.api import kinds
from rayched.api.manifest import ManifestErrors, TextError
from rayched.client import ApiError, Client
from rayched.client.sources import objects_of
from rayched.v1.core_pb2 import Pod
from tests.server.objects import a_node, a_pod

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "main", "image": "registry.example/web:1"}]},
}
NAMED_TWICE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n"


def names(source: Any) -> list[str]:
    return [kinds.unwrap(found.object).metadata.name for found in objects_of(source)]


def test_every_form_of_a_manifest_gives_its_objects_in_order(tmp_path: Path) -> None:
    file = tmp_path / "spaces.yaml"
    file.write_text(NAMED_TWICE)
    assert names(POD) == ["web"]
    assert names(json.dumps(POD)) == ["web"]
    assert names(NAMED_TWICE) == ["a", "b"]
    assert names(file) == ["a", "b"]
    assert names({"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "x"}, "spec": POD["spec"]}]}) == ["x"]
    assert names(a_pod("typed")) == ["typed"]
    assert names(kinds.wrap(a_pod("wrapped"))) == ["wrapped"]
    assert names([a_node("n"), file, POD, [a_pod("deep")]]) == ["n", "a", "b", "web", "deep"]


def test_the_objects_are_copies() -> None:
    pod = a_pod("web")
    (found,) = objects_of([pod])
    pod.metadata.name = "changed"
    assert found.object.pod.metadata.name == "web"


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: [}", TextError, "line"),
        ({**POD, "spec": {"containers": 5}}, ManifestErrors, "spec.containers"),
        ("a text that is no manifest", ManifestErrors, "must be an object"),
        (Path("/nowhere/app.yaml"), OSError, "nowhere"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_sent(source: Any, error: type[Exception], text: str) -> None:
    with Client("127.0.0.1:1", timeout_seconds=0.2) as client, pytest.raises(error, match=text) as caught:
        client.submit([a_pod("web"), source])
    assert not isinstance(caught.value, ApiError)


def test_fields_that_are_left_out_are_warned_of() -> None:
    (found,) = objects_of({**POD, "spec": {**POD["spec"], "hostAliases": [{"ip": "1.2.3.4"}]}})
    assert isinstance(kinds.unwrap(found.object), Pod)
    assert [warning.path for warning in found.warnings] == ["spec.hostAliases"]
