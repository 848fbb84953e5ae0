"""Bindings of pods by other schedulers, as Kubernetes has them: below a pod, or in the namespace.

    POST /api/v1/namespaces/NS/pods/NAME/binding      {"target": {"kind": "Node", "name": "node-1"}}
    POST /api/v1/namespaces/NS/bindings               the same, with metadata.name

The pod is looked at first and bound by its uid: so a call whose answer was lost is repeated without harm, and who asks twice is
told that the pod has its node, as Kubernetes does.

Source: the storage of pods/binding in Kubernetes 1.34.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import grpc

from rayched.client.errors import ApiError
from rayched.gateway import bodies
from rayched.gateway.calls import Document, GatewayAnswer, GatewayCall
from rayched.gateway.objects import stored
from rayched.gateway.queries import dry_run
from rayched.gateway.statuses import StatusCause, StatusFailure, bad_request, invalid, of_api_error, success
from rayched.v1.core_pb2 import Pod

_KIND: Final = "Binding"
_NODE: Final = "Node"


async def bind(call: GatewayCall) -> GatewayAnswer:
    """Raises StatusFailure."""
    document = bodies.read_document(call.body, call.content_type)
    if document.get("kind") not in (None, "", _KIND):
        raise bad_request(f"the object in the body is of kind {str(document['kind'])[:40]}, want {_KIND}")
    metadata, target = _object(document, "metadata"), _object(document, "target")
    name = call.path.name or str(metadata.get("name") or "")
    if not name:
        raise bad_request("metadata.name: is missing; a binding names a pod")
    if str(metadata.get("name") or name) != name:
        raise bad_request(f"the name of the binding ({metadata['name']}) does not match the name on the URL ({name})")
    call = dataclasses.replace(call, path=dataclasses.replace(call.path, name=name))
    node = str(target.get("name") or "")
    causes = [] if node else [StatusCause("target.name", "Required value", "FieldValueRequired")]
    if target.get("kind") not in (None, "", _NODE):
        causes.append(StatusCause("target.kind", f"Unsupported value: {str(target['kind'])[:40]!r}: want {_NODE}"))
    if causes:
        raise invalid(call.subject, causes)
    pod = await stored(call)
    assert isinstance(pod, Pod)
    if pod.spec.node_name:
        raise _conflict(call, f"pod {name} is already assigned to node {pod.spec.node_name!r}")
    if metadata.get("uid") not in (None, "", pod.metadata.uid):
        text = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {pod.metadata.uid}"
        raise _conflict(call, text)
    if not dry_run(call.query.get("dryRun")):
        await _bound(call, pod.metadata.uid, node)
    return GatewayAnswer(201, success(201, call.subject))


async def _bound(call: GatewayCall, uid: str, node: str) -> None:
    try:
        await call.client.bind(call.path.name, call.path.namespace, node=node, uid=uid)
    except ApiError as error:
        if error.code is grpc.StatusCode.NOT_FOUND:
            # Of the pod or of the node: the message says which.
            raise StatusFailure(404, "NotFound", error.message, subject=call.subject) from None
        if error.code is grpc.StatusCode.ABORTED:
            raise _conflict(call, error.message) from None
        raise of_api_error(error, call.subject) from None


def _conflict(call: GatewayCall, why: str) -> StatusFailure:
    message = f'Operation cannot be fulfilled on pods/binding "{call.path.name}": {why}'
    return StatusFailure(409, "Conflict", message, subject=call.subject)


def _object(document: Document, name: str) -> dict[str, Any]:
    found = document.get(name) or {}
    if not isinstance(found, dict):
        raise bad_request(f"{name}: must be an object")
    return found
