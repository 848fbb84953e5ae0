"""kubectl writes: create, apply, patches, labels, taints, drain, scale, delete; and dry runs, which do nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.cluster import Commands, a_pod_text, wait_until
from tests.gateway.kubectl import Kubectl
from tests.gateway.requests import ask

pytestmark = pytest.mark.cluster


def a_replica_set_text(name: str, namespace: str, replicas: int) -> str:
    return f"""apiVersion: apps/v1
kind: ReplicaSet
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: main, image: "registry.example/web:1", resources: {{requests: {{cpu: 100m}}}}}}]}}
"""


def end_replica_set(rayched: Commands, name: str, namespace: str) -> None:
    """Its pods go after it, and the namespace after them."""
    rayched.ok("delete", "rs", name, "-n", namespace)
    wait_until(lambda: not list(rayched.client.list("pods", namespace=namespace)), "the pods are gone")


@pytest.mark.row("KC6")
def test_apply_creates_changes_and_leaves_alone(kubectl: Kubectl, namespace: str) -> None:
    text = a_pod_text("web", namespace=namespace, labels="{app: web, tier: front}")
    assert kubectl.ok("apply", "-f", "-", stdin=text) == ["pod/web created"]
    assert kubectl.ok("apply", "-f", "-", stdin=text) == ["pod/web unchanged"]
    changed = text.replace("web:1", "web:2").replace(", tier: front", "")
    assert kubectl.refused("diff", "-f", "-", stdin=changed) == ""
    assert kubectl.ok("apply", "-f", "-", stdin=changed) == ["pod/web configured"]
    found = kubectl.object("get", "pod", "web", "-n", namespace)
    assert found["spec"]["containers"][0]["image"] == "registry.example/web:2"
    assert found["metadata"]["labels"] == {"app": "web"}
    assert "already exists" in kubectl.refused("create", "-f", "-", stdin=text)


@pytest.mark.row("KC6")
def test_what_is_wrong_is_told_all_at_once(kubectl: Kubectl, namespace: str) -> None:
    bad = a_pod_text("web", namespace=namespace, cpu="1z").replace("name: main", "name: Main_")
    told = kubectl.refused("apply", "-f", "-", stdin=bad)
    assert 'Pod "web" is invalid' in told
    assert "spec.containers[0].name" in told and 'spec.containers[0].resources.requests["cpu"]' in told
    unknown = a_pod_text("web", namespace=namespace, spec="colour: red")
    assert 'unknown field "spec.colour"' in kubectl.refused("apply", "-f", "-", stdin=unknown)
    result = kubectl("apply", "--validate=warn", "-f", "-", stdin=unknown)
    assert result.lines == ["pod/web created"]
    assert any('unknown field "spec.colour"' in line for line in result.errors)
    unused = a_pod_text("more", namespace=namespace, spec="shareProcessNamespace: true")
    assert any("is not used by rayched" in line for line in kubectl("apply", "-f", "-", stdin=unused).errors)
    nowhere = kubectl.refused("create", "-f", "-", stdin=a_pod_text("web", namespace="nowhere"))
    assert 'namespaces "nowhere" not found' in nowhere


@pytest.mark.row("KC14")
def test_server_side_apply_is_refused_as_not_available(kubectl: Kubectl, namespace: str) -> None:
    told = kubectl.refused("apply", "--server-side", "-f", "-", stdin=a_pod_text("web", namespace=namespace))
    assert "Server-side apply not available on the server" in told


@pytest.mark.row("KC8")
def test_labels_and_annotations_are_set_and_taken_away(kubectl: Kubectl, rayched: Commands, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace, labels="{app: web}"))
    for verb, field in (("label", "labels"), ("annotate", "annotations")):
        kubectl.ok(verb, "pod", "web", "-n", namespace, "team=a")
        assert kubectl.object("get", "pod", "web", "-n", namespace)["metadata"][field]["team"] == "a"
        assert "--overwrite is false" in kubectl.refused(verb, "pod", "web", "-n", namespace, "team=b")
        kubectl.ok(verb, "pod", "web", "-n", namespace, "team=b", "--overwrite")
        kubectl.ok(verb, "pod", "web", "-n", namespace, "team-")
        assert "team" not in kubectl.object("get", "pod", "web", "-n", namespace)["metadata"].get(field, {})


@pytest.mark.row("KC8")
def test_nodes_are_tainted_and_cordoned(kubectl: Kubectl, cordoned: str) -> None:
    kubectl.ok("taint", "nodes", cordoned, "dedicated=x:NoExecute", "other=y:NoSchedule")
    taints = {one["key"]: one for one in kubectl.object("get", "node", cordoned)["spec"]["taints"]}
    assert taints["dedicated"]["value"] == "x" and taints["dedicated"]["timeAdded"]
    kubectl.ok("taint", "nodes", cordoned, "dedicated-", "other-")
    kubectl.ok("cordon", cordoned)
    assert "SchedulingDisabled" in kubectl.ok("get", "node", cordoned)[1]
    kubectl.ok("uncordon", cordoned)
    assert kubectl.object("get", "node", cordoned).get("spec", {}) == {}


@pytest.mark.row("KC7")
def test_patches_come_in_three_forms(kubectl: Kubectl, rayched: Commands, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace, labels="{app: web}"))
    web = ("patch", "pod", "web", "-n", namespace)
    kubectl.ok(*web, "--type=json", "-p", '[{"op": "add", "path": "/metadata/labels/team", "value": "a"}]')
    kubectl.ok(*web, "--type=merge", "-p", '{"metadata": {"labels": {"app": null}}}')
    kubectl.ok(*web, "-p", '{"spec": {"containers": [{"name": "main", "image": "registry.example/other:1"}]}}')
    found = kubectl.object("get", "pod", "web", "-n", namespace)
    assert found["metadata"]["labels"] == {"team": "a"}
    assert [one["image"] for one in found["spec"]["containers"]] == ["registry.example/other:1"]
    assert "the value at /metadata/name is another one" in kubectl.refused(
        *web, "--type=json", "-p", '[{"op": "test", "path": "/metadata/name", "value": "x"}]'
    )
    kubectl.ok("set", "image", "pod/web", "main=registry.example/third:1", "-n", namespace)
    kubectl.ok("annotate", "pod", "web", "-n", namespace, "note=as-it-was")
    assert kubectl.ok("edit", "pod", "web", "-n", namespace) == ["pod/web edited"]
    found = kubectl.object("get", "pod", "web", "-n", namespace)
    assert found["metadata"]["annotations"]["note"] == "as-edited"
    assert found["spec"]["containers"][0]["image"] == "registry.example/third:1"
    # Another node than its own, which may be any: to name that one changes nothing, and is no mistake.
    own = rayched.running("web", namespace).spec.node_name
    other = "node-001" if own == "node-000" else "node-000"
    assert "cannot be changed" in kubectl.refused(*web, "-p", json.dumps({"spec": {"nodeName": other}}))


@pytest.mark.row("KC9")
def test_an_object_is_replaced_under_its_version_only(
    kubectl: Kubectl, rayched: Commands, url: str, namespace: str, tmp_path: Path
) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace, labels="{app: web, old: x}"))
    rayched.running("web", namespace)
    found = kubectl.object("get", "pod", "web", "-n", namespace)
    del found["metadata"]["labels"]["old"]
    file = tmp_path / "web.json"
    file.write_text(json.dumps(found))
    kubectl.ok("replace", "-f", str(file))
    assert kubectl.object("get", "pod", "web", "-n", namespace)["metadata"]["labels"] == {"app": "web"}
    told = kubectl.refused("replace", "-f", str(file))
    assert "(Conflict)" in told and "the object has been modified" in told
    found["metadata"]["name"] = "nobody"
    del found["metadata"]["resourceVersion"], found["metadata"]["uid"]
    gone = ask(url, f"/api/v1/namespaces/{namespace}/pods/nobody", "PUT", found).document
    assert (gone["code"], gone["reason"], gone["message"]) == (404, "NotFound", 'pods "nobody" not found')
    assert rayched.gone("nobody", namespace)


@pytest.mark.row("KC10")
def test_a_drain_evicts_as_far_as_budgets_allow(kubectl: Kubectl, rayched: Commands, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace, labels="{app: web}"))
    node = rayched.running("web", namespace).spec.node_name
    kubectl.ok("create", "poddisruptionbudget", "web", "-n", namespace, "--selector=app=web", "--min-available=1")
    only = ("--force", "--pod-selector", "app=web")
    try:
        told = kubectl.refused("drain", node, *only, "--timeout=3s")
        assert "Cannot evict pod as it would violate the pod's disruption budget." in told
        assert rayched.pod("web", namespace).metadata.HasField("deletion_timestamp") is False
        kubectl.ok("delete", "pdb", "web", "-n", namespace)
        assert "pod/web evicted" in kubectl.ok("drain", node, *only)
        assert rayched.gone("web", namespace)
    finally:
        kubectl.ok("uncordon", node)


@pytest.mark.row("KC11")
def test_a_dry_run_of_any_verb_leaves_every_key_as_it_was(kubectl: Kubectl, rayched: Commands, namespace: str) -> None:
    text = a_pod_text("web", namespace=namespace, labels="{app: web}")
    rayched.ok("apply", "-f", "-", stdin=text + "---\n" + a_replica_set_text("few", namespace, 1))
    node = rayched.running("web", namespace).spec.node_name
    dry, here = "--dry-run=server", ("-n", namespace)
    wait_until(lambda: kubectl.object("get", "rs", "few", *here)["status"].get("readyReplicas") == 1, "the set is complete")
    with rayched.nothing_changes():
        kubectl.ok("apply", dry, "-f", "-", stdin=text.replace("web:1", "web:2"))
        kubectl.ok("create", dry, "-f", "-", stdin=text.replace("name: web", "name: other"))
        kubectl.ok("label", dry, "pod", "web", *here, "a=b")
        kubectl.ok("annotate", dry, "pod", "web", *here, "a=b")
        kubectl.ok("patch", dry, "pod", "web", *here, "-p", '{"metadata": {"labels": {"a": "b"}}}')
        kubectl.ok("taint", dry, "node", node, "a=b:NoSchedule")
        kubectl.ok("cordon", dry, node)
        kubectl.ok("drain", dry, node, "--force", "--pod-selector", "app=web")
        # kubectl waits for the deletion all the same; what it sends is options in protobuf.
        kubectl.refused("drain", dry, node, "--force", "--pod-selector", "app=web", "--disable-eviction", "--timeout=2s")
        kubectl.ok("delete", dry, "pod", "web", *here)
        kubectl.ok("delete", dry, "pods", "--all", *here)
        kubectl.ok("scale", dry, "rs", "few", "--replicas=3", *here)
        kubectl.ok("create", dry, "namespace", "other")
    rayched.ok("delete", "pod", "web", *here, "--grace-period=0")
    end_replica_set(rayched, "few", namespace)


@pytest.mark.row("KC12")
def test_pods_are_deleted_with_their_grace_and_by_selector(kubectl: Kubectl, rayched: Commands, namespace: str) -> None:
    names = ("a", "b", "c", "d")
    rayched.ok("apply", "-f", "-", stdin="---\n".join(a_pod_text(one, namespace=namespace, labels="{app: x}") for one in names))
    for one in names:
        rayched.running(one, namespace)
    here = ("-n", namespace)
    uid = kubectl.object("get", "pod", "a", *here)["metadata"]["uid"]
    assert kubectl.ok("delete", "pod", "a", *here) == ['pod "a" deleted']
    assert rayched.gone("a", namespace)
    kubectl.ok("delete", "pod", "b", *here, "--grace-period=0", "--force")
    assert rayched.gone("b", namespace)
    assert 'pods "a" not found' in kubectl.refused("delete", "pod", "a", *here)
    assert "Orphan is not served" in kubectl.refused("delete", "pod", "c", *here, "--cascade=orphan")
    assert not rayched.gone("c", namespace)
    kubectl.ok("delete", "pods", "-l", "app=x", *here)
    assert rayched.gone("c", namespace) and rayched.gone("d", namespace)
    assert uid


@pytest.mark.row("KC12")
def test_an_object_that_is_another_one_is_not_deleted(rayched: Commands, url: str, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace))
    place = f"/api/v1/namespaces/{namespace}/pods/web"
    refused = ask(url, place, "DELETE", {"preconditions": {"uid": "another"}}).document
    assert (refused["code"], refused["reason"]) == (409, "Conflict")
    refused = ask(url, place, "DELETE", {"preconditions": {"resourceVersion": "1"}}).document
    assert "ResourceVersion in precondition: 1" in refused["message"]
    assert not rayched.gone("web", namespace)
    collection = ask(url, f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0", "DELETE")
    assert [item["metadata"]["name"] for item in collection.document["items"]] == ["web"]
    wait_until(lambda: rayched.gone("web", namespace), "the pod is gone")


@pytest.mark.row("KC16")
def test_a_replica_set_is_scaled(kubectl: Kubectl, rayched: Commands, url: str, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_replica_set_text("few", namespace, 1))
    kubectl.ok("scale", "rs", "few", "--replicas=3", "--current-replicas=1", "-n", namespace)
    kubectl.ok("wait", "rs/few", "--for=jsonpath={.status.readyReplicas}=3", "-n", namespace)
    found = ask(url, f"/apis/apps/v1/namespaces/{namespace}/replicasets/few/scale").document
    assert (found["kind"], found["spec"], found["status"]) == (
        "Scale",
        {"replicas": 3},
        {"replicas": 3, "selector": "app=few"},
    )
    found["spec"]["replicas"] = 1
    found["metadata"]["resourceVersion"] = "1"
    place = f"/apis/apps/v1/namespaces/{namespace}/replicasets/few/scale"
    assert ask(url, place, "PUT", found).document["reason"] == "Conflict"
    end_replica_set(rayched, "few", namespace)


@pytest.mark.row("KC17")
def test_what_kubectl_sends_as_protobuf_is_created(kubectl: Kubectl, rayched: Commands, name: str, namespace: str) -> None:
    kubectl.ok("create", "namespace", name)
    kubectl.ok("create", "priorityclass", name, "--value=7", "--preemption-policy=Never", "--description=seven")
    found = kubectl.object("get", "priorityclass", name)
    assert (found["value"], found["preemptionPolicy"], found["description"]) == (7, "Never", "seven")
    kubectl.ok("create", "job", name, "-n", namespace, "--image=busybox", "--", "sleep", "1")
    assert kubectl.object("get", "job", name, "-n", namespace)["spec"]["template"]["spec"]["containers"][0]["command"] == [
        "sleep",
        "1",
    ]
    kubectl.ok("create", "service", "clusterip", name, "--tcp=80:8080", "-n", namespace)
    assert kubectl.object("get", "service", name, "-n", namespace)["spec"]["ports"][0]["targetPort"] == 8080
    for kind, place in (("service", ["-n", namespace]), ("job", ["-n", namespace]), ("priorityclass", []), ("namespace", [])):
        kubectl.ok("delete", kind, name, *place)
