"""Calls about what makes pods, and waiting for what becomes of it; a part of AsyncClient. For the rules see WorkloadCalls."""

from __future__ import annotations

from rayched.api.kinds import POD, AnyObject, Kind
from rayched.client import calls
from rayched.client.async_transport import AsyncTransport
from rayched.client.async_watch import AsyncWatchStream
from rayched.client.object_wait import WAIT_SECONDS, ObjectWait, Wanted, has_ended, has_run, is_gone, pod_or_gone
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import ScaleResponse


class AsyncWorkloadCalls:
    """See the module. `_transport` is the client's."""

    _transport: AsyncTransport

    async def scale(
        self,
        kind: str | Kind,
        name: str,
        namespace: str = "default",
        *,
        replicas: int,
        current_replicas: int | None = None,
        timeout_seconds: float | None = None,
    ) -> ScaleResponse:
        return await self._transport.do(calls.scale(kind, name, namespace, replicas, current_replicas), timeout_seconds)

    async def wait_for(
        self,
        kind: str | Kind,
        name: str,
        namespace: str = "default",
        *,
        until: Wanted,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> AnyObject | None:
        wait = ObjectWait(kind, name, namespace, until)
        async with AsyncWatchStream(
            self._transport,
            wait.request(),
            patience_seconds=min(timeout_seconds, WAIT_SECONDS),
            timeout_seconds=timeout_seconds,
            bookmarks=True,
        ) as events:
            async for event in events:
                wait.see(event)
                if wait.is_done:
                    return wait.current
        raise wait.too_late(timeout_seconds)

    async def wait_running(self, name: str, namespace: str = "default", *, timeout_seconds: float = WAIT_SECONDS) -> Pod:
        found = await self.wait_for(POD, name, namespace, until=has_run, timeout_seconds=timeout_seconds)
        return pod_or_gone(found, name, namespace)

    async def wait_ended(self, name: str, namespace: str = "default", *, timeout_seconds: float = WAIT_SECONDS) -> Pod:
        found = await self.wait_for(POD, name, namespace, until=has_ended, timeout_seconds=timeout_seconds)
        return pod_or_gone(found, name, namespace)

    async def wait_deleted(
        self, kind: str | Kind, name: str, namespace: str = "default", *, timeout_seconds: float = WAIT_SECONDS
    ) -> None:
        await self.wait_for(kind, name, namespace, until=is_gone, timeout_seconds=timeout_seconds)
