"""Waiting until an object is as it should be, or is gone: what a watch of it told so far. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import grpc

from rayched.api.kinds import AnyObject, Kind, by_word
from rayched.api.termination import FINAL_PHASES
from rayched.client.calls import watch_request
from rayched.client.errors import ApiError
from rayched.client.watching import Event, EventType
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import WatchRequest

WAIT_SECONDS: Final = 60.0

Wanted = Callable[[AnyObject | None], bool]
"""Whether an object, or None where it is not there, is what is waited for."""


def is_gone(found: AnyObject | None) -> bool:
    return found is None


def has_run(found: AnyObject | None) -> bool:
    """A pod that is gone will not run any more."""
    return not isinstance(found, Pod) or found.status.phase in ("Running", *FINAL_PHASES)


def has_ended(found: AnyObject | None) -> bool:
    return not isinstance(found, Pod) or found.status.phase in FINAL_PHASES


def pod_or_gone(found: AnyObject | None, name: str, namespace: str) -> Pod:
    """Raises ApiError (NOT_FOUND) where the pod went away."""
    if not isinstance(found, Pod):
        raise ApiError(grpc.StatusCode.NOT_FOUND, f"Pod {namespace}/{name} is not there any more")
    return found


class ObjectWait:
    """One object. Events of its watch come in, bookmarks too."""

    def __init__(self, kind: str | Kind, name: str, namespace: str, until: Wanted) -> None:
        self._kind = by_word(kind) if isinstance(kind, str) else kind
        self._name, self._namespace = name, namespace
        self._until = until
        self.current: AnyObject | None = None
        self.is_done = False

    def request(self) -> WatchRequest:
        return watch_request(self._kind, self._namespace, "", f"metadata.name={self._name}", 0)

    def see(self, event: Event) -> None:
        """Before the first bookmark nobody knows that the object is not there."""
        if event.type is not EventType.BOOKMARK:
            self.current = None if event.type is EventType.DELETED else event.object
        self.is_done = self._until(self.current)

    def too_late(self, seconds: float) -> ApiError:
        where = (
            f"{self._kind.name} {self._namespace}/{self._name}" if self._kind.namespaced else f"{self._kind.name} {self._name}"
        )
        state = "is not there" if self.current is None else "is not as it is waited for"
        return ApiError(grpc.StatusCode.DEADLINE_EXCEEDED, f"{where}: {state} after {seconds:g} s")
