"""apply: creates, changes, leaves alone; what get prints can be applied and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.api.invalid_fields import VALID
from tests.cli.cluster import Commands, a_pod_text, wait_until

pytestmark = pytest.mark.cluster


def test_apply_creates_then_finds_nothing_to_do_then_changes(rayched: Commands, namespace: str, name: str) -> None:
    text = a_pod_text(name, namespace=namespace)
    assert rayched.ok("apply", "-f", "-", stdin=text) == [f"pod/{name} created"]
    rayched.running(name, namespace)
    with rayched.nothing_changes():
        assert rayched.ok("apply", "-f", "-", stdin=text) == [f"pod/{name} unchanged"]
    labelled = a_pod_text(name, namespace=namespace, labels="{app: web}")
    assert rayched.ok("apply", "-f", "-", stdin=labelled) == [f"pod/{name} configured"]
    assert rayched.pod(name, namespace).metadata.labels["app"] == "web"


def test_labels_of_others_stay_and_those_given_up_go(rayched: Commands, namespace: str, name: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text(name, namespace=namespace, labels="{app: web, tier: front}"))
    rayched.ok("label", "pod", name, "-n", namespace, "team=red")
    rayched.running(name, namespace)
    rayched.ok("apply", "-f", "-", stdin=a_pod_text(name, namespace=namespace, labels="{app: web}"))
    assert dict(rayched.pod(name, namespace).metadata.labels) == {"app": "web", "team": "red"}
    assert "last-applied" not in "".join(rayched.ok("describe", "pod", name, "-n", namespace))
    rayched.ok("label", "node", "node-007", "example.com/team=red")
    rayched.ok(
        "apply", "-f", "-", stdin="{apiVersion: v1, kind: Node, metadata: {name: node-007, labels: {example.com/mine: a}}}"
    )
    rayched.ok("apply", "-f", "-", stdin="{apiVersion: v1, kind: Node, metadata: {name: node-007}}")
    labels = rayched.client.get("nodes", "node-007").metadata.labels
    assert "example.com/mine" not in labels
    assert labels["example.com/team"] == "red"
    assert labels["kubernetes.io/hostname"] == "node-007"
    rayched.ok("label", "node", "node-007", "example.com/team-")


def test_a_dry_run_judges_everything_and_changes_nothing(rayched: Commands, name: str) -> None:
    with rayched.nothing_changes():
        text = a_pod_text(name)
        assert rayched.ok("apply", "--dry-run", "-f", "-", stdin=text) == [f"pod/{name} created (server dry run)"]
        refused = rayched("apply", "--dry-run", "-f", "-", stdin=a_pod_text(name, spec="priorityClassName: none-such"))
    assert refused.code == 1
    assert "spec.priorityClassName" in refused.errors[0]


@pytest.mark.parametrize("by", ["server", "client"])
def test_what_would_be_there_is_printed_in_place_of_words(rayched: Commands, name: str, by: str) -> None:
    text = a_pod_text(name, labels="{app: web}")
    with rayched.nothing_changes():
        shown = yaml.safe_load(rayched("apply", "-f", "-", f"--dry-run={by}", "-o", "yaml", stdin=text).out)
        names = rayched.ok("apply", "-f", "-", f"--dry-run={by}", "-o", "name", stdin=text)
    assert (shown["kind"], shown["metadata"]["labels"], names) == ("Pod", {"app": "web"}, [f"pod/{name}"])
    # What the server fills in tells who has judged.
    assert bool(shown["metadata"].get("uid")) is (by == "server")


def test_several_files_may_stand_in_one_word(rayched: Commands, tmp_path: Path, name: str) -> None:
    for part in ("a", "b", "a,b"):
        (tmp_path / f"{part}.yaml").write_text(a_pod_text(f"{name}-{part.replace(',', '-')}"))
    dry = ("apply", "--dry-run", "-f")
    both = [f"pod/{name}-{part} created (server dry run)" for part in ("a", "b")]
    assert rayched.ok(*dry, f"{tmp_path}/a.yaml,{tmp_path}/b.yaml") == both
    assert rayched.ok(*dry, f"{tmp_path}/a,b.yaml") == [f"pod/{name}-a-b created (server dry run)"]


def test_one_refused_object_leaves_the_others_applied(rayched: Commands, namespace: str, name: str) -> None:
    texts = [
        a_pod_text(f"{name}-a", namespace=namespace),
        a_pod_text(f"{name}-b", namespace=namespace, spec="priorityClassName: none-such"),
        a_pod_text(f"{name}-c", namespace=namespace),
    ]
    result = rayched("apply", "-f", "-", stdin="---\n".join(texts))
    assert (result.code, result.lines) == (1, [f"pod/{name}-a created", f"pod/{name}-c created"])
    (line,) = result.errors
    assert line.startswith(f"error: standard input: Pod {namespace}/{name}-b: spec.priorityClassName: ")


def test_what_is_wrong_in_one_file_keeps_all_files_from_being_applied(rayched: Commands, tmp_path: Path, name: str) -> None:
    (tmp_path / "a.yaml").write_text(a_pod_text(name))
    (tmp_path / "b.yaml").write_text(a_pod_text(name, cpu="2x"))
    with rayched.nothing_changes():
        result = rayched("apply", "-f", str(tmp_path))
    assert (result.code, result.out) == (1, "")
    assert result.errors == [
        f'error: {tmp_path}/b.yaml: Pod {name}: spec.containers[0].resources.requests["cpu"]: "2x" is not a quantity'
    ]


@pytest.mark.parametrize("kind", [kind for kind in VALID if kind not in ("Pod", "Node")])
def test_what_get_prints_can_be_applied_and_changes_nothing(rayched: Commands, namespace: str, name: str, kind: str) -> None:
    document = json.loads(json.dumps(VALID[kind]))
    document["metadata"]["name"] = name
    document["metadata"].pop("namespace", None)
    # Such a uid is taken once in a cluster.
    document["metadata"].pop("uid", None)
    match kind:
        case "PriorityClass":
            document["preemptionPolicy"] = "Never"
        case "ReplicaSet":
            document["spec"]["replicas"] = 0
        case "Job":
            document["spec"]["suspend"] = True
        case "PodGroup":
            # There is no such class here.
            document["spec"].pop("priorityClassName")
    word = f"{kind.lower()}/{name}"
    rayched.ok("apply", "-n", namespace, "-f", "-", stdin=json.dumps(document))
    try:
        if kind in ("ReplicaSet", "Job", "PodDisruptionBudget"):
            wait_until(lambda: bool(rayched.client.get(kind, name, namespace).status.ByteSize()), "its controller says how it is")
        for output in ("yaml", "json"):
            shown = "\n".join(rayched.ok("get", word, "-n", namespace, "-o", output))
            with rayched.nothing_changes():
                (line,) = rayched.ok("apply", "-f", "-", stdin=shown)
            assert line.endswith(f"/{name} unchanged")
    finally:
        rayched.ok("delete", word, "-n", namespace)


def test_pods_and_nodes_in_every_state_can_be_got_and_applied_unchanged(rayched: Commands, namespace: str, cordoned: str) -> None:
    pods = [
        a_pod_text("runs", namespace=namespace, labels="{app: web}"),
        a_pod_text("waits", namespace=namespace, cpu="17"),
        a_pod_text("gated", namespace=namespace, spec="schedulingGates: [{name: example.com/quota}]"),
        a_pod_text("refused", namespace=namespace, cpu="17", spec="nodeName: node-010"),
    ]
    # First the taint: it would evict the pod that runs.
    rayched.ok("cordon", cordoned)
    rayched.ok("taint", "nodes", cordoned, "dedicated=x:NoExecute", "other:PreferNoSchedule")
    rayched.ok("apply", "-f", "-", stdin="---\n".join(pods))
    rayched.running("runs", namespace)
    rayched.unschedulable("waits", "Insufficient cpu", namespace)
    rayched.pod_when("refused", lambda pod: pod.status.reason == "OutOfcpu", "refused", namespace)
    for words in (["pods", "-n", namespace], ["nodes"], ["namespaces"]):
        shown = "\n".join(rayched.ok("get", *words, "-o", "yaml"))
        assert yaml.safe_load(shown)["kind"] == "List"
        with rayched.nothing_changes():
            lines = rayched.ok("apply", "-f", "-", stdin=shown)
        assert [line for line in lines if not line.endswith(" unchanged")] == []


GENUINE = """
apiVersion: v1
kind: Pod
metadata:
  name: NAME
spec:
  serviceAccountName: build-robot
  securityContext: {runAsUser: 1000, fsGroup: 2000}
  volumes:
  - name: scratch
    emptyDir: {}
  containers:
  - name: main
    image: registry.example/web:1
    securityContext: {allowPrivilegeEscalation: false}
    volumeMounts: [{name: scratch, mountPath: /data}]
    livenessProbe:
      httpGet: {path: /healthz, port: 8080}
      initialDelaySeconds: 3
      grpc: {port: 1}
    readinessProbe: {exec: {command: [cat, /tmp/healthy]}}
    resources: {limits: {cpu: 500m, memory: 128Mi}}
"""


def test_a_genuine_manifest_is_applied_with_a_warning_for_each_field_that_is_not_used(
    rayched: Commands, namespace: str, name: str
) -> None:
    result = rayched("apply", "-n", namespace, "-f", "-", stdin=GENUINE.replace("NAME", name))
    assert (result.code, result.lines) == (0, [f"pod/{name} created"])
    left_out = ["containers[0].securityContext.allowPrivilegeEscalation", "containers[0].livenessProbe.grpc"]
    wanted = {f"Warning: pod/{name}: spec.{field}: is not used by rayched and is left out" for field in left_out}
    assert set(result.errors) == wanted
    assert rayched.running(name, namespace).spec.service_account_name == "build-robot"


def test_an_object_goes_to_the_namespace_of_the_command_line_unless_it_names_another(
    rayched: Commands, namespace: str, name: str
) -> None:
    rayched.ok("apply", "-n", namespace, "-f", "-", stdin=a_pod_text(name))
    assert rayched.running(name, namespace).metadata.namespace == namespace
    with rayched.nothing_changes():
        refused = rayched("apply", "-n", namespace, "-f", "-", stdin=a_pod_text(name, namespace="default"))
    assert refused.code == 1
    assert refused.errors[0].startswith(f'error: Pod {name}: metadata.namespace: "default" is not the {namespace} of --namespace')


def test_the_environment_names_a_namespace_for_what_names_none(
    rayched: Commands, namespace: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYCHED_NAMESPACE", namespace)
    elsewhere = a_pod_text(f"{name}-b", namespace="default", spec="nodeName: node-001")
    rayched.ok("apply", "-f", "-", stdin=f"{a_pod_text(f'{name}-a')}---\n{elsewhere}")
    assert rayched.pod(f"{name}-a", namespace).metadata.namespace == namespace
    rayched.running(f"{name}-b", "default")
    assert rayched.ok("get", "pods", "-o", "name") == [f"pod/{name}-a"]
    assert f"pod/{name}-b" in rayched.ok("get", "pods", "-n", "default", "-o", "name")
    rayched.ok("delete", "pod", f"{name}-b", "-n=default", "--grace-period=0")
    refused = rayched("apply", "-n", "default", "-f", "-", stdin=a_pod_text(f"{name}-c", namespace=namespace))
    assert f'"{namespace}" is not the default of --namespace' in refused.errors[0]
    rayched.ok("delete", "-f", "-", "--grace-period=0", stdin=a_pod_text(f"{name}-a"))
    assert rayched.gone(f"{name}-a", namespace)
