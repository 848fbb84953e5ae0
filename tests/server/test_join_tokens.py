"""Join tokens at two real servers over one real etcd, both of which sign: one certificate of one node, once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from rayched.access.revocations import RevokedCaller
from rayched.access.tokens import hash_of
from rayched.client import ApiError, Client
from rayched.pki.authority import KeyMaker, key_pem_of
from rayched.pki.certificates import CertificateFacts, facts_of, read_certificates, serial_text
from rayched.pki.signing_requests import signing_request
from rayched.v1.access_pb2 import IssueTokenResponse, SignCertificateResponse, SignedCertificate
from tests.pki.made import CLIENT, TRUST_DOMAIN, Pair, a_pair
from tests.server.serving import until
from tests.server.token_world import REFUSED, Code, TokenWorld, code_of, granted, is_refused, refused, token_world, uri

pytestmark = pytest.mark.cluster

__all__ = ["token_world"]

NODE = f"spiffe://{TRUST_DOMAIN}/node/worker-1"
OTHER = f"spiffe://{TRUST_DOMAIN}/node/worker-2"


def a_request() -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    key = KeyMaker().key()
    return key, signing_request(key)


def certified(client: Client, subject: str = NODE) -> CertificateFacts:
    return facts_in(client.sign_certificate(a_request()[1], subject))


def facts_in(answer: SignCertificateResponse) -> CertificateFacts:
    return facts_of(read_certificates(answer.certificate, "the answer")[0])


def joining(world: TokenWorld, **more: object) -> IssueTokenResponse:
    return world.issue("admin", NODE, **more)


def agent(world: TokenWorld, subject: str = NODE) -> Client:
    return world.paired(a_pair(world.authority, [subject], [CLIENT]))


@pytest.mark.row("B44")
def test_a_join_token_gives_its_node_one_certificate(token_world: TokenWorld) -> None:
    issued = joining(token_world)
    assert issued.secret == f"join.{issued.token.id}.{issued.secret[14:]}" and len(issued.secret) == 57
    assert issued.token.expires_at_ms - issued.token.made_at_ms == 3_600_000
    key, request = a_request()
    answer = token_world.shown(issued.secret).sign_certificate(request, NODE)
    facts = facts_in(answer)
    assert facts.uris == (NODE,) and facts.calls and not facts.serves and not facts.is_authority
    assert (answer.signed.serial, answer.signed.token_id) == (serial_text(facts.serial), issued.token.id)
    # It is whom it says, at the other replica as well, by the key that never left.
    pair = Pair(answer.certificate, key_pem_of(key), answer.authorities, facts.serial)
    assert token_world.paired(pair, 1).who_am_i().identity == NODE
    # Spent and signed in one revision of etcd.
    listed = token_world.certified("admin").tokens(NODE)
    assert not listed and answer.revision == signed_at(token_world, answer)


def signed_at(world: TokenWorld, answer: SignCertificateResponse) -> int:
    """The revision of etcd at which the certificate was recorded."""
    from leader.etcd_shim import rpc

    prefix = world.store.keys.signed_prefix
    found = world.store._kv.Range(rpc.RangeRequest(key=prefix, range_end=prefix[:-1] + b"0")).kvs
    mine = [pair for pair in found if SignedCertificate.FromString(pair.value) == answer.signed]
    assert len(mine) == 1
    return int(mine[0].mod_revision)


@pytest.mark.row("B44")
@pytest.mark.parametrize("server", [0, 1])
def test_a_second_use_is_refused_at_any_replica(token_world: TokenWorld, server: int) -> None:
    issued = joining(token_world)
    second = token_world.shown(issued.secret, server)
    certified(token_world.shown(issued.secret))
    failure = refused(lambda: certified(second))
    assert (failure.code, failure.message) == (Code.UNAUTHENTICATED, REFUSED)
    until(lambda: not any(token_world.knows(issued.token.id, one) for one in range(2)), seconds=2.0)
    is_refused(second)


@pytest.mark.row("B44")
def test_of_many_uses_at_once_one_is_answered(token_world: TokenWorld) -> None:
    issued = joining(token_world)
    clients = [token_world.shown(issued.secret, number % 2) for number in range(8)]
    for client in clients:
        # The connection is there, so the calls meet.
        assert refused(client.who_am_i).code is Code.PERMISSION_DENIED
    found: list[CertificateFacts] = []
    faults: list[ApiError] = []
    gate = threading.Barrier(len(clients))

    def use(client: Client) -> None:
        gate.wait()
        try:
            found.append(certified(client))
        except ApiError as error:
            faults.append(error)

    threads = [threading.Thread(target=use, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1 and len(faults) == 7
    assert {fault.code for fault in faults} <= {Code.UNAUTHENTICATED, Code.ABORTED}


@pytest.mark.row("B44")
@pytest.mark.parametrize("subject", [OTHER, uri("admin"), f"spiffe://{TRUST_DOMAIN}/replica/replica-0"])
def test_a_join_token_is_for_its_node_alone_and_stays_good(token_world: TokenWorld, subject: str) -> None:
    client = token_world.shown(joining(token_world).secret)
    failure = refused(lambda: certified(client, subject))
    assert failure.code is Code.PERMISSION_DENIED and subject in failure.message
    assert certified(client).uris == (NODE,)


@pytest.mark.row("B44")
def test_after_its_time_a_join_token_is_refused(token_world: TokenWorld) -> None:
    issued = joining(token_world, seconds=60)
    client = token_world.shown(issued.secret)
    token_world.clock.now = issued.token.expires_at_ms / 1e3
    failure = refused(lambda: certified(client))
    assert (failure.code, failure.message) == (Code.UNAUTHENTICATED, REFUSED)


def test_a_join_token_is_good_for_nothing_else(token_world: TokenWorld) -> None:
    client = token_world.shown(joining(token_world).secret)
    for work in (
        client.who_am_i,
        lambda: client.tokens(NODE),
        lambda: client.issue_token(NODE),
        lambda: list(client.list("pods", namespace="team-a")),
        client.leader,
    ):
        failure = refused(work)  # type: ignore[arg-type]
        assert failure.code is Code.PERMISSION_DENIED, failure


def test_a_join_token_goes_with_its_makers_role_and_by_revocation(token_world: TokenWorld) -> None:
    admin = token_world.certified("admin")
    # The last one to the role stays.
    admin.grant(granted("eve", "admin").to_message())
    ada = next(one for one in admin.grants(uri("ada")))
    of_ada, revoked = token_world.issue("ada", NODE), joining(token_world)
    admin.revoke_grant(ada.id)
    client = token_world.shown(of_ada.secret)
    until(lambda: code_of(lambda: certified(client)) is Code.PERMISSION_DENIED)
    admin.revoke_token(revoked.token.id, NODE)
    other = token_world.shown(revoked.secret)
    assert refused(lambda: certified(other)).code is Code.UNAUTHENTICATED


def test_who_is_refused_gets_none_though_the_replica_does_not_know_it_yet(token_world: TokenWorld) -> None:
    issued = joining(token_world)
    running = token_world.servers[0].server._running
    assert running is not None
    # As if the watch had not delivered it.
    running.guard.revoked.changed = lambda _: None  # type: ignore[method-assign]
    token_world.certified("admin", 1).revoke_certificate(identity=NODE)
    failure = refused(lambda: certified(token_world.shown(issued.secret)))
    assert failure.code is Code.ABORTED and "refused" in failure.message
    assert RevokedCaller(identity=NODE).id.encode() in token_world.stored()


@pytest.mark.row("B37")
def test_of_a_join_tokens_secret_etcd_and_the_logs_have_nothing(
    token_world: TokenWorld, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    issued = joining(token_world)
    stored = token_world.stored()
    assert hash_of(issued.secret[14:]) in stored
    certified(token_world.shown(issued.secret))
    refused(lambda: certified(token_world.shown(issued.secret)))
    audit = (token_world.directory / "audit.jsonl").read_text()
    assert f'"credential":"{issued.token.id}"' in audit and "Access.SignCertificate" in audit
    for piece in {issued.secret[at : at + 8] for at in range(14, len(issued.secret) - 7)}:
        assert piece.encode() not in stored + token_world.stored() and piece not in audit and piece not in caplog.text


def test_an_agent_renews_its_own_certificate_and_no_other(token_world: TokenWorld) -> None:
    client = agent(token_world)
    assert certified(client, "").uris == (NODE,)
    failure = refused(lambda: certified(client))
    assert failure.code is Code.RESOURCE_EXHAUSTED and 0 < (failure.retry_after_seconds or 0) <= 60.0
    assert refused(lambda: certified(client, OTHER)).code is Code.PERMISSION_DENIED
    alice = token_world.certified("alice")
    assert certified(alice, "").uris == (uri("alice"),)
    assert refused(lambda: certified(alice, uri("admin"))).code is Code.PERMISSION_DENIED


def test_an_administrator_has_any_certificate_signed_that_names_no_hosts(token_world: TokenWorld) -> None:
    admin = token_world.certified("admin")
    assert certified(admin, OTHER).uris == (OTHER,)
    for kind in ("replica", "web", "etcd"):
        failure = refused(lambda one=kind: certified(admin, f"spiffe://{TRUST_DOMAIN}/{one}/x"))  # type: ignore[misc]
        assert failure.code is Code.FAILED_PRECONDITION and "rayched pki issue" in failure.message
    assert refused(lambda: certified(admin, "spiffe://elsewhere/node/x")).code is Code.PERMISSION_DENIED
    for bad in (b"", b"-----BEGIN", b"x" * 10_000):
        assert refused(lambda one=bad: admin.sign_certificate(one, OTHER)).code is Code.INVALID_ARGUMENT  # type: ignore[misc]


def test_what_is_signed_is_in_the_authoritys_list_and_at_one_key(token_world: TokenWorld) -> None:
    admin = token_world.certified("admin")
    serials = [serial_text(certified(admin, OTHER).serial) for _ in range(3)]
    listed = (token_world.directory / "authority" / "issued").read_text()
    assert all(serial in listed for serial in serials)
    stored = token_world.stored()
    assert [serial.encode() in stored for serial in serials] == [False, False, True]


def test_a_replica_without_the_key_says_so(token_world: TokenWorld) -> None:
    (token_world.directory / "authority" / "ca.key").unlink()
    client = token_world.shown(joining(token_world).secret)
    failure = refused(lambda: certified(client))
    assert failure.code is Code.FAILED_PRECONDITION and "put the key of the certificate authority back" in failure.message


@pytest.mark.parametrize(("seconds", "allowed"), [(59, False), (60, True), (86_400, True), (86_401, False)])
def test_a_join_token_counts_from_a_minute_to_a_day(token_world: TokenWorld, seconds: int, allowed: bool) -> None:
    admin, began = token_world.certified("admin"), time.time()
    if allowed:
        assert admin.issue_token(NODE, seconds).token.expires_at_ms / 1e3 - began == pytest.approx(seconds, abs=10)
    else:
        assert refused(lambda: admin.issue_token(NODE, seconds)).code is Code.INVALID_ARGUMENT
