"""A replica's own Ray: what runs in it, where it can be reached, and that it ends as a whole."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import grpc
import pytest

from rayched.replica.ray.guardian import vital_processes
from rayched.replica.ray.processes import adopt_orphans, alive, descendants, end_descendants
from rayched.replica.ray.ray_start_hook import without_agents
from tests.listening import listening
from tests.replica.clusters import left_alive, until_true

DRIVER = """
import os, sys
from rayched.replica.ray.local_ray import LocalRay

local = LocalRay()
local.start()
import ray

@ray.remote(num_cpus=0)
class Counter:
    def pid(self):
        return os.getpid()

actor = Counter.remote()
print(local.guardian_pid, ray.get(actor.pid.remote()), local.what_ended(), flush=True)
sys.stdin.readline()
local.stop()
print(local.what_ended(), flush=True)
sys.stdin.readline()
"""
REFUSED = """
import sys
from rayched.replica.ray import local_ray

local_ray._ray_start = lambda *_: [sys.executable, "-c", "raise SystemExit('no room for Ray')"]
try:
    local_ray.LocalRay().start()
except local_ray.RayUnavailable as unavailable:
    print(unavailable)
"""
LOOPBACK_4 = "0100007F"
LOOPBACK_6 = ("00000000000000000000000001000000", "0000000000000000FFFF00000100007F")


@pytest.mark.cluster
def test_a_ray_that_does_not_start_says_why() -> None:
    driver = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, timeout=60, check=True)
    assert driver.stdout == "Ray did not start: no room for Ray\n"


@pytest.mark.cluster
def test_a_local_ray_runs_only_what_is_used_listens_on_loopback_alone_and_ends_as_a_whole() -> None:
    adopt_orphans()
    before = set(descendants(os.getpid()))
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert driver.stdout is not None
        assert driver.stdin is not None
        guardian, actor, ended = driver.stdout.readline().split()
        assert ended == "None"
        tree = set(descendants(driver.pid))
        assert {int(guardian), int(actor)} <= tree
        commands = {pid: command(pid) for pid in tree}
        for needed in ("gcs_server", "raylet"):
            assert any(needed in words for words in commands.values())
        for unused in (
            "dashboard.py",
            "client.server",
            "monitor.py",
            "log_monitor",
            "ray::DashboardAgent",
            "ray::RuntimeEnvAgent",
            "agent.py",
        ):
            assert [words for words in commands.values() if unused in words] == []
        # As soon as it has started them, what has started them is gone.
        until_true(lambda: not any(map(starts_ray, descendants(driver.pid))), 30.0, "it stays")
        places = listening({driver.pid, *tree})
        assert len(places) >= 3
        assert [address for address, _ in places if not is_loopback(address)] == []
        (port,) = {port for _, port in listening({vital_processes(driver.pid)["gcs_server"]})}
        assert refusal(port, 17 << 20) == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refusal(port, 1 << 10) != grpc.StatusCode.RESOURCE_EXHAUSTED
        print(file=driver.stdin, flush=True)
        assert driver.stdout.readline() != ""
        assert left_alive(tree, 0.0) == {}
        assert alive(driver.pid)
    finally:
        driver.kill()
        driver.wait()
        end_descendants(os.getpid(), keep=before)


def test_the_raylets_agents_become_shells_that_say_that_no_service_is_there(tmp_path: Path) -> None:
    (session := tmp_path / "a session").mkdir()
    started: list[list[str]] = []
    flags = [f"--session_dir={session}", "--node_id=node"]
    agents = ["--dashboard_agent_command=python agent.py", "--runtime_env_agent_command=python main.py"]
    without_agents(started.append)(["raylet", *flags, *agents])
    assert started[0][:3] == ["raylet", *flags]
    for argument in started[0][3:]:
        with subprocess.Popen(shlex.split(argument.partition("=")[2])) as shell:
            until_true(partial(sleeps, shell.pid), 10.0, "the shell does not sleep")
            shell.kill()
    ports = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
    assert {file.name: file.read_text() for file in session.iterdir()} == {f"{port}_node": "-1" for port in ports}


STARTER = """
import subprocess
from rayched.replica.ray.ray_start_hook import wait_for

pids = [subprocess.Popen(["sleep", "1000"]).pid for _ in range(2)]
print(*pids, flush=True)
wait_for(pids)
"""


@pytest.mark.parametrize("cause", ["one of them ends", "it is told to end"])
def test_who_waits_for_rays_processes_ends_with_the_first_of_them_and_ends_the_others(cause: str) -> None:
    adopt_orphans()
    before = set(descendants(os.getpid()))
    waiter = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True)
    try:
        assert waiter.stdout is not None
        first, second = map(int, waiter.stdout.readline().split())
        until_true(lambda: "os.wait()" in command(waiter.pid), 30.0, "it does not wait")
        assert alive(first) and alive(second)
        if cause == "one of them ends":
            os.kill(second, signal.SIGKILL)
        else:
            until_true(lambda: catches_sigterm(waiter.pid), 30.0, "it does not take signals")
            waiter.terminate()
        assert waiter.wait(30.0) == (1 if cause == "one of them ends" else 0)
        assert left_alive({first, second}, 10.0) == {}
    finally:
        waiter.kill()
        waiter.wait()
        end_descendants(os.getpid(), keep=before)


def catches_sigterm(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("command", [["gcs_server", "--log_dir=x"], ["raylet"]])
def test_other_processes_of_ray_start_as_they_are(command: list[str]) -> None:
    started: list[list[str]] = []
    without_agents(started.append)(command)
    assert started == [command]


def refusal(port: int, size: int) -> grpc.StatusCode:
    """What a message of so many bytes from somebody without the token is answered."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_send_message_length", -1)]) as channel:
        put = channel.unary_unary("/ray.rpc.InternalKVGcsService/InternalKVPut")
        with pytest.raises(grpc.RpcError) as error:
            put(b"\x0a" + b"x" * size, timeout=30)
        found: grpc.StatusCode = error.value.code()
        return found


def sleeps(pid: int) -> bool:
    return command(pid).startswith("sleep")


def command(pid: int) -> str:
    return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode()


def starts_ray(pid: int) -> bool:
    return "ray.scripts" in (words := command(pid)) and "rayched.replica.ray.guardian" not in words


def is_loopback(address: str) -> bool:
    return address == LOOPBACK_4 or address in LOOPBACK_6
