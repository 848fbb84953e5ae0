"""A shim that is slow is not taken for a dead one, and one that stays silent is ended before anything is started in its place."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from rayched.nodes.agent import pod_shim
from rayched.nodes.agent.agent_settings import steady_clock
from rayched.nodes.agent.leftovers import shims_of
from rayched.nodes.agent.pod_life import PodEnding
from rayched.nodes.agent.pod_runner import PodRunner
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim_link import ShimLink
from tests.nodes.bare_shim import bare_shim, own_uid, until
from tests.nodes.lone_runners import LoneRunners, lone_runners
from tests.nodes.real_node import condition, sh


def marked(uid: str) -> list[int]:
    return sorted(proc_table.processes_of_pod(uid))


def hang_up(world: LoneRunners, runner: PodRunner) -> None:
    """As where a request could not be sent, or the shim could not tell an event in time."""
    link = runner._shim._link
    assert link is not None
    world.ask(link.close)


def test_a_connection_that_ends_while_the_shim_lives_changes_nothing(tmp_path: Path) -> None:
    with lone_runners(tmp_path) as world:
        runner = world.started("slow", "sleep", "1000")
        pids, shim = marked("slow"), shims_of("slow")
        for _ in range(3):
            hang_up(world, runner)
            until(lambda: world.ask(lambda: runner._shim.is_linked), "it is reached again")
            world.runs(runner)
        assert marked("slow") == pids and shims_of("slow") == shim


def test_the_end_of_a_connection_is_told_before_another_one_can_have_its_number(tmp_path: Path) -> None:
    """Whoever waits for input goes by the number, and would not take the other one while he still has this one."""
    directory = tmp_path / own_uid()
    with bare_shim(directory):
        others: list[int] = []
        link = ShimLink(directory, lambda _: None, lambda: others.append(os.open(os.devnull, os.O_RDONLY)))
        own = link.fileno()
        link.close()
        os.close(others[0])
        assert others != [own]
        assert link.fileno() == -1


def test_a_shim_that_answers_late_is_waited_for_and_told_what_it_missed(tmp_path: Path) -> None:
    with lone_runners(tmp_path) as world:
        runner = world.started("late", "sleep", "1000")
        pids = marked("late")
        (shim,) = shims_of("late")
        os.kill(shim, signal.SIGSTOP)
        hang_up(world, runner)
        time.sleep(7.0)
        assert marked("late") == pids and world.status(runner).phase == "Running"
        world.ask(lambda: runner.life.end(PodEnding(steady_clock() + 60.0)))
        world.ask(runner.step)
        assert not world.ask(lambda: runner.has_ended)
        os.kill(shim, signal.SIGCONT)
        until(lambda: not marked("late"), "it is asked to end")
        until(lambda: world.ask(lambda: runner.has_ended), "it has ended")
        (ended,) = world.status(runner).container_statuses
        assert (ended.state.terminated.signal, ended.restart_count) == (15, 0), "by the signal, and by nobody else"


def test_an_end_that_the_shim_could_not_tell_is_found_out(tmp_path: Path) -> None:
    with lone_runners(tmp_path) as world:
        note = tmp_path / "note"
        runner = world.started("ends", *sh(f"while [ ! -e {note} ]; do sleep 0.05; done; exit 3"), policy="Never")
        # Nobody reaches the shim before that has told the end to nobody.
        goes_on = threading.Event()
        for _ in range(2):
            world.context.workers.submit("work that takes long", lambda: goes_on.wait(60.0), lambda _: None)
        hang_up(world, runner)
        note.touch()
        until((runner.directory.attempt_path("main", 0) / "exit.json").exists, "it has ended")
        time.sleep(0.3)
        goes_on.set()
        until(lambda: world.ask(lambda: runner.has_ended), "it has ended")
        found = world.status(runner)
        assert (found.phase, found.container_statuses[0].state.terminated.exit_code) == ("Failed", 3)


@pytest.mark.parametrize("why", ["silence", "ending"])
def test_a_shim_that_stays_silent_is_killed_with_its_pod_and_not_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """At the latest when nothing of the pod may live any more."""
    monkeypatch.setattr(pod_shim, "SILENT_SECONDS", 1.0 if why == "silence" else 1000.0)
    with lone_runners(tmp_path) as world:
        runner = world.started("silent", *sh("(env -i setsid sleep 1001 &) ; (setsid sleep 1002 &) ; sleep 1000"))
        (shim,) = shims_of("silent")
        until(lambda: len(proc_table.tree_of(shim)) == 5, "all of it runs")
        before = proc_table.tree_of(shim)
        os.kill(shim, signal.SIGSTOP)
        hang_up(world, runner)
        if why == "ending":
            world.ask(lambda: runner.life.end(PodEnding(steady_clock() + 1.0)))
            until(lambda: world.ask(lambda: runner.has_ended), "it has ended")
        else:
            world.runs(runner, restarts=1)
            assert len(shims_of("silent")) == 1
        assert not [pid for pid in before if proc_table.is_alive(pid)]


def test_a_shim_that_was_killed_is_gone_at_once(tmp_path: Path) -> None:
    with lone_runners(tmp_path) as world:
        runner = world.started("killed", *sh("(setsid sleep 1002 &) ; sleep 1000"))
        (shim,) = shims_of("killed")
        pids = marked("killed")
        os.kill(shim, signal.SIGKILL)
        world.runs(runner, restarts=1)
        assert not set(pids) & set(marked("killed"))
        last = world.status(runner).container_statuses[0].last_state.terminated
        assert (last.reason, last.exit_code) == ("ContainerStatusUnknown", 137)


def test_a_probe_whose_answer_was_lost_is_made_again(tmp_path: Path) -> None:
    """It waits for the test once; while it does its connection ends."""
    with lone_runners(tmp_path) as world:
        begun, goes_on = tmp_path / "begun", tmp_path / "goes-on"
        runner = world.run("probed", "sleep", "1000")
        probe = runner.life.containers[0].spec.readiness_probe
        probe.exec.command.extend(sh(f"[ -e {goes_on} ] && exit 0; touch {begun}; sleep 1000"))
        probe.period_seconds, probe.timeout_seconds = 1, 600
        world.begin_with(runner)
        until(begun.exists, "it is probed")
        goes_on.touch()
        hang_up(world, runner)
        until(lambda: condition(world.status(runner), "Ready") == "True", "it is ready")
