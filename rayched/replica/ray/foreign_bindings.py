"""Bindings of other schedulers, between the API's messages and the scheduler's values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import grpc

from rayched.core.writes.foreign_bindings import BindingEnd, ForeignBinding, ForeignBindingAnswer
from rayched.server.ports import BindingRefused
from rayched.v1.services_pb2 import BindRequest, BindResponse

_CODES: Final[Mapping[BindingEnd, grpc.StatusCode]] = {
    BindingEnd.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    BindingEnd.CONFLICT: grpc.StatusCode.ABORTED,
    BindingEnd.REFUSED: grpc.StatusCode.FAILED_PRECONDITION,
    BindingEnd.TOO_MANY: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def wanted_binding(request: BindRequest) -> ForeignBinding:
    return ForeignBinding(f"{request.namespace or 'default'}/{request.name}", request.uid, request.node)


def binding_response(answer: ForeignBindingAnswer) -> BindResponse:
    """Raises BindingRefused."""
    if answer.end is BindingEnd.BOUND:
        return BindResponse(uid=answer.uid, revision=answer.revision)
    raise BindingRefused(_CODES[answer.end], answer.message)
