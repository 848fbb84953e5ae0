"""Health of each service, pushed to whoever watches grpc.health.v1.

| service | SERVING |
|---|---|
| "" | while the process is live |
| Scheduling | while this replica holds the epoch |
| all others | once this replica has read the cluster's state; a standby too |

An outage of etcd changes none of these: all replicas would fail at once, and calls say UNAVAILABLE by themselves. Only a feed
that ended by a bug takes Watch and Submission off, and the replica ends. At the shutdown all become NOT_SERVING before anything
else happens.
"""

from __future__ import annotations

from typing import Any, Final

from grpc_health.v1 import health, health_pb2

from rayched.api.services import DESCRIPTORS

SERVICES: Final = {name: service.full_name for name, service in DESCRIPTORS.items()}
LEADERS_OWN: Final = "Scheduling"
_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self.servicer: Any = health.aio.HealthServicer()

    async def starting(self) -> None:
        """Live, not yet synced."""
        await self._set("", True)
        for name in SERVICES:
            await self._set(name, False)

    async def synced(self, leads: bool) -> None:
        for name in SERVICES:
            await self._set(name, leads if name == LEADERS_OWN else True)

    async def leading(self, leads: bool) -> None:
        await self._set(LEADERS_OWN, leads)

    async def blind(self) -> None:
        """The hub is no longer fed."""
        for name in ("Submission", "Watch"):
            await self._set(name, False)

    async def shutting_down(self) -> None:
        await self.servicer.enter_graceful_shutdown()

    async def _set(self, name: str, serving: bool) -> None:
        await self.servicer.set(SERVICES.get(name, name), _SERVING if serving else _NOT_SERVING)
