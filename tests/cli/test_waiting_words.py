"""What a command says while it waits: whoever looks at a silent terminal does not know what is missing."""

from __future__ import annotations

import pytest

from rayched.cli import connection, node_commands
from tests.cli.cluster import run_here


def test_hollow_nodes_say_which_replicas_they_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LISTENS_SECONDS", 0.1)
    monkeypatch.setattr(node_commands, "_PATIENCE_SECONDS", 1.0)
    result = run_here(["hollow-nodes", "1", "--server", "127.0.0.1:1,127.0.0.1:2"])
    first, last = result.errors
    assert first == "waiting for a replica at 127.0.0.1:1, 127.0.0.1:2, for 1 s at most"
    assert last.startswith("error: no rayched answers at 127.0.0.1:1, 127.0.0.1:2; ")
    assert (result.code, result.out) == (1, "")


def test_a_command_that_does_not_wait_longer_says_only_how_it_ended() -> None:
    (line,) = run_here(["get", "pods", "--server", "127.0.0.1:1"]).errors
    assert line.startswith("error: no rayched answers at 127.0.0.1:1; ")
