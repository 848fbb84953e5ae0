"""All that an execution began ends with it, whatever it does to hide: with a shim of its own, without an agent."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim_link import connect_to_shim
from tests.nodes.bare_shim import BareShim, bare_shim, own_uid, until

HIDES = "env -i setsid sh -c '(sleep 1001 &) ; (setsid sleep 1002 &)'"
"""Two that carry no mark, have sessions that nobody knows, and whose parents are gone."""


def main_of(shim: BareShim) -> int:
    shim.attempt("main", "exec sleep 1000")
    assert shim.asked("start", container="main", attempt=0)["ok"]
    until(lambda: sleepers(shim) == ["1000"], "it runs")
    (main,) = shim.below()
    return main


def executed(shim: BareShim, argv: Sequence[str]) -> tuple[socket.socket, int]:
    """The connection, whose end is that of the execution, and its output to read."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connect_to_shim(connection, shim.directory)
    nothing = os.open(os.devnull, os.O_RDWR)
    out, writing = os.pipe()
    request: dict[str, Any] = {"id": 7, "verb": "run", "container": "main", "attempt": 0, "argv": list(argv)}
    socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], [nothing, writing, nothing])
    os.close(nothing)
    os.close(writing)
    return connection, out


def sleepers(shim: BareShim) -> list[str]:
    found = []
    for pid in shim.below():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[0] == b"sleep":
            found.append(words[1].decode())
    return sorted(found)


@pytest.mark.row("N122")
def test_what_hides_in_a_session_of_its_own_without_environment_or_parent_ends_with_an_exec(tmp_path: Path) -> None:
    with bare_shim(tmp_path / own_uid()) as shim:
        main = main_of(shim)
        connection, out = executed(shim, ["sh", "-c", f"{HIDES}; sleep 1003"])
        until(lambda: sleepers(shim) == ["1000", "1001", "1002", "1003"], "all of it runs")
        connection.close()
        os.close(out)
        until(lambda: shim.below() == [main], "all of it is gone")


def test_so_it_does_with_a_probe_that_took_too_long(tmp_path: Path) -> None:
    with bare_shim(tmp_path / own_uid()) as shim:
        main = main_of(shim)
        argv = ["sh", "-c", f"{HIDES}; sleep 1003"]
        answer = shim.asked("exec", container="main", attempt=0, argv=argv, seconds=1.0)
        assert answer["timed_out"] and answer["signal"] == 9
        assert shim.below() == [main]


@pytest.mark.row("N122")
def test_an_execution_ends_as_its_program_does_and_what_it_left_behind_goes_on(tmp_path: Path) -> None:
    with bare_shim(tmp_path / own_uid()) as shim:
        main_of(shim)
        for script, code, number in (
            ("exit 7", 7, 0),
            ("kill -9 $$", 137, 9),
            ("kill -TERM $$", 143, 15),
            ("kill -PIPE $$", 141, 13),
        ):
            answer = shim.asked("exec", container="main", attempt=0, argv=["sh", "-c", f"echo said; {script}"], seconds=20.0)
            assert (answer["code"], answer["signal"], answer["output"]) == (code, number, "said\n")
        answer = shim.asked("exec", container="main", attempt=0, argv=["no-such-program"], seconds=20.0)
        assert not answer["ok"] and answer["kind"] == "start" and "no-such-program" in answer["error"]
        answer = shim.asked("exec", container="main", attempt=0, argv=["sh", "-c", HIDES], seconds=20.0)
        assert answer["code"] == 0
        until(lambda: sleepers(shim) == ["1000", "1001", "1002"], "what it left behind runs")
        assert len(shim.below()) == 3, "nothing of the execution itself is left"
        shim.asked("kill")
        until(lambda: not shim.below(), "it ends with the container")


def test_the_end_of_the_output_is_that_of_the_program(tmp_path: Path) -> None:
    """Who stands between shim and program holds none of its pipes open, nor the shim's lock."""
    with bare_shim(tmp_path / own_uid()) as shim:
        main_of(shim)
        connection, out = executed(shim, ["sh", "-c", "exec >&-; sleep 1003"])
        began = time.monotonic()
        assert os.read(out, 10) == b"" and time.monotonic() - began < 30.0
        (supervisor,) = [pid for pid in proc_table.children_of(shim.pid) if proc_table.children_of(pid)]
        held = {os.readlink(f"/proc/{supervisor}/fd/{fd}") for fd in os.listdir(f"/proc/{supervisor}/fd")}
        assert held == {os.devnull}
        connection.close()
        os.close(out)
