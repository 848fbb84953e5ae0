"""The deny list in etcd at two real servers: whoever is on it is refused by both at once, and in open streams."""

from __future__ import annotations

import grpc
import pytest

from rayched.access.identity import Identity
from rayched.access.revocations import RevocationError, RevocationTable, RevokedCaller
from rayched.pki.certificates import serial_text
from rayched.v1.access_pb2 import Revocation
from tests.pki.made import CLIENT, TRUST_DOMAIN, a_pair
from tests.server.serving import until
from tests.server.token_world import Code, TokenWorld, code_of, granted, refused, served, token_world, uri

pytestmark = pytest.mark.cluster

__all__ = ["token_world"]


@pytest.mark.row("B31")
def test_a_revoked_certificate_is_refused_by_all_replicas_and_in_open_streams(token_world: TokenWorld) -> None:
    lost, kept = (a_pair(token_world.authority, [uri("alice")], [CLIENT]) for _ in range(2))
    clients = [token_world.paired(lost, server) for server in range(2)]
    other = token_world.paired(kept)
    admin = token_world.certified("admin")
    with token_world.watch(clients[1]) as events:
        said = admin.revoke_certificate(serial_text(lost.serial).upper(), note="laptop lost")
        assert said.changed and said.revocation.by == uri("admin")
        assert refused(lambda: next(events)).code is Code.UNAUTHENTICATED
    for client in clients:
        until(lambda one=client: not served(one), seconds=2.0)  # type: ignore[misc]
        failure = refused(client.who_am_i)
        assert failure.code is Code.UNAUTHENTICATED
        assert failure.message == f"certificate {serial_text(lost.serial)} of {uri('alice')} is revoked"
    assert other.who_am_i().identity == uri("alice")
    assert not admin.revoke_certificate(serial_text(lost.serial)).changed
    assert [(one.serial, one.note) for one in admin.revocations()] == [(serial_text(lost.serial), "laptop lost")]
    admin.readmit(serial_text(lost.serial))
    until(lambda: served(clients[0]) and served(clients[1]))


@pytest.mark.row("B31")
def test_a_token_ends_with_the_certificate_that_it_was_made_with(token_world: TokenWorld) -> None:
    stolen = a_pair(token_world.authority, [uri("ada")], [CLIENT])
    serial = serial_text(stolen.serial)
    issued = [token_world.paired(stolen).issue_token(subject) for subject in ("", uri("alice"))]
    kept = token_world.issue("ada")
    assert [one.token.maker_serial for one in issued] == [serial] * 2 != [kept.token.maker_serial] * 2
    shown = [token_world.shown(one.secret, number) for number, one in enumerate(issued)]
    until(lambda: all(map(served, shown)))
    with token_world.watch(shown[1]) as events:
        token_world.certified("admin").revoke_certificate(serial)
        until(lambda: not any(map(served, shown)), seconds=2.0)
        assert refused(lambda: next(events)).code is Code.UNAUTHENTICATED
    for client, one in zip(shown, issued, strict=True):
        failure = refused(client.who_am_i)
        said = f"token {one.token.id} was made with certificate {serial}, which is revoked"
        assert (failure.code, failure.message) == (Code.UNAUTHENTICATED, said)
    assert token_world.shown(kept.secret).who_am_i().identity == uri("ada")


@pytest.mark.row("B31")
def test_an_identity_is_refused_whatever_it_shows(token_world: TokenWorld) -> None:
    issued = token_world.issue("alice")
    shown, certified = token_world.shown(issued.secret, 1), token_world.certified("alice")
    admin = token_world.certified("admin")
    with token_world.watch(shown) as events:
        admin.revoke_certificate(identity=uri("alice"))
        assert refused(lambda: next(events)).code is Code.UNAUTHENTICATED
    for client in (shown, certified):
        until(lambda one=client: not served(one), seconds=2.0)  # type: ignore[misc]
        failure = refused(client.who_am_i)
        assert (failure.code, failure.message) == (
            Code.UNAUTHENTICATED,
            f"{uri('alice')} is refused by an administrator; `rayched access denied` shows why",
        )
    # Nor may a replica ask for her, and a longer name is another one.
    pair = a_pair(token_world.authority, [f"spiffe://{TRUST_DOMAIN}/replica/replica-9"])
    credentials = grpc.ssl_channel_credentials(token_world.authority.certificate_pem, pair.key, pair.certificate)
    with grpc.secure_channel(token_world.servers[0].address, credentials) as channel:
        call = channel.unary_unary("/rayched.v1.Access/WhoAmI")
        with pytest.raises(grpc.RpcError) as raised:
            call(b"", timeout=30, metadata=(("rayched-for", uri("alice")),))
        assert raised.value.code() is Code.UNAUTHENTICATED
        call(b"", timeout=30, metadata=(("rayched-for", uri("alice2")),))
    admin.readmit(identity=uri("alice"))
    until(lambda: served(shown) and served(certified))


def test_who_may_refuse_whom(token_world: TokenWorld) -> None:
    admin, ada = token_world.certified("admin"), token_world.certified("ada")
    until(lambda: ada.can_i("Access.RevokeCertificate").allowed)
    kept = refused(lambda: ada.revoke_certificate(identity=uri("admin")))
    assert kept.code is Code.FAILED_PRECONDITION and "whom nobody can take away" in kept.message
    ada.revoke_certificate(identity=uri("bob"))
    alice = token_world.certified("alice")
    assert refused(lambda: alice.revoke_certificate(identity=uri("ada"))).code is Code.PERMISSION_DENIED
    assert refused(alice.revocations).code is Code.PERMISSION_DENIED
    admin.revoke_certificate(identity=uri("ada"))
    until(lambda: code_of(ada.who_am_i) is Code.UNAUTHENTICATED)
    assert refused(lambda: admin.readmit(identity=uri("carol"))).code is Code.NOT_FOUND
    assert granted("ada", "admin").id in {one.id for one in admin.grants()}, "what she had she has when she comes back"


@pytest.mark.parametrize(
    ("serial", "identity", "words"),
    [
        ("", "", "want one of the two"),
        ("ab", uri("alice"), "want one of the two"),
        ("xyz", "", '"xyz" is no serial number; want at most 40 hexadecimal digits'),
        ("a" * 41, "", "is no serial number"),
        ("", "alice", "identity: identity"),
    ],
)
def test_what_cannot_be_refused_is_told(serial: str, identity: str, words: str) -> None:
    with pytest.raises(RevocationError, match=words):
        RevokedCaller.of(serial, identity)


def test_a_serial_number_is_one_however_it_is_written() -> None:
    assert {RevokedCaller.of(text, "").serial for text in ("0a1B", "A1b", "0A:1B", "000a1b")} == {"0a1b"}


def a_revocation(serial: str = "", identity: str = "") -> tuple[bytes, bytes]:
    found = RevokedCaller.of(serial, identity)
    return f"/r/{found.id}".encode(), Revocation(id=found.id, serial=serial, identity=identity).SerializeToString()


def test_what_etcd_has_that_is_no_revocation_refuses_nobody() -> None:
    table, (key, value) = RevocationTable(), a_revocation(serial="0a1b")
    assert not table.is_known
    table.listed(dict([(b"/r/other", value), (b"/r/x", b"\xff"), a_revocation(identity=uri("alice"))]))
    assert table.is_known and "0a1b" not in table and uri("alice") in table and uri("alice")[:-1] not in table and "" not in table
    assert len(table.problems) == 2
    table.changed([(key, value), (b"/r/x", None)])
    assert "0a1b" in table and len(table.problems) == 1
    table.changed([(key, None)])
    assert "0a1b" not in table and Identity.parse(uri("alice")).uri in table
