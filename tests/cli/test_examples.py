"""Each file of examples/ gives the placement that its first line describes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rayched.api.resources import pod_requests
from rayched.v1.core_pb2 import Node, Pod
from tests.cli.cluster import Commands, a_pod_text
from tests.cli.conftest import EXAMPLES

pytestmark = pytest.mark.cluster


@pytest.fixture
def applied(rayched: Commands) -> Iterator[Callable[[str], None]]:
    """Applies a file of the examples; its objects are gone after the test."""
    used: list[Path] = []

    def apply(name: str) -> None:
        used.append(EXAMPLES / name)
        lines = rayched.ok("apply", "-f", str(used[-1]))
        assert all(line.endswith(" created") for line in lines)

    yield apply
    for file in used:
        rayched.ok("delete", "-f", str(file))


def node_of(rayched: Commands, pod: Pod) -> Node:
    found = rayched.client.get("node", pod.spec.node_name)
    assert isinstance(found, Node)
    return found


@pytest.mark.row("K2.2")
def test_node_selector(rayched: Commands, applied: Callable[[str], None]) -> None:
    applied("node-selector.yaml")
    assert node_of(rayched, rayched.running("on-ssd")).metadata.labels["disktype"] == "ssd"


@pytest.mark.row("K2.4")
def test_node_affinity(rayched: Commands, applied: Callable[[str], None], namespace: str) -> None:
    # With these out of the way the choice is between a solid-state disk in zone-b, on nodes that are half full, and a spinning
    # one in zone-a, on nodes that are empty: only the weights speak for zone-b.
    best = "topology.kubernetes.io/zone=zone-b,disktype=hdd"
    for node in rayched.ok("get", "nodes", "-o", "name", "-l", "topology.kubernetes.io/zone=zone-b,disktype=ssd"):
        name = node.removeprefix("node/")
        text = a_pod_text(f"on-{name}", namespace=namespace, cpu="8", spec=f"nodeName: {name}")
        rayched.ok("apply", "-f", "-", stdin=text)
        rayched.running(f"on-{name}", namespace)
    rayched.ok("cordon", "-l", best)
    try:
        applied("node-affinity.yaml")
        labels = node_of(rayched, rayched.running("with-node-affinity")).metadata.labels
        assert (labels["topology.kubernetes.io/zone"], labels["disktype"]) == ("zone-b", "ssd")
    finally:
        rayched.ok("uncordon", "-l", best)


def test_taints(rayched: Commands, applied: Callable[[str], None], namespace: str) -> None:
    applied("taints.yaml")
    assert rayched.running("experiment").spec.node_name == "dedicated-0"
    assert rayched.ok("get", "node", "dedicated-0", "--no-headers")[0].split()[1] == "Ready"
    # Others are kept off it, also those that nothing else would keep off.
    rayched.ok(
        "apply", "-f", "-", stdin=a_pod_text("intruder", namespace=namespace, spec="nodeSelector: {dedicated: experiments}")
    )
    rayched.unschedulable("intruder", "1 node(s) had untolerated taint {dedicated: experiments}", namespace)


@pytest.mark.row("K3.2")
def test_resources(rayched: Commands, applied: Callable[[str], None]) -> None:
    applied("resources.yaml")
    pod = rayched.running("with-overhead")
    assert {name: quantity.string for name, quantity in pod.spec.overhead.items()} == {"cpu": "250m", "memory": "200Mi"}
    assert pod_requests(pod) == {"cpu": 2250, "memory": 1224 << 20}
    rows = [line.split() for line in rayched.ok("describe", "node", pod.spec.node_name)]
    assert ["default", "with-overhead", "2250m", "1224Mi"] in rows


@pytest.mark.row("K1.5")
def test_bin_packing(rayched: Commands, applied: Callable[[str], None]) -> None:
    applied("bin-packing.yaml")
    assert len({rayched.running(f"packed-{number}").spec.node_name for number in range(3)}) == 1


@pytest.mark.row("K9.5")
def test_priority(rayched: Commands, applied: Callable[[str], None]) -> None:
    applied("priority.yaml")
    assert rayched.running("urgent").spec.priority == 100_000


@pytest.mark.row("Q32")
def test_scheduling_gates(rayched: Commands, applied: Callable[[str], None], namespace: str) -> None:
    applied("scheduling-gates.yaml")
    rayched.pod_when("gated", lambda pod: any(found.reason == "SchedulingGated" for found in pod.status.conditions), "gated")
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("later", namespace=namespace))
    rayched.running("later", namespace)
    assert rayched.pod("gated").spec.node_name == ""
    # Whoever set the gate removes it.
    text = (EXAMPLES / "scheduling-gates.yaml").read_text()
    begin, end = text.index("  schedulingGates:"), text.index("  containers:")
    assert rayched.ok("apply", "-f", "-", stdin=text[:begin] + text[end:]) == ["pod/gated configured"]
    rayched.running("gated")


def test_every_file_of_the_examples_has_a_test_here() -> None:
    shown = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert {file.stem for file in EXAMPLES.glob("*.yaml")} <= shown
