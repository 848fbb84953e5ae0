"""The programs of examples/python and those of docs/python.md, against one real cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.testing import RunningCluster, a_node

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    nodes = [a_node(f"node-{number}", labels={"disktype": "ssd"}) for number in range(3)]
    with RunningCluster(nodes, directory=tmp_path_factory.mktemp("examples")) as found:
        yield found


@pytest.fixture(autouse=True)
def _nothing_is_left(cluster: RunningCluster) -> Iterator[None]:
    yield
    assert [pod.metadata.name for pod in cluster.client.list("pods")] == []


def lines_of(cluster: RunningCluster, *command: str, directory: Path | None = None) -> list[str]:
    environment = {**os.environ, "RAYCHED_SERVER": ",".join(cluster.addresses), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command], check=False, env=environment, cwd=directory, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def example(cluster: RunningCluster, name: str) -> list[str]:
    return lines_of(cluster, str(ROOT / "examples" / "python" / name))


def test_submit_and_wait(cluster: RunningCluster) -> None:
    found = example(cluster, "submit_and_wait.py")
    assert [re.sub(r"\d$", "N", line) for line in found] == ["greeter-0 is on node-N", "greeter-1 is on node-N"]


def test_watch_bindings(cluster: RunningCluster) -> None:
    found = [re.fullmatch(r"revision \d+: (worker-\d+) to node-\d", line) for line in example(cluster, "watch_bindings.py")]
    assert len({line[1] for line in found if line}) == len(found) == 50


def test_why_pending(cluster: RunningCluster) -> None:
    found = example(cluster, "why_pending.py")
    message = "0/3 nodes are available: 3 Insufficient cpu."
    assert found[0].startswith(f"1 of 1 pods are not bound after 2 s: default/huge: {message}")
    assert re.fullmatch(r"held by NodeResourcesFit; attempts: \d+", found[1])
    assert re.fullmatch(r"node-\d: Insufficient cpu", found[2])
    assert found[3] == "Pod default/huge not found (NOT_FOUND)"


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_each_program_of_the_page_runs(cluster: RunningCluster, block: str, tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text((ROOT / "examples" / "resources.yaml").read_text())
    lines_of(cluster, "-c", block, directory=tmp_path)


def test_the_page_has_programs() -> None:
    assert len(BLOCKS) >= 4
