"""Trees of processes: found, ended, and told of their parent's end. Signals that no handler can take away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rayched.actors.process_handle import ProcessHandle, handle_of
from rayched.replica.own_directories import make_own_directory, remove_left_behind, remove_own_directory
from rayched.replica.ray import processes
from rayched.replica.ray.processes import adopt_orphans, alive, descendants, dying_with_us, end_descendants, end_tree
from tests.replica.clusters import left_alive, nothing_left, until_true

DAEMON = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\ntime.sleep(60)\n"
TREE = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {DAEMON!r}])\nprint(flush=True)\ntime.sleep(60)\n"

OWNER = """
import signal, subprocess, sys, time
from rayched.replica.ray.processes import dying_with_us
from rayched.replica.stop_signals import block_stop_signals

block_stop_signals()
child = subprocess.Popen(dying_with_us([sys.executable, "-c", "import time; time.sleep(60)"]))
print(child.pid, flush=True)
time.sleep(60)
"""

STOPPED = """
import ctypes, signal, sys, threading, time
from rayched.replica.stop_signals import block_stop_signals, on_stop_signals, takes_stop_signals

if sys.argv[1] == "late":
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
block_stop_signals()
# What Ray does when it connects.
signal.signal(signal.SIGTERM, signal.SIG_DFL)
print(takes_stop_signals(), flush=True)
asked = threading.Event()
on_stop_signals(asked.set, lambda: print("told twice", flush=True))
print(asked.wait(10), flush=True)
time.sleep(10)
"""


@pytest.fixture(autouse=True)
def subreaper() -> None:
    adopt_orphans()


def started(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.cluster
def test_what_daemonised_itself_below_a_subreaper_is_found_and_ended_and_what_is_kept_is_not() -> None:
    before = set(descendants(os.getpid()))
    with nothing_left() as pids:
        first, second = started(TREE), started(TREE)
        try:
            line(first), line(second)
            tree = set(descendants(os.getpid())) - before
            pids |= tree
            assert {first.pid, second.pid} <= tree
            # Their daemons have become our own children.
            daemons = tree - {first.pid, second.pid}
            assert len(daemons) >= 2
            others = tree - {first.pid}
            assert end_descendants(os.getpid(), keep=before | others) == 1
            assert left_alive({first.pid}, 1.0) == {}
            assert all(map(alive, others))
        finally:
            end_descendants(os.getpid(), keep=before)
            first.wait()
            second.wait()
    assert left_alive(pids, 1.0) == {}


@pytest.mark.cluster
def test_a_tree_is_ended_with_its_root() -> None:
    program = "import subprocess, sys\nwhile True: subprocess.run([sys.executable, '-c', 'import time; time.sleep(0.05)'])"
    root = started(program)
    until_true(lambda: bool(descendants(root.pid)), 10.0, "it starts no child")
    tree = {root.pid, *descendants(root.pid)}
    end_tree(root.pid)
    assert root.wait(1.0) == -signal.SIGKILL
    assert left_alive(tree, 0.5) == {}


@pytest.mark.cluster
def test_a_child_is_told_of_its_parents_end_although_the_parent_blocks_that_signal() -> None:
    owner = started(OWNER)
    child = int(line(owner))
    assert alive(child)
    owner.kill()
    owner.wait()
    assert left_alive({child}, 2.0) == {}


def a_sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sleep", "60"])


@pytest.mark.cluster
def test_a_number_that_has_gone_to_a_stranger_meanwhile_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    root, stranger = started(TREE), a_sleeper()
    with nothing_left() as pids:
        line(root)
        below = set(descendants(root.pid))
        pids.update({root.pid, stranger.pid, *below})
        looks = iter([[*below, stranger.pid]])
        look = processes.descendants
        monkeypatch.setattr(processes, "descendants", lambda pid: next(looks, None) or look(pid))
        processes.end_descendants(root.pid)
        assert left_alive(below) == {} and stranger.poll() is None
        stranger.kill()
        stranger.wait()


@pytest.mark.cluster
def test_a_handle_tells_what_its_process_computed_and_whether_it_is_stopped() -> None:
    process = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    handle = ProcessHandle(process.pid)
    try:
        before = handle.cpu_seconds()
        until_true(lambda: handle.cpu_seconds() > before + 0.05, 30.0, lambda: "it computes nothing")
        assert not handle.is_stopped
        handle.send(signal.SIGSTOP)
        until_true(lambda: handle.is_stopped, 30.0, lambda: "it goes on")
        stood = handle.cpu_seconds()
        assert handle.cpu_seconds() == stood
    finally:
        process.kill()
        process.wait()
    assert not handle.is_stopped
    with pytest.raises(ProcessLookupError):
        handle.cpu_seconds()


def test_a_handle_reaches_its_own_process_and_after_its_end_nobody() -> None:
    process = a_sleeper()
    handle = ProcessHandle(process.pid)
    assert handle.alive
    handle.send(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not handle.alive
    handle.send(signal.SIGKILL)
    handle.close()
    assert handle_of(process.pid) is None


@pytest.mark.cluster
def test_a_command_does_not_start_when_its_parent_is_gone_already() -> None:
    command = dying_with_us(["/bin/sh", "-c", "echo started"])
    elsewhere = subprocess.run(
        [sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (elsewhere.returncode, elsewhere.stdout) == (1, "")


@pytest.mark.cluster
def test_stop_signals_are_taken_whatever_handler_was_installed_since() -> None:
    process = started(STOPPED, "early")
    try:
        assert line(process) == "False"
        process.terminate()
        assert line(process) == "True"
        process.send_signal(signal.SIGINT)
        assert line(process) == "told twice"
    finally:
        process.kill()
        process.wait()


@pytest.mark.cluster
def test_a_thread_that_would_take_a_stop_signal_is_noticed() -> None:
    process = started(STOPPED, "late")
    try:
        assert line(process) == "True"
    finally:
        process.kill()
        process.wait()


MAKER = """
import sys, time
from pathlib import Path
from rayched.replica.own_directories import make_own_directory
print(make_own_directory(Path(sys.argv[1])), flush=True)
time.sleep(60)
"""


def test_directories_of_processes_that_are_gone_are_removed_and_no_others(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left_behind, foreign, alike = (tmp_path / name for name in (f"rayched-{gone.pid}-abc", "rayched-notes-abc", "other"))
    for directory in (left_behind, foreign, alike):
        directory.mkdir()
        (directory / "file").write_text("")
    half_made = tmp_path / f".rayched-{gone.pid}-old"
    half_made.mkdir()
    os.utime(half_made, (1, 1))
    being_made = tmp_path / f".rayched-{gone.pid}-new"
    being_made.mkdir()
    own = make_own_directory(tmp_path)
    second = make_own_directory(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([own, second, foreign, alike, being_made])
    assert own.stat().st_mode & 0o777 == 0o700
    remove_own_directory(own)
    remove_own_directory(second)
    assert sorted(tmp_path.iterdir()) == sorted([foreign, alike, being_made])


def test_a_process_that_has_no_time_removes_all_it_has_made_at_once(tmp_path: Path) -> None:
    # In a process of its own: others of this one's directories are in use.
    program = (
        "import sys; from pathlib import Path; from rayched.replica.own_directories import *\n"
        "made = [make_own_directory(Path(sys.argv[1])) for _ in range(2)]\n"
        "assert all(one.is_dir() for one in made); remove_own()"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cluster
def test_a_directory_is_its_owners_whatever_number_that_has_here(tmp_path: Path) -> None:
    owner = started(MAKER, str(tmp_path))
    try:
        made = Path(line(owner).strip())
        # As it looks from another PID namespace, where nobody has that number.
        elsewhere = made.rename(tmp_path / "rayched-4194305-elsewhere")
        remove_left_behind(tmp_path)
        assert elsewhere.exists()
    finally:
        owner.kill()
        owner.wait()
    remove_left_behind(tmp_path)
    assert not elsewhere.exists()
