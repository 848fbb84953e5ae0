"""The HTTP endpoint over TLS asks who reads: certificates and tokens, over the real edge of a real server."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rayched.pki.https import HttpsCertificate
from rayched.pki.tls_files import TlsFiles
from rayched.server.errors import ApiFailure
from rayched.server.http.health_checks import PING, Check, HealthChecks
from rayched.server.http.http_endpoint import Answer, HttpEndpoint, Request
from rayched.server.http.http_readers import guarded, guarded_health
from tests.pki.made import CLIENT, TRUST_DOMAIN, a_pair, an_authority
from tests.server.serving import Serving, until
from tests.server.token_world import TokenWorld, granted, token_world, uri

pytestmark = pytest.mark.cluster

__all__ = ["token_world"]


@dataclass
class ReaderWorld:
    """An endpoint beside the first of two replicas, at which prometheus is a monitor."""

    tokens: TokenWorld
    endpoint: HttpEndpoint

    def ask(self, path: str, files: TlsFiles | None = None, token: str = "") -> tuple[int, str]:
        """Status and body."""
        return self.ask_with(path, files, {"Authorization": f"Bearer {token}"} if token else {})[:2]

    def ask_with(self, path: str, files: TlsFiles | None, headers: dict[str, str]) -> tuple[int, str, str]:
        """The same, and what the answer asks for."""
        ca = self.tokens.directory / "http-ca.crt"
        ca.write_bytes(self.tokens.authority.certificate_pem)
        context = ssl.create_default_context(cafile=str(ca))
        if files is not None:
            context.load_cert_chain(files.certificate, files.key)
        connection = http.client.HTTPSConnection(self.endpoint.address, timeout=10, context=context)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.getheader("WWW-Authenticate", "")
        finally:
            connection.close()

    def certified(self, name: str) -> TlsFiles:
        return a_pair(self.tokens.authority, [uri(name)], [CLIENT]).write(self.tokens.directory / f"reader-{name}")


def opened(server: Serving, files: TlsFiles) -> HttpEndpoint:
    """With routes as a replica has them, of whose checks one fails."""
    checks = HealthChecks({"readyz": (PING, Check("storage", lambda: "secret words"))})

    def judge(request: Request, path: str) -> ApiFailure | None:
        async def judged() -> ApiFailure | None:
            try:
                server.server.judge_reader(request, path)
            except ApiFailure as failure:
                return failure
            return None

        return server.run(judged())

    routes = {
        "/readyz": guarded_health(lambda request: checks.answer("readyz", request), judge),
        "/metrics": guarded("/metrics", lambda _: Answer(b"counted"), judge),
        "/configz": guarded("/configz", lambda _: Answer(b"configured"), judge),
    }
    certificate = HttpsCertificate(files.certificate, files.key, files.ca)
    return HttpEndpoint("127.0.0.1", 0, routes, frozenset({"/readyz"}), certificate=certificate)


@pytest.fixture
def readers(token_world: TokenWorld, tmp_path: Path) -> Iterator[ReaderWorld]:
    server = token_world.servers[0]
    files = a_pair(token_world.authority, [f"spiffe://{TRUST_DOMAIN}/replica/replica-0"]).write(tmp_path / "http")
    endpoint = opened(server, files)
    endpoint.start()
    world = ReaderWorld(token_world, endpoint)
    token_world.certified("admin").grant(granted("prometheus", "monitor").to_message())
    until(lambda: world.ask("/metrics", world.certified("prometheus"))[0] == 200, 30.0)
    yield world
    endpoint.stop()


@pytest.mark.row("B107")
def test_metrics_and_configuration_need_a_role_and_health_needs_none(readers: ReaderWorld) -> None:
    prometheus, alice, admin = (readers.certified(name) for name in ("prometheus", "alice", "admin"))
    assert readers.ask("/metrics", prometheus) == (200, "counted")
    assert readers.ask("/configz", admin) == (200, "configured")
    status, body = readers.ask("/configz", prometheus)
    assert status == 403 and "that needs the role operator or admin; it has monitor" in body
    status, body = readers.ask("/metrics", alice)
    assert status == 403 and "that needs the role monitor or operator; it has viewer in team-a" in body
    for path in ("/metrics", "/configz", "/readyz?verbose"):
        status, body, asked = readers.ask_with(path, None, {})
        assert status == 401 and asked == 'Bearer realm="rayched"' and "counted" not in body


@pytest.mark.row("B107")
def test_why_a_check_fails_is_for_who_may_know(readers: ReaderWorld) -> None:
    for path in ("/readyz", "/readyz/storage"):
        status, body = readers.ask(path)
        assert status == 500 and "reason withheld" in body and "secret" not in body
    assert readers.ask("/readyz/ping") == (200, "ok")
    status, body = readers.ask("/readyz?verbose", readers.certified("prometheus"))
    assert status == 500 and "[-]storage failed: secret words" in body


def test_a_token_counts_as_at_the_port_for_tokens_and_wrong_ones_are_counted(readers: ReaderWorld) -> None:
    issued = readers.tokens.issue("admin", uri("prometheus"))
    assert readers.ask("/metrics", token=issued.secret) == (200, "counted")
    readers.tokens.certified("admin").revoke_token(issued.token.id, uri("prometheus"))
    until(lambda: readers.ask("/metrics", token=issued.secret)[0] == 401, 30.0)


def test_who_guesses_tokens_is_asked_for_none_for_a_minute_and_others_are(readers: ReaderWorld) -> None:
    issued = readers.tokens.issue("admin", uri("prometheus"))
    for _ in range(30):
        assert readers.ask("/metrics")[0] == 401, "who shows nothing guesses nothing"
    wrong = f"{issued.secret[:-1]}{'A' if issued.secret[-1] != 'A' else 'B'}"
    statuses = [readers.ask("/metrics", token=wrong)[0] for _ in range(25)]
    assert statuses[0] == 401 and statuses[-1] == 429 and set(statuses) == {401, 429}
    assert readers.ask("/metrics", token=issued.secret)[0] == 429
    assert readers.ask("/readyz/ping") == (200, "ok")


def test_a_certificate_that_is_refused_reads_nothing(readers: ReaderWorld) -> None:
    prometheus = readers.certified("prometheus")
    readers.tokens.certified("admin").revoke_certificate(identity=uri("prometheus"))
    until(lambda: readers.ask("/metrics", prometheus)[0] == 401, 30.0)
    foreign = a_pair(an_authority(), [uri("admin")], [CLIENT]).write(readers.tokens.directory / "foreign")
    with pytest.raises((OSError, http.client.HTTPException)):
        readers.ask("/metrics", foreign)
