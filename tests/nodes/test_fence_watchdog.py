"""A fence is kept whatever the shim waits for: a disk that does not answer, requests that came late, a host that slept."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from rayched.api.disconnection import FENCE_ARMED, STOP_AFTER_ANNOTATION
from rayched.nodes.agent import shim_link
from rayched.nodes.agent.agent_settings import steady_clock
from rayched.nodes.agent.fence_guard import FenceGuard, ShimProcess
from rayched.nodes.agent.leftovers import shims_of
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim.boot_timer import boottime
from rayched.nodes.agent.shim.watchdog import FenceWatchdog
from tests.nodes.bare_shim import bare_shim, own_uid, unread_log, until
from tests.nodes.lone_runners import lone_runners
from tests.nodes.real_node import condition, sh

FLOODS = "while :; do echo 0123456789012345678901234567890123456789; done"


@pytest.mark.row("N73")
def test_a_shim_whose_disk_does_not_answer_has_ended_its_pod_by_the_fence(tmp_path: Path) -> None:
    """Its loop is held up by the write of a log; one container of two writes to it, and both leave something behind."""
    leaves = "(setsid sleep 1001 &) ; env -i setsid sleep 1002 & "
    with unread_log(tmp_path) as log, bare_shim(tmp_path / own_uid()) as shim:
        shim.attempt("floods", f"{leaves} sleep 0.5; {FLOODS}", log=str(log))
        shim.attempt("stays", f"{leaves} trap '' TERM; while :; do sleep 0.1; done")
        for name in ("stays", "floods"):
            assert shim.asked("start", container=name, attempt=0)["ok"]
        at = boottime() + 4.0
        assert not shim.asked("fence", at=at, grace=0.5)["fenced"]
        until(lambda: len(shim.below()) >= 6, "all of it runs")
        time.sleep(1.5)
        other = shim.connected()
        other.ask("hello", lambda _: None)
        assert not select.select([other], [], [], 0.5)[0], "the shim is held up"
        assert shim.below() and boottime() < at
        until(lambda: not shim.below(), "all of it is dead")
        assert at <= boottime() < at + 5.0


def test_a_fence_is_put_off_before_it_has_come_and_not_after() -> None:
    now = 0.0
    watchdog = FenceWatchdog(lambda: now)
    assert watchdog.put(10.0) and watchdog.put(20.0)
    now = 19.9
    assert watchdog.put(30.0)
    now = 30.0
    assert not watchdog.put(40.0)


def test_a_fence_that_has_come_is_not_put_off_by_a_shim_that_slept_over_it(tmp_path: Path) -> None:
    with bare_shim(tmp_path / own_uid()) as shim:
        shim.attempt("stays", "trap '' TERM; while :; do sleep 0.1; done")
        assert shim.asked("start", container="stays", attempt=0)["ok"]
        at = boottime() + 1.0
        assert not shim.asked("fence", at=at, grace=0.0)["fenced"]
        until(lambda: boottime() > at, "it has come")
        assert shim.asked("fence", at=at + 1000.0, grace=0.0)["fenced"]
        until(lambda: not shim.below(), "all of it is dead")


def marked(uid: str) -> list[int]:
    return list(proc_table.processes_of_pod(uid))


@pytest.mark.row("N73")
def test_an_agent_whose_loop_is_held_up_ends_a_pod_at_its_fence_though_the_shim_does_not(tmp_path: Path) -> None:
    """The shim is stopped, and the agent's loop waits as for a disk."""
    with lone_runners(tmp_path) as world:
        runner = world.started("fenced", *sh("(env -i setsid sleep 1001 &) ; trap '' TERM; while :; do sleep 0.1; done"))
        free = world.started("free", "sleep", "1000")
        (shim,) = shims_of("fenced")
        until(lambda: len(proc_table.tree_of(shim)) >= 4, "all of it runs")
        os.kill(shim, signal.SIGSTOP)
        at = steady_clock() + 2.0
        world.ask(lambda: runner.fence(at, 1.0))
        goes_on = threading.Event()
        world.loop.post(partial(goes_on.wait, 60.0))  # type: ignore[arg-type]
        below = proc_table.tree_of(shim)[1:]
        until(lambda: not [pid for pid in below if proc_table.is_alive(pid)], "all of it is dead")
        assert at <= steady_clock() < at + 5.0
        assert proc_table.state_of(shim) == "T", "which knows how its containers ended"
        os.kill(shim, signal.SIGCONT)
        goes_on.set()
        until(lambda: world.ask(lambda: runner.has_ended), "it has ended")
        found = world.status(runner)
        assert (found.phase, found.reason) == ("Failed", "NodeDisconnected")
        assert marked("free") and world.status(free).phase == "Running"


def test_a_guarded_pod_that_is_put_off_in_time_goes_on(tmp_path: Path) -> None:
    with bare_shim(tmp_path / own_uid()) as shim:
        shim.attempt("main", "sleep 1000")
        assert shim.asked("start", container="main", attempt=0)["ok"]
        guard = FenceGuard(None)
        guard.start()
        process = ShimProcess(shim.pid, proc_table.start_ticks(shim.pid))
        # A busy machine is well within it.
        at = boottime() + 3.0
        guard.put("pod", at, process)
        guard.put("pod", at + 1000.0, process)
        guard.put("stranger", at, ShimProcess(shim.pid, 1))
        guard.put("nobody", at, None)
        time.sleep(3.5)
        assert shim.below(), "it was put off, and what has that pid now is somebody else"
        guard.put("pod", boottime() + 0.2, process)
        until(lambda: not shim.below(), "it is dead")
        guard.forget("pod")
        shim.attempt("next", "sleep 1000")
        assert shim.asked("start", container="next", attempt=0)["ok"]
        time.sleep(0.5)
        assert shim.below(), "it is guarded no longer"
        guard.stop(5.0)


@pytest.mark.row("N73")
def test_nothing_is_started_before_the_shim_has_taken_the_fence_and_that_is_told(tmp_path: Path) -> None:
    with lone_runners(tmp_path) as world:
        runner = world.run("armed", "sleep", "1000", **{STOP_AFTER_ANNOTATION: "60s"})
        assert condition(world.status(runner), FENCE_ARMED) == "False"
        world.ask(lambda: runner.fence(steady_clock() + 60.0, 60.0))
        world.begin_with(runner)
        world.runs(runner)
        (said,) = [one for one in world.status(runner).conditions if one.type == FENCE_ARMED]
        assert (said.status, said.message) == ("True", "by the agent of incarnation 7")
        plain = world.started("plain", "sleep", "1000")
        assert condition(world.status(plain), FENCE_ARMED) == ""


def test_a_shim_that_keeps_no_fence_when_its_disk_hangs_is_not_called_armed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = "import sys; sys.path.insert(0, sys.argv[1]); from rayched.nodes.agent.shim import main as shim; shim.PROTOCOL = 2; "
    monkeypatch.setattr(shim_link, "_PROGRAM", f"{older}shim.main(sys.argv[2])")
    with lone_runners(tmp_path) as world:
        runner = world.run("older", "sleep", "1000", **{STOP_AFTER_ANNOTATION: "60s"})
        world.ask(lambda: runner.fence(steady_clock() + 60.0, 60.0))
        world.begin_with(runner)
        world.runs(runner)
        assert condition(world.status(runner), FENCE_ARMED) == "False"


def test_nothing_is_started_below_a_shim_that_has_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = "shim.Shim._answer = lambda self, fd, message: None if message['verb'] == 'fence' else answers(self, fd, message); "
    program = "import sys; sys.path.insert(0, sys.argv[1]); from rayched.nodes.agent.shim import main as shim; "
    monkeypatch.setattr(shim_link, "_PROGRAM", f"{program}answers = shim.Shim._answer; {silent}shim.main(sys.argv[2])")
    with lone_runners(tmp_path) as world:
        runner = world.run("waits", "sleep", "1000", **{STOP_AFTER_ANNOTATION: "60s"})
        world.ask(lambda: runner.fence(steady_clock() + 60.0, 60.0))
        world.begin_with(runner)
        until(lambda: world.ask(lambda: runner._shim.is_linked), "its shim is there")
        time.sleep(1.5)
        assert not marked("waits") and condition(world.status(runner), FENCE_ARMED) == "False"
        world.started("plain", "sleep", "1000")


@pytest.mark.row("N73")
def test_a_shim_is_told_its_fence_now_and_then_and_the_moment_that_nobody_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    ask = shim_link.ShimLink.ask

    def asked(link: shim_link.ShimLink, verb: str, *rest: object, **fields: float) -> None:
        if verb == "fence":
            told.append(fields["at"] - first)
        ask(link, verb, *rest, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(shim_link.ShimLink, "ask", asked)
    with lone_runners(tmp_path) as world:
        runner = world.run("armed", "sleep", "1000", **{STOP_AFTER_ANNOTATION: "60s"})
        start = steady_clock() + 60.0
        first = world.context.boottime_of(start)
        for seconds, length in [(0.0, 60.0), (5.9, 60.0), (6.1, 60.0), (12.0, 60.0), (5.0, 30.0), (7.9, 30.0)]:
            world.ask(partial(runner.fence, start + seconds, length))
            if not seconds:
                assert told == [], "it has no shim yet"
                world.begin_with(runner)
                world.runs(runner)
        assert told == pytest.approx([0.0, 6.1, 5.0], abs=0.01), (
            "a tenth of it later at the latest, and at once where it is sooner"
        )
        world.ask(runner.tell_fence)
        world.ask(runner.tell_fence)
        assert told[3:] == pytest.approx([7.9], abs=0.01)
        guarded = world.guard._pods["armed"].at
        assert guarded - first == pytest.approx(7.9, abs=0.01), "the agent itself keeps it as it is"
