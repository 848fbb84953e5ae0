"""kubectl reads: discovery, tables, objects, selectors, pages, descriptions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rayched.gateway.discovery import AGGREGATED
from tests.cli.cluster import Commands, a_pod_text
from tests.gateway.kubectl import Kubectl
from tests.gateway.requests import ask

pytestmark = pytest.mark.cluster


@pytest.fixture
def space(rayched: Commands, namespace: str) -> str:
    """A namespace with web-0 and web-1, which run, and db, which waits."""
    pods = [a_pod_text(f"web-{number}", namespace=namespace, labels="{app: web}") for number in range(2)]
    pods.append(a_pod_text("db", namespace=namespace, labels="{app: db, tier: back}", cpu="17"))
    rayched.ok("apply", "-f", "-", stdin="---\n".join(pods))
    rayched.running("web-0", namespace)
    rayched.running("web-1", namespace)
    rayched.unschedulable("db", "Insufficient cpu", namespace)
    return namespace


@pytest.mark.row("KC1")
def test_kubectl_finds_all_kinds_with_their_short_names_and_scopes(kubectl: Kubectl) -> None:
    rows = {words[-1]: words for words in (line.split() for line in kubectl.ok("api-resources", "--no-headers"))}
    assert rows["Pod"] == ["pods", "po", "v1", "true", "Pod"]
    assert rows["Node"] == ["nodes", "no", "v1", "false", "Node"]
    assert rows["ReplicaSet"] == ["replicasets", "rs", "apps/v1", "true", "ReplicaSet"]
    assert rows["Job"] == ["jobs", "batch/v1", "true", "Job"]
    assert rows["PodMetrics"] == ["pods", "metrics.k8s.io/v1beta1", "true", "PodMetrics"]
    assert kubectl.ok("api-versions") == [
        "apps/v1",
        "authentication.k8s.io/v1",
        "authorization.k8s.io/v1",
        "batch/v1",
        "coordination.k8s.io/v1",
        "metrics.k8s.io/v1beta1",
        "node.k8s.io/v1",
        "policy/v1",
        "scheduling.k8s.io/v1",
        "scheduling.k8s.io/v1beta1",
        "v1",
    ]


@pytest.mark.row("KC1")
def test_discovery_is_told_in_one_document_and_in_many_with_the_same_content(url: str) -> None:
    wanted = {"Accept": f"{AGGREGATED},application/json"}
    for root, groups in (("/api", ["v1"]), ("/apis", None)):
        answer = ask(url, f"{root}?timeout=32s", headers=wanted)
        assert answer.headers["Content-Type"] == AGGREGATED
        plain = ask(url, root, headers={"Accept": "application/json"}).document
        assert plain["kind"] == ("APIVersions" if groups else "APIGroupList")
        assert len({one["name"] for one in plain.get("groups", ())}) == len(plain.get("groups", ()))
        found: list[str] = groups or [one["groupVersion"] for group in plain["groups"] for one in group["versions"]]
        told = [(item["metadata"]["name"], version) for item in answer.document["items"] for version in item["versions"]]
        assert [f"{name}/{version['version']}".removeprefix("/") for name, version in told] == found
        for (_, version), group_version in zip(told, found, strict=True):
            one_by_one = ask(url, f"{root if root == '/apis' else '/api'}/{group_version}").document["resources"]
            names = [one["name"] for one in one_by_one]
            both = []
            for one in version["resources"]:
                both += [one["resource"], *(f"{one['resource']}/{sub['subresource']}" for sub in one["subresources"])]
            assert names == both


@pytest.mark.row("KC1")
def test_evictions_are_found_where_kubectl_drain_looks_for_them(url: str) -> None:
    entries = {one["name"]: one for one in ask(url, "/api/v1").document["resources"]}
    found = entries["pods/eviction"]
    assert (found["kind"], found["group"], found["version"]) == ("Eviction", "policy", "v1")


def test_a_path_that_is_not_served_is_told_as_kubernetes_tells_it(url: str, kubectl: Kubectl) -> None:
    answer = ask(url, "/apis/apps/v1/deployments")
    assert (answer.status, answer.body) == (404, b"404 page not found\n")
    assert "the server doesn't have a resource type" in kubectl.refused("get", "deployments")
    assert "is running at" in "\n".join(kubectl.ok("cluster-info"))
    assert any("+rayched" in line for line in kubectl.ok("version"))
    assert ask(url, "/version/").document["major"] == "1"
    assert ask(url, "/livez").body == b"ok"
    assert ask(url, "/readyz").status == 200


@pytest.mark.row("KC2")
def test_pods_and_nodes_are_shown_in_kubectls_columns(kubectl: Kubectl, space: str) -> None:
    headings, *rows = (line.split() for line in kubectl.ok("get", "pods", "-n", space))
    assert headings == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [row[:4] for row in rows] == [
        ["db", "0/1", "Pending", "0"],
        ["web-0", "1/1", "Running", "0"],
        ["web-1", "1/1", "Running", "0"],
    ]
    wide = kubectl.ok("get", "pods", "-n", space, "-o", "wide")
    assert wide[0].split("  ")[-1].strip() == "READINESS GATES"
    assert "NODE " in wide[0] and "NOMINATED NODE" in wide[0]
    everywhere = kubectl.ok("get", "pods", "-A")
    assert everywhere[0].split()[0] == "NAMESPACE"
    assert any(line.split()[:2] == [space, "web-0"] for line in everywhere)
    assert "pod/web-0" in "\n".join(kubectl.ok("get", "all", "-n", space))
    nodes = kubectl.ok("get", "nodes", "-o", "wide")
    assert nodes[0].split()[:9] == [
        "NAME", "STATUS", "ROLES", "AGE", "VERSION", "INTERNAL-IP", "EXTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION",
    ]  # fmt: skip
    assert len(nodes) == 13


@pytest.mark.row("KC2")
def test_tables_are_sorted_and_have_labels_as_columns(kubectl: Kubectl, space: str) -> None:
    by_name = kubectl.ok("get", "pods", "-n", space, "--sort-by=.metadata.labels.app", "--no-headers")
    assert [line.split()[0] for line in by_name] == ["db", "web-0", "web-1"]
    assert [line.split()[-1] for line in kubectl.ok("get", "pods", "-n", space, "-L", "tier")][:2] == ["TIER", "back"]
    assert kubectl.ok("get", "pod", "web-0", "-n", space, "--show-labels", "--no-headers")[0].split()[-1] == "app=web"


@pytest.mark.row("KC3")
def test_objects_are_given_whole_in_every_form(kubectl: Kubectl, rayched: Commands, space: str) -> None:
    found = kubectl.object("get", "pods", "-n", space)
    assert found["kind"] == "List"
    assert [item["metadata"]["name"] for item in found["items"]] == ["db", "web-0", "web-1"]
    assert {(item["kind"], item["apiVersion"]) for item in found["items"]} == {("Pod", "v1")}
    one = kubectl.object("get", "pod", "web-0", "-n", space)
    own: dict[str, Any] = json.loads("\n".join(rayched.ok("get", "pod", "web-0", "-n", space, "-o", "json")))
    assert one == own
    assert kubectl.ok("get", "pods", "-n", space, "-o", "name") == ["pod/db", "pod/web-0", "pod/web-1"]
    assert kubectl.ok("get", "pod", "db", "-n", space, "-o", "jsonpath={.status.phase}") == ["Pending"]
    columns = "-o", "custom-columns=N:.metadata.name,P:.status.phase"
    assert [line.split() for line in kubectl.ok("get", "pods", "-n", space, *columns)][1] == ["db", "Pending"]


@pytest.mark.row("KC4")
def test_selectors_select_what_they_select_in_kubernetes(kubectl: Kubectl, space: str) -> None:
    def names(*words: str) -> list[str]:
        return [line.removeprefix("pod/") for line in kubectl.ok("get", "pods", "-n", space, "-o", "name", *words)]

    assert names("-l", "app=web") == ["web-0", "web-1"]
    assert names("-l", "app in (db, cache),tier") == ["db"]
    assert names("-l", "!tier") == ["web-0", "web-1"]
    assert names("--field-selector", "status.phase!=Running") == ["db"]
    assert names("--field-selector", "metadata.name=web-1,status.phase=Running") == ["web-1"]
    assert "cannot be selected by" in kubectl.refused("get", "pods", "-n", space, "--field-selector", "spec.colour=red")


@pytest.mark.row("KC4")
def test_pages_of_a_list_show_one_revision(kubectl: Kubectl, rayched: Commands, url: str, space: str) -> None:
    place = f"/api/v1/namespaces/{space}/pods"
    first = ask(url, f"{place}?limit=2").document
    assert [item["metadata"]["name"] for item in first["items"]] == ["db", "web-0"]
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("zzz", namespace=space))
    second = ask(url, f"{place}?limit=2&continue={first['metadata']['continue']}").document
    assert [item["metadata"]["name"] for item in second["items"]] == ["web-1"]
    assert second["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}
    assert len(kubectl.ok("get", "pods", "-n", space, "--chunk-size=1", "-o", "name")) == 4
    exact = f"{place}?resourceVersion={first['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
    assert len(ask(url, exact).document["items"]) == 3
    stale = ask(url, f"{place}?limit=2&continue=nonsense").document
    assert (stale["code"], stale["reason"]) == (400, "BadRequest")


@pytest.mark.row("KC5")
def test_descriptions_have_events_and_the_pods_of_a_node(kubectl: Kubectl, rayched: Commands, space: str) -> None:
    pod = "\n".join(kubectl.ok("describe", "pod", "db", "-n", space))
    assert "FailedScheduling" in pod and "Insufficient cpu" in pod
    node = rayched.pod("web-0", space).spec.node_name
    described = "\n".join(kubectl.ok("describe", "node", node))
    assert "Non-terminated Pods" in described and "web-0" in described and "RegisteredNode" in described
    assert space in "\n".join(kubectl.ok("describe", "ns", space))
    events = kubectl.ok("events", "-n", space, "--for", "pod/db", "--no-headers")
    assert events and all("Pod/db" in line for line in events)


@pytest.mark.row("KC25")
def test_fields_and_their_types_are_explained(kubectl: Kubectl) -> None:
    told = "\n".join(kubectl.ok("explain", "pod.spec.containers"))
    assert "resources\t<ResourceRequirements>" in told and "command\t<[]string>" in told
    assert "<map[string]string>" in "\n".join(kubectl.ok("explain", "nodes.status.allocatable"))
    assert "GROUP:      apps" in kubectl.ok("explain", "rs")
    assert "does not exist" in kubectl.refused("explain", "pod.spec.colour")
