"""What a full disk, a hostile directory and a hostile server do to an agent and a shim: not much. All without a cluster."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from rayched.nodes.agent.disk import NodeDirectory
from rayched.nodes.agent.loop import AgentLoop
from rayched.nodes.agent.network_probes import http_get, tcp_connect
from rayched.nodes.agent.owed_writes import OwedWrites
from rayched.nodes.agent.removal import remove_tree
from rayched.nodes.agent.shim.log_file import LogFile
from rayched.nodes.agent.shim_link import Answer, ShimLink, start_shim
from rayched.v1.core_pb2 import Container, HTTPGetAction, Pod, TCPSocketAction

MAIN = Container(name="main")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[NodeDirectory]:
    found = NodeDirectory(tmp_path / "node", traversable=True)
    found.open("n1")
    yield found
    found.close()


def a_pod(name: str = "web") -> Pod:
    pod = Pod()
    pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = name, "default", "u" * 36
    return pod


def test_what_an_agent_keeps_is_read_by_its_owner_alone(directory: NodeDirectory) -> None:
    pod = directory.pod("u" * 36)
    pod.make()
    pod.save_object(a_pod())
    pod.begin_attempt("main", 0)
    pod.write_spec("main", 0, {"env": {"SECRET": "x"}})
    for path in (pod.path / "pod.json", pod.attempt_path("main", 0) / "spec.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_directory_as_deep_as_can_be_is_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    top = tmp_path / "top"
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    for number in range(1500):
        os.mkdir("x" * 100, dir_fd=fd)
        below = os.open("x" * 100, os.O_RDONLY, dir_fd=fd)
        os.close(os.open(f"file-{number}", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.symlink(kept, "link", dir_fd=below)
        os.close(fd)
        fd = below
    os.close(fd)
    (top / "closed" / "more").mkdir(parents=True)
    (top / "closed").chmod(0)
    remove_tree(top)
    assert not top.exists() and kept.exists()
    remove_tree(top)


def test_a_pod_with_the_longest_names_has_a_directory_for_its_logs(directory: NodeDirectory) -> None:
    pod = a_pod("n" * 253)
    pod.metadata.namespace = "s" * 63
    found = directory.pod(pod.metadata.uid)
    path = found.log_path(pod, "main", 0)
    path.write_text("x")
    other = a_pod("n" * 252 + "m")
    other.metadata.namespace = "s" * 63
    assert found.log_path(other, "main", 0) != path
    found.make()
    found.remove()
    assert not list(directory.logs.iterdir())


def test_logs_of_attempts_before_the_last_one_go(directory: NodeDirectory) -> None:
    pod = directory.pod("u" * 36)
    pod.make()
    for attempt in range(12):
        for end in ("", ".1"):
            Path(f"{pod.log_path(a_pod(), 'main', attempt)}{end}").write_text("x")
        pod.begin_attempt("main", attempt)
    names = {path.name for path in pod.log_path(a_pod(), "main", 0).parent.iterdir()}
    assert names == {"10.log", "10.log.1", "11.log", "11.log.1"}


def test_a_log_goes_on_when_the_disk_has_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogFile(str(tmp_path / "0.log"))
    log.write("stdout", b"first\n")
    write, room = os.write, 10

    def full(fd: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written, room = write(fd, bytes(data)[:room]), 0
        return written

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full)
        log.write("stdout", b"cut short\n")
        log.write("stdout", b"lost\n")
    log.write("stdout", b"last\n")
    log.close()
    lines = (tmp_path / "0.log").read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in (lines[0], lines[-1])] == ["first", "last"]
    assert len(lines) == 3 and len(lines[1]) == 10


def test_a_loop_goes_on_after_a_fault() -> None:
    loop = AgentLoop(time.monotonic)
    done = []

    def fails() -> None:
        done.append("fails")
        raise OSError(errno.ENOSPC, "No space left on device")

    loop.post(fails)
    loop.later(0.0, fails)
    loop.later(0.1, loop.stop)
    loop.run(lambda: float("inf"), lambda: None)
    loop.close()
    assert done == ["fails", "fails"]


def test_a_probe_of_a_server_that_drips_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            peer, _ = server.accept()
            with peer:
                try:
                    while True:
                        peer.sendall(b"H")
                        time.sleep(0.05)
                except OSError:
                    return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        action = HTTPGetAction()
        action.port.int_value = server.getsockname()[1]
        begun = time.monotonic()
        assert http_get(action, MAIN, "127.0.0.1", 0.3).endswith("timed out")
        assert time.monotonic() - begun < 60.0
        thread.join(5.0)


@pytest.mark.parametrize("port", ["99999", "0", "9" * 5000, "none"])
def test_a_port_that_is_none_is_a_failure(port: str) -> None:
    get, connect = HTTPGetAction(), TCPSocketAction()
    get.port.string_value = connect.port.string_value = port
    for found in (http_get(get, MAIN, "127.0.0.1", 1.0), tcp_connect(connect, MAIN, "127.0.0.1", 1.0)):
        assert found == f"port '{port}' is none of the container's, and no number from 1 to 65535"


def test_what_a_full_disk_refuses_is_written_later(tmp_path: Path) -> None:
    later: list[Callable[[], None]] = []
    owed = OwedWrites(tmp_path, lambda _, call: later.append(call))
    is_full, written = True, []

    def write(text: str) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(text)

    for text in ("first", "second"):
        owed.write("ending", partial(write, text))
    owed.write("memory", partial(write, "third"))
    assert not written and len(later) == 1
    later.pop()()
    assert not written and len(later) == 1
    is_full = False
    later.pop()()
    assert written == ["second", "third"] and not later


def test_a_shim_lives_on_when_nothing_can_be_written_and_stops_are_odd(tmp_path: Path) -> None:
    attempt = tmp_path / "containers" / "main" / "0"
    attempt.mkdir(parents=True)
    # Neither file can be made while a directory has its name.
    (tmp_path / "shim" / "state.json.new").mkdir(parents=True)
    (attempt / "exit.json.new").mkdir()
    ready = tmp_path / "ready"
    script = f"trap '' TERM; touch {ready}; while :; do sleep 0.1; done"
    spec = {"argv": ["sh", "-c", script], "env": {"PATH": os.environ["PATH"]}, "cwd": "/", "log": str(tmp_path / "0.log")}
    (attempt / "spec.json").write_text(json.dumps(spec))
    start_shim(tmp_path)
    heard: list[Answer] = []
    gone: list[bool] = []
    link = ShimLink(tmp_path, heard.append, lambda: gone.append(True))

    def asked(verb: str, **fields: object) -> Answer:
        answers: list[Answer] = []
        link.ask(verb, answers.append, **fields)
        while not answers:
            link.wait(5.0)
        return answers[0]

    def until(holds: Callable[[], object]) -> None:
        ends_at = time.monotonic() + 20.0
        while not holds():
            assert time.monotonic() < ends_at
            time.sleep(0.02)

    main = {"container": "main", "attempt": 0}
    try:
        assert asked("start", **main)["ok"]
        until(ready.exists)
        assert asked("stop", **main, grace=1e9, signal="SIGRTMIN+3")["ok"]
        assert asked("hello")["containers"][0]["exit"] is None
        assert asked("stop", **main, grace=0.0, signal="FOO")["ok"]
        while not heard:
            link.wait(5.0)
        assert heard[0]["event"] == "ended" and heard[0]["exit"]["code"] == 137
        assert asked("hello")["containers"][0]["exit"] == heard[0]["exit"]
        assert not (attempt / "exit.json").exists()
        (attempt / "exit.json.new").rmdir()
        until((attempt / "exit.json").exists)
        assert json.loads((attempt / "exit.json").read_text()) == heard[0]["exit"]
    finally:
        link.tell("quit")
        while not gone:
            link.wait(20.0)
