"""What a request is about, as the policy judges it: kinds, namespaces and names, taken from the request alone. Pure.

A request is about one thing or about several, and may be made if it may be made about each of them. The empty namespace of a list
or a watch asks for all namespaces, that of a single object is the default one, as the services read it. A name is known where the
request gives one, or where a field selector of `metadata.name` leaves one possible.

A stream's first message is its request. A request whose kind or selector cannot be read raises what the service would raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rayched.access.policy import NO_KIND
from rayched.api import kinds
from rayched.api.defaulting import DEFAULT_NAMESPACE
from rayched.api.errors import quoted
from rayched.api.kinds import EVENT, KINDS, NODE, POD, AnyObject, Kind
from rayched.api.selectors import parse_field_selector


class RequestFacts(NamedTuple):
    """One thing that a request is about. `namespace` is empty for kinds of the cluster, and for all namespaces."""

    kind: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """ "Pod team-a/web", "Pods of all namespaces" """
        if self.kind == NO_KIND:
            return _shown(self.name) or "the cluster"
        kind, namespace, name = kinds.by_name(self.kind), _shown(self.namespace), _shown(self.name)
        if name:
            return f"{kind.name} {namespace}/{name}" if namespace else f"{kind.name} {name}"
        where = f" of namespace {namespace}" if namespace else " of all namespaces" if kind.namespaced else ""
        return f"{kind.plural}{where}"


def _shown(text: str) -> str:
    """Of a text that anybody may have sent: printable, and cut down."""
    return quoted(text)[1:-1]


THE_CLUSTER: Final = RequestFacts(NO_KIND)

Facts = tuple[RequestFacts, ...]


def facts_of(call: str, request: Any) -> Facts:
    """Raises UnknownKind and SelectorError; a call that has no entry here is a KeyError, which a test keeps away."""
    return REQUESTS[call](request)


def facts_of_object(message: AnyObject) -> RequestFacts:
    """Of an object as it was sent, which may leave its namespace out."""
    kind, metadata = kinds.of_message(message), message.metadata
    return _one(kind, metadata.namespace, metadata.name)


def _one(kind: Kind, namespace: str, name: str) -> RequestFacts:
    if not kind.namespaced:
        return RequestFacts(kind.name, "", name)
    return RequestFacts(kind.name, namespace or DEFAULT_NAMESPACE, name)


def _cluster(_: Any) -> Facts:
    return (THE_CLUSTER,)


def _subject(request: Any) -> Facts:
    """About an identity; empty: all of them."""
    return (RequestFacts(NO_KIND, "", request.subject),)


def _item(request: Any) -> Facts:
    return (facts_of_object(kinds.unwrap(request.object)),)


def _items(request: Any) -> Facts:
    """Each is judged on its own, and has an outcome of its own: see the service."""
    return tuple(facts_of_object(kinds.unwrap(item)) for item in request.objects)


def _key(request: Any) -> Facts:
    key = request.key
    return (_one(kinds.by_name(key.kind), key.namespace, key.name),)


def _pod(request: Any) -> Facts:
    return (_one(POD, request.namespace, request.name),)


def _log(request: Any) -> Facts:
    return (_one(POD, request.namespace, request.pod),)


def _start(request: Any) -> Facts:
    """Of a stream that begins with a start; one that does not is refused by the service, as it names nothing."""
    return (_one(POD, request.start.namespace, request.start.pod),)


def _queue(request: Any) -> Facts:
    return (RequestFacts(POD.name, request.namespace, request.name),)


def _node(name: Callable[[Any], str]) -> Callable[[Any], Facts]:
    return lambda request: (RequestFacts(NODE.name, "", name(request)),)


def _nodes(request: Any) -> Facts:
    return tuple(RequestFacts(NODE.name, "", name) for name in request.nodes) or (RequestFacts(NODE.name),)


def _usage(request: Any) -> Facts:
    return (RequestFacts(NODE.name, "", request.node),) if request.node else (THE_CLUSTER,)


def _selected(request: Any) -> Facts:
    """A list or a watch. A watch of no kind is one of all but Events, which within a namespace are those that have one."""
    name = _only_name(request.field_selector)
    if request.kind:
        return (RequestFacts(kinds.by_name(request.kind).name, request.namespace, name),)
    watched = [kind for kind in KINDS if kind is not EVENT and (kind.namespaced or not request.namespace)]
    return tuple(RequestFacts(kind.name, request.namespace, name) for kind in watched)


def _only_name(field_selector: str) -> str:
    """The name that a selector leaves possible; empty: several, or none."""
    terms = parse_field_selector(field_selector).terms
    names = {term.value for term in terms if term.field == "metadata.name" and term.equal}
    return names.pop() if len(names) == 1 else ""


REQUESTS: Final[Mapping[str, Callable[[Any], Facts]]] = MappingProxyType(
    {
        "Submission.Submit": _item,
        "Submission.SubmitMany": _items,
        "Submission.Apply": _item,
        "Submission.Get": _key,
        "Submission.List": _selected,
        "Submission.Delete": _key,
        "Eviction.Evict": _pod,
        "Watch.Watch": _selected,
        "Nodes.Register": _node(lambda request: request.node.metadata.name),
        "Nodes.Heartbeat": _nodes,
        "Nodes.UpdateNodeStatus": _node(lambda request: request.name),
        "Nodes.UpdatePodStatus": _node(lambda request: request.node),
        "Nodes.WatchNode": _node(lambda request: request.name),
        "Nodes.ReportEvents": _node(lambda request: request.node),
        "Admin.Cordon": _node(lambda request: request.node),
        "Admin.Taint": _node(lambda request: request.node),
        "Admin.Label": _key,
        "Admin.Scale": _key,
        "Leadership.GetLeader": _cluster,
        "Leadership.WatchLeader": _cluster,
        "Scheduling.GetSchedulerStatus": _cluster,
        "Scheduling.GetPlanBasis": _cluster,
        "Scheduling.GetAllocatedResources": _cluster,
        "Scheduling.Explain": _pod,
        "Scheduling.Bind": _pod,
        "Scheduling.ListQueue": _queue,
        "Logs.Get": _log,
        "Exec.Stream": _start,
        "PortForward.Stream": _start,
        "Usage.GetUsage": _usage,
        "AgentStreams.Attend": _node(lambda request: request.node),
        "AgentStreams.Serve": _cluster,
        "Access.WhoAmI": _cluster,
        "Access.CanI": _subject,
        "Access.Grant": _cluster,
        "Access.RevokeGrant": _cluster,
        "Access.ListGrants": _subject,
        "Access.IssueToken": _subject,
        "Access.ListTokens": _subject,
        "Access.RevokeToken": _subject,
        "Access.SignCertificate": _subject,
        "Access.RevokeCertificate": _cluster,
        "Access.Readmit": _cluster,
        "Access.ListRevocations": _cluster,
        "Health.Check": _cluster,
        "Health.List": _cluster,
        "Health.Watch": _cluster,
        "ServerReflection.ServerReflectionInfo": _cluster,
    }
)
