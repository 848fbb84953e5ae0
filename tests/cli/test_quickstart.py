"""docs/quickstart.md, typed in as it stands. Only what goes on until Ctrl-C (`up`, `hollow-nodes`) and the installation are left
out: the cluster with twelve nodes is there already."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rayched.v1.core_pb2 import Node
from tests.cli.cluster import Commands
from tests.docs.markdown import PAGES, ROOT, blocks, commands

pytestmark = pytest.mark.cluster

PAGE = ROOT / "docs" / "quickstart.md"
LEFT_OUT = ("make", ".", "kill", "up", "hollow-nodes")
"""What is told to go on until Ctrl-C, the installation, and the death of one replica of several, as there is one here."""
WITH_A_TEST = (PAGE, ROOT / "docs" / "tour.md")
NOT_HERE = frozenset(
    [
        "up",
        "reset",
        "examples",
        "hollow-nodes",
        "node",
        "demo",
        "replica",
        "pki",
        "gateway",
        "kubeconfig",
        "ui",
        "login",
        "token",
        "audit",
    ],
)
"""What goes on until Ctrl-C, and what writes to places of the host: tests/cli/test_pki_command.py, tests/server/test_login.py,
test_token_commands.py, test_state.py, tests/deploy/test_wheel.py and tests/gateway have that."""
WITH_NODES = (ROOT / "docs" / "running.md", ROOT / "docs" / "workloads.md")
"""They want a node that runs pods: tests/nodes and tests/replica/test_workloads.py go their way."""


def zone_of(rayched: Commands, name: str) -> str:
    node = rayched.client.get("node", name)
    assert isinstance(node, Node)
    return node.metadata.labels["topology.kubernetes.io/zone"]


def test_the_quick_start_does_what_it_says(rayched: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (manifest,) = blocks(PAGE, "yaml")
    (name,) = set(re.findall(r"`(\w+\.yaml)`", PAGE.read_text()))
    Path(name).write_text(manifest.text)
    lines = [words for block in blocks(PAGE, "sh") for words in commands(block)]
    lines = [words[1:] for words in lines if words[0] not in LEFT_OUT and words[1] not in LEFT_OUT]
    said: dict[str, str] = {}
    try:
        for words in lines:
            result = rayched(*words)
            said[" ".join(words)] = result.out
            assert result.code == (1 if words[0] == "plan" else 0), (words, result.errors)
            if words[0] == "apply":
                hello = [rayched.running(f"hello-{number}", "default").spec.node_name for number in range(3)]
                assert {zone_of(rayched, node) for node in hello} == {"zone-a", "zone-b", "zone-c"}
                rayched.unschedulable("hello-later", "node affinity", "default")
            if words[:2] == ["label", "node"] and words[-1] == "stage=opened":
                assert rayched.running("hello-later", "default").spec.node_name == "node-003"
    finally:
        rayched("delete", "-f", name, "--grace-period", "0", "--ignore-not-found")
        rayched("label", "node", "node-003", "stage-")
        rayched("uncordon", "node-003")
    shown = {line.split()[0] for line in said["get pods -o wide"].splitlines() if line.startswith("hello-")}
    assert shown == {"hello-0", "hello-1", "hello-2", "hello-later"}
    assert "PodTopologySpread" in said["explain hello-0"]
    assert "node affinity" in said["describe pod hello-later"]
    assert "NodeAffinity" in said["queue hello-later"]
    assert "FailedScheduling" in said["events --for pod/hello-later"]
    assert "node-003" in said["get pod hello-later -o wide"]
    assert "hello-later" in said["drain node-003 --force --dry-run"]


def test_the_commands_of_the_readme_and_of_all_other_pages_do_what_they_say(
    rayched: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the pages, on the cluster that is there; not what goes on until Ctrl-C."""
    monkeypatch.chdir(ROOT)
    pages = [page for page in PAGES if page not in (*WITH_A_TEST, *WITH_NODES)]
    lines = [words for page in pages for block in blocks(page, "sh") for words in commands(block)]
    lines = [words[1:] for words in lines if words[0].endswith("rayched")]
    # A context that is named is that of a cluster which the page has made.
    run = [words for words in lines if words[0] not in NOT_HERE and not {"-w", "--context"} & set(words)]
    assert len(run) >= 16
    try:
        rayched.ok("label", "node", "node-001", "pool=old")
        # No pod of an example lands there: one without a controller would keep it from being drained.
        rayched.ok("cordon", "node-001")
        for words in run:
            result = rayched(*words)
            assert result.code in ((0, 1) if words[0] == "plan" else (0,)), (words, result.errors)
            assert result.out, words
    finally:
        rayched("uncordon", "node-001")
        rayched("label", "node", "node-001", "pool-")
        rayched("delete", "-f", "examples/", "--grace-period", "0", "--ignore-not-found")
