"""OpenAPI says what is served: each place and verb of discovery, and nothing that is not there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rayched.gateway import open_api, paths
from rayched.gateway.served import GROUP_VERSIONS, ServedResource

ACTIONS = {"create": "post", "update": "put"}
PLACES = [one["serverRelativeURL"].partition("?")[0].removeprefix("/openapi/v3/") for one in open_api.index()["paths"].values()]


def operations(place: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Path, method, and what is said of it."""
    document = open_api.document(place)
    assert document is not None
    found = []
    for path, item in document["paths"].items():
        found += [(path, method, one) for method, one in item.items() if method != "parameters"]
    return found


def resource_at(path: str) -> tuple[ServedResource, str]:
    """What a path of a document names, and what below it; AssertionError: it is not served."""
    parsed = paths.parse(path.replace("{namespace}", "team").replace("{name}", "web"))
    assert parsed is not None, path
    return parsed.resource, parsed.subresource


@pytest.mark.parametrize("place", PLACES)
def test_every_place_and_verb_of_discovery_is_there_and_no_other(place: str) -> None:
    told = set()
    for path, _, one in operations(place):
        resource, below = resource_at(path)
        told.add((resource.kind.name, below, one["x-kubernetes-action"]))
    wanted = set()
    version = place.partition("/")[2]
    for resource in GROUP_VERSIONS[version]:
        # A watch is a list with a parameter.
        wanted |= {(resource.kind.name, "", ACTIONS.get(verb, verb)) for verb in resource.verbs if verb != "watch"}
        for one in resource.subresources:
            wanted |= {(resource.kind.name, one.name, ACTIONS.get(verb, verb)) for verb in one.verbs}
    assert told == wanted


@pytest.mark.parametrize("place", PLACES)
def test_kubectl_finds_that_patches_take_field_validation(place: str) -> None:
    kinds = set()
    for path, method, one in operations(place):
        if method == "patch" and path.endswith("/{name}"):
            assert "fieldValidation" in {parameter["name"] for parameter in one["parameters"]}
            kinds.add(one["x-kubernetes-group-version-kind"]["kind"])
    assert kinds == {one.kind.name for one in GROUP_VERSIONS[place.partition("/")[2]] if "patch" in one.verbs}


@pytest.mark.parametrize("place", PLACES)
def test_every_reference_leads_somewhere(place: str) -> None:
    document = open_api.document(place)
    assert document is not None
    schemas = document["components"]["schemas"]
    for part in json.dumps(document).split('"$ref": "')[1:]:
        assert part.partition('"')[0].removeprefix("#/components/schemas/") in schemas


def test_what_is_not_served_has_no_document() -> None:
    assert open_api.document("api/v2") is None and open_api.document("apis/metrics.k8s.io/v1beta1") is None
