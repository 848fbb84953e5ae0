"""docs/tour.md as a stranger would walk it: its files saved under the names it gives, its commands typed in, in its order.

Left out are the installation of rayched, and Ctrl-C. The package goes to a directory of the test's own; the ports are free ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rayched.client import Client
from rayched.replica.cluster.free_ports import free_port
from tests.cli.cluster import Result, run_here, started, wait_until
from tests.docs.markdown import ROOT, Block, blocks, commands

pytestmark = pytest.mark.cluster

PAGE = ROOT / "docs" / "tour.md"
MINUTES_MAX = 15.0
START_SECONDS_MAX = 90.0
FILE = re.compile(r"`([\w/]+\.\w+)`[^`]*\n\n```(?:python|toml|yaml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def in_a_shell(line: str, environment: dict[str, str]) -> str:
    """Where the shell is afterwards: the reader's stays there for the next line."""
    done = subprocess.run(
        ["bash", "-c", f"{line} && pwd"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout.splitlines()[-1]


def node_of(port: int) -> str:
    with asked(port) as client:
        return str(client.get("pod", "thrifty").spec.node_name)


def nodes(port: int) -> int:
    with asked(port) as client:
        return len(list(client.list("nodes")))


def asked(port: int) -> Client:
    """Through the context that lists it, once there is one."""
    return Client([f"127.0.0.1:{port}"], timeout_seconds=60.0)


def test_the_tour_ends_with_a_plugin_of_ones_own_that_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # The reader is in the repository's directory, whose settings pytest would take for the package's.
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    began, port, site = time.monotonic(), free_port(), tmp_path / "site"
    server = {"RAYCHED_SERVER": f"127.0.0.1:{port}"}
    shell = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PIP_TARGET": str(site), "PIP_NO_INDEX": "1"}
    where = ["--port", str(port), "--data-dir", str(tmp_path / "data")]
    files = dict(FILE.findall(PAGE.read_text()))
    assert len(files) == len(blocks(PAGE, "python", "toml", "yaml")) == 5
    said: list[tuple[str, Result]] = []
    with contextlib.ExitStack() as running:
        for line in (line for block in blocks(PAGE, "sh") for line in lines(block)):
            words = line.split()
            if words[0] in ("make", "."):
                continue
            if words[0] != "rayched":
                monkeypatch.chdir(in_a_shell(line, shell))
                if words[0] == "mkdir":
                    for name, text in files.items():
                        (tmp_path / name).write_text(text)
            elif words[1] == "up":
                up = running.enter_context(started(*words[1:], *where, environment={"PYTHONPATH": str(site)}, errors=Path("log")))
                assert up.line(START_SECONDS_MAX).startswith("rayched is up"), Path("log").read_text()
            elif words[1] == "hollow-nodes":
                running.enter_context(started(*words[1:], environment=server))
                wait_until(lambda: nodes(port) == 6, "the nodes are there", START_SECONDS_MAX)
            else:
                result = run_here(words[1:], environment=server)
                assert result.code == 0, (line, result.errors)
                said.append((line, result))
                if words[1] == "label" or (words[1] == "apply" and len(said) > 2):
                    wait_until(lambda: node_of(port) != "", "the pod has a node", START_SECONDS_MAX)
    waiting, bound = (result.out for line, result in said if line.startswith("rayched explain thrifty"))
    assert "Cheap" in waiting and "node(s) had no price" in waiting
    assert "Cheap x10" in bound and "900 (90, raw 90)" in bound
    first, second = (result.lines[1].split() for line, result in said if line == "rayched get pod thrifty -o wide")
    assert "node-001" in first and "node-004" in second
    assert not (tmp_path / "cheap").exists(), "it is cleaned up"
    assert time.monotonic() - began < MINUTES_MAX * 60


def lines(block: Block) -> list[str]:
    """As typed."""
    assert len(list(commands(block))) == len(block.text.splitlines())
    return block.text.splitlines()
