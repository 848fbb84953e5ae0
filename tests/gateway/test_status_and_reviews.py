"""What agents of others say of pods and nodes, what `kubectl auth` asks, and the lease under which a replica leads."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client as kubernetes_client

from tests.cli.cluster import Commands, a_pod_text
from tests.gateway.kubectl import Kubectl
from tests.gateway.requests import ask

pytestmark = pytest.mark.cluster

MERGE = {"Content-Type": "application/merge-patch+json"}
LEASES = "/apis/coordination.k8s.io/v1"


def patched(url: str, place: str, change: dict[str, Any], query: str = "") -> Any:
    return ask(url, f"{place}/status{query}", "PATCH", change, MERGE)


@pytest.mark.row("KC42")
def test_a_status_is_read_and_written_as_an_agent_writes_it(url: str, rayched: Commands, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace))
    rayched.running("web", namespace)
    place = f"/api/v1/namespaces/{namespace}/pods/web"
    before = ask(url, f"{place}/status").document
    assert (before["kind"], before["status"]["phase"]) == ("Pod", "Running")
    assert before["metadata"]["uid"] == ask(url, place).document["metadata"]["uid"]
    condition = {"type": "example.com/Warm", "status": "True", "reason": "Cache", "message": "it is warm"}
    with rayched.nothing_changes():
        tried = patched(url, place, {"status": {"conditions": [condition]}}, "?dryRun=All")
        assert (tried.status, tried.document["status"]["conditions"][-1]["type"]) == (200, "example.com/Warm")
    change = {"metadata": {"labels": {"app": "other"}}, "status": {"message": "by another agent", "conditions": [condition]}}
    written = patched(url, place, change)
    assert written.status == 200, written.body
    found = ask(url, place).document
    assert found["status"]["message"] == "by another agent"
    assert {"Ready", "example.com/Warm"} <= {one["type"] for one in found["status"]["conditions"]}
    assert found["metadata"].get("labels") == before["metadata"].get("labels"), "the status alone is taken"
    stale = patched(url, place, {"metadata": {"resourceVersion": "1"}, "status": {"message": "late"}})
    assert (stale.status, stale.document["reason"]) == (409, "Conflict")
    back = patched(url, place, {"status": {"phase": "Pending"}})
    assert (back.status, "status.phase" in back.document["message"]) == (409, True)
    replaced = ask(url, f"{place}/status", "PUT", {**found, "status": {**found["status"], "message": "put"}})
    assert (replaced.status, replaced.document["status"]["message"]) == (200, "put")
    other = ask(url, f"{place}/status", "PUT", {**replaced.document, "metadata": {**found["metadata"], "uid": "another"}})
    assert other.status == 409


@pytest.mark.row("KC42")
def test_a_nodes_status_is_written_and_what_the_leader_writes_is_read_only(url: str, rayched: Commands, namespace: str) -> None:
    condition = {"type": "example.com/Licensed", "status": "True", "reason": "Found", "message": ""}
    written = patched(url, "/api/v1/nodes/node-007", {"status": {"conditions": [condition]}})
    assert written.status == 200, written.body
    kinds = {one["type"]: one["status"] for one in ask(url, "/api/v1/nodes/node-007/status").document["status"]["conditions"]}
    assert (kinds["Ready"], kinds["example.com/Licensed"]) == ("True", "True")
    space = f"/api/v1/namespaces/{namespace}"
    assert ask(url, f"{space}/status").document["status"]["phase"] == "Active"
    for method in ("PUT", "PATCH", "DELETE", "POST"):
        assert ask(url, f"{space}/status", method, {}, MERGE).status == 405
    assert ask(url, "/api/v1/nodes/nobody/status").status == 404


@pytest.mark.row("KC43")
def test_kubectl_is_told_who_asks_and_what_is_allowed(kubectl: Kubectl, url: str) -> None:
    assert "Username" in "\n".join(kubectl.ok("auth", "whoami"))
    for words in (
        ("list", "pods", "-A"),
        ("create", "pods", "--subresource=eviction"),
        ("create", "pods", "--subresource=binding"),
        ("get", "pods", "--subresource=log"),
        ("patch", "pods", "--subresource=status"),
        ("patch", "rs.apps", "--subresource=scale"),
        ("list", "nodes.metrics.k8s.io"),
        ("get", "leases"),
        ("*", "nodes"),
    ):
        assert kubectl.ok("auth", "can-i", *words)[-1] == "yes", words
    for words in (("delete", "events"), ("create", "nodes", "--subresource=status"), ("get", "/metrics"), ("fly", "pods")):
        result = kubectl("auth", "can-i", *words)
        assert (result.code, result.lines[-1].partition(" ")[0]) == (1, "no"), (words, result)


@pytest.mark.row("KC43")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"spec": "x"}, "spec: must be an object"),
        ({"spec": {}}, "spec.resourceAttributes: is required"),
        ({"spec": {"resourceAttributes": {"verb": 1, "resource": "pods"}}}, "spec.resourceAttributes.verb: must be a text"),
        ({"kind": "Pod"}, "the request's place is for a SelfSubjectAccessReview"),
    ],
)
def test_a_review_that_is_none_is_refused(url: str, body: dict[str, Any], words: str) -> None:
    answer = ask(url, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "POST", body)
    assert answer.status == 400 and words in answer.document["message"]


@pytest.mark.row("KC44")
def test_the_lease_of_the_leader_is_shown_and_cannot_be_written(url: str, rayched: Commands) -> None:
    leader = rayched.client.leader()
    place = f"{LEASES}/namespaces/kube-system/leases"
    found = ask(url, f"{place}/rayched").document
    spec = found["spec"]
    assert (spec["holderIdentity"], found["metadata"]["resourceVersion"]) == (leader.holder, str(leader.epoch))
    assert spec["leaseTransitions"] == leader.transitions and spec["leaseDurationSeconds"] >= 1
    assert spec["acquireTime"] <= spec["renewTime"]
    api = kubernetes_client.CoordinationV1Api(kubernetes_client.ApiClient(kubernetes_client.Configuration(host=url)))
    (typed,) = api.list_lease_for_all_namespaces().items
    assert typed.spec.holder_identity == leader.holder and typed.spec.renew_time >= typed.spec.acquire_time
    assert api.list_namespaced_lease("default").items == []
    assert ask(url, f"{place}/nobody").status == 404 and ask(url, f"{place}?labelSelector=a").status == 400
    for method in ("POST", "DELETE"):
        assert ask(url, place, method, {}).status == 405
    for method in ("PUT", "PATCH", "DELETE"):
        assert ask(url, f"{place}/rayched", method, {}, MERGE).status == 405


@pytest.mark.row("KC44")
def test_kubectl_shows_the_lease(kubectl: Kubectl, rayched: Commands) -> None:
    headings, row = (line.split() for line in kubectl.ok("get", "leases", "-A"))
    assert headings == ["NAMESPACE", "NAME", "HOLDER", "AGE"]
    assert row[:3] == ["kube-system", "rayched", rayched.client.leader().holder]
    assert kubectl.object("get", "lease", "rayched", "-n", "kube-system")["spec"]["holderIdentity"] == row[2]
