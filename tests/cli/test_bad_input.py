"""Wrong input of every sort: its status or exit code, one line that says what to do, and nothing changed in etcd."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rayched.client import ApiError, Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.v1.core_pb2 import Pod
from tests.cli.cluster import Commands, Result, a_pod_text

pytestmark = pytest.mark.cluster

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: nginx-deployment}
spec: {replicas: 3}
"""


@dataclass(frozen=True)
class Case:
    """A command line, what stands in the file FILE of it, and what its one error line must hold."""

    words: str
    said: tuple[str, ...]
    text: str | bytes | None = None


FILES = {
    "no such file": Case("apply -f FILE", ("FILE: no such file or directory",)),
    "a directory without manifests": Case("apply -f DIR", ("the directory holds no manifest (.yaml, .yml, .json)",)),
    "an empty file": Case("apply -f FILE", ("FILE: no object in there",), ""),
    "comments alone": Case("apply -f FILE", ("FILE: no object in there",), "# nothing\n---\n"),
    "YAML that ends too early": Case("apply -f FILE", ("FILE, line 3: not YAML",), "a: b\nc: [1,\n"),
    "YAML with a tab": Case("apply -f FILE", ("FILE, line 2: not YAML: a tab stands where YAML allows blanks",), "a:\n\tb: c\n"),
    "JSON that breaks off": Case("apply -f FILE", ("FILE, line 3: not JSON: Expecting",), '{"kind":\n"Pod",\n"metadata" "a"}'),
    "a kind in small letters": Case(
        "apply -f FILE", ('kind "pod" is not known', 'did you mean "Pod"?'), "{apiVersion: v1, kind: pod, metadata: {name: a}}"
    ),
    "a quantity with a B": Case(
        "apply -f FILE", ('"1GB" is not a quantity; did you mean "1G" or "1Gi"?',), a_pod_text("a", cpu="1GB")
    ),
    "a name that the server refuses": Case("apply -f FILE", ("FILE: Pod default/Web_0: metadata.name: ",), a_pod_text("Web_0")),
    "an address that does not answer": Case(
        "apply -f http://127.0.0.1:1/a.yaml", ("http://127.0.0.1:1/a.yaml: cannot be reached (Connection refused)",)
    ),
    "YAML with a wrong indent": Case("apply -f FILE", ("FILE, line 4: not YAML",), "a: b\nc:\n  d: e\n   f: g\n"),
    "a key that occurs twice": Case("apply -f FILE", ('FILE, line 2: key "kind" occurs twice',), "kind: Pod\nkind: Pod\n"),
    "a text that is none": Case("apply -f FILE", ("FILE: not a text in UTF-8",), b"\xff\xfe\x00"),
    "no object but a list": Case("apply -f FILE", ("FILE, document 1: must be an object, not a list",), "[1, 2]\n"),
    "a kind that is not served": Case(
        "apply -f FILE",
        ("Deployment nginx-deployment: kind: ", '"Deployment" is not known; allowed are Pod, Node', "a ReplicaSet keeps so many"),
        DEPLOYMENT,
    ),
    "no kind": Case("apply -f FILE", ("kind: is required; allowed are Pod, Node",), "{apiVersion: v1, metadata: {name: a}}"),
    "another version of a kind": Case(
        "apply -f FILE", ('"v2" is not known for Pod; allowed is "v1"',), "{apiVersion: v2, kind: Pod, metadata: {name: a}}"
    ),
    "a configuration of the scheduler": Case(
        "apply -f FILE",
        ("KubeSchedulerConfiguration", "is not known"),
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}",
    ),
    "a field that Kubernetes does not have": Case(
        "apply -f FILE", ("spec.containerz: ",), a_pod_text("a", spec="containerz: []")
    ),
    "a pod without a name": Case(
        "apply -f FILE",
        ("metadata.name",),
        "{apiVersion: v1, kind: Pod, metadata: {}, spec: {containers: [{name: c}]}}",
    ),
    "a generated name": Case(
        "apply -f FILE",
        ("metadata.generateName: apply needs a metadata.name instead; `rayched create -f` makes a name",),
        "{apiVersion: v1, kind: Pod, metadata: {generateName: a-}, spec: {containers: [{name: c}]}}",
    ),
    "a pod of 1 MiB": Case(
        "apply -f FILE",
        ("Pod default/large: ", "at most 262144 (256 KiB) are allowed"),
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: large\n  annotations:\n    a: {'x' * (1 << 20)}\n"
        "spec: {containers: [{name: c}]}",
    ),
    "a pod of 2 MiB": Case(
        "apply -f FILE",
        ("Submission.Apply: a request of 2097", "at most 1310720 are allowed; send less in one call"),
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: large\n  annotations:\n    a: {'x' * (2 << 20)}\n"
        "spec: {containers: [{name: c}]}",
    ),
    "a namespace that does not exist": Case(
        "apply -f FILE -n none-such",
        ("FILE: Pod none-such/a: namespace none-such does not exist; `rayched create namespace none-such` makes",),
        a_pod_text("a"),
    ),
    "a file of what is not there": Case("delete -f FILE", ("Pod default/none-such not found",), a_pod_text("none-such")),
}


@pytest.mark.parametrize("case", FILES.values(), ids=list(FILES))
def test_a_wrong_file_is_told_in_one_line_with_file_line_or_field(rayched: Commands, tmp_path: Path, case: Case) -> None:
    file = tmp_path / "input.yaml"
    (tmp_path / "empty").mkdir()
    if case.text is not None:
        file.write_bytes(case.text.encode() if isinstance(case.text, str) else case.text)
    words = [word.replace("FILE", str(file)).replace("DIR", str(tmp_path / "empty")) for word in case.words.split()]
    with rayched.nothing_changes():
        result = rayched(*words)
    check(result, [part.replace("FILE", str(file)) for part in case.said])


COMMANDS = {
    "get pod none-such": "error: Pod default/none-such not found",
    "get node/none-such": "error: Node none-such not found",
    "get pods none-such -n nowhere": "error: Pod nowhere/none-such not found",
    "get deployments": 'error: there is no kind "deployments"; allowed are pods|po, nodes|no, namespaces|ns, ',
    "get pods a -l app=b": "error: a name cannot be combined with a selector or --all-namespaces",
    "get pods a -A": "error: a name cannot be combined with a selector or --all-namespaces",
    "get pods,nodes -w": "error: --watch follows one type of object, or one object",
    "get pods -l a>b": 'error: operator Gt needs exactly one value, an integer; found "b"',
    "get pods -l (": 'error: parentheses of "(" do not match',
    "get pods -l a~b": 'error: key: "a~b" is not a valid key; allowed are letters, digits',
    "get pods --field-selector a=b": 'error: field "a" of pods cannot be selected by; allowed are metadata.name',
    "describe pod none-such": "error: Pod default/none-such not found",
    "delete": "error: name what to delete: TYPE NAME, TYPE/NAME, -f FILE, or -k DIR",
    "delete pods": "error: pods: name the objects, or choose them with -l, or --all",
    "delete pod a --all": "error: pod/a: a name cannot be combined with a selector or --all",
    "delete pods --all -l a=b": "error: --all cannot be combined with a selector",
    "delete pod none-such": "error: Pod default/none-such not found",
    "delete namespace kube-system": "error: Namespace kube-system: cannot be deleted, it belongs to the system",
    "cordon none-such": "error: Node none-such not found",
    "cordon": "error: name the nodes, or choose them with -l",
    "cordon pod/a": "error: 'pod/a' is no node; only nodes are cordoned",
    "uncordon none-such": "error: Node none-such not found",
    "taint nodes none-such a=b:NoSchedule": "error: Node none-such not found",
    "taint pods a a=b:NoSchedule": "error: taints are set on nodes: taint nodes NAME KEY=VALUE:EFFECT",
    "taint nodes a=b:NoSchedule": "error: nodes: name the objects, or choose them with -l, or --all",
    "taint nodes node-000": "error: name at least one taint: KEY[=VALUE]:EFFECT with NoSchedule, PreferNoSchedule, NoExecute",
    "taint nodes node-000 a=b:Sometimes": "error: 'a=b:Sometimes' is no taint; want KEY[=VALUE]:EFFECT with NoSchedule",
    "taint nodes node-000 a-": 'error: Node node-000: taint "a": the node does not have it',
    "taint nodes node-000 a=b:NoSchedule a-": 'error: Node node-000: taint "a": cannot be added and removed at once',
    "label node none-such a=b": "error: Node none-such not found",
    "label node node-000": "error: name at least one label: KEY=VALUE, or KEY- to remove it",
    "label node node-000 a=b a-": "error: label a cannot be set and removed at once",
    "label node node-000 disktype=tape": 'error: Node node-000: label "disktype": has value "ssd" already, and overwrite is '
    "not set; --overwrite replaces it",
    "label node node-000 a=b_": 'error: Node node-000: metadata.labels["a"]: "b_" is not a valid label value',
    "label node node-000 a=b/c": 'error: Node node-000: metadata.labels["a"]: "b/c" is not a valid label value',
    "hollow-nodes 1 --cpu 2x": 'error: --cpu: "2x" is not a quantity, want one such as 500m, 16 or 64Gi',
    "hollow-nodes 1 --silent-for 5": "error: --silent-for and --silent-nodes say how --silent-after is meant; name that too",
    "hollow-nodes 1 --resource gpu": "error: --resource 'gpu': want NAME=VALUE",
    "hollow-nodes 1 --prefix Node": 'error: Node Node-000: metadata.name: "Node-000" is not a valid name',
    "hollow-nodes 1 --prefix q --label a=b/c": 'error: Node q-000: metadata.labels["a"]: "b/c" is not a valid label value',
}


WRONG_OPTIONS = {
    *("get pods a -l app=b", "get pods a -A", "get pods,nodes -w", "delete", "delete pods", "delete pod a --all", "cordon"),
    *("delete pods --all -l a=b", "taint nodes a=b:NoSchedule", "hollow-nodes 1 --cpu 2x", "hollow-nodes 1 --silent-for 5"),
    *("hollow-nodes 1 --resource gpu", "taint pods a a=b:NoSchedule", "taint nodes node-000"),
    *("taint nodes node-000 a=b:Sometimes", "label node node-000", "label node node-000 a=b a-"),
}
"""Of those: what the options alone tell, before anybody is asked."""


@pytest.mark.parametrize(("words", "said"), COMMANDS.items(), ids=list(COMMANDS))
def test_a_wrong_command_is_told_in_one_line_and_changes_nothing(rayched: Commands, words: str, said: str) -> None:
    with rayched.nothing_changes():
        result = rayched(*words.split())
    check(result, [said], 2 if words in WRONG_OPTIONS else 1)


def check(result: Result, parts: list[str], code: int = 1) -> None:
    assert (result.code, result.out) == (code, "")
    (line,) = result.errors
    assert line.startswith("error: ")
    assert [part for part in parts if part not in line] == [], line


SERVERS = {
    "127.0.0.1:1": "error: no rayched answers at 127.0.0.1:1; start one with `rayched up`, or name its replicas with --server",
    "127.0.0.1": "error: server '127.0.0.1': want host:port, for example 127.0.0.1:7420",
    "127.0.0.1:x": "error: server '127.0.0.1:x': want host:port, for example 127.0.0.1:7420",
    "127.0.0.1:65536": "error: server '127.0.0.1:65536': want host:port, for example 127.0.0.1:7420",
    "http://127.0.0.1:7420": "error: server 'http://127.0.0.1:7420': want host:port, for example 127.0.0.1:7420",
}


@pytest.mark.parametrize(("server", "said"), SERVERS.items())
def test_a_wrong_server_is_told_at_once(rayched: Commands, server: str, said: str) -> None:
    result = rayched("get", "pods", "--server", server)
    assert (result.code, result.errors) == (1 if "no rayched" in said else 2, [said])


def test_something_else_than_rayched_at_the_address_is_told_as_such(rayched: Commands, tmp_path: Path) -> None:
    with EtcdServer(tmp_path / "data", 0, unsafe_no_fsync=True) as other:
        result = rayched("get", "pods", "--server", other.endpoint)
        check(result, [f"what listens at {other.endpoint} is no rayched; name its replicas with --server"])


def test_one_replica_that_answers_is_enough(rayched: Commands) -> None:
    result = rayched("get", "nodes", "-o", "name", "--server", f"127.0.0.1:1,{rayched.server}")
    assert (result.code, len(result.lines)) == (0, 12)


# ---------------------------------------------------------------------------------------------------------- through the API


def a_pod(name: str, uid: str = "", cpu: str = "100m") -> Pod:
    pod = Pod()
    pod.metadata.name, pod.metadata.uid = name, uid or str(uuid.uuid4())
    pod.spec.containers.add(name="main").resources.requests["cpu"].string = cpu
    return pod


@pytest.fixture
def submitted(rayched: Commands, name: str) -> Iterator[Pod]:
    pod = a_pod(name)
    rayched.client.submit(pod)
    rayched.running(name)
    yield pod
    rayched.client.delete("pod", name, grace_period_seconds=0)


def submit(client: Client, pod: Pod) -> object:
    return client.submit(pod)


def submit_many(client: Client, pod: Pod) -> object:
    (outcome,) = client.submit_many([pod])
    if outcome.error is not None:
        raise outcome.error
    return outcome


@pytest.mark.parametrize("call", [submit, submit_many])
def test_a_name_that_is_taken_is_refused(rayched: Commands, submitted: Pod, call: Callable[[Client, Pod], object]) -> None:
    with rayched.nothing_changes(), pytest.raises(ApiError) as refusal:
        call(rayched.client, a_pod(submitted.metadata.name))
    assert refusal.value.code.name == "ALREADY_EXISTS"
    assert f"Pod default/{submitted.metadata.name}" in str(refusal.value)


@pytest.mark.parametrize("call", [submit, submit_many])
def test_the_same_submission_again_gets_the_same_answer_and_another_one_of_its_uid_is_refused(
    rayched: Commands, submitted: Pod, call: Callable[[Client, Pod], object]
) -> None:
    with rayched.nothing_changes():
        call(rayched.client, submitted)
        with pytest.raises(ApiError) as refusal:
            call(rayched.client, a_pod(submitted.metadata.name, submitted.metadata.uid, cpu="200m"))
    assert refusal.value.code.name == "ALREADY_EXISTS"
    assert submitted.metadata.uid in str(refusal.value)


@pytest.mark.parametrize("call", [submit, submit_many])
def test_a_pod_of_1_mib_is_refused_with_the_limit(rayched: Commands, name: str, call: Callable[[Client, Pod], object]) -> None:
    pod = a_pod(name)
    pod.metadata.annotations["a"] = "x" * (1 << 20)
    with rayched.nothing_changes(), pytest.raises(ApiError) as refusal:
        call(rayched.client, pod)
    assert refusal.value.code.name == "RESOURCE_EXHAUSTED"
    assert "at most 262144 (256 KiB) are allowed" in str(refusal.value)


def test_a_watch_from_a_compacted_revision_says_where_one_can_begin(rayched: Commands) -> None:
    rayched.compact(rayched.revision())
    with rayched.nothing_changes(), pytest.raises(ApiError) as refusal, rayched.client.watch("pods", start_revision=1) as stream:
        next(stream)
    error = refusal.value
    assert error.code.name == "OUT_OF_RANGE"
    assert error.first_available_revision > 1
    assert f"revision 1 was compacted, the first one available is {error.first_available_revision}; list again" in str(error)
    with rayched.client.watch("pods", start_revision=error.first_available_revision, bookmarks=True) as stream:
        next(stream)


def test_a_watch_from_a_revision_that_has_not_happened_is_refused(rayched: Commands) -> None:
    ahead = rayched.revision() + 1_000_000
    with (
        rayched.nothing_changes(),
        pytest.raises(ApiError) as refusal,
        rayched.client.watch("pods", start_revision=ahead) as stream,
    ):
        next(stream)
    assert refusal.value.code.name == "OUT_OF_RANGE"
    assert "is in the future" in str(refusal.value)
