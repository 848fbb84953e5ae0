"""Calls that change stored objects; a part of AsyncClient. For the rules see EditingCalls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from rayched.api.kinds import AnyObject, Kind, unwrap
from rayched.client import calls, edits
from rayched.client.async_transport import AsyncTransport
from rayched.client.errors import ApiError
from rayched.client.pinned import Steps
from rayched.v1.services_pb2 import ApplyResponse
from rayched.v1.workloads_pb2 import Object

R = TypeVar("R")
T = TypeVar("T", bound=AnyObject)


async def async_followed(transport: AsyncTransport, steps: Steps[R], timeout_seconds: float | None) -> R:
    """Carries out the calls of a generator; the time is that of all of them."""
    clock = asyncio.get_running_loop().time
    ends_at = clock() + (transport.patience.total_seconds if timeout_seconds is None else timeout_seconds)
    try:
        call = next(steps)
        while True:
            try:
                left = max(ends_at - clock(), 0.001)
                result = await transport.do(call, left)
            except ApiError as error:
                call = steps.throw(error)
            else:
                call = steps.send(result)
    except StopIteration as done:
        found: R = done.value
        return found


class AsyncEditingCalls:
    """See the module. `_transport` is the client's."""

    _transport: AsyncTransport

    async def create(self, item: T, *, dry_run: bool = False, timeout_seconds: float | None = None) -> T:
        response = await self._transport.do(calls.submit(item, dry_run), timeout_seconds)
        stored = unwrap(response.object)
        assert isinstance(stored, type(item))
        return stored

    async def update(
        self, item: AnyObject | Object, *, dry_run: bool = False, timeout_seconds: float | None = None
    ) -> ApplyResponse:
        return await self._transport.do(calls.update(item, dry_run), timeout_seconds)

    async def patch(
        self,
        kind: str | Kind,
        name: str,
        namespace: str = "default",
        *,
        patch: Any,
        patch_type: str = "strategic",
        dry_run: bool = False,
        timeout_seconds: float | None = None,
    ) -> ApplyResponse:
        edit = edits.patch_edit(patch, patch_type)
        steps = edits.edited(kind, name, namespace, edit, dry_run, repeatable=patch_type != "json")
        return await async_followed(self._transport, steps, timeout_seconds)

    async def annotate(
        self,
        kind: str | Kind,
        name: str,
        namespace: str = "default",
        *,
        add: Mapping[str, str] | None = None,
        remove: Iterable[str] = (),
        overwrite: bool = False,
        dry_run: bool = False,
        timeout_seconds: float | None = None,
    ) -> ApplyResponse:
        steps = edits.edited(kind, name, namespace, edits.annotation_edit(add, remove, overwrite), dry_run)
        return await async_followed(self._transport, steps, timeout_seconds)
