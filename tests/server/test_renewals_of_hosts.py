"""Certificates that name hosts are renewed by showing them, with the same hosts and a new key: of replicas and gateways."""

from __future__ import annotations

import pytest
from cryptography import x509

from rayched.client import Client
from rayched.pki.authority import key_pem_of
from rayched.pki.certificates import facts_of, hosts_of, read_certificates
from tests.cli.cluster import run_here
from tests.pki.made import BOTH, CLIENT, TRUST_DOMAIN, Pair, a_pair
from tests.server.test_join_tokens import a_request
from tests.server.token_world import Code, TokenWorld, refused, token_world, uri

pytestmark = pytest.mark.cluster

__all__ = ["token_world"]

HOSTS = ("replica-7.example", "10.0.0.17")
OWN_HOST = {"localhost", "127.0.0.1", "::1"}


def identity_of(kind: str) -> str:
    return f"spiffe://{TRUST_DOMAIN}/{kind}/one"


def holder(world: TokenWorld, kind: str) -> Client:
    return world.paired(a_pair(world.authority, [identity_of(kind)], BOTH, hosts=HOSTS))


def renewed(client: Client, subject: str = "") -> tuple[x509.Certificate, Pair]:
    key, request = a_request()
    answer = client.sign_certificate(request, subject)
    made = read_certificates(answer.certificate, "the answer")[0]
    return made, Pair(answer.certificate, key_pem_of(key), answer.authorities, made.serial_number)


@pytest.mark.parametrize("kind", ["replica", "web"])
def test_it_is_renewed_for_the_same_hosts_and_serves_and_renews_again(token_world: TokenWorld, kind: str) -> None:
    made, pair = renewed(holder(token_world, kind))
    facts = facts_of(made)
    assert facts.uris == (identity_of(kind),) and facts.serves and facts.calls and not facts.is_authority
    assert hosts_of(made) == OWN_HOST | set(HOSTS)
    failure = refused(lambda: renewed(token_world.paired(pair)))
    assert failure.code is Code.RESOURCE_EXHAUSTED, "known, and too soon"


@pytest.mark.parametrize("kind", ["replica", "web"])
def test_nobody_else_gets_one(token_world: TokenWorld, kind: str) -> None:
    another = f"spiffe://{TRUST_DOMAIN}/{kind}/another"
    refusals = (Code.PERMISSION_DENIED, Code.FAILED_PRECONDITION)
    for client in (token_world.certified("admin"), holder(token_world, "replica"), holder(token_world, "web")):
        assert refused(lambda one=client: renewed(one, another)).code in refusals  # type: ignore[misc]
    bare = token_world.paired(a_pair(token_world.authority, [identity_of(kind)], [CLIENT], hosts=()))
    assert refused(lambda: renewed(bare)).code is Code.FAILED_PRECONDITION, "it shows no hosts"


def test_a_client_of_etcd_is_renewed_by_etcds_own_authority_alone(token_world: TokenWorld) -> None:
    assert refused(lambda: renewed(holder(token_world, "etcd"))).code is Code.FAILED_PRECONDITION


def test_the_command_renews_what_lies_in_a_directory(token_world: TokenWorld) -> None:
    place = token_world.directory / "held"
    files = a_pair(token_world.authority, [identity_of("replica")], BOTH, hosts=HOSTS).write(place)
    before = files.certificate.read_bytes(), files.key.read_bytes()
    server = token_world.servers[0].address
    assert run_here(["pki", "renew", str(place)]).code == 2
    early = run_here(["pki", "renew", str(place), "--servers", server, "--if-due"])
    assert early.code == 0 and "more than a third" in early.errors[0], early.errors
    done = run_here(["pki", "renew", str(place), "--servers", server])
    assert done.code == 0 and done.out.startswith(f"{identity_of('replica')} until "), done.errors
    after = files.certificate.read_bytes(), files.key.read_bytes()
    assert before[0] != after[0] and before[1] != after[1]
    assert hosts_of(read_certificates(after[0], "it")[0]) == OWN_HOST | set(HOSTS)
    assert token_world.client(server, files).who_am_i().identity == identity_of("replica")
    lost = run_here(["pki", "renew", str(token_world.directory / "nowhere"), "--servers", server])
    assert lost.code == 1 and "nowhere" in lost.errors[0] and uri("x") not in lost.errors[0]
