"""Bearer tokens at two real servers over one real etcd: who shows one is let in at their port, until it counts no more."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import grpc
import pytest

from rayched.access.tokens import DAY, hash_of
from rayched.client import Client
from rayched.client.contexts import ContextError, read_context, write_context_file
from rayched.pki.errors import PkiError
from tests.pki.made import CLIENT, TRUST_DOMAIN, a_pair
from tests.server.relay import relay
from tests.server.serving import until
from tests.server.token_world import REFUSED, Code, TokenWorld, granted, is_refused, refused, served, token_world, uri

pytestmark = pytest.mark.cluster

__all__ = ["token_world"]


@pytest.mark.row("B35")
def test_who_shows_a_token_is_whom_it_stands_for_at_its_port_and_nowhere_else(token_world: TokenWorld) -> None:
    issued = token_world.issue("alice", note="nightly")
    assert issued.token.subject == issued.token.maker == uri("alice") and not issued.token.sha256
    assert issued.token.expires_at_ms - issued.token.made_at_ms == 30 * DAY * 1000
    for server in range(2):
        client = token_world.shown(issued.secret, server)
        assert client.who_am_i().identity == uri("alice")
        assert [pod.metadata.name for pod in client.list("pods", namespace="team-a")] == ["web"]
        assert refused(lambda one=client: list(one.list("pods", namespace="team-b"))).code is Code.PERMISSION_DENIED  # type: ignore[misc]
    # Where certificates are shown a token is refused, though the certificate would do.
    files = a_pair(token_world.authority, [uri("alice")], [CLIENT])
    credentials = grpc.ssl_channel_credentials(token_world.authority.certificate_pem, files.key, files.certificate)
    with grpc.secure_channel(token_world.servers[0].address, credentials) as channel:
        call = channel.unary_unary("/rayched.v1.Access/WhoAmI")
        call(b"", timeout=30)
        with pytest.raises(grpc.RpcError) as raised:
            call(b"", timeout=30, metadata=(("authorization", f"Bearer {issued.secret}"),))
        assert raised.value.code() is Code.UNAUTHENTICATED
        assert raised.value.details() == "a token is taken at the address of a replica's --token-listen alone"
    # And nobody gets in there without one.
    with grpc.secure_channel(
        token_world.servers[0].server.token_address, grpc.ssl_channel_credentials(token_world.authority.certificate_pem)
    ) as channel:
        for metadata in ((), (("authorization", f"Basic {issued.secret}"),), (("authorization", "Bearer"),)):
            with pytest.raises(grpc.RpcError) as raised:
                channel.unary_unary("/rayched.v1.Access/WhoAmI")(b"", timeout=30, metadata=metadata)
            assert (raised.value.code(), raised.value.details()) == (Code.UNAUTHENTICATED, REFUSED)
    audit = (token_world.directory / "audit.jsonl").read_text()
    assert f'"uri":"{uri("alice")}","credential":"{issued.token.id}"' in audit


@pytest.mark.row("B36")
def test_a_token_is_sent_over_tls_alone(token_world: TokenWorld) -> None:
    issued = token_world.issue("alice")
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def listen() -> None:
            connection, _ = plain.accept()
            with connection:
                connection.settimeout(2.0)
                with contextlib.suppress(TimeoutError, ConnectionError):
                    while data := connection.recv(4096):
                        heard.append(data)

        thread = threading.Thread(target=listen)
        thread.start()
        client = token_world.client(f"127.0.0.1:{plain.getsockname()[1]}", token_world.files(issued.secret))
        assert refused(client.who_am_i).code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
        thread.join(10)
    data = b"".join(heard)
    assert data and issued.secret.encode() not in data and data[0] == 0x16, "a TLS handshake and nothing else"


@pytest.mark.row("B37")
def test_of_the_secret_etcd_and_the_logs_have_nothing(token_world: TokenWorld, caplog: pytest.LogCaptureFixture) -> None:
    issued = token_world.issue("alice")
    token_world.shown(issued.secret).who_am_i()
    is_refused(token_world.shown(issued.secret[:-1] + ("A" if issued.secret[-1] != "A" else "E")))
    stored = token_world.stored()
    assert issued.token.id.encode() in stored and hash_of(issued.secret[12:]) in stored
    pieces = {issued.secret[at : at + 8] for at in range(12, len(issued.secret) - 7)}
    audit = (token_world.directory / "audit.jsonl").read_text()
    for piece in pieces:
        assert piece.encode() not in stored and piece not in audit and piece not in caplog.text
    assert not any(one.sha256 for one in token_world.certified("alice").tokens(uri("alice")))


@pytest.mark.row("B38")
def test_an_expired_token_counts_no_more_and_ends_its_streams(token_world: TokenWorld) -> None:
    issued = token_world.issue("alice", seconds=3_600)
    client = token_world.shown(issued.secret)
    with token_world.watch(client) as events:
        token_world.clock.now = issued.token.expires_at_ms / 1e3 - 0.001
        client.who_am_i()
        token_world.clock.now += 0.001
        is_refused(client)
        began = time.monotonic()
        failure = refused(lambda: next(events))
        assert failure.code is Code.UNAUTHENTICATED and time.monotonic() - began < 10.0


@pytest.mark.row("B39")
def test_a_revoked_token_counts_no_more_at_any_replica_and_ends_its_streams(token_world: TokenWorld) -> None:
    issued, other = token_world.issue("alice"), token_world.issue("alice")
    clients = [token_world.shown(issued.secret, server) for server in range(2)]
    kept = token_world.shown(other.secret)
    with token_world.watch(clients[1]) as events:
        gone = token_world.certified("alice").revoke_token(issued.token.id)
        assert gone.token.id == issued.token.id
        assert refused(lambda: next(events)).code is Code.UNAUTHENTICATED
    until(lambda: not any(token_world.knows(issued.token.id, server) for server in range(2)), seconds=2.0)
    for client in clients:
        is_refused(client)
    assert kept.who_am_i().identity == uri("alice")


@pytest.mark.row("B40")
def test_a_token_that_is_cut_counts_for_nothing(token_world: TokenWorld) -> None:
    secret = token_world.issue("alice").secret
    for text in (secret[:-1], secret[1:], secret + "A", "", "rt_", secret[:11]):
        with (
            grpc.secure_channel(
                token_world.servers[0].server.token_address, grpc.ssl_channel_credentials(token_world.authority.certificate_pem)
            ) as channel,
            pytest.raises(grpc.RpcError) as raised,
        ):
            channel.unary_unary("/rayched.v1.Access/WhoAmI")(b"", timeout=30, metadata=(("authorization", f"Bearer {text}"),))
        assert (raised.value.code(), raised.value.details()) == (Code.UNAUTHENTICATED, REFUSED)


@pytest.mark.row("B41")
def test_a_token_with_a_letter_of_the_other_case_counts_for_nothing(token_world: TokenWorld) -> None:
    secret = token_world.issue("alice").secret
    letters = [at for at, letter in enumerate(secret) if at > 2 and letter.isalpha()]
    for at in (letters[0], letters[len(letters) // 2], letters[-1]):
        is_refused(token_world.shown(secret[:at] + secret[at].swapcase() + secret[at + 1 :]))


@pytest.mark.row("B42")
def test_a_token_of_another_cluster_counts_for_nothing(token_world: TokenWorld) -> None:
    is_refused(token_world.shown("rt_aaaaaaaa_" + "A" * 43))


@pytest.mark.row("B43")
def test_a_token_may_no_more_than_its_maker_may_now(token_world: TokenWorld) -> None:
    own, given = token_world.issue("alice"), token_world.issue("ada", uri("ci"))
    admin = token_world.certified("admin")
    # Somebody else has the role as well, or hers would be the last one.
    for one in (granted("ci", "viewer", "team-a"), granted("bea", "admin")):
        admin.grant(one.to_message())
    ci, alice = token_world.shown(given.secret), token_world.shown(own.secret)
    until(lambda: served(ci) and served(alice))
    # For others only an administrator makes one.
    assert refused(lambda: token_world.certified("alice").issue_token(uri("ci"))).code is Code.PERMISSION_DENIED
    assert refused(alice.issue_token).code is Code.PERMISSION_DENIED, "by a token"
    with token_world.watch(ci) as events:
        admin.revoke_grant(granted("ada", "admin").id)
        admin.revoke_grant(granted("alice", "viewer", "team-a").id)
        assert refused(lambda: next(events)).code is Code.PERMISSION_DENIED
    until(lambda: not served(ci) and not served(alice))
    failure = refused(ci.who_am_i)
    assert failure.code is Code.PERMISSION_DENIED
    assert failure.message == f"token {given.token.id} for {uri('ci')} was made by {uri('ada')}, who has no longer the role admin"
    assert refused(lambda: list(alice.list("pods", namespace="team-a"))).code is Code.PERMISSION_DENIED


@pytest.mark.row("B45")
def test_an_address_that_shows_wrong_tokens_is_asked_for_none_for_a_minute(token_world: TokenWorld) -> None:
    secret = token_world.issue("alice").secret
    wrong = token_world.shown("rt_aaaaaaaa_" + "A" * 43)
    for _ in range(20):
        is_refused(wrong)
    assert refused(wrong.who_am_i).code is Code.RESOURCE_EXHAUSTED
    assert refused(token_world.shown(secret).who_am_i).code is Code.RESOURCE_EXHAUSTED
    with relay(token_world.servers[0].server.token_address, "127.0.0.2") as address:
        assert token_world.client(address, token_world.files(secret)).who_am_i().identity == uri("alice")


def test_what_a_token_may_not_be_is_told(token_world: TokenWorld) -> None:
    admin = token_world.certified("admin")
    replica = f"spiffe://{TRUST_DOMAIN}/replica/replica-9"
    for wanted, words in (
        ({"subject": replica}, "a token stands for a user or web"),
        ({"seconds": 60}, "allowed are 3600 (an hour) to 31536000 (365 days)"),
        ({"seconds": 366 * DAY}, "allowed are 3600 (an hour) to 31536000 (365 days)"),
        ({"note": "x" * 201}, "has 201 characters, at most 200 are allowed"),
    ):
        failure = refused(lambda one=wanted: admin.issue_token(**one))  # type: ignore[misc]
        assert failure.code is Code.INVALID_ARGUMENT and words in failure.message
    issued = token_world.issue("alice")
    # Another one's is not there, whoever's it is.
    assert refused(lambda: admin.revoke_token(issued.token.id)).code is Code.NOT_FOUND
    assert refused(lambda: token_world.certified("ada").revoke_token("")).code is Code.INVALID_ARGUMENT
    assert [one.id for one in admin.tokens()] == [issued.token.id]
    assert admin.revoke_token(issued.token.id, uri("alice")).token.subject == uri("alice")
    assert list(admin.tokens()) == []


def test_a_context_with_a_token_is_read_and_a_file_that_others_read_is_not(token_world: TokenWorld) -> None:
    issued = token_world.issue("alice")
    files = token_world.files(issued.secret)
    path = token_world.directory / "context.yaml"
    write_context_file(path, [token_world.servers[0].server.token_address], files)
    assert read_context(str(path)).files == files
    with Client(context=str(path)) as client:
        assert client.who_am_i().identity == uri("alice")
    files.token.chmod(0o644)
    with pytest.raises(ContextError, match="so others can read it: chmod 600"):
        Client(context=str(path))
    files.token.chmod(0o600)
    files.token.write_text("hello")
    with pytest.raises((ContextError, PkiError), match="holds no token; `rayched token create` makes one"):
        Client(context=str(path))
