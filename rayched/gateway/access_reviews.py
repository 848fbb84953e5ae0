"""What `kubectl auth whoami` and `kubectl auth can-i` ask: who the caller is, and whether a call of theirs would be allowed.

The replica answers both, by the table that it judges calls by, as it answers `rayched whoami` and `rayched can-i`. A verb of a
resource is the call that the gateway would make of it.

Source: SelfSubjectReview of authentication.k8s.io/v1, SelfSubjectAccessReview of authorization.k8s.io/v1, Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rayched.api.errors import quoted
from rayched.api.kinds import NODE
from rayched.client.errors import ApiError
from rayched.gateway import bodies, served
from rayched.gateway.calls import Document, GatewayAnswer, GatewayCall
from rayched.gateway.served import ServedResource
from rayched.gateway.statuses import bad_request, not_allowed, of_api_error

_ANY: Final = "*"
_CALLS: Final[Mapping[str, str]] = {
    "create": "Submission.Submit",
    "delete": "Submission.Delete",
    "deletecollection": "Submission.Delete",
    "get": "Submission.Get",
    "list": "Submission.List",
    "patch": "Submission.Apply",
    "update": "Submission.Apply",
    "watch": "Watch.Watch",
}
_CALLS_BELOW: Final[Mapping[str, str]] = {
    "attach": "Logs.Get",
    "binding": "Scheduling.Bind",
    "eviction": "Eviction.Evict",
    "exec": "Exec.Stream",
    "log": "Logs.Get",
    "portforward": "PortForward.Stream",
}
"""Whatever the verb; of others it is that of the object."""
_ATTRIBUTES: Final = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_AUTHENTICATED, _UNAUTHENTICATED, _ANONYMOUS = "system:authenticated", "system:unauthenticated", "system:anonymous"
"""As Kubernetes calls the group of those who have shown who they are, of those who have not, and one of these."""


async def serve(call: GatewayCall, method: str) -> GatewayAnswer:
    """Raises StatusFailure."""
    if method != "POST" or call.path.name:
        raise not_allowed(method)
    kind = call.path.resource.kind
    document = bodies.read_document(call.body, call.content_type)
    found = (document.get("apiVersion") or kind.api_version, document.get("kind") or kind.name)
    if found != (kind.api_version, kind.name):
        raise bad_request(f"the body is {quoted(str(found[1]))}, and the request's place is for a {kind.name}")
    answer: Document = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": {}}
    if kind.api_version == served.IDENTITY_VERSION:
        answer["status"] = {"userInfo": await _user(call)}
    else:
        answer["spec"] = document.get("spec") or {}
        answer["status"] = await _access(call, answer["spec"])
    return GatewayAnswer(201, answer)


async def _user(call: GatewayCall) -> Document:
    try:
        who = await call.client.who_am_i()
    except ApiError as error:
        raise of_api_error(error, call.subject) from None
    return {"username": who.identity or _ANONYMOUS, "groups": [_AUTHENTICATED if who.identity else _UNAUTHENTICATED]}


async def _access(call: GatewayCall, spec: object) -> Document:
    """The status of a review: whether it is allowed, and why not."""
    if not isinstance(spec, dict):
        raise bad_request("spec: must be an object")
    given = spec.get("resourceAttributes")
    if given is None and isinstance(spec.get("nonResourceAttributes"), dict):
        return {"allowed": False, "reason": "rights here are to calls about objects, and to no paths beside"}
    if not isinstance(given, dict):
        raise bad_request("spec.resourceAttributes: is required, and must be an object")
    asked = {name: given.get(name) or "" for name in _ATTRIBUTES}
    wrong = next((name for name, text in asked.items() if not isinstance(text, str)), None)
    if wrong is not None:
        raise bad_request(f"spec.resourceAttributes.{wrong}: must be a text")
    resource = _resource(asked["group"], asked["resource"])
    if resource is None:
        what = f"{quoted(asked['resource'])} of group {quoted(asked['group'])}"
        return {"allowed": False, "reason": f"no resource {what} is served"}
    for verb in _verbs(resource, asked["subresource"]) if asked["verb"] == _ANY else (asked["verb"],):
        made = _call_of(resource, verb, asked["subresource"])
        if made is None:
            below = f"/{asked['subresource']}" if asked["subresource"] else ""
            return {"allowed": False, "reason": f"{quoted(verb)} is no verb of {resource.plural_with_group}{below} here"}
        name, kind = made
        # Of a report on a pod its node is judged, and here any node.
        is_own = kind == resource.kind.name
        where = asked["namespace"] if is_own and resource.kind.namespaced else ""
        try:
            answer = await call.client.can_i(name, kind, where, asked["name"] if is_own else "")
        except ApiError as error:
            raise of_api_error(error, call.subject) from None
        if not answer.allowed:
            return {"allowed": False, "reason": answer.reason}
    return {"allowed": True}


def _resource(group: str, plural: str) -> ServedResource | None:
    return next((one for one in served.RESOURCES if (one.kind.group, one.kind.plural) == (group, plural)), None)


def _verbs(resource: ServedResource, below: str) -> tuple[str, ...]:
    one = resource.subresource(below)
    return resource.verbs if one is None else one.verbs


def _call_of(resource: ServedResource, verb: str, below: str) -> tuple[str, str] | None:
    """The call that the gateway makes of it, and the kind that it is about; empty: about none. None: there is none."""
    if below:
        one = resource.subresource(below)
        if one is None or verb not in one.verbs:
            return None
        if below == served.STATUS and verb != "get":
            what = "Nodes.UpdateNodeStatus" if resource.kind is NODE else "Nodes.UpdatePodStatus"
            return what, NODE.name
        return _CALLS_BELOW.get(below, _CALLS[verb]), resource.kind.name
    if verb not in resource.verbs:
        return None
    match resource.kind.api_version:
        case served.METRICS_VERSION:
            return "Usage.GetUsage", ""
        case served.LEASES_VERSION:
            return "Leadership.GetLeader", ""
        case served.ACCESS_VERSION:
            return "Access.CanI", ""
        case served.IDENTITY_VERSION:
            return "Access.WhoAmI", ""
    return _CALLS[verb], resource.kind.name
