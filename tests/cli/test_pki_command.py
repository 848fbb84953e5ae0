"""rayched pki, and what every command does with a context."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.access.identity import IdentityKind
from rayched.client import contexts
from rayched.pki.directory import PkiDirectory
from rayched.pki.issuing import leaf_request
from rayched.pki.tls_files import TlsFiles
from rayched.server.peers import ServerTls
from rayched.server.ports import Leader
from rayched.server.server_options import ServerOptions
from tests.cli.cluster import Result, run_here
from tests.pki.made import CLIENT, SetClock, a_pair
from tests.server.serving import Serving, serving, until


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("RAYCHED_HOME", str(tmp_path / "home"))
    for name in ("RAYCHED_SERVER", "RAYCHED_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def pki(*words: str) -> Result:
    return run_here(["pki", *words])


def ok(*words: str) -> list[str]:
    found = pki(*words)
    assert found.code == 0, found.errors
    return found.lines


def refused(*words: str, code: int = 1) -> str:
    found = pki(*words)
    assert (found.code, found.out, len(found.errors)) == (code, "", 1), found
    return found.errors[0]


def test_an_authority_is_made_once(home: Path) -> None:
    [line] = ok("init")
    trust_domain = PkiDirectory(home / "pki").trust_domain
    assert line.startswith(f"certificate authority of {trust_domain} in {home / 'pki'}, until 20")
    assert "has a certificate authority already" in refused("init")
    assert ok("init", "--dir", str(home / "other"))


def test_certificates_are_issued_listed_and_revoked(home: Path) -> None:
    ok("init")
    trust_domain = PkiDirectory(home / "pki").trust_domain
    [line] = ok("issue", "user", "alice")
    uri = f"spiffe://{trust_domain}/user/alice"
    found = re.fullmatch(rf"{uri} until (\S+Z), serial ([0-9a-f]+), in {home}/pki/user/alice", line)
    assert found is not None
    ok("issue", "replica", "replica-0", "--san", "r.example,10.0.0.1", "--out", str(home / "out"))
    heading, first, second = ok("list")
    assert heading.split() == ["SERIAL", "URI", "UNTIL", "STATE"]
    assert first.split() == [found[2], uri, found[1], "valid"]
    assert second.split()[1] == f"spiffe://{trust_domain}/replica/replica-0"
    authority, heading, *rows = ok("status")
    assert re.fullmatch(rf"authority [0-9a-f]{{16}} of {trust_domain} signs, 36\d\d days left", authority)
    assert heading.split() == ["URI", "DAYS", "SERIAL", "AUTHORITY", "DIRECTORY"]
    assert [row.split()[1] for row in rows] == ["89", "89"]
    assert rows[1].split()[4] == str(home / "out")
    assert ok("revoke", uri) == [f"{found[2]} of {uri} revoked"]
    assert pki("revoke", found[2]).errors == [f"{found[2]}: is revoked already"]
    assert ok("list")[1].split()[3] == "revoked"
    assert len(ok("status")) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("issue", "user", "Alice"), 'name of an identity: "Alice" is not a valid name'),
        (("issue", "user", "../alice"), "name of an identity: "),
        (("issue", "user", "alice", "--san", "a.example"), "--san: a certificate of kind user is for callers"),
        (("issue", "replica", "r", "--servers", "a:1"), "--servers: a context is for callers of replicas"),
        (("issue", "etcd", "e", "--servers", "a:1"), "--servers: a context is for callers of replicas"),
        (("issue", "admin", "alice"), "admin"),
        (("issue", "user", "alice", "--days", "0"), "--days"),
        (("rotate-ca", "trust-both", "--force"), "--force: goes with the step sign-new alone"),
        (("rotate-ca", "next"), "next"),
    ],
)
def test_what_cannot_be_is_a_wrong_option(words: tuple[str, ...], message: str) -> None:
    ok("init")
    assert message in refused(*words, code=2)
    assert ok("list") == ["SERIAL   URI   UNTIL   STATE"]


def test_what_is_not_there_is_named_with_what_makes_it(home: Path) -> None:
    for words in (("list",), ("status",), ("revoke", "00"), ("issue", "user", "alice"), ("rotate-ca", "trust-both")):
        assert f"{home / 'pki'}: has no ca.crt; `rayched pki init` makes" in refused(*words)
    ok("init")
    assert "'r_0': is neither a DNS name" in refused("issue", "replica", "r", "--san", "r_0")
    assert "no certificate of this serial number or URI" in refused("revoke", "00ff")
    (home / "pki" / "ca.key").chmod(0o644)
    assert f"has mode 0644, so others can read it: chmod 600 {home / 'pki' / 'ca.key'}" in refused("issue", "user", "a")
    (home / "pki" / "ca.key").unlink()
    assert "is not there, so nothing can be signed" in refused("issue", "user", "a")
    assert any("ca.key is not there" in line for line in pki("status").errors)


def test_a_long_life_is_warned_of() -> None:
    ok("init")
    assert pki("issue", "user", "alice", "--days", "398").errors == []
    [warning] = pki("issue", "user", "alice", "--days", "399").errors
    assert warning.startswith("--days 399: ")


def test_an_authority_is_exchanged_in_three_steps(home: Path) -> None:
    ok("init")
    ok("issue", "user", "alice")
    ok("issue", "node", "n-1", "--out", str(home / "n-1"))
    shutil.move(home / "n-1", home / "carried-away")
    found = pki("rotate-ca", "trust-both")
    assert found.code == 0 and "the next step is sign-new" in found.out
    assert [line for line in found.errors if "/node/n-1" in line and "/user/alice" not in line] == found.errors
    assert "/node/n-1 may not trust the new certificate authority yet" in refused("rotate-ca", "sign-new")
    [line] = ok("rotate-ca", "sign-new", "--force")
    assert "2 certificates to issue anew" in line
    assert "have certificates of the old" in refused("rotate-ca", "trust-new")
    ok("issue", "user", "alice")
    ok("issue", "node", "n-1", "--out", str(home / "n-1"))
    assert ok("rotate-ca", "trust-new") == ["the new authority alone is trusted"]


class TestContext:
    """What a command reaches a cluster with."""

    @pytest.fixture
    def made(self, home: Path) -> PkiDirectory:
        return PkiDirectory.create(home / "pki")

    @pytest.fixture
    def clock(self) -> SetClock:
        return SetClock(time.time())

    @pytest.fixture
    def server(self, made: PkiDirectory, clock: SetClock) -> Iterator[Serving]:
        made.issue(leaf_request(made.trust_domain, IdentityKind.REPLICA, "replica-0"))
        tls = ServerTls.read(TlsFiles.within(made.path / "replica" / "replica-0"), made.deny_list, clock)
        with serving(ServerOptions("127.0.0.1:0", ("127.0.0.1:1",), tls=tls), useful=False) as found:
            found.leadership.set(Leader("replica-7", "10.0.0.7:7420", 7))
            until(lambda: found.leadership.leader() is not None)
            yield found

    def leads(self, *words: str) -> None:
        found = run_here(["leader", *words])
        assert found.code == 0, found.errors
        assert found.lines[1].split()[:3] == ["replica-7", "10.0.0.7:7420", "7"]

    def test_a_context_that_was_issued_is_current_and_needs_no_flag(self, server: Serving, made: PkiDirectory) -> None:
        found = ok("issue", "user", "alice", "--servers", server.address)
        name = f"{made.trust_domain}-alice"
        assert found[1].startswith(f"context {name} in ") and contexts.current_context() == name
        self.leads()
        self.leads("--server", server.address)
        self.leads("--context", name)

    def test_an_agent_is_told_the_file_of_its_context_and_nobody_else_finds_it(self, server: Serving, made: PkiDirectory) -> None:
        [_, said] = ok("issue", "node", "node-1", "--servers", server.address)
        path = made.path / "node" / "node-1" / "context.yaml"
        assert said == f"context in {path}, for --context"
        self.leads("--context", str(path))
        assert (contexts.context_names(), contexts.current_context()) == ([], "")
        assert run_here(["leader", "--server", server.address]).code == 1

    def test_a_directory_that_was_issued_can_be_carried_whole(self, server: Serving, made: PkiDirectory, home: Path) -> None:
        for kind in ("user", "node"):
            ok("issue", kind, "n-1", "--out", str(home / kind), "--servers", server.address)
            shutil.move(home / kind, home / f"{kind}-elsewhere")
            self.leads("--context", str(home / f"{kind}-elsewhere" / "context.yaml"))

    def test_a_name_counts_and_a_wrong_one_is_told(self, server: Serving, made: PkiDirectory) -> None:
        ok("issue", "user", "alice", "--servers", server.address)
        ok("issue", "user", "bob", "--servers", "127.0.0.1:1")
        self.leads("--context", f"{made.trust_domain}-alice")
        self.leads("--context", f"{made.trust_domain}-bob", "--server", server.address)
        [unknown] = run_here(["access", "list", "--context", "carol"]).errors
        assert "context 'carol': there is no" in unknown, "commands of commands have the option too"
        found = run_here(["leader", "--context", "carol"])
        assert found.code == 2
        assert "context 'carol': there is no" in found.errors[0] and f"{made.trust_domain}-bob" in found.errors[0]

    def test_a_context_is_not_kept_from_one_command_to_the_next(self, server: Serving, made: PkiDirectory) -> None:
        ok("issue", "user", "alice", "--servers", server.address)
        ok("issue", "user", "bob", "--servers", "127.0.0.1:1")
        self.leads("--context", f"{made.trust_domain}-alice")
        assert "127.0.0.1:1" in run_here(["leader"]).errors[0]

    @pytest.mark.row("B2", "B23")
    def test_without_a_context_the_command_says_what_is_missing(self, server: Serving) -> None:
        began = time.monotonic()
        found = run_here(["leader", "--server", server.address])
        assert (found.code, found.out) == (1, "")
        assert found.errors == [
            f"error: {server.address}: it wants a certificate, and no context lists it: name one with --context"
        ]
        assert time.monotonic() - began < 8.0, "it is not tried for all of the client's time"

    @pytest.mark.row("B14", "B24")
    def test_an_own_certificate_that_does_not_count_is_told_at_once(
        self, server: Serving, made: PkiDirectory, clock: SetClock
    ) -> None:
        ok("issue", "user", "alice", "--servers", server.address)
        files = TlsFiles.within(made.path / "user" / "alice")
        record = made.issued()[-1]
        self.leads()
        clock.now = record.not_after
        found = run_here(["leader"])
        assert found.code == 1 and "user/alice has expired, at 2" in found.errors[0]
        from rayched.pki.authority import Authority, KeyMaker

        authority = Authority.read(made.bundle, (made.path / "ca.key").read_bytes(), "", KeyMaker())
        a_pair(authority, [record.uri], [CLIENT], begins=-999.0, ends=-60.0).write(files.key.parent)
        began = time.monotonic()
        found = run_here(["leader"])
        assert found.code == 1 and f"{files.certificate}: has expired, at 2" in found.errors[0]
        assert time.monotonic() - began < 8.0, "it is not tried for all of the client's time"
        files.key.chmod(0o644)
        found = run_here(["leader"])
        assert (found.code, len(found.errors)) == (2, 1)
        assert f"has mode 0644, so others can read it: chmod 600 {files.key}" in found.errors[0]
