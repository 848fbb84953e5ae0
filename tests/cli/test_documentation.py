"""The cases of Kubernetes' documentation on scheduling, as manifests, and where their pods end up.

Each file of examples/documentation/ brings nodes of its own, tainted, so that nothing else comes into it. What its first lines
say is what is asserted here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from rayched.api.resources import pod_requests
from tests.cli.cluster import Commands, wait_until
from tests.cli.conftest import EXAMPLES

pytestmark = pytest.mark.cluster

DOCUMENTATION = EXAMPLES / "documentation"
SPREAD = "node(s) didn't match pod topology spread constraints"


@pytest.fixture
def applied(rayched: Commands) -> Iterator[Callable[[str], None]]:
    """Applies a file; its objects are gone after the test."""
    used: list[str] = []

    def apply(name: str) -> None:
        used.append(str(DOCUMENTATION / name))
        assert all(line.endswith(" created") for line in rayched.ok("apply", "-f", used[-1]))

    yield apply
    for file in used:
        rayched.ok("delete", "-f", file, "--grace-period", "0")


@pytest.fixture
def place(rayched: Commands) -> Callable[[str], str]:
    """The node that a pod was bound to, once it is."""

    def find(name: str) -> str:
        return rayched.pod_when(name, lambda pod: bool(pod.spec.node_name), "bound").spec.node_name

    return find


Apply, Place = Callable[[str], None], Callable[[str], str]


@pytest.mark.row("K4.7")
def test_spread_one_constraint(applied: Apply, place: Place) -> None:
    applied("spread-one-constraint.yaml")
    assert place("one-mypod") in ("one-3", "one-4")


@pytest.mark.row("K4.7")
def test_spread_two_constraints(applied: Apply, place: Place) -> None:
    applied("spread-two-constraints.yaml")
    assert place("two-mypod") == "two-4"


@pytest.mark.row("K4.7", "K4.4")
def test_spread_conflict(rayched: Commands, applied: Apply, place: Place) -> None:
    applied("spread-conflict.yaml")
    rayched.unschedulable("conflict-mypod", f"3 {SPREAD}")
    applied("spread-conflict-resolved.yaml")
    assert place("conflict-relaxed") == "conflict-3"
    assert place("conflict-mypod") == "conflict-2"


@pytest.mark.row("K4.6", "K4.3")
def test_spread_with_node_affinity(rayched: Commands, applied: Apply, place: Place) -> None:
    applied("spread-with-node-affinity.yaml")
    assert place("affine-mypod") in ("affine-3", "affine-4")
    rayched.unschedulable("affine-counting", f"4 {SPREAD}")


@pytest.mark.row("K4.5")
def test_spread_revisions(applied: Apply, place: Place) -> None:
    applied("spread-revisions.yaml")
    by_zone = Counter(place(f"revision-new-{number}") in ("revision-1", "revision-2") for number in range(2))
    assert by_zone == {True: 1, False: 1}


@pytest.mark.row("K4.9")
def test_spread_by_default(applied: Apply, place: Place) -> None:
    applied("spread-by-default.yaml")
    by_zone = Counter(place(f"default-{number}") in ("default-1", "default-2") for number in range(4))
    assert by_zone == {True: 2, False: 2}


@pytest.mark.row("K2.10")
def test_web_store(applied: Apply, place: Place) -> None:
    applied("web-store.yaml")
    nodes = {"store-1", "store-2", "store-3"}
    assert {place(f"redis-cache-{number}") for number in range(3)} == nodes
    assert {place(f"web-server-{number}") for number in range(3)} == nodes


@pytest.mark.row("K2.7")
def test_pod_affinity(applied: Apply, place: Place) -> None:
    applied("pod-affinity.yaml")
    assert place("with-pod-affinity") == "security-v"


@pytest.mark.row("K2.6", "K1.5")
def test_node_affinity_per_profile(rayched: Commands, applied: Apply, place: Place) -> None:
    applied("node-affinity-per-profile.yaml")
    assert place("profile-any") == "profile-foo"
    message = "1 node(s) didn't match Pod's node affinity/selector, 13 node(s) didn't match scheduler-enforced node affinity."
    rayched.unschedulable("profile-elsewhere", f"0/14 nodes are available: {message}")


@pytest.mark.row("K8.3", "K8.4")
def test_requested_to_capacity_ratio(applied: Apply, place: Place) -> None:
    applied("requested-to-capacity-ratio.yaml")
    assert place("ratio-mypod") == "ratio-2"


@pytest.mark.row("K3.1", "K3.2")
def test_pod_overhead(rayched: Commands, applied: Apply, place: Place) -> None:
    applied("pod-overhead.yaml")
    assert place("test-pod") == "overhead-large"
    assert pod_requests(rayched.pod("test-pod")) == {"cpu": 2250, "memory": 320 << 20}
    rows = [line.split() for line in rayched.ok("describe", "node", "overhead-large")]
    assert ["default", "test-pod", "2250m", "320Mi"] in rows


@pytest.mark.row("K9.6", "K9.4")
def test_priority_order(rayched: Commands, applied: Apply, place: Place) -> None:
    applied("priority-order.yaml")
    for name in ("order-ordinary", "order-urgent"):
        rayched.unschedulable(name, "0/12 nodes are available: ")
    # Until neither waits out a backoff any more: both are woken at once.
    time.sleep(2.0)
    wait_until(lambda: not rayched.client.scheduler_status().pending_pods["backoff"], "nobody is backing off")
    applied("priority-order-node.yaml")
    assert place("order-urgent") == "order-1"
    assert rayched.pod("order-ordinary").spec.node_name == ""


def test_every_file_has_a_test_here() -> None:
    shown = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert {file.stem for file in DOCUMENTATION.glob("*.yaml")} - {"priority-order-node", "spread-conflict-resolved"} <= shown
