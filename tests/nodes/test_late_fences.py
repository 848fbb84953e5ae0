"""A fence that came while the host slept: what waits for it wakes at once, and nothing that was asked for before is begun."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from rayched.nodes.agent.loop import AgentLoop
from rayched.nodes.agent.shim import main as shim_main
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim.boot_timer import BootTimer, boottime
from rayched.nodes.agent.shim.main import Shim
from tests.nodes.bare_shim import bare_shim, own_uid, until


def timers_of(pid: int) -> list[dict[str, str]]:
    """What the kernel says of the timers that it has open."""
    found = []
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        if "clockid" in lines:
            found.append({name: value.strip() for name, value in lines.items()})
    return found


def seconds_left(timer: dict[str, str]) -> float:
    seconds, nanoseconds = timer["it_value"].strip("()").split(",")
    return int(seconds) + int(nanoseconds) / 1e9


@pytest.mark.row("N75")
def test_a_shim_waits_for_its_fence_by_the_clock_that_goes_on_while_the_host_sleeps(tmp_path: Path) -> None:
    with bare_shim(tmp_path / own_uid()) as shim:
        assert shim.asked("fence", at=boottime() + 500.0, grace=100.0)["ok"]
        assert shim.asked("hello")["ok"]
        timers = timers_of(shim.pid)
        assert {int(one["clockid"]) for one in timers} == {time.CLOCK_BOOTTIME}
        loop, watchdog = sorted(map(seconds_left, timers))
        assert 380 < loop <= 400 and 480 < watchdog <= 500


def test_the_agents_loop_waits_by_that_clock_too() -> None:
    loop = AgentLoop(boottime)
    due = boottime() + 5.0
    thread = threading.Thread(target=loop.run, args=(lambda: due, lambda: None), daemon=True)
    thread.start()
    own = loop._timer.fileno()

    def timer() -> dict[str, str]:
        lines = Path(f"/proc/self/fdinfo/{own}").read_text().splitlines()
        return {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}

    until(lambda: 0 < seconds_left(timer()) <= 5.0, "it waits")
    assert int(timer()["clockid"]) == time.CLOCK_BOOTTIME
    loop.post(loop.stop)
    thread.join(10.0)
    assert not thread.is_alive()
    loop.close()


def test_a_timer_comes_at_its_time_and_when_that_is_over_at_once() -> None:
    timer = BootTimer()
    at = boottime() + 0.2
    timer.set(at)
    timer.wait()
    assert boottime() >= at
    timer.set(1.0)
    timer.wait()
    timer.set(boottime() + 1000.0)
    threading.Timer(0.2, timer.set, (boottime(),)).start()
    timer.wait()
    timer.close()


@pytest.mark.row("N73")
def test_a_start_that_waited_until_after_the_fence_is_refused(tmp_path: Path) -> None:
    """The shim is stopped over its fence, as by a host that sleeps; the start lies in its socket."""
    with bare_shim(tmp_path / own_uid()) as shim:
        note = tmp_path / "note"
        shim.attempt("main", f"touch {note}; sleep 1000")
        at = boottime() + 1.5
        assert shim.asked("fence", at=at, grace=0.5)["ok"]
        os.kill(shim.pid, signal.SIGSTOP)
        until(lambda: proc_table.state_of(shim.pid) == "T", "it is stopped")
        answers: list[dict[str, object]] = []
        shim.link.ask("start", answers.append, container="main", attempt=0)
        until(lambda: boottime() > at, "the fence has come")
        os.kill(shim.pid, signal.SIGCONT)
        while not answers:
            shim.link.wait(30.0)
        assert (answers[0]["ok"], answers[0].get("kind")) == (False, "fenced")
        assert not note.exists() and not shim.below()


def test_a_shim_looks_at_the_clock_before_it_answers_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that sleeps: between two requests of one moment the clock has gone on."""
    (tmp_path / "containers" / "main" / "0").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, socket.socket() as wakeups:
        shim = Shim(str(tmp_path), listener, wakeups)
        now = boottime()
        monkeypatch.setattr(shim_main, "boottime", lambda: now)
        fence = {"verb": "fence", "at": now + 1000.0, "grace": 10.0}
        assert shim._answer(0, fence) == {"ok": True, "fenced": False}
        hello = shim._answer(0, {"verb": "hello"})
        assert hello is not None and not hello["fenced"]
        now += 990.0
        hello = shim._answer(0, {"verb": "hello"})
        assert hello is not None and hello["fenced"]
        answer = shim._answer(0, {"verb": "start", "container": "main", "attempt": 0})
        assert answer is not None and (answer["ok"], answer["kind"]) == (False, "fenced")


def test_a_start_that_the_disk_held_up_until_after_the_fence_is_refused(tmp_path: Path) -> None:
    """Its specification is read when the fence has come: the shim waits for it as for a disk that does not answer."""
    with bare_shim(tmp_path / own_uid()) as shim:
        note = tmp_path / "note"
        directory = shim.attempt("main", f"touch {note}; sleep 1000")
        spec = directory / "spec.json"
        text = spec.read_text()
        spec.unlink()
        os.mkfifo(spec)
        at = boottime() + 1.0
        assert shim.asked("fence", at=at, grace=0.2)["ok"]
        answers: list[dict[str, object]] = []
        shim.link.ask("start", answers.append, container="main", attempt=0)
        until(lambda: boottime() > at, "the fence has come")
        spec.write_text(text)
        while not answers:
            shim.link.wait(30.0)
        assert (answers[0]["ok"], answers[0].get("kind")) == (False, "fenced")
        assert not note.exists() and not shim.below()
