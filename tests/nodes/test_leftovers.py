"""Processes that do not die hold up their own pod and nothing else; and who waits for a worker is told, come what may."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, get_ident
from typing import Any

import pytest

from rayched.nodes.agent.adoption import adopt
from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.agent_settings import steady_clock
from rayched.nodes.agent.leftovers import Leftovers, Swept, shims_of, strike, sweep
from rayched.nodes.agent.pod_life import PodEnding
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.workers import Workers
from tests.nodes.bare_shim import bare_shim, until
from tests.nodes.lone_runners import lone_agent, lone_runners
from tests.nodes.real_node import sh
from tests.nodes.unkillable import freezer


class AtOnce(Executor):
    """Does it when it is asked."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        fn(*args, **kwargs)
        return Future()


def test_a_worker_that_fails_tells_so() -> None:
    told: list[object] = []
    posted: list[Callable[[], None]] = []
    workers = Workers(AtOnce(), posted.append)

    def fails() -> int:
        raise ZeroDivisionError("nobody thought of it")

    workers.submit("odd work", fails, told.append)
    workers.submit("work", lambda: 3, told.append)
    assert told == [], "it is told in the loop"
    for call in posted:
        call()
    assert isinstance(told[0], ZeroDivisionError) and told[1] == 3


class Tries:
    """Of sweeps: what each is to find, and what was asked for later."""

    def __init__(self, *found: Swept | Exception) -> None:
        self.found = list(found)
        self.asked: list[tuple[str, float]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        workers = Workers(AtOnce(), lambda call: call())
        metrics = AgentMetrics("n", "tree")
        self.leftovers = Leftovers(workers, lambda seconds, call: self.later.append((seconds, call)), None, metrics, self._sweep)

    def _sweep(self, uid: str, _: Path | None, seconds: float) -> Swept:
        self.asked.append((uid, seconds))
        found = self.found.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def test_what_does_not_die_is_tried_again_later_and_later_and_never_for_long() -> None:
    stuck = Swept(0, frozenset({4711}))
    tries = Tries(stuck, stuck, OSError("odd"), *[stuck] * 6, Swept(1, frozenset()))
    done: list[str] = []
    told: list[frozenset[int]] = []
    tries.leftovers.sweep("a", lambda: done.append("first"), told.append)
    tries.leftovers.sweep("a", lambda: done.append("second"))
    pauses = []
    while tries.later:
        ((seconds, again),) = tries.later
        pauses.append(seconds)
        tries.later.clear()
        assert not done
        again()
    assert done == ["first", "second"] and len(told) == 8
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]
    assert [seconds for _, seconds in tries.asked] == [2.0, *[0.1] * 9]


def test_a_sweep_gives_up_on_what_does_not_die_and_ends_the_rest(tmp_path: Path) -> None:
    with bare_shim(tmp_path / "uid-of-a-pod") as shim, freezer() as ice:
        shim.attempt("main", "sleep 1001 & (env -i setsid sleep 1002 &) ; sleep 1000")
        assert shim.asked("start", container="main", attempt=0)["ok"]
        until(lambda: len(shim.below()) == 4, "all of it runs")
        frozen = shim.below()[0]
        ice.freeze(frozen)
        found = sweep("uid-of-a-pod", None, 0.5)
        assert found.left == {shim.pid, frozen} and found.killed == 3
        ice.thaw()
        assert not sweep("uid-of-a-pod", None).left
        assert not proc_table.is_alive(shim.pid) and not proc_table.is_alive(frozen)


def test_a_shim_is_found_though_its_directory_is_gone(tmp_path: Path) -> None:
    with bare_shim(tmp_path / "another-pod") as shim:
        shim.attempt("main", "(env -i setsid sleep 1002 &) ; sleep 1000")
        assert shim.asked("start", container="main", attempt=0)["ok"]
        until(lambda: len(shim.below()) == 3, "all of it runs")
        below = shim.below()
        shutil.rmtree(tmp_path / "another-pod")
        assert shims_of("another-pod") == {shim.pid} and not shims_of("other-pod")
        assert not sweep("another-pod", None).left
        assert not [pid for pid in (shim.pid, *below) if proc_table.is_alive(pid)]


class ProcLooks:
    """What this thread reads of /proc, in order, while it is in force."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._thread = get_ident()
        self._is_on = True
        # There is no way to take it away again.
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if (
            self._is_on
            and event in ("os.listdir", "open")
            and get_ident() == self._thread
            and str(arguments[0]).startswith("/proc")
        ):
            self.seen.append(str(arguments[0]))

    def end(self) -> list[str]:
        self._is_on = False
        return self.seen


def test_where_nothing_is_left_one_look_at_each_process_tells_so() -> None:
    """It is what each start of a pod waits for."""
    looks = ProcLooks()
    assert not strike("nobody-has-this-uid", None)
    seen = looks.end()
    assert seen.count("/proc") == 1
    own = f"/proc/{os.getpid()}"
    assert [path for path in seen if path.startswith(f"{own}/")] == [f"{own}/environ", f"{own}/cmdline"]
    assert len(seen) == len(set(seen)) > 2


@pytest.mark.row("N53")
def test_a_pod_whose_process_hangs_has_not_ended_and_holds_up_no_other(tmp_path: Path) -> None:
    """Its shim is gone. There are as many workers as pods that hang."""
    with freezer() as ice, lone_runners(tmp_path) as world:
        hang = [world.started(f"hangs-{number}", *sh("sleep 1001 & wait"), policy="Never") for number in range(2)]
        for runner in hang:
            (shim,) = shims_of(runner.uid)
            for pid in proc_table.tree_of(shim)[1:]:
                ice.freeze(pid)
            os.kill(shim, signal.SIGKILL)
        until(lambda: {(one.uid, "ExceededGracePeriod") for one in hang} <= set(world.events), "it is told")
        for number in range(3):
            world.started(f"goes-on-{number}", "sleep", "1000")
        assert [world.status(one).phase for one in hang] == ["Running", "Running"]
        assert not any(world.ask(lambda one=one: one.has_ended) for one in hang)  # type: ignore[misc]
        ice.thaw()
        until(lambda: all(world.ask(lambda one=one: one.has_ended) for one in hang), "they have ended")  # type: ignore[misc]
        assert [world.status(one).phase for one in hang] == ["Failed", "Failed"]


def test_nothing_is_started_while_something_of_the_pod_hangs_and_others_are(tmp_path: Path) -> None:
    """It ran before, and nobody knows of it: more such pods than there are workers."""
    with freezer() as ice, lone_runners(tmp_path / "node") as world:
        strangers = []
        for number in range(3):
            with bare_shim(tmp_path / f"hidden-{number}") as shim:
                shim.attempt("main", "exec sleep 1001")
                assert shim.asked("start", container="main", attempt=0)["ok"]
                until(lambda shim=shim: list(proc_table.processes_of_pod(shim.directory.name)), "it runs")  # type: ignore[misc]
                strangers += shim.below()
                ice.freeze(strangers[-1])
        hang = [world.run(f"hidden-{number}", "sleep", "1000") for number in range(3)]
        for runner in hang:
            world.begin_with(runner)
        until(lambda: {(one.uid, "ExceededGracePeriod") for one in hang} <= set(world.events), "it is told")
        world.started("goes-on", "sleep", "1000")
        world.ask(lambda: hang[0].life.end(PodEnding(steady_clock())))
        assert not world.ask(lambda: hang[0].has_ended) and not any(one.life.prepared_at for one in hang)
        ice.thaw()
        until(lambda: world.ask(lambda: hang[0].has_ended), "it has ended")
        world.runs(hang[1])
        assert not [pid for pid in strangers if proc_table.is_alive(pid)]


def test_an_agent_begins_though_a_process_of_a_pod_hangs(tmp_path: Path) -> None:
    with freezer() as ice:
        with lone_runners(tmp_path) as first:
            runner = first.started("hangs", "sleep", "1001", policy="Never")
            first.started("goes-on", "sleep", "1000")
            (shim,) = shims_of("hangs")
            (pid,) = proc_table.tree_of(shim)[1:]
            ice.freeze(pid)
            first.runners.pop("goes-on")
            first.end()
            os.kill(shim, signal.SIGKILL)
        with lone_runners(tmp_path) as second:
            adopt(second.directory, second.context, second.runners, lambda _: None)
            runner = second.runners["hangs"]
            for one in second.runners.values():
                one.is_held = False
                second.begin_with(one)
            found = second.status(runner)
            assert found.phase == "Running" and found.container_statuses[0].state.HasField("running"), "it lives"
            assert not second.ask(lambda: runner.has_ended)
            second.runs(second.runners["goes-on"])
            ice.thaw()
            until(lambda: second.ask(lambda: runner.has_ended), "it has ended")
            assert second.status(runner).container_statuses[0].state.terminated.reason == "ContainerStatusUnknown"


def test_sweeps_have_threads_of_their_own() -> None:
    """A sweep that hangs itself takes one of them, and no worker."""
    pool = ThreadPoolExecutor(1)
    posted: list[Callable[[], None]] = []
    hangs = Future[None]()

    def waits(uid: str, _: Path | None, __: float) -> Swept:
        hangs.result()
        return Swept(0, frozenset())

    leftovers = Leftovers(Workers(pool, posted.append), lambda *_: None, None, AgentMetrics("n", "tree"), waits)
    done: list[str] = []
    for uid in ("a", "a", "b"):
        leftovers.sweep(uid, lambda uid=uid: done.append(uid))  # type: ignore[misc]
    assert not posted and not done
    hangs.set_result(None)
    until(lambda: len(posted) == 2, "both are over")
    for call in posted:
        call()
    assert done == ["a", "a", "b"]
    pool.shutdown()


@pytest.mark.parametrize("fault", [None, ZeroDivisionError("nobody thought of it")])
def test_a_node_is_registered_again_though_all_workers_hang_and_tried_once_more_though_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception | None
) -> None:
    with lone_agent(tmp_path) as agent:
        inner, hangs, tried = agent.agent, Event(), list[int]()

        def register() -> bool:
            tried.append(1)
            if fault is not None:
                raise fault
            return True

        monkeypatch.setattr(inner._follower, "register", register)
        for _ in range(20):
            inner._context.workers.submit("work that hangs", lambda: hangs.wait(60.0), lambda _: None)
        for number in (1, 2):
            inner._loop.ask(inner._register_again, 30.0)
            until(lambda number=number: len(tried) == number and not inner._registers, "it was tried")  # type: ignore[misc]
        hangs.set()
