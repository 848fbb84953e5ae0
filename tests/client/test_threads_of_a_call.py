"""Who waits for an answer reads it: no thread of gRPC's own is woken for a call (docs/adr/0009)."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.patience import least

CALLS = 200
PROGRAM = f"""
import asyncio, threading
from pathlib import Path
import rayched
import grpc, grpc.aio

def switches():
    \"\"\"How often threads of gRPC's event engine gave up the processor.\"\"\"
    found = 0
    for task in Path("/proc/self/task").iterdir():
        if task.joinpath("comm").read_text().strip() == "event_engine":
            lines = task.joinpath("status").read_text().splitlines()
            found += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
    return found

async def echo(request, context):
    return request

async def serve(port, started, over):
    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler("s", {{"Echo": grpc.unary_unary_rpc_method_handler(echo)}})
    server.add_generic_rpc_handlers((handler,))
    port.append(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    started.set()
    await asyncio.to_thread(over.wait)
    await server.stop(0)

port, started, over = [], threading.Event(), threading.Event()
thread = threading.Thread(target=lambda: asyncio.run(serve(port, started, over)))
thread.start()
started.wait()
with grpc.insecure_channel(f"127.0.0.1:{{port[0]}}") as channel:
    echo_call = channel.unary_unary("/s/Echo")
    echo_call(b"connected")
    before = switches()
    for _ in range({CALLS}):
        assert echo_call(b"x" * 600) == b"x" * 600
    print(switches() - before)
over.set()
thread.join()
"""


RETRIES = """
import sys, time
import rayched
import grpc
from leader.channel import open_channel
from rayched.replica.cluster.free_ports import free_port

port = free_port()
with open_channel([f"127.0.0.1:{port}"]) as channel:
    call = channel.unary_unary("/s/Echo")

    def answered():
        try:
            call(b"", timeout=1.0)
        except grpc.RpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED

    assert not answered()
    from concurrent.futures import ThreadPoolExecutor
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    began = time.monotonic()
    while not answered():
        time.sleep(0.01)
    print(time.monotonic() - began)
    server.stop(None)
"""


def switches_of_the_event_engine(**environment: str) -> int:
    own = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    run = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(run, env=own | environment, capture_output=True, text=True, timeout=60, check=True)
    return int(done.stdout)


def test_no_thread_of_grpcs_own_is_woken_for_a_call() -> None:
    without = switches_of_the_event_engine()
    # Its timers wake it now and then; where gRPC is left to itself, each call does, several times.
    ordinarily = switches_of_the_event_engine(GRPC_EXPERIMENTS="-no_such_experiment")
    assert ordinarily > CALLS and without < ordinarily / 4


def test_a_server_that_comes_late_is_found_by_calls_that_fail_at_once() -> None:
    def seconds() -> float:
        done = subprocess.run([sys.executable, "-c", RETRIES], capture_output=True, text=True, timeout=60, check=True)
        return float(done.stdout)

    # gRPC itself looks after a connection that nobody waits for every 5 s.
    assert least(seconds, 4.0) < 4.0
