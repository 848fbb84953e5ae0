"""drain: which pods it takes, what it says of those that are stuck, and what is left of the node."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from rayched.cli.nodes.draining import Ways, choose
from rayched.cli.options import seconds_of
from rayched.v1.core_pb2 import Pod
from tests.cli.cluster import Commands, a_pod_text, wait_until

NOW = 1_000_000.0
NODE = "node-009"


def a_pod(name: str, controller: str = "ReplicaSet", phase: str = "Running", *, mirror: bool = False, ending: int = 0) -> Pod:
    pod = Pod()
    pod.metadata.namespace, pod.metadata.name = "default", name
    pod.status.phase = phase
    if controller:
        pod.metadata.owner_references.add(kind=controller, name="x", uid="u", controller=True)
    if mirror:
        pod.metadata.annotations["kubernetes.io/config.mirror"] = "x"
    if ending:
        pod.metadata.deletion_timestamp.seconds = int(NOW) - ending
    return pod


PODS = [
    a_pod("web"),
    a_pod("daemon", "DaemonSet"),
    a_pod("alone", ""),
    a_pod("done", "", "Succeeded"),
    a_pod("done-daemon", "DaemonSet", "Failed"),
    a_pod("mirror", "", mirror=True),
    a_pod("ending", ending=60),
]
DAEMONS = "cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): default/daemon"
ALONE = "cannot delete Pods that declare no controller (use --force to override): default/alone"


@pytest.mark.parametrize(
    ("ways", "errors", "taken"),
    [
        (Ways(), [DAEMONS, ALONE], None),
        (Ways(force=True), [DAEMONS], None),
        (Ways(ignore_daemonsets=True), [ALONE], None),
        (Ways(force=True, ignore_daemonsets=True), [], "web alone done done-daemon ending"),
        (Ways(force=True, ignore_daemonsets=True, skip_wait_seconds=59), [], "web alone done done-daemon"),
        (Ways(force=True, ignore_daemonsets=True, skip_wait_seconds=60), [], "web alone done done-daemon ending"),
    ],
)
def test_pods_that_would_be_lost_or_come_back_need_an_option(ways: Ways, errors: list[str], taken: str | None) -> None:
    choice = choose(PODS, ways, NOW)
    assert choice.errors == errors
    if taken is not None:
        assert [pod.metadata.name for pod in choice.pods] == taken.split()
        assert choice.warnings == [
            "ignoring DaemonSet-managed Pods: default/daemon",
            "deleting Pods that declare no controller: default/alone",
        ]


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("500ms", 0.5), ("1.5s", 1.5)]
)
def test_durations_are_written_as_for_kubectl(text: str, seconds: float) -> None:
    assert seconds_of("--timeout", text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5 m", "-5s", "5x", "1m30"])
def test_what_is_no_duration_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        seconds_of("--timeout", text)
    assert capsys.readouterr().err == f"error: --timeout {text!r}: is no duration; want one such as 90s, 5m or 1h30m\n"


# ---------------------------------------------------------------------------------------------------- over a real cluster


@pytest.fixture
def node(rayched: Commands) -> Iterator[str]:
    yield NODE
    rayched("uncordon", NODE)


def web(rayched: Commands, namespace: str, count: int = 3, kind: str = "ReplicaSet") -> None:
    """Running pods of one controller on the node."""
    texts = [
        f"""apiVersion: v1
kind: Pod
metadata:
  name: web-{number}
  namespace: {namespace}
  labels: {{app: web}}
  ownerReferences: [{{apiVersion: apps/v1, kind: {kind}, name: web, uid: {namespace}, controller: true}}]
spec:
  nodeSelector: {{kubernetes.io/hostname: {NODE}}}
  containers: [{{name: main, image: "registry.example/web:1"}}]
"""
        for number in range(count)
    ]
    rayched.ok("apply", "-f", "-", stdin="---\n".join(texts))
    for number in range(count):
        rayched.running(f"web-{number}", namespace)


def budget(rayched: Commands, namespace: str, least: int, name: str = "web") -> None:
    text = f"""apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{minAvailable: {least}, selector: {{matchLabels: {{app: web}}}}}}
"""
    rayched.ok("apply", "-f", "-", stdin=text)

    def observed() -> bool:
        (found,) = [item for item in rayched.client.list("pdb", namespace=namespace) if item.metadata.name == name]
        return bool(found.status.observed_generation)  # type: ignore[union-attr]

    wait_until(observed, "the budget has a status")


def pods(rayched: Commands, namespace: str) -> list[str]:
    return [item.metadata.name for item in rayched.client.list("pods", namespace=namespace)]


@pytest.mark.cluster
@pytest.mark.row("K11.4", "K11.5")
def test_a_drained_node_is_cordoned_and_empty(rayched: Commands, namespace: str, node: str) -> None:
    web(rayched, namespace)
    planned = rayched.ok("drain", node, "--pod-selector", "app=web", "--dry-run")
    assert planned[0] == f"node/{node} cordoned (server dry run)"
    assert planned[-1] == f"node/{node} drained (server dry run)"
    planned = rayched.ok("drain", node, "--pod-selector", "app=web", "--dry-run=client")
    assert (planned[0], planned[-1]) == (f"node/{node} cordoned (dry run)", f"node/{node} drained (dry run)")
    assert pods(rayched, namespace) == ["web-0", "web-1", "web-2"]
    lines = rayched.ok("drain", node)
    assert lines[0] == f"node/{node} cordoned"
    assert lines[1:4] == [f"evicting pod {namespace}/web-{number}" for number in range(3)]
    assert sorted(lines[4:7]) == [f"pod/web-{number} evicted" for number in range(3)]
    assert lines[7:] == [f"node/{node} drained"]
    assert pods(rayched, namespace) == []
    assert rayched.ok("drain", f"node/{node}") == [f"node/{node} already cordoned", f"node/{node} drained"]


@pytest.mark.cluster
def test_nothing_goes_while_an_option_is_missing(rayched: Commands, namespace: str, node: str) -> None:
    web(rayched, namespace, 1, "DaemonSet")
    result = rayched("drain", node)
    assert (result.code, result.lines) == (1, [f"node/{node} cordoned"])
    assert result.errors == [
        f"error: node/{node}: cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): {namespace}/web-0",
        f"There are pending nodes to be drained: {node}",
    ]
    assert rayched.ok("drain", node, "--ignore-daemonsets")[-1] == f"node/{node} drained"
    assert pods(rayched, namespace) == ["web-0"]


@pytest.mark.cluster
@pytest.mark.row("K11.5")
def test_what_a_budget_holds_back_is_told_and_stays(rayched: Commands, namespace: str, node: str) -> None:
    web(rayched, namespace)
    budget(rayched, namespace, 2)
    wait_until(lambda: "1" in rayched.ok("get", "pdb", "web", "-n", namespace)[1].split(), "a disruption is allowed")
    result = rayched("drain", node, "--timeout", "1500ms")
    assert result.code == 1
    why = "PodDisruptionBudget web needs 2 healthy pods and has 2 currently"
    held = f"pods {namespace}/web-1, {namespace}/web-2 cannot go yet: {why}"
    assert result.errors == [
        held,
        f"error: node/{node}: {held}",
        f"error: node/{node}: not drained within 1.5 s",
        f"There are pending nodes to be drained: {node}",
    ]
    assert result.lines[-1] == "pod/web-0 evicted"
    assert pods(rayched, namespace) == ["web-1", "web-2"]
    # A second budget on the same pods is a mistake that waiting does not mend.
    budget(rayched, namespace, 0, "other")
    wrong = rayched("drain", node)
    assert [line for line in wrong.errors if "has more than one PodDisruptionBudget (other, web)" in line]
    assert len(wrong.errors) == 3
    lines = rayched.ok("drain", node, "--disable-eviction", "--grace-period", "0")
    assert lines[-1] == f"node/{node} drained"
    assert pods(rayched, namespace) == []


@pytest.mark.cluster
@pytest.mark.row("K11.5")
def test_a_pod_that_nobody_stops_is_told_with_how_long_it_was_asked(rayched: Commands, namespace: str, name: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=f"{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}")
    pod = a_pod_text("stays", namespace=namespace, spec=f"nodeName: {name}")
    rayched.ok("apply", "-f", "-", stdin=pod)
    result = rayched("drain", name, "--force", "--timeout", "1s")
    assert result.code == 1
    assert result.errors[0] == f"Warning: deleting Pods that declare no controller: {namespace}/stays"
    (stuck,) = [line for line in result.errors if "still there" in line]
    assert re.fullmatch(
        rf"error: node/{name}: pod {namespace}/stays was asked to stop [12] s ago, with a grace of 30 s, and is still there",
        stuck,
    )
    rayched.client.delete("pods", "stays", namespace, grace_period_seconds=0)
    rayched.ok("delete", "node", name)


@pytest.mark.cluster
def test_bad_calls_of_drain_are_one_line(rayched: Commands) -> None:
    table = {
        "drain": "error: name the nodes, or choose them with -l",
        "drain node-001 -l a=b": "error: name the nodes, or choose them with -l",
        "drain none-such": "error: Node none-such not found",
        "drain pod/a": "error: 'pod/a' is no node; only nodes are drained",
        "drain node-001 --timeout soon": "error: --timeout 'soon': is no duration",
    }
    for words, said in table.items():
        result = rayched(*words.split())
        assert result.code == (2 if "name the nodes" in said or "--timeout" in said else 1)
        (line,) = result.errors
        assert line.startswith(said)
