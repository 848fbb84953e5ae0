"""Ray of a replica: its tree ends with it, whichever of its processes is killed first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from rayched.replica.processes import adopt_orphans, alive, descendants, end_descendants, reap

DRIVER = """
import sys, time
from rayched.replica.local_ray import LocalRay

if __name__ == "__main__":
    local = LocalRay()
    local.start()
    import ray

    @ray.remote(num_cpus=0)
    class Counter:
        def pid(self):
            import os
            return os.getpid()

    actor = Counter.remote()
    print(local.guardian_pid, ray.get(actor.pid.remote()), flush=True)
    while not local.ended():
        time.sleep(0.05)
    local.stop()
    print("ended", flush=True)
    time.sleep(60)
"""


def wait_until_none_alive(pids: list[int], seconds: float = 10.0) -> list[int]:
    deadline = time.monotonic() + seconds
    while left := [pid for pid in pids if alive(pid)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []


@pytest.mark.cluster
@pytest.mark.parametrize("victim", ["driver", "guardian", "gcs_server"])
def test_no_process_of_a_local_ray_outlives_its_owner(victim: str) -> None:
    adopt_orphans()
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    try:
        assert driver.stdout is not None
        guardian, actor = map(int, driver.stdout.readline().split())
        tree = descendants(driver.pid)
        assert {guardian, actor} <= set(tree)
        assert len(tree) >= 5
        if victim == "driver":
            driver.kill()
        elif victim == "guardian":
            os.kill(guardian, signal.SIGKILL)
            assert driver.stdout.readline() == "ended\n"
        else:
            os.kill(_named(tree, "gcs_server"), signal.SIGKILL)
            assert driver.stdout.readline() == "ended\n"
        assert wait_until_none_alive(tree) == []
        reap(tree)
    finally:
        end_descendants(driver.pid)
        driver.kill()
        driver.wait()


def _named(pids: list[int], name: str) -> int:
    for pid in pids:
        with open(f"/proc/{pid}/cmdline", "rb") as command:
            if name.encode() in command.read().split(b"\0")[0]:
                return pid
    raise AssertionError(f"no {name} among {pids}")
