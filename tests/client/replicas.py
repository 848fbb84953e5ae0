"""Replicas' APIs as processes of their own, which tests may kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rayched.replica.etcd.etcd_server import EtcdServer

REPLICA = """
import asyncio, sys
from rayched.server.app import ApiServer
from rayched.server.server_options import ServerOptions
from rayched.server.ports import NotLeading
from rayched.store.keys import Keys

class Nobody:
    identity, leads = "replica", False
    def leader(self):
        return None
    async def changes(self):
        yield None
        await asyncio.Event().wait()
    async def status(self):
        raise NotLeading

async def main():
    server = ApiServer(ServerOptions("127.0.0.1:0", [sys.argv[1]], Keys(sys.argv[2])), Nobody(), Nobody())
    await server.start()
    print(server.address, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Process:
    """A replica's API in a process of its own."""

    def __init__(self, etcd: EtcdServer, root: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", REPLICA, etcd.endpoint, root], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        with grpc.insecure_channel(self.address) as channel:
            request = health_pb2.HealthCheckRequest(service="rayched.v1.Watch")
            for response in health_pb2_grpc.HealthStub(channel).Watch(request, timeout=10):
                if response.status == health_pb2.HealthCheckResponse.SERVING:
                    break

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.wait(5)
