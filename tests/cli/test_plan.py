"""plan: what it foretells comes true, it changes nothing, and it works without any cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.cluster import Commands, a_gang_text, a_pod_text, run_here, wait_until

DUMP = """
apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- apiVersion: v1
  kind: Node
  metadata: {name: kind-worker, labels: {kubernetes.io/hostname: kind-worker}, uid: 8f0e1c1e-1111-2222-3333-444455556666}
  spec: {podCIDR: 10.244.1.0/24}
  status:
    allocatable: {cpu: "4", memory: 16Gi, pods: "110"}
    nodeInfo: {kubeletVersion: v1.34.0, architecture: amd64}
- apiVersion: v1
  kind: Pod
  metadata:
    name: web-x1
    namespace: default
    uid: 22222222-aaaa-bbbb-cccc-222222222222
    ownerReferences: [{apiVersion: apps/v1, controller: true, kind: ReplicaSet, name: web, uid: "1"}]
  spec:
    nodeName: kind-worker
    priority: 0
    schedulerName: default-scheduler
    containers: [{name: web, image: "nginx:1.29", resources: {requests: {cpu: "3"}}}]
    volumes: [{name: token, projected: {sources: [{serviceAccountToken: {path: token}}]}}]
  status: {phase: Running}
"""


def plan(*words: str, stdin: str | None = None) -> tuple[int, str, list[str]]:
    result = run_here(("plan", *words), stdin, {})
    return result.code, result.out, result.errors


@pytest.fixture
def dump(tmp_path: Path) -> str:
    path = tmp_path / "dump.yaml"
    path.write_text(DUMP)
    return str(path)


def test_a_plan_needs_no_cluster_but_what_kubectl_prints_of_one(dump: str) -> None:
    pods = "---\n".join([a_pod_text("small", cpu="1"), a_pod_text("large", cpu="2")])
    code, out, errors = plan("--from-kubectl", dump, "-f", "-", stdin=pods)
    assert (code, errors) == (1, [])
    *lines, reason, summary = out.splitlines()
    assert lines == ["POD             NODE", "default/small   kind-worker", "", "1 pod would stay pending:"]
    assert reason.startswith("  default/large: 0/1 nodes are available: 1 Insufficient cpu.")
    assert summary == "Plan: 1 pod would be placed, 0 would preempt others, 1 would stay pending."


def test_nothing_to_place_is_exit_code_0(dump: str) -> None:
    assert plan("--from-kubectl", dump)[0] == 0


def test_what_no_controller_makes_anew_is_told_and_what_waits_anyway_is_told_apart(dump: str, tmp_path: Path) -> None:
    """A drain deletes pods without a controller; a plan places them as if somebody created them again."""
    bare = re.sub(r".*ownerReferences:.*\n", "", Path(dump).read_text()) + "---\n" + a_pod_text("large", cpu="9")
    path = tmp_path / "bare.yaml"
    path.write_text(bare)
    words = ("--from-kubectl", str(path), "--drain", "kind-worker", "--add-nodes", "1", "--like", "kind-worker")
    code, out, errors = plan(*words)
    assert (code, errors) == (1, [])
    assert out.startswith("The drain would delete for good, as no controller makes them anew: default/web-x1\nWhat follows says")
    assert "\nPending already, and would stay so:\n  default/large: " in out and "1 pod would stay pending:" not in out
    found = json.loads(plan(*words, "-o", "json")[1])
    assert found["uncontrolled"] == ["default/web-x1"] and found["unplaced"][0]["waits_already"] is True
    with_controller = plan("--from-kubectl", dump, *words[2:])[1]
    assert "for good" not in with_controller


def test_a_drained_nodes_pods_go_to_the_nodes_that_would_be_added(dump: str) -> None:
    words = ("--from-kubectl", dump, "--drain", "kind-worker", "--add-nodes", "2", "--like", "kind-worker", "-o", "json")
    code, out, _ = plan(*words)
    found = json.loads(out)
    (placement,) = found["placements"]
    assert (code, placement["pod"]) == (1, "default/web-x1")
    assert placement["node_name"].startswith("kind-worker-added-")
    told = {one["node_name"]: one for one in found["nodes"]}
    assert set(told) == {"kind-worker", "kind-worker-added-1", "kind-worker-added-2"}
    assert told["kind-worker"]["unschedulable"] and told["kind-worker"]["requested_before"]["pods"] == 1
    assert told["kind-worker"]["requested"] == {} and told[placement["node_name"]]["requested"]["pods"] == 1
    assert [told[name]["is_new"] for name in sorted(told)] == [False, True, True]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--add-nodes", "3"), "--add-nodes and --like belong together"),
        (("--add-nodes", "3", "--like", "nowhere"), '--like: there is no node "nowhere"'),
        (("--drain", "nowhere"), '--drain: there is no node "nowhere"'),
        (("-f", "/no/such.yaml"), "no such file"),
        (("--config", "/no/such.yaml"), "No such file"),
    ],
)
def test_errors_are_exit_code_2(dump: str, words: tuple[str, ...], said: str) -> None:
    code, out, (line,) = plan("--from-kubectl", dump, *words)
    assert (code, out) == (2, "")
    assert line.startswith("error: ") and said in line


def test_nobody_there_is_exit_code_2() -> None:
    code, _, (line,) = plan("--server", "127.0.0.1:1")
    assert code == 2 and "rayched up" in line


def test_a_file_of_pods_alone_is_no_cluster(tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(a_pod_text("small"))
    code, _, (line,) = plan("--from-kubectl", str(tmp_path / "pods.yaml"))
    assert code == 2 and "no node in there" in line


@pytest.mark.row("F24")
@pytest.mark.cluster
def test_what_a_plan_foretells_of_a_quiet_cluster_comes_true(rayched: Commands, namespace: str) -> None:
    names = [f"foretold-{number:04}" for number in range(1_000)]
    # Of several kinds, so that totals differ.
    text = "---\n".join(a_pod_text(name, namespace=namespace, cpu=f"{1 + n % 7}m") for n, name in enumerate(names))
    wait_until(lambda: not rayched.client.scheduler_status().pending_pods.get("active", 0), "the queue is empty")
    before = rayched.dump()
    result = rayched("plan", "-f", "-", "-o", "json", stdin=text)
    assert result.code == 1, result.errors
    assert rayched.dump() == before
    foretold = {one["pod"]: one["node_name"] for one in json.loads(result.out)["placements"]}
    assert len(foretold) >= len(names)
    rayched.ok("apply", "-f", "-", stdin=text)
    wait_until(lambda: all(pod.spec.node_name for pod in rayched.client.list("pods", namespace=namespace)), "all are bound")
    really = {f"{namespace}/{pod.metadata.name}": pod.spec.node_name for pod in rayched.client.list("pods", namespace=namespace)}
    assert really == {name: place for name, place in foretold.items() if name in really}


WORKLOADS = """
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "web:1", resources: {requests: {cpu: 10m}}}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train, annotations: {rayched.dev/gang: "true"}}
spec:
  completions: 9
  parallelism: 3
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "train:1", resources: {requests: {cpu: 10m}}}]
"""


def workloads(replicas: int) -> str:
    return WORKLOADS.replace("REPLICAS", str(replicas))


def test_pods_that_controllers_would_make_or_delete_are_planned(dump: str) -> None:
    """The dump has one pod of the set."""
    words = ("--from-kubectl", dump, "-f", "-")
    code, out, errors = plan(*words, stdin=workloads(3))
    assert (code, errors) == (1, [])
    placed = {line.split()[0] for line in out.splitlines()[1:6]}
    assert placed == {f"default/{name}" for name in ("web-new1", "web-new2", "train-0-new1", "train-1-new1", "train-2-new1")}
    assert "Pod group default/train would be whole: 3 of 3 members" in out
    code, out, errors = plan(*words, stdin=workloads(0))
    assert (code, errors) == (1, []) and "Would be deleted by their controllers: default/web-x1" in out
    assert out.endswith("0 would stay pending, 1 would be deleted.\n")
    assert json.loads(plan(*words, "-o", "json", stdin=workloads(0))[1])["deleted"] == ["default/web-x1"]


def test_what_a_plan_says_of_a_workload_that_the_api_would_refuse(dump: str) -> None:
    code, out, errors = plan("--from-kubectl", dump, "-f", "-", stdin=workloads(-1))
    assert (code, out) == (2, "")
    assert errors == ["error: replicaset.apps/web: spec.replicas: -1 must not be negative"]


@pytest.mark.cluster
def test_pods_that_controllers_make_go_where_the_plan_says(rayched: Commands, namespace: str) -> None:
    text = workloads(4)
    wait_until(lambda: not rayched.client.scheduler_status().pending_pods.get("active", 0), "the queue is empty")
    result = rayched("plan", "-n", namespace, "-f", "-", "-o", "json", stdin=text)
    assert result.code == 1, result.errors
    foretold = [one["pod"] for one in json.loads(result.out)["placements"] if one["pod"].startswith(f"{namespace}/")]
    rayched.ok("apply", "-n", namespace, "-f", "-", stdin=text)

    def kinds_of_pods() -> list[str]:
        pods = rayched.client.list("pods", namespace=namespace)
        return sorted(f"{namespace}/{pod.metadata.name.rpartition('-')[0]}" for pod in pods if pod.spec.node_name)

    wait_until(lambda: kinds_of_pods() == sorted(name.rpartition("-")[0] for name in foretold), "the pods are bound")
    described = rayched.ok("describe", "podgroup", "train", "-n", namespace)
    rows = {line.split(":")[0]: line.split(":", 1)[1].strip() for line in described if ":" in line}
    assert (rows["Policy"], rows["Members"], rows["Controlled By"]) == ("gang, 3 at least", "3: 3 bound", "Job/train")
    rayched.ok("delete", "-n", namespace, "-f", "-", stdin=text)


CAPACITY_ALONE = """
apiVersion: v1
kind: Node
metadata: {name: bare}
status: {capacity: {cpu: "4", memory: 16Gi, pods: "110"}}
"""


def test_a_node_that_tells_its_capacity_alone_offers_all_of_it_as_the_api_has_it(tmp_path: Path, dump: str) -> None:
    pod = a_pod_text("large", cpu="3")
    bare = tmp_path / "bare.yaml"
    bare.write_text(CAPACITY_ALONE)
    of_kubectl = plan("--from-kubectl", str(bare), "-f", "-", stdin=pod)
    assert (of_kubectl[0], of_kubectl[1].splitlines()[1].split(), of_kubectl[2]) == (1, ["default/large", "bare"], [])
    of_manifest = plan("--from-kubectl", dump, "-f", "-", stdin=f"{CAPACITY_ALONE}---\n{pod}")
    assert (of_manifest[0], of_manifest[1].splitlines()[1].split(), of_manifest[2]) == (1, ["default/large", "bare"], [])


def test_a_pod_group_is_placed_whole_or_not_at_all_and_the_plan_says_which(dump: str) -> None:
    words = ("--from-kubectl", dump, "--add-nodes", "2", "--like", "kind-worker")
    text = "---\n".join([a_gang_text("large", 3, 3, cpu="3"), a_gang_text("train", 2, 2, cpu="2")])
    code, out, errors = plan(*words, "-f", "-", stdin=text)
    assert (code, errors) == (1, [])
    lines = out.splitlines()
    assert sorted(line.split()[0] for line in lines[1:3]) == ["default/train-0", "default/train-1"]
    held, whole = lines[3:5]
    assert held.startswith("Pod group default/large would not start: 0 of 3 members that wait would be placed: 0 bound, ")
    assert "Insufficient cpu" in held
    assert whole == "Pod group default/train would be whole: 2 of 2 members that wait would be placed, 2 are needed"
    found = json.loads(plan(*words, "-f", "-", "-o", "json", stdin=text)[1])
    assert [(one["group"], one["placed"], one["is_whole"]) for one in found["groups"]] == [
        ("default/large", 0, False),
        ("default/train", 2, True),
    ]
    assert {one["pod"] for one in found["unplaced"]} == {f"default/large-{number}" for number in range(3)}


def test_a_pod_group_that_the_api_would_not_take_is_an_error(dump: str) -> None:
    text = a_gang_text("train", 1, 0).replace("spec: {scheduling", "spec: {priorityClassName: nobodys, scheduling", 1)
    code, out, errors = plan("--from-kubectl", dump, "-f", "-", stdin=text)
    assert (code, out) == (2, "")
    assert any("podgroup.scheduling.k8s.io/train" in line and "minCount: 0 must be at least 1" in line for line in errors)
    assert any("podgroup.scheduling.k8s.io/train" in line and "nobodys" in line for line in errors)
