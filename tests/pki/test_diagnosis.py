"""The caller says why there is no connection, and what to do, in one line."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rayched.pki.authority import Authority
from rayched.pki.diagnosis import own_fault, server_fault
from rayched.pki.tls_files import TlsFiles
from rayched.server.peers import ServerTls
from rayched.server.server_options import ServerOptions
from tests.pki.made import BOTH, CLIENT, SERVER, TRUST_DOMAIN, Pair, a_pair, an_authority
from tests.server.serving import Serving, serving

ALICE, REPLICA = (f"spiffe://{TRUST_DOMAIN}/{path}" for path in ("user/alice", "replica/replica-0"))
NO_ETCD = ("127.0.0.1:1",)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return an_authority()


@pytest.fixture(scope="module")
def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    files = a_pair(authority, [REPLICA]).write(tmp_path_factory.mktemp("replica"))
    with serving(ServerOptions("127.0.0.1:0", NO_ETCD, tls=ServerTls.read(files, None)), useful=False) as found:
        yield found


OWN: dict[str, tuple[Callable[[Authority], Pair], str]] = {
    "of another authority": (
        lambda mine: a_pair(an_authority(), [ALICE], [CLIENT], trusts=mine),
        "is signed by none of the authorities in",
    ),
    "expired": (lambda mine: a_pair(mine, [ALICE], [CLIENT], begins=-999.0, ends=-60.0), "has expired, at 2"),
    "not yet valid": (lambda mine: a_pair(mine, [ALICE], [CLIENT], begins=60.0), "is not valid before 2"),
    "for servers alone": (lambda mine: a_pair(mine, [ALICE], [SERVER]), "is not for callers (no clientAuth"),
    "without a use": (lambda mine: a_pair(mine, [ALICE], []), "is not for callers (no clientAuth"),
    "with two URIs": (lambda mine: a_pair(mine, [ALICE, REPLICA], [CLIENT]), "has 2 URIs among its names"),
    "an authority's": (lambda mine: a_pair(mine, [ALICE], BOTH, is_authority=True), "is that of a certificate authority"),
    "with a forged signature": (
        lambda mine: a_pair(mine, [ALICE], [CLIENT], signed_by=an_authority().key),
        "is signed by none of the authorities in",
    ),
}


@pytest.mark.row("B24")
@pytest.mark.parametrize("case", OWN)
def test_what_is_wrong_with_the_callers_own_certificate(authority: Authority, tmp_path: Path, case: str) -> None:
    make, message = OWN[case]
    files = make(authority).write(tmp_path / "tls")
    found = own_fault(files, time.time())
    assert found.startswith(f"{files.certificate}: ") and message in found and "\n" not in found


def test_nothing_is_wrong_with_one_that_is_in_order(authority: Authority, tmp_path: Path) -> None:
    assert own_fault(a_pair(authority, [ALICE], [CLIENT]).write(tmp_path / "tls"), time.time()) == ""


def test_files_that_are_not_there_or_do_not_fit_are_named(authority: Authority, tmp_path: Path) -> None:
    files = a_pair(authority, [ALICE], [CLIENT]).write(tmp_path / "tls")
    other = a_pair(authority, [ALICE], [CLIENT]).write(tmp_path / "other")
    assert f"{other.key}: is not the key of the certificate in {files.certificate}" in own_fault(
        replace(files, key=other.key), time.time()
    )
    files.ca.unlink()
    assert f"{files.ca}: No such file" in own_fault(files, time.time())


def alices(authority: Authority, tmp_path: Path) -> TlsFiles:
    return a_pair(authority, [ALICE], [CLIENT]).write(tmp_path / "alice")


def test_nothing_is_wrong_with_a_server_that_lets_us_in(server: Serving, authority: Authority, tmp_path: Path) -> None:
    assert server_fault(server.address, alices(authority, tmp_path), 0.5) == ""


@pytest.mark.row("B23")
def test_a_server_that_wants_a_certificate_says_so_to_who_has_none(server: Serving) -> None:
    assert "wants a certificate, and no context lists it" in server_fault(server.address, None)


@pytest.mark.row("B12", "B25")
def test_a_server_of_another_authority_or_place_does_not_pass(server: Serving, authority: Authority, tmp_path: Path) -> None:
    """The other way round."""
    files = alices(authority, tmp_path)
    stranger = an_authority()
    (tmp_path / "stranger.crt").write_bytes(stranger.certificate_pem)
    found = server_fault(server.address, replace(files, ca=tmp_path / "stranger.crt"))
    assert found.startswith("its certificate does not pass: ")
    elsewhere = a_pair(authority, [REPLICA], hosts=["elsewhere.example"]).write(tmp_path / "elsewhere")
    options = ServerOptions("127.0.0.1:0", NO_ETCD, tls=ServerTls.read(elsewhere, None))
    with serving(options, useful=False) as another:
        found = server_fault(another.address, files)
    assert found.startswith("its certificate does not pass: ") and "127.0.0.1" in found


def test_a_server_without_tls_is_told_from_one_that_has_it(authority: Authority, tmp_path: Path) -> None:
    with serving(ServerOptions("127.0.0.1:0", NO_ETCD), useful=False) as plain:
        assert "speaks no TLS" in server_fault(plain.address, alices(authority, tmp_path))
        assert server_fault(plain.address, None) == ""


def test_who_says_nothing_or_is_not_there_is_no_matter_of_tls(authority: Authority, tmp_path: Path) -> None:
    files = alices(authority, tmp_path)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = threading.active_count()
        assert server_fault(address, files, 0.2) == ""
        assert server_fault(address, None, 0.2) == ""
        assert threading.active_count() == began
    assert server_fault(address, files, 0.2) == ""
