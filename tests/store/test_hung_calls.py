"""Calls to an etcd that hangs, or to something that is none: each ends in time, says so, and the next one is not harmed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from leader.channel import open_aio_channel, open_channel
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.calls import Deadlines
from rayched.store.errors import StoreUnavailable
from rayched.store.io.async_client import AsyncStoreClient
from rayched.store.io.client import StoreClient
from rayched.store.quota import quota_of
from tests.etcd_fixture import hang

pytestmark = pytest.mark.cluster

SHORT = Deadlines(read_seconds=0.5, write_seconds=0.5, patience_seconds=0.5)
QUOTA = 64 << 20


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path / "data", unsafe_no_fsync=True, quota_bytes=QUOTA) as server:
        yield server
        if server.pid is not None:
            os.kill(server.pid, signal.SIGCONT)


def test_renewals_of_a_hung_etcd_fail_in_time_and_go_on_over_another_stream(own_etcd: EtcdServer) -> None:
    with open_channel([own_etcd.endpoint]) as channel:
        client = StoreClient(channel, SHORT)
        lease = client.grant_lease(600)
        renewals = client.keep_alives()
        assert renewals.renew([lease.id]) == {lease.id: 600}
        assert own_etcd.pid is not None
        hang(own_etcd.pid)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            renewals.renew([lease.id])
        assert time.monotonic() - began < 10
        os.kill(own_etcd.pid, signal.SIGCONT)
        assert StoreClient(channel).keep_alives().renew([lease.id]) == {lease.id: 600}
        # An answer that came too late is not taken for that of another lease.
        assert renewals.renew([4711]) == {4711: 0}
        renewals.close()


def test_renewals_of_a_hung_etcd_fail_in_time_on_a_loop_too(own_etcd: EtcdServer) -> None:
    async def work() -> None:
        async with open_aio_channel([own_etcd.endpoint]) as channel:
            client = AsyncStoreClient(channel, SHORT)
            lease = await client.grant_lease(600)
            renewals = client.keep_alives()
            assert await renewals.renew([lease.id]) == {lease.id: 600}
            assert own_etcd.pid is not None
            hang(own_etcd.pid)
            with pytest.raises(StoreUnavailable, match=r"no answer to lease renewals within 0\.5 s"):
                await renewals.renew([lease.id])
            cancelled = asyncio.create_task(renewals.renew([lease.id]))
            await asyncio.sleep(0.05)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            os.kill(own_etcd.pid, signal.SIGCONT)
            assert await AsyncStoreClient(channel).keep_alives().renew([lease.id]) == {lease.id: 600}
            assert await renewals.renew([4711]) == {4711: 0}
            renewals.close()

    asyncio.run(work())


def test_an_etcd_tells_its_quota(own_etcd: EtcdServer, tmp_path: Path) -> None:
    assert quota_of(own_etcd.endpoint) == QUOTA
    with EtcdServer(tmp_path / "other", 0, unsafe_no_fsync=True, quota_bytes=QUOTA) as at_a_port:
        for address in ("{}", "http://{}", "http://{}/"):
            assert quota_of(address.format(at_a_port.endpoint)) == QUOTA


@pytest.mark.parametrize(
    ("answer", "quota"),
    [
        (b"etcd_server_quota_backend_bytes 1.5e+06\nother 3\n", 1_500_000),
        (b"# etcd_server_quota_backend_bytes 7\nother 3\n", 0),
        (b"etcd_server_quota_backend_bytes -1\n", 0),
        (b"etcd_server_quota_backend_bytes many\n", 0),
        (b"", 0),
    ],
)
def test_a_server_that_does_not_tell_a_quota_has_none(answer: bytes, quota: int) -> None:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(answer if self.path == "/metrics" else b"")

        def log_message(self, format: str, *arguments: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert quota_of(f"127.0.0.1:{server.server_port}") == quota
        thread.join()


def test_where_nobody_listens_there_is_no_quota() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert quota_of(f"127.0.0.1:{unused.getsockname()[1]}") == 0
