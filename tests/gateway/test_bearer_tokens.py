"""A bearer token at the gateway is whom it stands for, judged as over gRPC: a real replica, gateway and kubectl."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from rayched.client.contexts import write_context_file
from rayched.pki.client_token import TokenFiles
from rayched.v1.access_pb2 import IssueTokenResponse, RoleBinding
from tests.cli.cluster import run_here, wait_until
from tests.gateway.kubectl import KUBECTL, Kubectl
from tests.gateway.requests import WatchLines, ask
from tests.gateway.test_identity import Secured, a_pod_document, reason_of, secured

pytestmark = pytest.mark.cluster

__all__ = ["secured"]

OWN, FOREIGN = "/api/v1/namespaces/team-a/pods", "/api/v1/namespaces/team-b/pods"


def issued(secured: Secured, name: str, role: str = "viewer") -> IssueTokenResponse:
    """A user's token, in force at the replica; the user has the role in team-a."""
    uri = f"spiffe://{secured.made.trust_domain}/user/{name}"
    secured.admin.grant(RoleBinding(subject=uri, role=role, namespaces=["team-a"]))
    found = secured.admin.issue_token(uri)
    wait_until(lambda: is_known(secured, found), "the token is in force")
    return found


def is_known(secured: Secured, issued: IssueTokenResponse) -> bool:
    """Without a question to the gateway, which counts wrong ones."""
    running = secured.replica.server._running
    return running is not None and issued.token.id in running.guard.tokens._by_id


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.mark.row("KC26")
def test_a_token_has_the_rights_of_whom_it_stands_for_and_no_others(secured: Secured) -> None:
    headers, nobody = bearer(issued(secured, "tina").secret), secured.tls(None)
    assert "web" in [one["metadata"]["name"] for one in ask(secured.url, OWN, headers=headers, tls=nobody).document["items"]]
    for place in ("/api", "/apis", "/version", "/openapi/v3"):
        assert ask(secured.url, place, headers=headers, tls=nobody).status == 200, place
    for place in (FOREIGN, f"{FOREIGN}/web", "/api/v1/pods", "/api/v1/nodes"):
        assert reason_of(ask(secured.url, place, headers=headers, tls=nobody)) == (403, "Forbidden"), place
    refused = ask(secured.url, OWN, "POST", a_pod_document("mine"), headers=headers, tls=nobody)
    assert reason_of(refused) == (403, "Forbidden")
    assert f"spiffe://{secured.made.trust_domain}/user/tina may not Submission.Submit" in refused.document["message"]


@pytest.mark.row("KC27")
def test_tokens_that_do_not_count_are_401_in_kubernetes_words(secured: Secured) -> None:
    found, nobody = issued(secured, "theo"), secured.tls(None)
    uri = found.token.subject
    joins = secured.admin.issue_token(uri.replace("/user/theo", "/node/n1"))
    for text in ("rt_aaaaaaaa_" + "A" * 43, found.secret[:-1], "x", "", joins.secret.replace("join.", "join:"), "ö" * 9):
        header = {"Authorization": f"Bearer {text}".encode().decode("latin-1")}
        answer = ask(secured.url, OWN, headers=header, tls=nobody)
        assert (answer.document["kind"], *reason_of(answer)) == ("Status", 401, "Unauthorized"), text
        assert found.secret[12:20] not in answer.document["message"]
    with WatchLines(secured.url, f"{OWN}?watch=true", nobody, bearer(found.secret)) as lines:
        assert lines.take(1)[0]["type"] == "ADDED"
        secured.admin.revoke_token(found.token.id, uri)
        last = list(lines)[-1]
        assert (last["type"], last["object"]["reason"]) == ("ERROR", "Unauthorized")
    revoked = ask(secured.url, OWN, headers=bearer(found.secret), tls=nobody)
    assert reason_of(revoked) == (401, "Unauthorized") and "not expired or revoked" in revoked.document["message"]
    # A join token is a node's, and the gateway is for users.
    wait_until(lambda: is_known(secured, joins), "the token is in force")
    assert reason_of(ask(secured.url, OWN, headers=bearer(joins.secret), tls=nobody)) == (403, "Forbidden")


@pytest.mark.row("KC30")
def test_a_kubeconfig_has_the_tokens_file_and_kubectl_asks_with_it(secured: Secured, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(issued(secured, "tina").secret)
    context = tmp_path / "context.yaml"
    write_context_file(context, [secured.replica.address], TokenFiles(secured.made.path / "ca.crt", token))
    file = tmp_path / "kubeconfig"
    words = ["kubeconfig", "--context", str(context), "-n", "team-a", "-o", str(file)]
    assert "--gateway: is needed" in run_here(words).errors[0]
    assert run_here([*words, "--gateway", secured.url]).code == 0
    assert f"tokenFile: {token}" in file.read_text() and stat.S_IMODE(file.stat().st_mode) == 0o600
    if KUBECTL is None:
        pytest.skip("there is no kubectl on this host")
    kubectl = Kubectl(file, tmp_path)
    assert "web" in [line.split()[0] for line in kubectl.ok("get", "pods")]
    assert "(Forbidden)" in kubectl.refused("delete", "pod", "web")


@pytest.mark.row("KC27")
def test_who_shows_wrong_tokens_is_slowed_down_and_others_with_certificates_are_not(secured: Secured) -> None:
    # The last one here: this host's address is slowed down behind it.
    nobody, vera = secured.tls(None), secured.user("vera", "viewer", "team-a")
    answers = [ask(secured.url, OWN, headers=bearer(f"rt_aaaaaaaa_{number:043}"), tls=nobody) for number in range(30)]
    assert {answer.status for answer in answers} == {401, 429}
    assert answers[-1].status == 429 and answers[-1].document["details"]["retryAfterSeconds"] > 0
    assert ask(secured.url, OWN, tls=vera).status == 200, "the gateway's own address is not at fault at the replica"
