"""Attempts of an engine while shims and agents go: what is prepared begins once, and no more is promised of it than is so."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rayched.api.disconnection import FENCE_ARMED, STOP_AFTER_ANNOTATION
from rayched.nodes.agent.adoption import adopt
from rayched.nodes.agent.agent_settings import steady_clock
from rayched.nodes.agent.leftovers import shims_of
from rayched.nodes.agent.pod_life import PodEnding
from rayched.nodes.agent.pod_runner import PodRunner
from tests.nodes.bare_shim import until
from tests.nodes.driven_pod import IMAGE
from tests.nodes.fake_podman import add_image, calls, installed
from tests.nodes.lone_runners import LoneRunners, lone_runners


@pytest.fixture
def podman(tmp_path: Path) -> Path:
    program = installed(tmp_path / "fake")
    add_image(program, IMAGE)
    return program


def called(podman: Path, word: str) -> int:
    return sum(call[0] == word for call in calls(podman))


def has_shim(world: LoneRunners, runner: PodRunner) -> bool:
    return world.ask(lambda: runner._shim.is_linked)


def reason_of(world: LoneRunners, runner: PodRunner) -> str:
    found = world.status(runner).container_statuses
    return found[0].state.waiting.reason if found else ""


@pytest.mark.row("N126")
def test_an_attempt_that_is_prepared_while_its_shim_is_away_begins_when_both_are_there(tmp_path: Path, podman: Path) -> None:
    """Its image comes slowly. A shim that is slow is reached again meanwhile, and one that is killed gets a successor."""
    (podman.parent / "registry").write_text("slow:1\n")
    (podman.parent / "slow").write_text("100")
    with lone_runners(tmp_path / "node", podman=podman) as world:
        runner = world.run("boxed", "sleep", "1000", image="slow:1")
        world.begin_with(runner)
        until(lambda: called(podman, "pull") == 1, "its image is fetched")
        link = runner._shim._link
        assert link is not None
        world.ask(link.close)
        until(lambda: has_shim(world, runner), "the shim is reached again")
        (shim,) = shims_of("boxed")
        os.kill(shim, signal.SIGKILL)
        until(lambda: has_shim(world, runner) and list(shims_of("boxed")) not in ([], [shim]), "there is another shim")
        (podman.parent / "slow").unlink()
        world.runs(runner)
        assert (called(podman, "pull"), called(podman, "create"), called(podman, "start")) == (1, 1, 1)
        assert world.status(runner).container_statuses[0].last_state.HasField("terminated") is False


@pytest.mark.row("N126")
def test_an_attempt_that_begins_while_the_agent_is_away_is_no_running_one_before_it_has(tmp_path: Path, podman: Path) -> None:
    (podman.parent / "slow-start").write_text("100")
    first = LoneRunners(tmp_path / "node", podman=podman)
    first.begin()
    first.begin_with(first.run("boxed", "sleep", "1000", image=IMAGE))
    until(lambda: called(podman, "start") == 1, "it is being started")
    first.end()
    with lone_runners(tmp_path / "node", podman=podman) as world:
        world.ask(lambda: adopt(world.directory, world.context, world.runners, lambda _: None))
        runner = world.runners["boxed"]
        found = world.status(runner).container_statuses[0]
        assert not found.state.HasField("running"), "it has not begun"
        assert found.container_id == "podman://boxed/main/0"
        runner.is_held = False
        world.begin_with(runner)
        (podman.parent / "slow-start").unlink()
        world.runs(runner)
        assert ("boxed", "Started") in world.events
        assert (called(podman, "create"), called(podman, "start")) == (1, 1)


@pytest.mark.row("N73", "N126")
def test_what_an_engine_runs_is_never_called_fenced(tmp_path: Path, podman: Path) -> None:
    """The shim takes the fence, and an engine's container outlives a shim that is killed."""

    def armed(runner: PodRunner) -> str:
        return next(one.status for one in world.status(runner).conditions if one.type == FENCE_ARMED)

    with lone_runners(tmp_path / "node", podman=podman) as world:
        plain = world.run("plain", "sleep", "1000", **{STOP_AFTER_ANNOTATION: "60s"})
        refused = world.run("refused", "sleep", "1000", image=IMAGE, **{STOP_AFTER_ANNOTATION: "60s"})
        boxed = world.started("boxed", "sleep", "1000", image=IMAGE)
        boxed.life.pod.metadata.annotations[STOP_AFTER_ANNOTATION] = "60s"
        for runner in (plain, refused, boxed):
            world.ask(lambda runner=runner: runner.fence(steady_clock() + 600.0, 60.0))  # type: ignore[misc]
            world.begin_with(runner)
        world.runs(plain)
        until(lambda: armed(plain) == "True", "a process has its fence")
        until(lambda: reason_of(world, refused) == "CreateContainerConfigError", "podman refuses the promise")
        until(lambda: world.ask(lambda: boxed._shim.is_fence_armed and refused._shim.is_fence_armed), "their shims have it")
        assert (armed(refused), armed(boxed)) == ("False", "False")


@pytest.mark.row("N126")
def test_a_pod_that_ends_while_its_image_comes_ends_at_once_and_nothing_is_made(tmp_path: Path, podman: Path) -> None:
    (podman.parent / "slow").write_text("1000")
    with lone_runners(tmp_path / "node", podman=podman) as world:
        runner = world.run("boxed", "sleep", "1000", image="slow:1")
        world.begin_with(runner)
        until(lambda: called(podman, "pull") == 1, "its image is fetched")
        world.ask(lambda: runner.life.end(PodEnding(steady_clock() + 60.0)))
        world.ask(runner.step)
        until(lambda: world.ask(lambda: runner.has_ended), "it has ended")
        assert (called(podman, "create"), called(podman, "start")) == (0, 0)
