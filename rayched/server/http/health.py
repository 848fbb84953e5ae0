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

import asyncio
from typing import Final

from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse

from rayched.api.errors import quoted
from rayched.api.services import DESCRIPTORS
from rayched.server.errors import not_found
from rayched.server.rpc import Call

HEALTH: Final[ServiceDescriptor] = health_pb2.DESCRIPTOR.services_by_name["Health"]
SERVICES: Final = {name: service.full_name for name, service in DESCRIPTORS.items()}
LEADERS_OWN: Final = "Scheduling"
_SERVING: Final = HealthCheckResponse.SERVING
_NOT_SERVING: Final = HealthCheckResponse.NOT_SERVING


class Health:
    """The service grpc.health.v1.Health, and who tells it what to say. Owned by the event loop."""

    def __init__(self) -> None:
        self._states: dict[str, HealthCheckResponse.ServingStatus] = {}
        self._changed = asyncio.Event()
        self._is_over = False

    # ---- the service

    async def check(self, request: HealthCheckRequest, _: Call) -> HealthCheckResponse:
        if request.service not in self._states:
            raise not_found(f"service {quoted(request.service)}")
        return HealthCheckResponse(status=self._states[request.service])

    async def list(self, _: HealthListRequest, __: Call) -> HealthListResponse:
        return HealthListResponse(statuses={name: HealthCheckResponse(status=state) for name, state in self._states.items()})

    async def watch(self, request: HealthCheckRequest, call: Call) -> None:
        told: HealthCheckResponse.ServingStatus | None = None
        while True:
            changed = self._changed
            state = self._states.get(request.service, HealthCheckResponse.SERVICE_UNKNOWN)
            if state != told:
                told = state
                await call.write(HealthCheckResponse(status=state))
            else:
                await changed.wait()

    # ---- what it says

    def starting(self) -> None:
        """Live, not yet synced."""
        self._set(dict.fromkeys(SERVICES, False) | {"": True})

    def synced(self, leads: bool) -> None:
        self._set({name: leads if name == LEADERS_OWN else True for name in SERVICES})

    def leading(self, leads: bool) -> None:
        self._set({LEADERS_OWN: leads})

    def blind(self) -> None:
        """The hub is no longer fed."""
        self._set({"Submission": False, "Watch": False})

    def shutting_down(self) -> None:
        """For good."""
        self._set(dict.fromkeys(("", *SERVICES), False))
        self._is_over = True

    def _set(self, states: dict[str, bool]) -> None:
        if self._is_over:
            return
        for name, serving in states.items():
            self._states[SERVICES.get(name, name)] = _SERVING if serving else _NOT_SERVING
        self._changed.set()
        self._changed = asyncio.Event()
