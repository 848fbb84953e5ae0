"""token, and who is denied: what the command says, against a real server. What it is good for: tests/server/test_tokens.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from tests.cli.cluster import run_here
from tests.cli.test_access_commands import Run, told
from tests.server.serving import serving

pytestmark = pytest.mark.cluster

TOKEN = re.compile(r"rt_[a-z2-7]{8}_[A-Za-z0-9_-]{43}")


@pytest.fixture(scope="module")
def command(etcd: EtcdServer) -> Iterator[Run]:
    with serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys("/token-commands"))) as server:
        yield lambda *words: run_here(words, None, {"RAYCHED_SERVER": server.address})


def test_a_token_is_made_shown_once_listed_and_revoked(command: Run) -> None:
    made = command("token", "create", "--days", "7", "--note", "nightly")
    assert made.code == 0 and TOKEN.fullmatch(made.out.strip())
    id = made.out[3:11]
    (said,) = made.errors
    assert said.startswith(f"token/{id} stands for spiffe://insecure/user/admin until 2")
    head, row = told(command("token", "list"))
    assert head == ["ID", "SUBJECT", "MADE", "BY", "MADE", "EXPIRES", "NOTE"]
    assert (row[0], row[1], row[2], row[-1]) == (id, "spiffe://insecure/user/admin", "spiffe://insecure/user/admin", "nightly")
    assert made.out.strip()[12:] not in command("token", "list", "--all").out
    assert told(command("token", "revoke", id)) == [[f"token/{id}", "revoked"]]
    gone = command("token", "revoke", f"token/{id}")
    assert gone.code == 1 and gone.errors == [f"error: Token {id} of spiffe://insecure/user/admin not found"]
    assert (command("token", "list").out, command("token", "list").errors) == ("", ["No tokens found"])


def test_a_token_for_another_one_goes_into_a_file_of_its_own(command: Run, tmp_path: Path) -> None:
    path = tmp_path / "ci.token"
    made = command("token", "create", "--for", "ci", "--out", str(path))
    assert (made.code, made.out) == (0, "")
    assert TOKEN.fullmatch(path.read_text().strip()) and path.stat().st_mode & 0o777 == 0o600
    again = command("token", "create", "--for", "ci", "--out", str(path))
    assert again.code == 1 and "is there already, and nothing is overwritten; the token is lost: " in again.errors[0]
    rows = told(command("token", "list", "--for", "ci"))[1:]
    assert {row[1] for row in rows} == {"spiffe://insecure/user/ci"} and len(rows) == 2
    ids = [row[0] for row in rows]
    assert told(command("token", "revoke", *ids, "--for", "user/ci")) == [[f"token/{id}", "revoked"] for id in ids]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("create", "--days", "0"), 2, "Invalid value for '--days': must be greater than or equal to 1"),
        (("create", "--for", "replica/r1"), 1, "a token stands for a user or web"),
        (("create", "--for", "Alice"), 2, "SUBJECT: identity"),
        (("revoke",), 2, "ID"),
    ],
)
def test_what_cannot_be_is_told(command: Run, words: tuple[str, ...], code: int, said: str) -> None:
    result = command("token", *words)
    assert result.code == code and said in " ".join(result.errors)


def test_somebody_is_denied_shown_and_readmitted(command: Run) -> None:
    assert told(command("access", "deny", "0A:1B:0A:1B:0A:1B:0A:1B", "--note", "lost")) == [["0A:1B:0A:1B:0A:1B:0A:1B", "denied"]]
    assert told(command("access", "deny", "user/alice")) == [["spiffe://insecure/user/alice", "denied"]]
    assert told(command("access", "deny", "alice")) == [["spiffe://insecure/user/alice", "unchanged"]]
    head, *rows = told(command("access", "denied"))
    assert head == ["WHO", "BY", "SINCE", "NOTE"]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("0a1b0a1b0a1b0a1b", "spiffe://insecure/user/admin", "lost"),
        ("spiffe://insecure/user/alice", "spiffe://insecure/user/admin", "<none>"),
    ]
    for who in ("0a1b0a1b0a1b0a1b", "user/alice"):
        assert told(command("access", "readmit", who))[0][1] == "readmitted"
    assert (command("access", "denied").out, command("access", "denied").errors) == ("", ["Nobody is denied"])
    gone = command("access", "readmit", "alice")
    assert gone.code == 1 and gone.errors == ["error: Revocation of spiffe://insecure/user/alice not found"]
    kept = command("access", "deny", "admin")
    assert kept.code == 1 and "whom nobody can take away" in kept.errors[0]


def test_the_command_says_what_it_does() -> None:
    result = run_here(["token", "create", "--help"])
    assert result.code == 0 and "it cannot be shown again" in result.out
