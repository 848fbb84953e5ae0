"""The template in examples/plugin: built and installed as anybody would, it decides in a real cluster, and its own tests pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rayched.testing import RunningCluster, a_node, a_pod

pytestmark = pytest.mark.cluster

TEMPLATE = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template's package in a directory of its own, with the entry points that its pyproject.toml declares."""
    root = tmp_path_factory.mktemp("plugin")
    # A copy, as the build leaves files beside its sources.
    shutil.copytree(TEMPLATE, root / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(root / "site"), str(root / "source")], check=True, timeout=120)
    return root / "site"


def test_the_installed_template_decides_in_a_real_cluster_in_both_forms(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed))
    nodes = [
        a_node("plain"),
        a_node("fast", labels={"disktype": "ssd"}),
        a_node("gold", labels={"tier": "gold"}, cpu="2"),
        a_node("best", labels={"tier": "gold", "disktype": "ssd"}, cpu="1"),
    ]
    config = (TEMPLATE / "config.yaml").read_text()
    with RunningCluster(nodes, config=config, directory=tmp_path, workers=1) as cluster:
        cluster.place(a_pod("first", cpu="1")).assert_on("first", "best")
        cluster.place(a_pod("second", cpu="1", scheduler_name="simple-scheduler")).assert_on("second", "gold")
        cluster.place(a_pod("third", cpu="9")).assert_pending("third", "Insufficient cpu")


def test_the_templates_own_tests_pass(installed: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TEMPLATE / "tests")]
    path = os.pathsep.join([str(installed), str(TEMPLATE.parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert "12 passed" in done.stdout
