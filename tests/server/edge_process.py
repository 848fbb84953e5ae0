"""A server in a process of its own: prints its port. Of `late` and `early` every call is refused; `late` puts methods behind the
edge, `early` as gRPC's own unary handlers, which read first. `watch` serves watches of eight large pods."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import grpc.aio

from rayched.server.admission.write_gate import WriteGate
from rayched.server.edge.caller import Caller
from rayched.server.edge.edge import Edge, EdgePorts
from rayched.server.edge.grpc_options import server_options
from rayched.server.edge.limits import EdgeLimits
from rayched.server.errors import denied
from rayched.server.rpc import handler_of
from rayched.server.services.watch_service import WatchLimits
from tests.server.edge_server import SUBMISSION, WATCH, SmallService
from tests.server.followed_cluster import Followed


def refuse(caller: Caller, call: str) -> None:
    raise denied(caller.key, call, "nobody gets in")


async def refuse_early(_: bytes, context: Any) -> None:
    # As long as a look at who it is may take.
    await asyncio.sleep(0.2)
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "nobody gets in")


async def main() -> None:
    limits = EdgeLimits()
    server = grpc.aio.server(options=server_options(limits))
    if sys.argv[1] == "watch":
        handler = handler_of(WATCH, Followed(WatchLimits())(), WriteGate(), Edge(limits))
    elif sys.argv[1] == "late":
        handler = handler_of(SUBMISSION, SmallService(), WriteGate(), Edge(limits, EdgePorts(authorize=refuse)))
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
