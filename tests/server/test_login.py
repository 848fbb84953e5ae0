"""From a bearer token to a certificate of half a day, at two real servers that sign: it counts while the token does, and bounds
whatever is signed by it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rayched.client import Client
from rayched.pki.authority import key_pem_of
from rayched.v1.access_pb2 import SignCertificateResponse
from tests.pki.made import TRUST_DOMAIN, Pair
from tests.server.serving import until
from tests.server.test_join_tokens import a_request, facts_in
from tests.server.token_world import Code, TokenWorld, granted, refused, served, token_world, uri

pytestmark = pytest.mark.cluster

__all__ = ["token_world"]

HALF_A_DAY = 12 * 3600.0
HOUR = 3600


def logged_in(client: Client, subject: str = "") -> tuple[Pair, SignCertificateResponse]:
    key, request = a_request()
    answer = client.sign_certificate(request, subject)
    return Pair(answer.certificate, key_pem_of(key), answer.authorities, facts_in(answer).serial), answer


def is_over(client: Client) -> bool:
    try:
        client.who_am_i()
    except Exception as error:
        assert getattr(error, "code", None) is Code.UNAUTHENTICATED, error
        return True
    return False


def test_a_token_gives_its_holder_a_certificate_of_half_a_day_and_is_not_spent(token_world: TokenWorld) -> None:
    issued = token_world.issue("alice")
    pair, answer = logged_in(token_world.shown(issued.secret))
    facts = facts_in(answer)
    assert facts.uris == (uri("alice"),) and facts.token_id == answer.signed.token_id == issued.token.id
    assert facts.not_after - time.time() == pytest.approx(HALF_A_DAY, abs=60)
    for server in range(2):
        assert token_world.paired(pair, server).who_am_i().identity == uri("alice")
    assert token_world.shown(issued.secret).who_am_i().identity == uri("alice"), "the token counts still"


def test_it_lives_no_longer_than_its_token(token_world: TokenWorld) -> None:
    issued = token_world.issue("alice", seconds=HOUR)
    _, answer = logged_in(token_world.shown(issued.secret))
    assert facts_in(answer).not_after <= issued.token.expires_at_ms / 1e3


def test_with_its_token_it_is_revoked_everywhere_and_its_streams_end(token_world: TokenWorld) -> None:
    issued = token_world.issue("alice")
    pair, _ = logged_in(token_world.shown(issued.secret))
    clients = [token_world.paired(pair, server) for server in range(2)]
    with token_world.watch(clients[1]) as events:
        token_world.certified("alice").revoke_token(issued.token.id)
        failure = refused(lambda: next(events))
    assert failure.code is Code.UNAUTHENTICATED and "`rayched login`" in failure.message
    for client in clients:
        until(lambda one=client: is_over(one), 2.0)  # type: ignore[misc]


def test_it_may_no_more_than_the_tokens_maker_may_now(token_world: TokenWorld) -> None:
    issued = token_world.issue("ada", uri("alice"))
    pair, _ = logged_in(token_world.shown(issued.secret))
    client, admin = token_world.paired(pair), token_world.certified("admin")
    until(lambda: served(client))
    admin.grant(granted("bea", "admin").to_message())
    admin.revoke_grant(granted("ada", "admin").id)
    until(lambda: not served(client))
    assert refused(client.who_am_i).code is Code.PERMISSION_DENIED


def test_what_it_renews_itself_to_has_the_same_token_behind_it(token_world: TokenWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayched.server.services.signing_calls.RENEWED_AFTER_SECONDS", 0.0)
    issued = token_world.issue("alice", seconds=HOUR)
    pair, _ = logged_in(token_world.shown(issued.secret))
    second, answer = logged_in(token_world.paired(pair))
    facts = facts_in(answer)
    assert facts.token_id == issued.token.id and facts.not_after <= issued.token.expires_at_ms / 1e3
    client = token_world.paired(second)
    assert client.who_am_i().identity == uri("alice")
    assert refused(client.issue_token).code is Code.PERMISSION_DENIED, "else the token would be outlived"
    token_world.certified("alice").revoke_token(issued.token.id)
    until(lambda: is_over(client), 2.0)


def test_an_administrators_token_has_nobody_elses_certificate_signed(token_world: TokenWorld) -> None:
    by_token = token_world.shown(token_world.issue("ada").secret)
    by_certificate = token_world.paired(logged_in(by_token)[0])
    for client in (by_token, by_certificate):
        failure = refused(lambda one=client: logged_in(one, uri("alice")))  # type: ignore[misc]
        assert failure.code is Code.PERMISSION_DENIED and "of nobody else" in failure.message


def test_the_command_gets_one_and_a_context_and_leaves_no_token_behind(token_world: TokenWorld, tmp_path: Path) -> None:
    issued = token_world.issue("alice")
    server = token_world.servers[0]
    ca = token_world.files(issued.secret).ca
    flags = ["--server", server.address, "--token-server", server.server.token_address, "--ca-file", str(ca)]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config"), "RAYCHED_CONTEXT": ""}

    def command(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "rayched.cli.main", *words]
        return subprocess.run(line, check=False, input=given, capture_output=True, text=True, timeout=60, env=environment)

    wrong = command("login", *flags, given="rt_nonsense\n")
    assert wrong.returncode and "holds no token" in wrong.stderr and "Traceback" not in wrong.stderr
    assert "--ca-file: is missing" in command("login", *flags[:4], given=issued.secret).stderr
    done = command("login", *flags, given=f"{issued.secret}\n")
    assert done.returncode == 0, done.stderr
    name = f"{TRUST_DOMAIN}-alice"
    assert done.stdout.startswith(f"{uri('alice')} until ") and f"context {name} in " in done.stdout
    shown = command("whoami")
    assert shown.returncode == 0 and uri("alice") in shown.stdout, shown.stderr
    files = [path for path in (tmp_path / "config").rglob("*") if path.is_file()]
    assert len(files) == 5 and all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert not any(issued.secret.encode() in path.read_bytes() for path in files)
