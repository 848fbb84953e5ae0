"""What a front for others' clients asks of replicas beside what an AsyncClient asks: single pages, single connections to
ports, and in its users' names."""

from __future__ import annotations

import copy

from rayched.api.kinds import Kind
from rayched.client.async_client import AsyncClient
from rayched.client.async_two_way import AsyncPortStream
from rayched.client.calls import list_request
from rayched.client.proving import StreamProof
from rayched.v1.services_pb2 import ListResponse
from rayched.v1.streams_pb2 import PortForwardStart


class AsyncGatewayClient(AsyncClient):
    """An AsyncClient that hands pages and tokens through."""

    def asking_for(self, uri: str, serial: str) -> AsyncGatewayClient:
        """The same connections for calls in the name of a user, who is judged in its place. The URI of an identity, and the
        serial number of the certificate that it has shown, hexadecimal."""
        found = copy.copy(self)
        found._transport = self._transport.asking_for(uri, serial)
        return found

    def asking_with(self, token: str) -> AsyncGatewayClient:
        """The same connections for calls in the name of whoever this bearer token stands for."""
        found = copy.copy(self)
        found._transport = self._transport.asking_with(token)
        return found

    async def list_page(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        token: str = "",
        revision: int = 0,
    ) -> ListResponse:
        """One page; `token` is the `continue` of the page before it."""
        request = list_request(kind, namespace, label_selector, field_selector, limit, revision)
        setattr(request, "continue", token)
        found: ListResponse = await self._transport.call("Submission.List", request)
        return found

    def port_stream(self, name: str, port: int, namespace: str, *, token: str = "") -> AsyncPortStream:
        """One connection to a port of a pod; it begins with `async with`. `token`: of the pod's node, proved and never sent."""
        start = PortForwardStart(namespace=namespace, pod=name, port=port)
        return AsyncPortStream(self._transport, StreamProof(token, start))
