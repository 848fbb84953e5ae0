"""The agent's door for commands of its host stays open whatever comes in, and who waits for an answer bears a delay."""

from __future__ import annotations

import errno
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from rayched.nodes.agent.control import Answer, ControlDoor, ControlFault, ask_agent

ANSWER = {"ok": True, "pods": 3}


class Commands:
    """What an agent would answer, one after the other; then always the same."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, verb: str) -> Answer:
        self.asked.append(verb)
        found = self.answers.pop(0) if self.answers else ANSWER
        if isinstance(found, Exception):
            raise found
        return found


@contextmanager
def a_door(root: Path, commands: Commands) -> Iterator[ControlDoor]:
    door = ControlDoor(root, commands)
    door.start()
    try:
        yield door
    finally:
        door.stop()


class Pauses:
    """A clock that goes on by them alone."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def clock(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def asked(root: Path, pauses: Pauses, verb: str = "state", *, is_there: bool = False) -> Answer:
    return ask_agent(root, verb, is_there=is_there, clock=pauses.clock, sleep=pauses.sleep)


@pytest.mark.row("N117")
def test_an_agent_that_is_busy_is_asked_again(tmp_path: Path) -> None:
    busy = {"ok": False, "busy": True, "error": "the loop has not answered within 2 s"}
    commands, pauses = Commands(busy, busy), Pauses()
    with a_door(tmp_path, commands):
        assert asked(tmp_path, pauses, "shutdown") == ANSWER
    assert commands.asked == ["shutdown"] * 3 and len(pauses.slept) == 2


def test_one_that_stays_busy_is_given_up_after_a_minute(tmp_path: Path) -> None:
    busy = {"ok": False, "busy": True, "error": "the loop has not answered within 2 s"}
    commands, pauses = Commands(*[busy] * 1000), Pauses()
    with a_door(tmp_path, commands), pytest.raises(ControlFault, match="has not answered within 2 s"):
        asked(tmp_path, pauses)
    assert sum(pauses.slept) == 60


def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    commands, pauses = Commands({"ok": False, "error": "it has no --shutdown-grace-period"}), Pauses()
    with a_door(tmp_path, commands), pytest.raises(ControlFault, match="no --shutdown-grace-period"):
        asked(tmp_path, pauses, "shutdown")
    assert not pauses.slept


@pytest.mark.row("N117")
def test_where_no_agent_is_nobody_waits_unless_one_was_there(tmp_path: Path) -> None:
    pauses = Pauses()
    with pytest.raises(ControlFault, match="no agent answers there"):
        asked(tmp_path, pauses)
    assert not pauses.slept

    with pytest.raises(ControlFault, match="no agent answers there"):
        asked(tmp_path, pauses, is_there=True)
    assert sum(pauses.slept) == 60


def test_an_agent_that_comes_back_answers_who_waited(tmp_path: Path) -> None:
    doors: list[ControlDoor] = []

    class Returns(Pauses):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.slept) == 3:
                doors.append(ControlDoor(tmp_path, Commands()))
                doors[0].start()

    pauses = Returns()
    assert asked(tmp_path, pauses, is_there=True) == ANSWER and len(pauses.slept) == 3
    doors[0].stop()


def sent(root: Path, data: bytes) -> bytes:
    """What the door answers, until it hangs up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(30.0)
        peer.connect(str(root / "control.sock"))
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        found = b""
        while part := peer.recv(4096):
            found += part
    return found


@pytest.mark.parametrize("data", [b"", b"\n", b"x\n", b"[]\n", b"{}\n", b"[" * 50_000 + b"\n", b"\xff\n", b"no end"])
def test_what_is_no_command_leaves_the_door_open(tmp_path: Path, data: bytes) -> None:
    commands = Commands()
    with a_door(tmp_path, commands):
        assert sent(tmp_path, data) == b"" and not commands.asked
        assert asked(tmp_path, Pauses()) == ANSWER


def test_a_command_that_fails_is_answered_and_leaves_the_door_open(tmp_path: Path) -> None:
    with a_door(tmp_path, Commands(ZeroDivisionError("nobody thought of it"))):
        answer = json.loads(sent(tmp_path, b'{"verb": "state"}\n'))
        assert answer == {"ok": False, "error": "the agent has failed (ZeroDivisionError); its log says why"}
        assert asked(tmp_path, Pauses()) == ANSWER


def test_who_says_nothing_holds_up_nobody(tmp_path: Path) -> None:
    with a_door(tmp_path, Commands()), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.connect(str(tmp_path / "control.sock"))
        found: list[Answer] = []
        thread = threading.Thread(target=lambda: found.append(asked(tmp_path, Pauses())), daemon=True)
        thread.start()
        thread.join(5.0)
        assert found == [ANSWER]


def test_a_door_that_had_no_descriptor_left_opens_again(tmp_path: Path) -> None:
    door = ControlDoor(tmp_path, Commands())
    listener = door._listener

    class Stumbles:
        """As a listener where the process has no descriptor left, three times."""

        def __init__(self) -> None:
            self.left = 3

        def accept(self) -> object:
            if self.left:
                self.left -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return listener.accept()

        def shutdown(self, how: int) -> None:
            listener.shutdown(how)

        def close(self) -> None:
            listener.close()

    door._listener = cast(socket.socket, Stumbles())
    door.start()
    assert asked(tmp_path, Pauses()) == ANSWER
    door.stop()
