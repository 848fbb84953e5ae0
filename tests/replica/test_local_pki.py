"""The certificates that a cluster on this host makes for itself, and its context."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rayched.access.identity import IdentityKind
from rayched.client import contexts
from rayched.client.contexts import ClientContext, write_context
from rayched.pki.certificates import facts_of, read_certificates
from rayched.pki.diagnosis import own_fault
from rayched.pki.directory import PkiDirectory
from rayched.pki.tls_files import TlsFiles
from rayched.replica.cluster.local_pki import LocalPki
from rayched.server.peers import ServerTls
from tests.pki.made import SetClock

NOW, DAY = 1_800_000_000.0, 86_400
SERVERS = ("127.0.0.1:7420", "127.0.0.1:7421")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def clock() -> SetClock:
    return SetClock(NOW)


def test_all_that_a_cluster_needs_is_made_at_once(tmp_path: Path) -> None:
    found = LocalPki(tmp_path / "pki", 2)
    made = PkiDirectory(tmp_path / "pki")
    names = {one.uri.removeprefix(f"spiffe://{made.trust_domain}") for one in made.in_use()}
    assert names == {"/replica/replica-0", "/replica/replica-1", "/user/admin", "/nodes/local"}
    assert own_fault(found.admin, time.time()) == ""
    flags = dict(zip(found.flags(1)[::2], found.flags(1)[1::2], strict=True))
    files = TlsFiles(*(Path(flags[f"--{name}"]) for name in ("client-ca-file", "tls-cert-file", "tls-private-key-file")))
    assert ServerTls.read(files, Path(flags["--client-deny-list-file"])).certificate.facts.serves


def test_a_gateway_has_a_certificate_of_its_own_beside_each_replica(tmp_path: Path) -> None:
    found = LocalPki(tmp_path / "pki", 2, gateways=True)
    flags = dict(zip(found.gateway_flags(1)[::2], found.gateway_flags(1)[1::2], strict=True))
    certificate = Path(flags["--gateway-cert-file"])
    facts = facts_of(read_certificates(certificate.read_bytes(), "it")[0])
    assert facts.uris == (f"spiffe://{found.name}/web/gateway-1",) and facts.serves and facts.calls
    assert Path(flags["--gateway-private-key-file"]).parent == certificate.parent != found.admin.certificate.parent


def test_a_second_start_changes_nothing_and_a_third_of_the_time_before_the_end_there_are_new_ones(
    tmp_path: Path, clock: SetClock
) -> None:
    found = LocalPki(tmp_path / "pki", 1, clock)
    made = PkiDirectory(tmp_path / "pki", clock)
    before = made.issued()
    assert LocalPki(tmp_path / "pki", 1, clock).name == found.name
    assert made.issued() == before
    clock.now = NOW + 20 * DAY - 1
    assert found.renew() == []
    clock.now = NOW + 20 * DAY
    assert [one.kind for one in found.renew()] == [IdentityKind.NODES]
    clock.now = NOW + 60 * DAY
    assert sorted(one.kind.value for one in found.renew()) == ["nodes", "replica", "user"]
    assert found.renew() == []


def test_files_that_are_lost_or_do_not_fit_are_made_anew(tmp_path: Path) -> None:
    found = LocalPki(tmp_path / "pki", 1)
    found.admin.key.unlink()
    assert [one.name for one in found.renew()] == ["admin"]
    assert found.renew() == []
    (tmp_path / "pki" / "ca.key").rename(tmp_path / "ca.key")
    found.admin.key.unlink()
    assert found.renew() == [], "nothing is signed without the authority's key"


@pytest.mark.row("B11")
def test_the_agent_of_a_node_has_a_certificate_of_its_own_and_a_context_that_nobody_else_finds(tmp_path: Path) -> None:
    found = LocalPki(tmp_path / "pki", 1)
    path = found.agent_context("real-0", SERVERS)
    chosen = contexts.choose(SERVERS, str(path))
    assert chosen.files is not None and chosen.files != found.admin
    certificate = read_certificates(chosen.files.certificate.read_bytes(), "")[0]
    assert facts_of(certificate).uris == (f"spiffe://{found.name}/node/real-0",)
    assert own_fault(chosen.files, time.time()) == ""
    assert contexts.choose(SERVERS).files is None


def test_a_context_is_current_while_it_is_there_and_the_one_before_it_afterwards(tmp_path: Path) -> None:
    write_context(ClientContext("mine", ("10.0.0.1:7420",), TlsFiles.within(tmp_path)), make_current=True)
    found = LocalPki(tmp_path / "pki", 1)
    with found.context(SERVERS):
        assert contexts.current_context() == found.name
        assert contexts.choose() == contexts.ChosenServers(SERVERS, found.admin, found.name)
    assert (contexts.context_names(), contexts.current_context()) == (["mine"], "mine")
    write_context(ClientContext("another", ("10.0.0.2:7420",), TlsFiles.within(tmp_path)), make_current=False)
    with found.context(SERVERS):
        contexts.use_context("another")
    assert contexts.current_context() == "another", "whoever chose one meanwhile keeps it"
    contexts.remove_context("another")
    contexts.use_context("mine")
    contexts.remove_context("mine")
    with pytest.raises(RuntimeError), found.context(SERVERS):
        raise RuntimeError
    assert (contexts.context_names(), contexts.current_context()) == ([], "")
