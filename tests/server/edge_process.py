"""A server in a process of its own: prints its port. Of `late` and `early` every call is refused; `late` puts methods behind the
edge, `early` as gRPC's own unary handlers, which read first. `watch` serves watches of eight large pods."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import grpc.aio

from rayched.access.authorizing import Authorizer
from rayched.access.binding_table import BindingTable
from rayched.server.admission.write_gate import WriteGate
from rayched.server.call_guard import CallGuard, insecure_guard
from rayched.server.edge.edge import Edge, EdgePorts
from rayched.server.edge.grpc_options import server_options
from rayched.server.edge.limits import EdgeLimits
from rayched.server.rpc import handler_of
from rayched.server.services.watch_service import WatchLimits
from tests.server.edge_server import SUBMISSION, WATCH, SmallService
from tests.server.followed_cluster import Followed


def guard_of_nobody() -> CallGuard:
    """Nobody has a role."""
    table = BindingTable(())
    table.listed({})
    return CallGuard(Authorizer(table))


def _edge(limits: EdgeLimits, guard: CallGuard) -> Edge:
    return Edge(limits, EdgePorts(guard.identify, guard.authorize))


async def refuse_early(_: bytes, context: Any) -> None:
    # As long as a look at who it is may take.
    await asyncio.sleep(0.2)
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "nobody gets in")


async def main() -> None:
    limits = EdgeLimits()
    server = grpc.aio.server(options=server_options(limits))
    if sys.argv[1] == "watch":
        guard = insecure_guard()
        handler = handler_of(WATCH, Followed(WatchLimits())(), WriteGate(), _edge(limits, guard), guard)
    elif sys.argv[1] == "late":
        guard = guard_of_nobody()
        handler = handler_of(SUBMISSION, SmallService(), WriteGate(), _edge(limits, guard), guard)
    else:
        table = {"Submit": grpc.unary_unary_rpc_method_handler(refuse_early)}
        handler = grpc.method_handlers_generic_handler(SUBMISSION.full_name, table)
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
