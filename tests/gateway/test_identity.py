"""Over TLS a request is its certificate's user's, and judged as a call over gRPC is: a real replica, gateway and kubectl."""

from __future__ import annotations

import contextlib
import http.client
import os
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rayched.access.identity import Identity, IdentityKind
from rayched.client.client import Client
from rayched.client.contexts import write_context_file
from rayched.pki.authority import Authority, KeyMaker
from rayched.pki.directory import PkiDirectory
from rayched.pki.issuing import leaf_request
from rayched.pki.tls_files import TlsFiles
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.peers import ServerTls
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.access_pb2 import RoleBinding
from rayched.v1.core_pb2 import Namespace, Pod
from tests.cli.cluster import run_here, started, wait_until
from tests.gateway.kubectl import KUBECTL, Kubectl
from tests.gateway.requests import WatchLines, ask
from tests.pki.made import CLIENT, SERVER, Pair, a_pair, an_authority
from tests.server.serving import Serving, serving

pytestmark = pytest.mark.cluster


@dataclass
class Secured:
    """A replica with certificates, and the gateway before it."""

    made: PkiDirectory
    replica: Serving
    url: str
    admin: Client

    def issue(self, kind: str, name: str) -> TlsFiles:
        identity = Identity(self.made.trust_domain, IdentityKind(kind), name)
        self.made.issue(leaf_request(identity.trust_domain, identity.kind, identity.name))
        return TlsFiles.within(self.made.place_of(identity))

    def tls(self, files: TlsFiles | None) -> ssl.SSLContext:
        """What a client of HTTPS shows; None: no certificate."""
        found = ssl.create_default_context(cafile=self.made.path / "ca.crt")
        if files is not None:
            found.load_cert_chain(files.certificate, files.key)
        return found

    def user(self, name: str, role: str = "", *namespaces: str) -> ssl.SSLContext:
        """A user with a binding, once it is in force."""
        context = self.tls(self.issue("user", name))
        if role:
            uri = f"spiffe://{self.made.trust_domain}/user/{name}"
            self.admin.grant(RoleBinding(subject=uri, role=role, namespaces=namespaces))
            place = f"/api/v1/namespaces/{namespaces[0]}/pods" if namespaces else "/api/v1/nodes"
            wait_until(lambda: ask(self.url, place, tls=context).status == 200, "the binding is in force")
        return context


def web_flags(made: PkiDirectory) -> list[str]:
    """Of a gateway, with a certificate of its own."""
    identity = Identity(made.trust_domain, IdentityKind.WEB, "gateway-0")
    made.issue(leaf_request(identity.trust_domain, identity.kind, identity.name, ["gateway.example"]))
    files = TlsFiles.within(made.place_of(identity))
    return [
        *("--tls-cert-file", str(files.certificate), "--tls-private-key-file", str(files.key)),
        *("--client-ca-file", str(files.ca), "--client-deny-list-file", str(made.deny_list)),
    ]


@pytest.fixture(scope="module")
def secured(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = PkiDirectory.create(tmp_path_factory.mktemp("pki") / "pki")
    replica = Identity(made.trust_domain, IdentityKind.REPLICA, "replica-0")
    admin = Identity(made.trust_domain, IdentityKind.USER, "admin")
    for one in (replica, admin):
        made.issue(leaf_request(one.trust_domain, one.kind, one.name))
    tls = ServerTls.read(TlsFiles.within(made.place_of(replica)), made.deny_list)
    keys = Keys(f"/secured-{os.getpid()}-{made.trust_domain}")
    with contextlib.ExitStack() as owned:
        server = owned.enter_context(serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], keys, tls=tls), useful=False))
        client = owned.enter_context(Client(server.address, timeout_seconds=20.0, tls=TlsFiles.within(made.place_of(admin))))
        running = owned.enter_context(started("gateway", "--listen", "127.0.0.1:0", "--server", server.address, *web_flags(made)))
        url = running.line_with("is served at").rpartition(" ")[2]
        for name in ("team-a", "team-b"):
            client.apply(Namespace(api_version="v1", kind="Namespace", metadata={"name": name}))
            client.submit(a_pod("web", name))
        yield Secured(made, server, url, client)


def a_pod(name: str, namespace: str) -> Pod:
    pod = Pod(api_version="v1", kind="Pod", metadata={"name": name, "namespace": namespace})
    pod.spec.containers.add(name="main", image="registry.example/a:1")
    return pod


def a_pod_document(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "registry.example/a:1"}], **spec},
    }


def reason_of(answer: Any) -> tuple[int, str]:
    return answer.status, answer.document["reason"]


@pytest.mark.row("KC26")
def test_a_request_has_the_rights_of_its_certificates_user_and_no_others(secured: Secured) -> None:
    viewer = secured.user("vera", "viewer", "team-a")
    own, foreign = "/api/v1/namespaces/team-a/pods", "/api/v1/namespaces/team-b/pods"
    assert [one["metadata"]["name"] for one in ask(secured.url, own, tls=viewer).document["items"]] == ["web"]
    for place in (foreign, f"{foreign}/web", f"{foreign}/nobody", "/api/v1/pods", "/api/v1/nodes"):
        assert reason_of(ask(secured.url, place, tls=viewer)) == (403, "Forbidden"), place
    refused = ask(secured.url, own, "POST", a_pod_document("mine"), tls=viewer)
    assert reason_of(refused) == (403, "Forbidden")
    assert f"spiffe://{secured.made.trust_domain}/user/vera may not Submission.Submit" in refused.document["message"]
    submitter = secured.user("saul", "submitter", "team-a")
    assert ask(secured.url, own, "POST", a_pod_document("mine"), tls=submitter).status == 201
    bound = ask(secured.url, own, "POST", a_pod_document("bound", nodeName="n"), tls=submitter)
    assert reason_of(bound)[0] in (403, 422) and "spec.nodeName" in bound.document["message"]
    assert ask(secured.url, f"{own}/mine?gracePeriodSeconds=0", "DELETE", tls=submitter).status == 200


@pytest.mark.row("KC26")
def test_whoever_shows_no_certificate_is_told_that_the_gateway_lives_and_nothing_else(secured: Secured) -> None:
    nobody = secured.tls(None)
    for place in ("/api", "/apis", "/version", "/openapi/v3", "/api/v1/pods", "/api/v1/namespaces/team-a/pods/web/exec"):
        assert reason_of(ask(secured.url, place, tls=nobody)) == (401, "Unauthorized"), place
    assert ask(secured.url, "/livez", tls=nobody).body == b"ok"
    assert ask(secured.url, "/readyz", tls=nobody).status == 200
    bearer = {"Authorization": "Bearer spiffe://x/user/admin"}
    assert ask(secured.url, "/api/v1/pods", headers=bearer, tls=nobody).status == 401
    for header in ("rayched-for", "X-Remote-User", "Impersonate-User"):
        admin = f"spiffe://{secured.made.trust_domain}/user/admin"
        assert ask(secured.url, "/api/v1/pods", headers={header: admin}, tls=nobody).status == 401
        vera = secured.user("vera", "viewer", "team-a")
        assert ask(secured.url, "/api/v1/pods", headers={header: admin}, tls=vera).status == 403
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(secured.url.replace("https", "http"), "/livez")


@pytest.mark.row("KC18")
def test_a_page_in_a_browser_that_has_a_certificate_is_refused(secured: Secured) -> None:
    admin = secured.tls(secured.issue("user", "admin"))
    for headers in ({"Origin": "https://elsewhere.example"}, {"Origin": secured.url}, {"Sec-Fetch-Site": "cross-site"}):
        answer = ask(secured.url, "/api/v1/pods", headers=headers, tls=admin)
        assert reason_of(answer) == (403, "Forbidden"), headers


@pytest.mark.row("KC18", "KC41")
def test_a_socket_is_opened_with_the_origin_of_the_gateways_own_names_alone(secured: Secured) -> None:
    admin, nobody = secured.tls(secured.issue("user", "admin")), secured.tls(None)
    own = secured.url.removeprefix("https://")
    place = "/api/v1/namespaces/team-a/pods/web/attach"
    for origin, host, refused in (
        (secured.url, own, False),
        ("https://localhost:7", "localhost:7", False),
        ("https://gateway.EXAMPLE", "Gateway.example", False),
        (f"http://{own}", own, True),
        ("https://elsewhere.example", own, True),
        ("https://gateway.example", own, True),
        ("https://rebound.example", "rebound.example", True),
        ("null", own, True),
    ):
        # Half of a handshake, so that one that is let in is a bad request.
        headers = {"Upgrade": "websocket", "Origin": origin, "Host": host}
        answer = reason_of(ask(secured.url, place, headers=headers, tls=admin))
        assert answer == ((403, "Forbidden") if refused else (400, "BadRequest")), (origin, host)
        assert ask(secured.url, place, headers=headers, tls=nobody).status == (403 if refused else 401)


def of_this(secured: Secured, uris: Sequence[str], usages: Any = (CLIENT,), **more: Any) -> Pair:
    key = (secured.made.path / "ca.key").read_bytes()
    authority = Authority.read((secured.made.path / "ca.crt").read_bytes(), key, "ca.key", KeyMaker())
    return a_pair(authority, uris, usages, **more)


@pytest.mark.row("KC27")
def test_certificates_that_are_nobodys_are_refused(secured: Secured, tmp_path: Path) -> None:
    domain = secured.made.trust_domain
    user = f"spiffe://{domain}/user/admin"
    at_the_handshake = [
        a_pair(an_authority(domain), [user], [CLIENT]),
        of_this(secured, [user], begins=-7200.0, ends=-60.0),
        of_this(secured, [user], [SERVER]),
        of_this(secured, [user], signed_by=an_authority().key),
    ]
    for number, pair in enumerate(at_the_handshake):
        with pytest.raises(OSError):
            ask(secured.url, "/api/v1/pods", tls=secured.tls(pair.write(tmp_path / f"handshake-{number}")))
    judged = [
        (of_this(secured, [user], []), 401),
        (of_this(secured, []), 401),
        (of_this(secured, [user, user.replace("admin", "eve")]), 401),
        (of_this(secured, ["spiffe://rayched-elsewhere/user/admin"]), 401),
        (of_this(secured, [f"spiffe://{domain}/node/node-1"]), 403),
        (of_this(secured, [f"spiffe://{domain}/replica/replica-0"]), 403),
        (of_this(secured, [f"spiffe://{domain}/web/gateway-0"]), 403),
    ]
    for number, (pair, code) in enumerate(judged):
        answer = ask(secured.url, "/api/v1/pods", tls=secured.tls(pair.write(tmp_path / f"judged-{number}")))
        assert answer.status == code, (number, answer.body)


@pytest.mark.row("KC27")
def test_a_watch_ends_with_the_certificate_and_with_the_binding(secured: Secured) -> None:
    place = "/api/v1/namespaces/team-a/pods?watch=true"
    revoked = secured.user("rita", "viewer", "team-a")
    unbound = secured.user("ulla", "viewer", "team-a")
    with WatchLines(secured.url, place, revoked) as first, WatchLines(secured.url, place, unbound) as second:
        assert first.take(1)[0]["object"]["metadata"]["name"] == "web"
        assert second.take(1)[0]["type"] == "ADDED"
        secured.made.revoke(f"spiffe://{secured.made.trust_domain}/user/rita")
        # It is cut off: whether that looks like an end or like an error is the client's matter.
        with contextlib.suppress(http.client.HTTPException, ConnectionError):
            assert list(first) == []
        assert ask(secured.url, place, tls=revoked).status == 401
        uri = f"spiffe://{secured.made.trust_domain}/user/ulla"
        for binding in secured.admin.grants(uri):
            secured.admin.revoke_grant(binding.id)
        last = list(second)[-1]
        assert (last["type"], last["object"]["reason"]) == ("ERROR", "Forbidden")


@pytest.mark.row("KC27")
def test_a_certificate_that_the_cluster_refuses_is_refused_at_the_gateway(secured: Secured) -> None:
    place = "/api/v1/namespaces/team-a/pods"
    lost = secured.user("lena", "viewer", "team-a")
    uri = f"spiffe://{secured.made.trust_domain}/user/lena"
    serial = next(one.serial for one in secured.made.issued() if one.uri == uri)
    kept = secured.tls(secured.issue("user", "lena"))
    with WatchLines(secured.url, f"{place}?watch=true", lost) as lines:
        assert lines.take(1)[0]["type"] == "ADDED"
        secured.admin.revoke_certificate(serial)
        last = list(lines)[-1]
        assert (last["type"], last["object"]["reason"]) == ("ERROR", "Unauthorized")
    refused = ask(secured.url, place, tls=lost)
    assert reason_of(refused) == (401, "Unauthorized")
    assert f"certificate {serial} of {uri} is revoked" in refused.document["message"]
    assert ask(secured.url, place, tls=kept).status == 200, "she has another one"


@pytest.mark.row("KC27")
def test_new_files_are_in_force_at_the_next_handshake(secured: Secured) -> None:
    admin = secured.tls(secured.issue("user", "admin"))

    def serial() -> Any:
        host, _, port = secured.url.removeprefix("https://").rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=admin)
        connection.connect()
        try:
            return connection.sock.getpeercert()["serialNumber"]
        finally:
            connection.close()

    before = serial()
    secured.issue("web", "gateway-0")
    wait_until(lambda: serial() != before, "the new certificate is shown")
    assert ask(secured.url, "/api/v1/nodes", tls=admin).status == 200


def test_a_gateway_needs_a_certificate_of_a_gateway(secured: Secured) -> None:
    files = secured.issue("user", "admin")
    flags = ["--tls-cert-file", str(files.certificate), "--tls-private-key-file", str(files.key)]
    refused = run_here(["gateway", "--listen", "127.0.0.1:0", *flags, "--client-ca-file", str(files.ca)])
    assert refused.code == 1 and "want one of `rayched pki issue web`" in refused.errors[0]
    assert "TLS needs --client-ca-file as well" in run_here(["gateway", *flags]).errors[0]
    half = run_here(["gateway", "--client-deny-list-file", "x"])
    assert half.code == 2 and "goes with --tls-cert-file alone" in half.errors[0]


@pytest.mark.row("KC30")
def test_a_kubeconfig_has_the_certificate_and_kubectl_asks_with_it(secured: Secured, tmp_path: Path) -> None:
    if KUBECTL is None:
        pytest.skip("there is no kubectl on this host")
    secured.user("vera", "viewer", "team-a")
    context = tmp_path / "context.yaml"
    write_context_file(context, [secured.replica.address], secured.issue("user", "vera"))
    file = tmp_path / "kubeconfig"
    words = ["kubeconfig", "--context", str(context), "--gateway", secured.url, "-n", "team-a", "-o", str(file)]
    assert run_here(words).code == 0
    kubectl = Kubectl(file, tmp_path)
    assert [line.split()[0] for line in kubectl.ok("get", "pods")] == ["NAME", "web"]
    assert "may not Submission.List" in kubectl.refused("get", "pods", "-n", "team-b")
    assert "(Forbidden)" in kubectl.refused("delete", "pod", "web")
