"""The contract of drivers: the same for processes in each tier, for a program that behaves as podman, and for podman itself."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rayched.nodes.agent.drivers.container_driver import DriverHealth
from rayched.nodes.agent.leftovers import sweep
from rayched.nodes.agent.shim import proc_table
from rayched.v1.core_pb2 import Pod
from tests.nodes.driven_pod import BACKENDS, Backend, DrivenPod, backend_of, until

_numbers = itertools.count(1)
MakePod = Callable[..., DrivenPod]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with backend_of(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def driven(backend: Backend) -> Iterator[MakePod]:
    """Makes pods of shells, whose scripts are by container."""
    made: list[DrivenPod] = []

    def make(limit: str = "", env: dict[str, str] | None = None, **scripts: str) -> DrivenPod:
        pod = Pod()
        pod.metadata.name, pod.metadata.namespace = "driven", "default"
        pod.metadata.uid = f"uid-{os.getpid()}-{next(_numbers)}"
        for name, script in scripts.items():
            one = pod.spec.containers.add(name=name, image=backend.image, command=["sh", "-c", script])
            if limit:
                one.resources.limits["memory"].string = limit
            for key, value in (env or {}).items():
                one.env.add(name=key, value=value)
        made.append(DrivenPod(backend, pod))
        return made[-1]

    yield make
    for one in made:
        if one.directory.shim_lives():
            one.linked().tell("quit")
            until(lambda one=one: not one.directory.shim_lives(), "its shim has ended")  # type: ignore[misc]


@pytest.mark.row("N126")
def test_a_driver_says_how_it_is(backend: Backend) -> None:
    found = backend.driver.fingerprint()
    assert found.health is DriverHealth.HEALTHY and found.version and not found.text
    assert backend.driver.name == backend.name.partition("-")[0]


@pytest.mark.row("N126")
def test_an_attempt_ends_with_its_code_and_its_log_tells_outputs_apart(driven: MakePod) -> None:
    pod = driven(main="echo out; echo err >&2; exit 3")
    answer = pod.start()
    assert answer["ok"] and answer["started_at"] and answer["exit"] is None, "its begin is told before its end"
    found = pod.end()
    assert (found["code"], found["signal"], found["oom"]) == (3, 0, False)
    assert found["started_at"] <= found["finished_at"]
    assert sorted(pod.log()) == [("stderr", "err"), ("stdout", "out")]
    assert not pod.processes()


@pytest.mark.row("N126")
def test_an_attempt_that_was_started_is_not_started_again(driven: MakePod) -> None:
    pod = driven(main="echo began; sleep 1000")
    first = pod.start()
    pod.said("began")
    again, other = pod.ask("start", container="main", attempt=0), pod.linked()
    assert (again["pid"], again["started_at"]) == (first["pid"], first["started_at"])
    assert pod.ask("start", other, container="main", attempt=0)["pid"] == first["pid"]
    other.close()
    assert pod.log() == [("stdout", "began")]


@pytest.mark.row("N126")
def test_it_has_the_environment_of_its_manifest_and_nothing_of_the_agents(
    driven: MakePod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTS_OWN_CANARY", "sings")
    odd = {"PLAIN": "a b=c", "QUOTES": 'it\'s "$x" #\\', "LINES": "one\ntwo", "EMPTY": "", "SPACES": " x "}
    script = 'printf "%s|" "$PLAIN" "$QUOTES" "$LINES" "$EMPTY" "$SPACES" "$RAYCHED_CONTAINER" "$AGENTS_OWN_CANARY"; echo; env'
    pod = driven(main=script, env=odd)
    pod.start()
    pod.end()
    text = "\n".join(text for _, text in pod.log())
    assert text.startswith('a b=c|it\'s "$x" #\\|one\ntwo|| x |main||\n')
    assert "AGENTS_OWN_CANARY" not in text and "sings" not in text
    assert f"RAYCHED_POD_UID={pod.pod.metadata.uid}" in text


@pytest.mark.row("N126")
def test_a_stop_asks_first_and_kills_when_the_grace_is_over(driven: MakePod) -> None:
    heeds = "trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    ignores = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    pod = driven(heeds=heeds, ignores=ignores)
    for name in ("heeds", "ignores"):
        assert pod.start(name)["ok"]
        pod.said("ready", name=name)
    for name, grace in (("heeds", 30.0), ("ignores", 0.3)):
        assert pod.ask("stop", container=name, attempt=0, grace=grace)["ok"]
    assert pod.end("heeds")["code"] == 7
    pod.said("asked", name="heeds")
    assert pod.end("ignores")["code"] == 137


@pytest.mark.row("N126")
def test_a_signal_reaches_the_main_process(driven: MakePod) -> None:
    pod = driven(main="trap 'echo told' USR1; echo ready; while :; do sleep 0.05; done")
    pod.start()
    pod.said("ready")
    assert pod.ask("signal", container="main", attempt=0, signal="SIGUSR1")["ok"]
    pod.said("told")
    assert pod.ask("hello")["containers"][0]["exit"] is None


@pytest.mark.row("N126")
def test_what_main_leaves_behind_ends_with_it_and_a_kill_ends_all(driven: MakePod) -> None:
    leaves = "sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & exit 0' &) ; echo ready; "
    ends = f"trap 'exit 0' USR1; {leaves} while :; do sleep 0.05; done"
    pod = driven(ends=ends, stays=f"{leaves} sleep 1000")
    for name in ("ends", "stays"):
        pod.start(name)
        pod.said("ready", name=name)
    until(lambda: not [pid for pid in pod.processes() if is_passing(pid)], "who only starts something has ended")
    of = {name: {pid for pid in pod.processes() if f"RAYCHED_CONTAINER={name}" in environ(pid)} for name in ("ends", "stays")}
    assert len(of["ends"]) >= 4 and len(of["stays"]) >= 4
    assert pod.ask("signal", container="ends", attempt=0, signal="SIGUSR1")["ok"]
    assert pod.end("ends")["code"] == 0
    assert not alive(of["ends"]) and alive(of["stays"]) == of["stays"], "another container's are not touched"
    assert pod.ask("kill")["ok"]
    assert pod.end("stays")["code"] == 137
    assert not alive(of["stays"]) and not pod.processes()


def is_passing(pid: int) -> bool:
    """Whether it is the shell above that ends when it has started a program."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return words[:2] == [b"sh", b"-c"] and words[2] == b"sleep 1000 & exit 0"


@pytest.mark.row("N126")
def test_a_program_that_is_not_there_is_a_start_error_that_names_it(driven: MakePod) -> None:
    pod = driven(main="")
    del pod.pod.spec.containers[0].command[:]
    pod.pod.spec.containers[0].command.append("no-such-program")
    answer = pod.start()
    if answer["ok"]:
        found = answer["exit"]
        assert (found["code"], found["reason"]) == (128, "StartError") and pod.end() == found
        assert "no-such-program" in found["message"]
    else:
        assert answer["kind"] == "start" and "no-such-program" in answer["error"]
    assert not pod.processes()


@pytest.mark.row("N126")
def test_a_further_process_runs_beside_main_and_ends_by_its_time(driven: MakePod) -> None:
    pod = driven(main="echo ready; sleep 1000", env={"WHOSE": "mains"})
    pod.start()
    pod.said("ready")
    before = pod.processes()

    def run(script: str, seconds: float) -> tuple[int, bool, str]:
        found = pod.ask("exec", container="main", attempt=0, argv=["sh", "-c", script], seconds=seconds)
        return found["code"], found["timed_out"], found["output"]

    assert run("echo of $WHOSE; exit 5", 30.0) == (5, False, "of mains\n")
    # In namespaces of an engine the first of them becomes a child of main at once.
    code, timed_out, _ = run("(setsid sleep 1000 &); sleep 1000 & sleep 1000", 1.0)
    assert code == 137 and timed_out
    until(lambda: pod.processes() <= before, "nothing of it is left")
    assert alive(before) == before, "main goes on"


@pytest.mark.row("N126")
def test_what_it_uses_is_told_by_container(driven: MakePod) -> None:
    grows = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); echo ready; while :; do sleep 0.1; done"
    pod = driven(small="echo ready; sleep 1000", large=grows)
    for name in ("small", "large"):
        pod.start(name)
        pod.said("ready", name=name)
    found = pod.figures()
    assert found.memory["large"] > 25_000_000 > found.memory["small"] > 0
    assert found.tasks >= 2


@pytest.mark.row("N126")
def test_whoever_comes_later_finds_what_runs_and_how_it_ended(driven: MakePod) -> None:
    pod = driven(runs="echo ready; sleep 1000", ended="exit 4")
    first = pod.start("runs")
    pod.said("ready", name="runs")
    pod.start("ended")
    exit_values = pod.end("ended")
    pod.link.close()
    pod.link = pod.linked()
    states = {one["container"]: one for one in pod.ask("hello")["containers"]}
    assert states["runs"]["pid"] == first["pid"] and states["runs"]["exit"] is None
    assert states["ended"]["exit"] == exit_values
    os.kill(first["pid"], signal.SIGKILL)
    assert pod.end("runs")["code"] == 137


@pytest.mark.row("N126")
def test_when_its_shim_is_killed_nothing_of_it_outlives_the_sweep_and_it_can_begin_again(
    driven: MakePod, backend: Backend
) -> None:
    seconds = str(10_000_000 + os.getpid() % 50_000 * 100 + next(_numbers))
    pod = driven(main="setsid sleep 1000 & echo ready; sleep 1000", bare=f"exec env -i sleep {seconds}")
    pod.start()
    pod.start("bare")
    pod.said("ready")
    until(lambda: sleeping(seconds), "one has nothing in its environment that tells whose it is")
    there = pod.processes()
    os.kill(pod.shim, signal.SIGKILL)
    until(lambda: not pod.directory.shim_lives(), "its shim is gone")
    assert not sweep(pod.pod.metadata.uid, backend.cgroups).left
    assert not pod.processes() and not alive(there) and not sleeping(seconds)
    pod.open()
    assert pod.start(attempt=1)["ok"]
    pod.said("ready", attempt=1)
    pod.quit()
    left = 1 if backend.driver.capabilities.images else 0
    assert backend.driver.collect(()) == left, "what the first attempt left was removed before the second; the other had none"
    assert not pod.processes()


@pytest.mark.row("N109", "N126")
def test_a_container_above_its_memory_limit_is_killed_and_says_so(driven: MakePod, backend: Backend) -> None:
    if not backend.driver.capabilities.limits:
        pytest.skip("this tier keeps no limits of memory; the agent looks instead (N110)")
    pod = driven(limit="48Mi", main="x=$(head -c 200000000 /dev/zero | tr '\\0' x); while :; do sleep 0.1; done")
    pod.start()
    found = pod.end()
    assert found["code"] == 137
    if not found["oom"] and not backend.tells_why:
        pytest.skip("by cgroups of the first version podman may miss why a container was killed; that it was is shown")
    assert found["oom"]


def environ(pid: int) -> list[str]:
    return [f"{key}={value}" for key, value in proc_table.environment_of(pid).items()]


def sleeping(seconds: str) -> list[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if proc_table.command_of(pid)[-2:] == ["sleep", seconds] and proc_table.is_alive(pid)]


def alive(pids: set[int]) -> set[int]:
    return set(filter(proc_table.is_alive, pids))
