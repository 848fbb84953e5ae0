"""Calls that change stored objects; a part of Client."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from rayched.api.kinds import AnyObject, Kind, unwrap
from rayched.client import calls, edits
from rayched.client.errors import ApiError
from rayched.client.pinned import Steps
from rayched.client.transport import Transport
from rayched.v1.services_pb2 import ApplyResponse
from rayched.v1.workloads_pb2 import Object

R = TypeVar("R")
T = TypeVar("T", bound=AnyObject)


def followed(transport: Transport, steps: Steps[R], timeout_seconds: float | None) -> R:
    """Carries out the calls of a generator; the time is that of all of them."""
    clock = time.monotonic
    ends_at = clock() + (transport.patience.total_seconds if timeout_seconds is None else timeout_seconds)
    try:
        call = next(steps)
        while True:
            try:
                left = max(ends_at - clock(), 0.001)
                result = transport.do(call, left)
            except ApiError as error:
                call = steps.throw(error)
            else:
                call = steps.send(result)
    except StopIteration as done:
        found: R = done.value
        return found


class EditingCalls:
    """See the module. `_transport` is the client's."""

    _transport: Transport

    def create(self, item: T, *, dry_run: bool = False, timeout_seconds: float | None = None) -> T:
        """Creates one object; gives it as it is stored, of the same type. Raises ApiError."""
        response = self._transport.do(calls.submit(item, dry_run), timeout_seconds)
        stored = unwrap(response.object)
        assert isinstance(stored, type(item))
        return stored

    def update(self, item: AnyObject | Object, *, dry_run: bool = False, timeout_seconds: float | None = None) -> ApplyResponse:
        """Puts an object back that was read and changed: it becomes what is given, whole.

        With metadata.resource_version it is refused as ABORTED where somebody else has changed it since. NOT_FOUND: it is gone.
        """
        return self._transport.do(calls.update(item, dry_run), timeout_seconds)

    def patch(
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
        """Changes an object as a patch says: plain data of Kubernetes' JSON; `patch_type`: strategic, merge or json.

        Raises ValueError for a patch that does not fit, or after which it is no object.
        """
        edit = edits.patch_edit(patch, patch_type)
        steps = edits.edited(kind, name, namespace, edit, dry_run, repeatable=patch_type != "json")
        return followed(self._transport, steps, timeout_seconds)

    def annotate(
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
        """Sets and removes annotations. One that has another value is refused as FAILED_PRECONDITION without `overwrite`."""
        steps = edits.edited(kind, name, namespace, edits.annotation_edit(add, remove, overwrite), dry_run)
        return followed(self._transport, steps, timeout_seconds)
