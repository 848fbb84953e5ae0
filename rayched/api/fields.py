"""The fields of an object that a field selector may name, as texts.

Source: the field selectors that the API server of Kubernetes 1.34 offers for each kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rayched.api.errors import quoted
from rayched.api.kinds import EVENT, NAMESPACE, NODE, POD, AnyObject, Kind, of_message
from rayched.api.selectors import FieldSelector, SelectorError

Field = Callable[[Any], str]


def _flag(on: bool) -> str:
    return "true" if on else "false"


_COMMON: Final[dict[str, Field]] = {
    "metadata.name": lambda item: item.metadata.name,
    "metadata.namespace": lambda item: item.metadata.namespace,
}
_BY_KIND: Final[dict[str, dict[str, Field]]] = {
    POD.name: {
        "spec.nodeName": lambda pod: pod.spec.node_name,
        "spec.restartPolicy": lambda pod: pod.spec.restart_policy,
        "spec.schedulerName": lambda pod: pod.spec.scheduler_name,
        "spec.serviceAccountName": lambda pod: pod.spec.service_account_name,
        "spec.hostNetwork": lambda pod: _flag(pod.spec.host_network),
        "status.phase": lambda pod: pod.status.phase,
        "status.podIP": lambda pod: pod.status.pod_ip,
        "status.nominatedNodeName": lambda pod: pod.status.nominated_node_name,
    },
    NODE.name: {"spec.unschedulable": lambda node: _flag(node.spec.unschedulable)},
    NAMESPACE.name: {"status.phase": lambda namespace: namespace.status.phase},
    EVENT.name: {
        "involvedObject.kind": lambda event: event.involved_object.kind,
        "involvedObject.namespace": lambda event: event.involved_object.namespace,
        "involvedObject.name": lambda event: event.involved_object.name,
        "involvedObject.uid": lambda event: event.involved_object.uid,
        "involvedObject.apiVersion": lambda event: event.involved_object.api_version,
        "involvedObject.resourceVersion": lambda event: event.involved_object.resource_version,
        "involvedObject.fieldPath": lambda _event: "",
        "reportingComponent": lambda event: event.source.component,
        "reason": lambda event: event.reason,
        "source": lambda event: event.source.component,
        "type": lambda event: event.type,
    },
}


def allowed_fields(kind: Kind) -> tuple[str, ...]:
    """The fields of a kind that selectors may name."""
    return (*_COMMON, *_BY_KIND.get(kind.name, {}))


def check(selector: FieldSelector, kind: Kind) -> None:
    """Raises SelectorError when the selector names a field that this kind does not offer."""
    allowed = allowed_fields(kind)
    for term in selector.terms:
        if term.field not in allowed:
            raise SelectorError(
                f"field {quoted(term.field)} of {kind.plural} cannot be selected by; allowed are {', '.join(allowed)}"
            )


def matches(selector: FieldSelector, item: AnyObject) -> bool:
    """Whether an object satisfies a selector that passed `check`."""
    table = _BY_KIND.get(of_message(item).name, {})
    for term in selector.terms:
        read = _COMMON.get(term.field) or table.get(term.field)
        if ((read(item) if read else "") == term.value) is not term.equal:
            return False
    return True
