"""Whether pods are bound: which are waited for, and what a watch from the present state tells of them. Pure.

A pod that goes away, or ends, before it is bound will never be: that is told at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import grpc
from google.protobuf.message import Message

from rayched.api.kinds import POD
from rayched.api.stages import Stage, stage_of
from rayched.client.calls import as_object
from rayched.client.errors import ApiError
from rayched.client.submissions import Submitted
from rayched.client.watching import Event, EventType
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import SubmitResponse, WatchRequest
from rayched.v1.workloads_pb2 import Object

PodReference: TypeAlias = str | Pod | Object | Submitted | SubmitResponse
"""A pod's name, or namespace/name; a pod; or what `submit` and `submit_many` answered, of which what is no pod does not count."""

_NAMED_MAX: Final = 3


class NotBound(Exception):
    """Pods that were waited for are not bound: the time is over, or one of them is gone. One line."""

    def __init__(self, text: str, bound: Mapping[str, Pod], pending: Mapping[str, str]) -> None:
        super().__init__(text)
        self.bound = dict(bound)
        """Those that are, by namespace/name or uid."""
        self.pending = dict(pending)
        """Why the others are not, as far as it is known."""


@dataclass(frozen=True, slots=True)
class _WantedPods:
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.name else self.uid


class BoundWait:
    """One wait. Feed it the events of a watch of `request()`, with bookmarks, until it is done."""

    def __init__(self, pods: PodReference | Iterable[PodReference], namespace: str) -> None:
        references = [pods] if isinstance(pods, str | Submitted | Message) else list(pods)
        self._wanted = [found for reference in references if (found := _wanted(reference, namespace)) is not None]
        self._by_uid = {wanted.uid: wanted for wanted in self._wanted if wanted.uid}
        self._by_name = {(wanted.namespace, wanted.name): wanted for wanted in self._wanted if wanted.name}
        self._bound: dict[_WantedPods, Pod] = {}
        self._seen: dict[_WantedPods, str] = {}
        """Why those are pending that were seen."""

    def is_done(self) -> bool:
        return len(self._bound) == len(set(self._wanted))

    def request(self) -> WatchRequest:
        """A watch that sees them all and few others."""
        namespaces = {wanted.namespace for wanted in self._wanted}
        only = self._wanted[0] if len(self._wanted) == 1 else None
        return WatchRequest(
            kind=POD.name,
            namespace=namespaces.pop() if len(namespaces) == 1 else "",
            field_selector=f"metadata.name={only.name}" if only is not None and only.name else "",
        )

    def see(self, event: Event) -> None:
        """Raises ApiError (NOT_FOUND) for a pod that is not there at first, NotBound for one that will never be bound."""
        if event.type is EventType.BOOKMARK:
            for wanted in self._wanted:
                if wanted not in self._bound and wanted not in self._seen:
                    raise ApiError(grpc.StatusCode.NOT_FOUND, f'pod "{wanted}" not found')
            return
        pod = cast(Pod, event.object)
        metadata = pod.metadata
        wanted_pod = self._by_uid.get(metadata.uid) or self._by_name.get((metadata.namespace, metadata.name))
        if wanted_pod is None or wanted_pod in self._bound or (wanted_pod.uid and wanted_pod.uid != metadata.uid):
            return
        if pod.spec.node_name:
            self._bound[wanted_pod] = pod
        elif event.type is EventType.DELETED:
            raise self._failure(f"pod {wanted_pod} was deleted before it was bound")
        elif stage_of(pod) is Stage.OVER:
            raise self._failure(f"pod {wanted_pod} ended before it was bound: {pod.status.phase}")
        else:
            self._seen[wanted_pod] = waiting_reason(pod)

    def result(self) -> tuple[Pod, ...]:
        """The pods as they were when they had just been bound, in the order asked for."""
        return tuple(self._bound[wanted] for wanted in self._wanted)

    def too_late(self, seconds: float) -> NotBound:
        pending = self._pending()
        named = "; ".join(f"{name}: {reason}" if reason else name for name, reason in list(pending.items())[:_NAMED_MAX])
        more = f"; and {len(pending) - _NAMED_MAX} more" if len(pending) > _NAMED_MAX else ""
        count = f"{len(pending)} of {len(set(self._wanted))} pods are not bound after {seconds:g} s"
        return self._failure(f"{count}: {named}{more}")

    def _failure(self, text: str) -> NotBound:
        return NotBound(text, {str(wanted): pod for wanted, pod in self._bound.items()}, self._pending())

    def _pending(self) -> dict[str, str]:
        return {str(wanted): self._seen.get(wanted, "") for wanted in self._wanted if wanted not in self._bound}


def _wanted(reference: PodReference, namespace: str) -> _WantedPods | None:
    match reference:
        case str():
            place, _, name = reference.rpartition("/")
            return _WantedPods(place or namespace, name, "")
        case Submitted():
            return _WantedPods(reference.namespace, reference.name, reference.uid) if reference.kind == POD.name else None
        case SubmitResponse():
            return _of(reference.object)
        case Object():
            found = _of(reference)
        case _:
            found = _of(as_object(reference))
    if found is None:
        raise ValueError("wait_bound: this is no pod")
    return found


def _of(item: Object) -> _WantedPods | None:
    if item.WhichOneof("kind") != POD.field:
        return None
    metadata = item.pod.metadata
    return _WantedPods(metadata.namespace or "default", metadata.name, metadata.uid)


def waiting_reason(pod: Pod) -> str:
    """What the scheduler says about a pod that has no node; "" while it has said nothing."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return str(condition.message or condition.reason)
    return ""
