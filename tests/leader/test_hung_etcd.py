"""An etcd that hangs without closing its connections is noticed by a stream that has been silent for long."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.replica.etcd.etcd_server import EtcdServer

SILENT_SECONDS = 20.0
"""gRPC's own limit of pings without data is reached after twelve."""
NOTICED_SECONDS_MAX = 10.0
"""A ping every 6 s, and 2 s for its answer; and a busy machine."""


@pytest.mark.cluster
@pytest.mark.slow
def test_a_silent_watch_ends_when_its_etcd_hangs(tmp_path: Path) -> None:
    with EtcdServer(tmp_path / "etcd", unsafe_no_fsync=True) as etcd, open_channel([etcd.endpoint]) as channel:
        requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        requests.put(rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=b"nothing")))
        call = rpc.WatchStub(channel).Watch(iter(requests.get, None))
        assert next(call).created
        ended = threading.Event()

        def read() -> None:
            try:
                next(call)
            except grpc.RpcError:
                ended.set()

        threading.Thread(target=read, daemon=True).start()
        time.sleep(SILENT_SECONDS)
        assert not ended.is_set()
        assert etcd.pid is not None
        os.kill(etcd.pid, signal.SIGSTOP)
        try:
            assert ended.wait(NOTICED_SECONDS_MAX)
        finally:
            os.kill(etcd.pid, signal.SIGCONT)
            requests.put(None)
            call.cancel()
