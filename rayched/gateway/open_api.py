"""OpenAPI v3 of what is served, a document for each version of a group: places, verbs, parameters, bodies and fields. Pure.

Of patches it says that they take `fieldValidation`. So kubectl leaves validation to the server, which names object and
field better than a schema does. It does not say that they take strategic merge patches, and OpenAPI v2 has no kind in it:
kubectl then merges by keys of its own. These schemas have no merge keys, and lists merged by them would differ from what is
there. kubectl asks for OpenAPI v2 all the same before it takes a manifest of the kind List, and leaves alone what is not in it.

Source: /openapi/v3 of Kubernetes 1.34.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rayched.gateway import bodies
from rayched.gateway.schemas import schemas
from rayched.gateway.served import GROUP_VERSIONS, ServedResource, Subresource

Document = dict[str, Any]

V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_TITLE: Final = "rayched"

_TEXT: Final[Document] = {"type": "string"}
_FLAG: Final[Document] = {"type": "boolean"}
_NUMBER: Final[Document] = {"type": "integer", "format": "int64", "minimum": 0}
_OBJECT: Final[Document] = {"type": "object"}
_DRY_RUN: Final = {"dryRun": _TEXT}
_WRITE: Final = {**_DRY_RUN, "fieldManager": _TEXT, "fieldValidation": {"type": "string", "enum": ["Ignore", "Strict", "Warn"]}}
_LIST: Final = {
    **dict.fromkeys(("labelSelector", "fieldSelector", "continue", "resourceVersion", "resourceVersionMatch"), _TEXT),
    **dict.fromkeys(("watch", "allowWatchBookmarks", "sendInitialEvents"), _FLAG),
    **dict.fromkeys(("limit", "timeoutSeconds"), _NUMBER),
}
_DELETE: Final = {**_DRY_RUN, "gracePeriodSeconds": _NUMBER, "propagationPolicy": _TEXT}
_STREAM: Final = {"container": _TEXT, **dict.fromkeys(("stdin", "stdout", "stderr", "tty"), _FLAG)}
_BELOW: Final[Mapping[str, Mapping[str, Document]]] = {
    "attach": _STREAM,
    "exec": {**_STREAM, "command": {"type": "array", "items": _TEXT}},
    "log": {
        **dict.fromkeys(("container", "sinceTime"), _TEXT),
        **dict.fromkeys(("follow", "previous", "timestamps"), _FLAG),
        **dict.fromkeys(("tailLines", "sinceSeconds", "limitBytes"), _NUMBER),
    },
    "portforward": {"ports": _TEXT},
}
"""Parameters of what is read below an object."""
_METHODS: Final = {"create": "post", "get": "get", "patch": "patch", "update": "put"}
"""By verb, of what lies below an object."""
_ACTIONS: Final = {"create": "post", "update": "put"}
"""What Kubernetes calls these verbs here."""


def index() -> Document:
    """Where the document of each group is."""
    places = [_place(version) for version, served in GROUP_VERSIONS.items() if any(one.has_schema for one in served)]
    return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}?hash={_digest(place)}"} for place in places}}


def empty_v2() -> Document:
    """OpenAPI v2 without any kind."""
    return {"swagger": "2.0", "info": {"title": _TITLE, "version": "v1"}, "paths": {}}


def empty_v2_protobuf() -> bytes:
    """The same as openapi.v2.Document {1: swagger, 2: Info {1: title, 2: version}}."""
    info = b"\n\x07rayched\x12\x02v1"
    return b"\n\x032.0\x12" + bytes([len(info)]) + info


@functools.cache
def document(place: str) -> Document | None:
    """The document at /openapi/v3/PLACE; it is not to be changed."""
    served = next((found for version, found in GROUP_VERSIONS.items() if _place(version) == place), None)
    if served is None or not any(one.has_schema for one in served):
        return None
    paths: Document = {}
    for one in served:
        paths.update(_paths(f"/{place}", one))
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": place.rpartition("/")[2]},
        "paths": paths,
        "components": {"schemas": schemas(served)},
    }


@functools.cache
def _digest(place: str) -> str:
    return hashlib.sha256(repr(document(place)).encode()).hexdigest().upper()


def _place(group_version: str) -> str:
    return f"apis/{group_version}" if "/" in group_version else f"api/{group_version}"


def _paths(root: str, one: ServedResource) -> Document:
    kind = one.kind
    whole = {"$ref": f"#/components/schemas/{kind.message.DESCRIPTOR.full_name}"}
    who = {"group": kind.group, "version": one.version, "kind": kind.name}
    scope = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
    in_path = ["namespace"] if kind.namespaced else []
    listing = _operation("list", who, _LIST)
    collection = {
        "get": listing,
        "post": _operation("create", who, _WRITE, _body(bodies.JSON, whole)),
        "delete": _operation("deletecollection", who, {**_LIST, **_DELETE}, _body(bodies.JSON, _OBJECT)),
    }
    item = {
        "get": _operation("get", who, {}),
        "put": _operation("update", who, _WRITE, _body(bodies.JSON, whole)),
        "patch": _operation("patch", who, _WRITE, _patch_body(whole)),
        "delete": _operation("delete", who, _DELETE, _body(bodies.JSON, _OBJECT)),
    }
    served = {*one.verbs}
    found = {
        f"{scope}/{kind.plural}": _path_item(collection, served, in_path),
        f"{scope}/{kind.plural}/{{name}}": _path_item(item, served, [*in_path, "name"]),
    }
    if kind.namespaced:
        found[f"{root}/{kind.plural}"] = _path_item({"get": listing}, served, [])
    for below in one.subresources:
        place = f"{scope}/{kind.plural}/{{name}}/{below.name}"
        found[place] = _path_item(_below(below), set(below.verbs), [*in_path, "name"])
    return found


def _path_item(operations: Mapping[str, Document], verbs: set[str], in_path: Iterable[str]) -> Document:
    """Of what is served, with the parameters that the place has."""
    actions = {_ACTIONS.get(verb, verb) for verb in verbs}
    served = {method: one for method, one in operations.items() if one["x-kubernetes-action"] in actions}
    places = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in in_path]
    return {**served, **({"parameters": places} if places else {})}


def _below(one: Subresource) -> Document:
    who = {"group": one.group, "version": one.version, "kind": one.kind}
    reads = _BELOW.get(one.name)
    found = {}
    for verb in one.verbs:
        body = _patch_body(_OBJECT) if verb == "patch" else _body(bodies.JSON, _OBJECT)
        has_body = reads is None and verb != "get"
        query = reads if reads is not None else {} if verb == "get" else _WRITE
        found[_METHODS[verb]] = _operation(verb, who, query, body if has_body else None)
    return found


def _operation(verb: str, who: Document, query: Mapping[str, Document], body: Document | None = None) -> Document:
    found: Document = {
        "x-kubernetes-action": _ACTIONS.get(verb, verb),
        "x-kubernetes-group-version-kind": who,
        "parameters": [{"name": name, "in": "query", "schema": schema} for name, schema in query.items()],
        "responses": {"default": {"description": "What was asked for, or a Status that says why not."}},
    }
    if body is not None:
        found["requestBody"] = body
    return found


def _body(content_type: str, schema: Document) -> Document:
    return {"content": {content_type: {"schema": schema}}}


def _patch_body(whole: Document) -> Document:
    operations = {"type": "array", "items": _OBJECT}
    told = [kind for kind in bodies.PATCHES if kind != bodies.STRATEGIC_PATCH]
    kinds = {kind: {"schema": operations if kind == bodies.JSON_PATCH else whole} for kind in told}
    return {"content": kinds}
