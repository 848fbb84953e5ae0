"""The demo as it is shown to people: its table, and the cluster that it leaves if asked to, with the commands that it names."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from rayched.replica.cluster.free_ports import free_port
from rayched.replica.settings import GATEWAY_PORT_DISTANCE
from tests.cli.cluster import run_here, started, wait_until
from tests.cli.test_processes import processes_with
from tests.docs.markdown import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.long]

SECONDS_MAX = 240.0
"""Two replicas start, one is killed and started again."""


@pytest.mark.row("B11", "UI1")
def test_the_demo_that_keeps_its_cluster_names_commands_that_work_there(
    tmp_path: Path, configuration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    port, errors = free_port(), tmp_path / "errors"
    words = ("demo", "--keep", "--replicas", "2", "--nodes", "12", "--pods", "100", "--port", str(port))
    with started(*words, environment={"TMPDIR": str(tmp_path)}, errors=errors) as demo:
        table = []
        while "The cluster stays until you press Ctrl-C" not in (line := demo.line_while_it_tells(SECONDS_MAX)):
            table.append(line)
        found = {cells[1].strip(): cells[2].strip() for row in table if len(cells := row.split("│")) == 4}
        assert {name: found[name] for name in ("lost", "bound twice", "over capacity")} == dict.fromkeys(
            ("lost", "bound twice", "over capacity"), "0"
        )
        # A pod's container is there once, and what it wrote shows that it went on while nobody led.
        assert re.fullmatch(r"22 on [1-3] nodes: 20 ended, 0 failed, 0 restarts", found["pods that ran"])
        assert re.fullmatch(r"1 to \d+, none skipped, at most \d+\.\d\d s between two", found["counter"])
        assert line.endswith("Its replicas:") and demo.line().startswith(f"127.0.0.1:{port}, ")
        assert [demo.line() for _ in range(3)] == ["", "In another terminal:", ""]
        listed = [demo.line() for _ in range(10)]
        assert max(map(len, listed)) <= 80
        listed.remove("  kubectl --kubeconfig rayched.kubeconfig get pods")
        named = [line.partition("#")[0].partition("|")[0].split() for line in listed]
        commands = [words[1:] for words in named if words[0] == "rayched"]
        assert [words[:2] for words in named if words[0] != "rayched"] == [["kill", "-9"]]
        assert len(commands) == 8
        commands.remove(["kubeconfig", "-o", "rayched.kubeconfig"])
        assert run_here(["kubeconfig", "-o", str(tmp_path / "rayched.kubeconfig")]).code == 0
        for command in commands:
            if command[0] == "logs":
                # What a container wrote goes to a descriptor, as it is.
                with started(*command) as logs:
                    assert logs.line().strip().isdecimal()
                continue
            # In a second terminal of the same user, without a flag.
            result = run_here(command)
            assert (result.code, bool(result.out)) == (0, True), (command, result.errors)
        for name in ("real-0", "real-1", "real-2"):
            assert processes_with(f"/pki/node/{name}/context.yaml"), "its agent has a certificate of its own"
        (told,) = [line for line in errors.read_text().splitlines() if line.startswith("rayched ui")]
        assert told == f"rayched ui opens the page at https://127.0.0.1:{port + GATEWAY_PORT_DISTANCE}/ui/"
        signed_in = run_here(["ui", "--print"])
        assert signed_in.code == 0 and "/ui/#code=" in signed_in.lines[0], signed_in.errors
        whose = "of two replicas and their gateways, an administrator, hollow nodes, and three agents"
        assert len([*tmp_path.rglob("tls.key")]) == 9, whose
        assert demo.end(signal.SIGINT, SECONDS_MAX) == 0
    assert [*tmp_path.rglob("*.key")] == []
    assert [path for path in configuration.rglob("*") if path.is_file()] == []
    wait_until(lambda: not processes_with(str(tmp_path)), "all processes of the demo are gone")
    assert errors.read_text().splitlines()[-1] == "stopped"
