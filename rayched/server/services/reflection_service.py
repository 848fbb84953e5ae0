"""The service grpc.reflection.v1alpha.ServerReflection: what the API consists of, for grpcurl and the like."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from grpc_reflection.v1alpha import reflection, reflection_pb2

from rayched.server.rpc import Call

REFLECTION: Final = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]


class ReflectionService:
    """gRPC's own answers, behind this server's edge."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names`: full ones of services."""
        self._servicer: Any = reflection.aio.ReflectionServicer(names)

    async def server_reflection_info(self, call: Call) -> None:
        async def requests() -> AsyncIterator[Any]:
            while (request := await call.read()) is not None:
                yield request

        async for answer in self._servicer.ServerReflectionInfo(requests(), None):
            await call.write(answer)
