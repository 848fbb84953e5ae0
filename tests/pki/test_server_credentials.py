"""What a port is given for its handshakes: each configuration once, and many handshakes at a time do no harm."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rayched.pki.server_credentials import ServerCertificate, _Offer
from tests.pki.made import a_pair, an_authority

HANDSHAKES = 600
AT_ONCE = 16


def test_a_port_is_given_a_configuration_once_and_each_port_for_itself(tmp_path: Path) -> None:
    authority = an_authority()
    files = a_pair(authority).write(tmp_path / "tls")
    certificate = ServerCertificate(files)
    first, second = (_Offer(certificate, certificate.in_force()) for _ in range(2))
    assert [first.fetch() for _ in range(3)] == [None] * 3
    before = certificate.in_force()
    a_pair(authority).write(tmp_path / "tls")
    assert first.fetch() is certificate.in_force() is not before
    assert first.fetch() is None
    assert second.fetch() is certificate.in_force() and second.fetch() is None
    third = _Offer(certificate, certificate.in_force())
    assert third.fetch() is None


@pytest.mark.cluster
def test_a_server_lives_through_many_handshakes_at_a_time(tmp_path: Path) -> None:
    a_pair(an_authority()).write(tmp_path / "tls")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.pki.tls_server", str(tmp_path / "tls")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None
    try:
        port = int(server.stdout.readline())
        context = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.crt"))
        context.check_hostname = False
        context.set_alpn_protocols(["h2"])

        def shake(_: int) -> str | None:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
                context.wrap_socket(connection) as secured,
            ):
                return secured.selected_alpn_protocol()

        with ThreadPoolExecutor(AT_ONCE) as pool:
            assert list(pool.map(shake, range(HANDSHAKES))) == ["h2"] * HANDSHAKES
        assert server.poll() is None
    finally:
        _, said = server.communicate("", timeout=60)
    assert server.returncode == 0, said
