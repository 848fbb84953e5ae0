"""What a command waits for before it does anything, and what is known of commands that were not imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from rayched.cli.cluster.rehearsal import StillWaiting
from rayched.cli.main import _COMMANDS, app
from tests.cli.cluster import started

PROGRAM = """
import sys
from rayched.cli.main import main
try:
    sys.argv = ["rayched", *sys.argv[1:]]
    main()
except SystemExit:
    pass
print("imported:", *sorted({name.partition(".")[0] for name in sys.modules}))
"""
HEAVY = {"numpy", "ray", "etcd3", "aiohttp", "cryptography", "cffi", "_cffi_backend", "prometheus_client", "rich", "pygments"}


def imported_by(*words: str) -> set[str]:
    """The top-level modules that this command line has imported."""
    found = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True, timeout=120)
    return {*found.stdout.splitlines()[-1].split()[1:]}


def test_the_list_of_commands_waits_for_none_of_them() -> None:
    assert imported_by("--help") & (HEAVY | {"grpc", "google", "yaml", "pydantic"}) == set()


@pytest.mark.parametrize("words", ["get pods -s 127.0.0.1:1", "queue --help", "leader --help", "apply --help", "wait --help"])
def test_what_asks_a_cluster_imports_nothing_of_a_server(words: str) -> None:
    found = imported_by(*words.split())
    assert "grpc" in found
    assert found & HEAVY == set()


@pytest.mark.parametrize("name", _COMMANDS)
def test_the_list_says_of_a_command_what_it_says_of_itself(name: str) -> None:
    group: Any = get_command(app)
    command = group.commands[name]
    assert command.name == name
    assert command.help.startswith(_COMMANDS[name].says.removesuffix("."))


def test_a_command_that_ended_is_told_from_one_that_says_nothing(tmp_path: Path) -> None:
    """Of these tests themselves: whoever waits for a line sees at once that there will be none, and why."""
    with (
        started("get", "pods", "-s", "127.0.0.1:1", errors=tmp_path / "errors") as command,
        pytest.raises(AssertionError, match=r"(?s)ended with 1.*no rayched answers at 127.0.0.1:1"),
    ):
        command.line()


def test_who_waits_is_told_for_what_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    waiting = StillWaiting(lambda: now[0])
    for seconds in (1.0, 14.0, 16.0, 17.0, 31.0, 32.0):
        now[0] = seconds
        waiting.tell(f"{seconds:g} s")
    assert capsys.readouterr().err.splitlines() == ["still waiting: 16 s", "still waiting: 32 s"]
