"""The documents by which clients find out what is served: versions, groups, resources. Pure.

Source: recorded requests of kubectl 1.27 to 1.33; apidiscovery.k8s.io/v2 and discovery of Kubernetes 1.34.
"""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any, Final

from rayched.gateway.served import GROUP_VERSIONS, ServedResource

Document = dict[str, Any]

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_GIT_VERSION: Final = "v1.34.1"
"""Of the Kubernetes whose API this is."""


def version() -> Document:
    major, minor, _ = _GIT_VERSION[1:].split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{_GIT_VERSION}+rayched{importlib.metadata.version('rayched')}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def core_versions() -> Document:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups() -> Document:
    """All but the core group."""
    found = []
    for name, versions in _by_group().items():
        if name:
            entries = [{"groupVersion": one, "version": one.rpartition("/")[2]} for one in versions]
            found.append({"name": name, "versions": entries, "preferredVersion": entries[0]})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def _by_group() -> dict[str, list[str]]:
    """The versions of each group, the preferred one first."""
    found: dict[str, list[str]] = {}
    for group_version in GROUP_VERSIONS:
        found.setdefault(group_version.rpartition("/")[0], []).append(group_version)
    return found


def group(name: str) -> Document | None:
    found = next((one for one in groups()["groups"] if one["name"] == name), None)
    return None if found is None else {"kind": "APIGroup", "apiVersion": "v1", **found}


def resources(group_version: str) -> Document | None:
    """What is served of one version of a group; None: nothing."""
    served = GROUP_VERSIONS.get(group_version)
    if served is None:
        return None
    entries: list[Document] = []
    for one in served:
        kind = one.kind
        entries.append(
            {
                "name": kind.plural,
                "singularName": kind.singular,
                "namespaced": kind.namespaced,
                "kind": kind.name,
                "verbs": list(one.verbs),
                "shortNames": list(kind.short_names),
                "categories": list(one.categories),
            }
        )
        for below in one.subresources:
            entry: Document = {
                "name": f"{kind.plural}/{below.name}",
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": below.kind,
                "verbs": list(below.verbs),
            }
            if (below.group, below.version) != (kind.group, one.version):
                entry.update(group=below.group, version=below.version)
            entries.append(entry)
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def aggregated(core: bool) -> Document:
    """All groups with their resources in one document: the core group, or all others."""
    items = []
    for name, group_versions in _by_group().items():
        if bool(name) is not core:
            versions = [
                {
                    "version": one.rpartition("/")[2],
                    "resources": [_aggregated_resource(resource) for resource in GROUP_VERSIONS[one]],
                    "freshness": "Current",
                }
                for one in group_versions
            ]
            items.append({"metadata": {"name": name, "creationTimestamp": None}, "versions": versions})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_resource(one: ServedResource) -> Document:
    kind = one.kind
    below = [
        {
            "subresource": sub.name,
            "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
            "verbs": list(sub.verbs),
        }
        for sub in one.subresources
    ]
    return {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": one.version, "kind": kind.name},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(one.verbs),
        "shortNames": list(kind.short_names),
        "categories": list(one.categories),
        "subresources": below,
    }
