"""Calls about what makes pods, and waiting for what becomes of it; a part of Client."""

from __future__ import annotations

from rayched.api.kinds import POD, AnyObject, Kind
from rayched.client import calls
from rayched.client.object_wait import WAIT_SECONDS, ObjectWait, Wanted, has_ended, has_run, is_gone, pod_or_gone
from rayched.client.transport import Transport
from rayched.client.watch import WatchStream
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import ScaleResponse


class WorkloadCalls:
    """See the module. `_transport` is the client's."""

    _transport: Transport

    def scale(
        self,
        kind: str | Kind,
        name: str,
        namespace: str = "default",
        *,
        replicas: int,
        current_replicas: int | None = None,
        timeout_seconds: float | None = None,
    ) -> ScaleResponse:
        """How many pods a ReplicaSet is to have, or a Job to run at a time; with `current_replicas` only if it is so many now."""
        return self._transport.do(calls.scale(kind, name, namespace, replicas, current_replicas), timeout_seconds)

    def wait_for(
        self,
        kind: str | Kind,
        name: str,
        namespace: str = "default",
        *,
        until: Wanted,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> AnyObject | None:
        """Waits until `until` holds for the object, or for None where it is not there; gives what it held for.

        Raises ApiError with DEADLINE_EXCEEDED when the time is over.
        """
        wait = ObjectWait(kind, name, namespace, until)
        with WatchStream(
            self._transport,
            wait.request(),
            patience_seconds=min(timeout_seconds, WAIT_SECONDS),
            timeout_seconds=timeout_seconds,
            bookmarks=True,
        ) as events:
            for event in events:
                wait.see(event)
                if wait.is_done:
                    return wait.current
        raise wait.too_late(timeout_seconds)

    def wait_running(self, name: str, namespace: str = "default", *, timeout_seconds: float = WAIT_SECONDS) -> Pod:
        """Waits until a pod runs, or has run. Raises ApiError: NOT_FOUND when it goes away, DEADLINE_EXCEEDED after the time."""
        found = self.wait_for(POD, name, namespace, until=has_run, timeout_seconds=timeout_seconds)
        return pod_or_gone(found, name, namespace)

    def wait_ended(self, name: str, namespace: str = "default", *, timeout_seconds: float = WAIT_SECONDS) -> Pod:
        """Waits until a pod has ended, well (Succeeded) or not (Failed). Raises ApiError as wait_running."""
        found = self.wait_for(POD, name, namespace, until=has_ended, timeout_seconds=timeout_seconds)
        return pod_or_gone(found, name, namespace)

    def wait_deleted(
        self, kind: str | Kind, name: str, namespace: str = "default", *, timeout_seconds: float = WAIT_SECONDS
    ) -> None:
        """Waits until there is no object of this name. Raises ApiError with DEADLINE_EXCEEDED."""
        self.wait_for(kind, name, namespace, until=is_gone, timeout_seconds=timeout_seconds)
