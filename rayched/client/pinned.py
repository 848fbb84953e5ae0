"""Calls that end an object, and nobody else's: delete and evict, bound to the uid of the object that they first saw. Pure.

A call whose answer was lost is made again, and by then its object may be gone and another one have its name: what a StatefulSet's
controller makes, above all. So the uid is looked up before the first attempt, where the caller has given none, and each attempt
carries it. When the object is gone, or another one, after an attempt that may have ended it, the response is empty: it is done,
and nobody knows by whom.

Each function is a generator of calls, which gets their results, or has their ApiErrors thrown in, and returns the response. The
synchronous and the asynchronous client carry it out in their own way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import grpc

from rayched.api.kinds import POD, AnyObject, Kind
from rayched.client import calls
from rayched.client.calls import UnaryCall
from rayched.client.errors import ApiError
from rayched.v1.services_pb2 import DeleteResponse, EvictResponse

R = TypeVar("R")
Steps = Generator[UnaryCall[Any], Any, R]


def delete(kind: str | Kind, name: str, namespace: str, uid: str, grace_period_seconds: int | None) -> Steps[DeleteResponse]:
    """Deletes one object."""

    def ask(pinned: str) -> UnaryCall[DeleteResponse]:
        return calls.delete(kind, name, namespace, pinned, grace_period_seconds)

    return _pinned(calls.get(kind, name, namespace), uid, ask, DeleteResponse)


def evict(
    name: str, namespace: str, uid: str, resource_version: str, grace_period_seconds: int | None, dry_run: bool
) -> Steps[EvictResponse]:
    """Evicts one pod."""

    def ask(pinned: str) -> UnaryCall[EvictResponse]:
        return calls.evict(name, namespace, pinned, resource_version, grace_period_seconds, dry_run)

    return _pinned(calls.get(POD, name, namespace), uid, ask, EvictResponse)


def _pinned(look: UnaryCall[AnyObject], uid: str, ask: Callable[[str], UnaryCall[R]], nothing: Callable[[], R]) -> Steps[R]:
    while True:
        pinned = uid or (yield look).metadata.uid
        try:
            answer: R = yield ask(pinned)
            return answer
        except ApiError as error:
            if error.code is grpc.StatusCode.NOT_FOUND and error.may_have_been_done:
                return nothing()
            if error.code is not grpc.StatusCode.ABORTED:
                raise
            failure = error
        # Either the name is another one's by now, or others keep changing the object.
        present = yield from _present(look)
        is_ending = present is not None and present.metadata.HasField("deletion_timestamp")
        if present is not None and present.metadata.uid == pinned and not (failure.may_have_been_done and is_ending):
            raise failure
        if failure.may_have_been_done:
            return nothing()
        if uid:
            raise failure


def _present(look: UnaryCall[AnyObject]) -> Steps[AnyObject | None]:
    try:
        found: AnyObject = yield look
    except ApiError as error:
        if error.code is not grpc.StatusCode.NOT_FOUND:
            raise
        return None
    return found
