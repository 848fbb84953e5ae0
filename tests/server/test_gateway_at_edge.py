"""A gateway before the edge, with real gRPC: what one of its users does is not held against the others of its connection."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from rayched.access.authorizing import Authorizer
from rayched.access.identity import Identity, IdentityKind
from rayched.api.identity import FOR_METADATA
from rayched.server.call_guard import CallGuard
from rayched.v1 import services_pb2 as messages
from rayched.v1.services_pb2_grpc import WatchStub
from tests.server.edge_server import edge_serving, guard_of_shown, identity_shown, of_each
from tests.server.serving import until
from tests.server.test_edge import GET, failure
from tests.server.test_revocations import a_revocation

GATEWAY = Identity("edge-test", IdentityKind.WEB, "gateway")


def gateway_guard() -> CallGuard:
    """Each caller is the gateway, whose users are administrators."""
    return CallGuard(Authorizer(guard_of_shown().authorizer.table), lambda context: GATEWAY)


def asking_for(name: str) -> tuple[tuple[str, str], ...]:
    return ((FOR_METADATA, identity_shown(name).uri),)


@pytest.mark.row("KC28")
def test_a_refused_user_is_no_wrong_credential_of_the_gateway() -> None:
    guard = gateway_guard()
    guard.revoked.listed(dict([a_revocation(identity=identity_shown("a").uri)]))
    with edge_serving(of_each(wrong_credentials=20.0), guard) as server:
        for _ in range(25):
            error = failure(server.submission.Get, GET, metadata=asking_for("a"))
            assert error.code is grpc.StatusCode.UNAUTHENTICATED and "is refused by an administrator" in error.message
        assert server.submission.Get(GET, timeout=10, metadata=asking_for("b")) == messages.GetResponse()
        assert server.rejected() == {} and server.service.begun == ["web"]
        until(server.is_idle)


@pytest.mark.row("KC28")
def test_one_user_does_not_take_all_streams_of_a_gateways_connection() -> None:
    with edge_serving(of_each(streams_a_connection=2), gateway_guard()) as server:
        server.hold()
        stub = WatchStub(server.channel)  # type: ignore[no-untyped-call]

        def watch(name: str) -> Any:
            found = stub.Watch(messages.WatchRequest(), metadata=asking_for(name))
            assert next(found).revision == 1
            return found

        watches = [watch("a"), watch("a")]
        error = failure(stub.Watch, messages.WatchRequest(), metadata=asking_for("a"))
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.message.startswith(f"a connection of {identity_shown('a').uri} has 2 streams open")
        watches += [watch("b"), watch("b")]
        for one in watches:
            one.cancel()
        until(server.is_idle)
