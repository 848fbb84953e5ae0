"""A client with a certificate: real gRPC, files that change, calls and streams that go on."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from rayched.access.identity import IdentityKind
from rayched.client.async_client import AsyncClient
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.pki.client_credentials import ClientCertificate
from rayched.pki.directory import PkiDirectory
from rayched.pki.errors import PkiError
from rayched.pki.issuing import leaf_request
from rayched.pki.tls_files import TlsFiles
from rayched.server.peers import CertificateJudge, ServerTls
from rayched.server.ports import Leader
from rayched.server.server_options import ServerOptions
from tests.pki.made import CLIENT, SetClock, a_pair, an_authority
from tests.server.serving import Serving, serving, until

NO_ETCD = ("127.0.0.1:1",)


@pytest.fixture
def made(tmp_path: Path) -> PkiDirectory:
    return PkiDirectory.create(tmp_path / "pki")


@pytest.fixture
def clock() -> SetClock:
    return SetClock(time.time())


@pytest.fixture
def server(made: PkiDirectory, clock: SetClock) -> Iterator[Serving]:
    made.issue(leaf_request(made.trust_domain, IdentityKind.REPLICA, "replica-0"))
    tls = ServerTls.read(TlsFiles.within(made.path / "replica" / "replica-0"), made.deny_list, clock)
    with serving(ServerOptions("127.0.0.1:0", NO_ETCD, tls=tls), useful=False) as found:
        yield found


@pytest.fixture
def files(made: PkiDirectory) -> TlsFiles:
    return issue(made)


def issue(made: PkiDirectory) -> TlsFiles:
    """Alice's certificate, or a new one in its place."""
    return TlsFiles.within(Path(made.issue(leaf_request(made.trust_domain, IdentityKind.USER, "alice")).directory))


@pytest.fixture
def serials(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of the certificates that calls came with, in order."""
    found: list[int] = []
    admit = CertificateJudge.admit

    def noted(judge: CertificateJudge, context: Any) -> Any:
        peer = admit(judge, context)
        assert peer is not None
        found.append(peer.certificate.serial)
        return peer

    monkeypatch.setattr(CertificateJudge, "admit", noted)
    return found


def serial_in(made: PkiDirectory) -> int:
    return int(made.issued()[-1].serial, 16)


def test_calls_carry_the_certificate_and_a_new_one_once_it_is_there(
    server: Serving, made: PkiDirectory, files: TlsFiles, serials: list[int]
) -> None:
    with Client([server.address], tls=files) as client:
        client.leader()
        first = serial_in(made)
        issue(made)
        second = serial_in(made)
        until(lambda: client.leader() is not None and serials[-1] == second)
    assert set(serials) == {first, second}
    assert serials == sorted(serials, key=[first, second].index), "never the old one again"


@pytest.mark.row("B27")
def test_no_call_fails_while_files_are_replaced(server: Serving, made: PkiDirectory, files: TlsFiles, serials: list[int]) -> None:
    """Seen from the client, with calls from several threads all the while."""
    stop, failures = threading.Event(), []
    with Client([server.address], tls=files) as client:

        def call() -> None:
            # Three of them stay below the calls that one identity may make in a second.
            while not stop.wait(0.05):
                try:
                    client.leader(timeout_seconds=0.5)
                except ApiError as error:
                    failures.append(error)

        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                issue(made)
                wanted = serial_in(made)
                until(lambda wanted=wanted: wanted in serials)  # type: ignore[misc]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert failures == []
    assert len(set(serials)) >= 4


def test_a_replaced_channel_is_closed_when_its_stream_is_over(server: Serving, made: PkiDirectory, files: TlsFiles) -> None:
    with Client([server.address], tls=files) as client:
        stream = client.watch_leader()
        next(stream)
        channels = client._transport._channels
        old = channels.channel(server.address)
        issue(made)
        until(lambda: client.leader() is not None and channels.channel(server.address) is not old)
        client.leader()
        assert channels._replaced == [old], "it has a stream"
        server.leadership.set(Leader("somebody", "127.0.0.1:1", 1))
        assert next(stream).holder == "somebody", "which goes on"
        stream.close()
        until(lambda: client.leader() is not None and not channels._replaced)
        with pytest.raises(ValueError, match="closed"):
            old.channel.unary_unary("/x/y")(b"")


def test_a_stream_goes_on_with_the_new_certificate_when_the_old_one_ends(
    server: Serving, made: PkiDirectory, files: TlsFiles, serials: list[int]
) -> None:
    with Client([server.address], tls=files) as client:
        stream = client.watch_leader()
        next(stream)
        [record] = [one for one in made.issued() if one.uri.endswith("alice")]
        issue(made)
        made.revoke(record.serial)
        with ThreadPoolExecutor(1) as reader:
            found = reader.submit(next, stream)
            until(lambda: serials[-1] == serial_in(made))
            server.leadership.set(Leader("somebody", "127.0.0.1:1", 1))
            assert found.result(10.0).holder == "somebody"
        assert serials == [int(record.serial, 16), serial_in(made)], "the stream was opened twice"
        stream.close()


def test_a_stream_ends_when_there_is_no_new_certificate(server: Serving, made: PkiDirectory, files: TlsFiles) -> None:
    with Client([server.address], tls=files) as client:
        stream = client.watch_leader()
        next(stream)
        made.revoke(f"spiffe://{made.trust_domain}/user/alice")
        with pytest.raises(ApiError, match="alice is revoked") as raised:
            next(stream)
        assert raised.value.code is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(ApiError, match="alice is revoked"):
            client.leader()


def test_the_asynchronous_client_has_the_same_ways(
    server: Serving, made: PkiDirectory, files: TlsFiles, serials: list[int]
) -> None:
    async def use() -> None:
        async with AsyncClient([server.address], tls=files) as client:
            await client.leader()
            issue(made)
            second = serial_in(made)
            async with asyncio.timeout(5.0):
                while serials[-1] != second:
                    await client.leader()
                    await asyncio.sleep(0.05)
                while client._transport._channels._replaced:
                    await client.leader()

    asyncio.run(use())


@pytest.mark.row("B28")
def test_files_that_do_not_fit_change_nothing(made: PkiDirectory, files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    """Of a caller."""
    clock = SetClock(0.0)
    certificate = ClientCertificate(files, clock)
    before, key = certificate.credentials(), files.key.read_bytes()
    other = a_pair(an_authority(), ["spiffe://rayched-0a1b2c3d/user/alice"], [CLIENT])
    caplog.set_level(logging.ERROR)
    files.key.write_bytes(other.key)
    for _ in range(3):
        clock.now += 1.0
        assert certificate.version() == 0
    assert certificate.credentials() is before
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and str(files.key) in told[0] and "stays" in told[0]
    files.key.write_bytes(key)
    clock.now += 0.5
    assert certificate.version() == 0, "not yet looked at"
    clock.now += 0.5
    assert certificate.version() == 1


def test_what_cannot_be_read_at_the_start_is_refused(files: TlsFiles) -> None:
    files.key.chmod(0o640)
    with pytest.raises(PkiError, match=rf"{files.key}: has mode 0640, .*chmod 600"):
        ClientCertificate(files)
    with pytest.raises(ValueError, match=rf"{files.key}: has mode 0640, .*chmod 600"):
        Client(["127.0.0.1:1"], tls=files)
