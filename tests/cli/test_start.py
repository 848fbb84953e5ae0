"""What a command waits for before it does anything, and what is known of commands that were not imported."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from typer.main import get_command

from rayched.cli.main import _COMMANDS, app

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
HEAVY = {"numpy", "ray", "etcd3", "aiohttp", "cryptography", "cffi", "_cffi_backend", "prometheus_client"}


def imported_by(*words: str) -> set[str]:
    """The top-level modules that this command line has imported."""
    found = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True, timeout=120)
    return {*found.stdout.splitlines()[-1].split()[1:]}


def test_the_list_of_commands_waits_for_none_of_them() -> None:
    assert imported_by("--help") & (HEAVY | {"grpc", "google", "yaml"}) == set()


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
