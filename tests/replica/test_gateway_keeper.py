"""The keeper of a gateway where the host does not let it start one as it should: it goes on, and its thread stays."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rayched.replica.gateway_keeper import GatewayKeeper
from rayched.replica.ray.processes import alive
from tests.replica.clusters import until_true

WAIT_SECONDS = 20.0
TOO_LONG = "x" * (1 << 18)
"""For an argument of a process: the kernel starts none with it."""
SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_what_cannot_be_started_is_tried_again_until_it_can(caplog: pytest.LogCaptureFixture) -> None:
    keeper = GatewayKeeper([*SLEEPS, TOO_LONG], pauses_seconds=(0.01,))
    keeper.start()
    try:
        until_true(lambda: len(caplog.records) >= 3, WAIT_SECONDS, "it has given up")
        assert keeper.pid is None and keeper.starts == 0
        assert "the gateway cannot be started (" in caplog.records[0].getMessage()
        assert "Argument list too long" in caplog.records[0].getMessage()
        keeper._command[:] = SLEEPS
        until_true(lambda: keeper.pid is not None, WAIT_SECONDS, "it is not started")
    finally:
        keeper.stop()
    assert keeper.pid is None and not keeper._thread.is_alive()


def test_one_whose_memory_cannot_be_limited_does_not_run(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refuses(pid: int, *_: object) -> None:
        asked.append(pid)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(resource, "prlimit", refuses)
    keeper = GatewayKeeper(SLEEPS, pauses_seconds=(0.01,))
    keeper.start()
    try:
        until_true(lambda: len(caplog.records) >= 2, WAIT_SECONDS, "it has given up")
    finally:
        keeper.stop()
    assert keeper.starts >= 2 and keeper.pid is None and not keeper._thread.is_alive()
    assert asked and not any(alive(pid) for pid in asked)


LOWER = """
import os, resource, sys, time
from rayched.replica.gateway_keeper import GatewayKeeper

keeper = GatewayKeeper([sys.executable, "-c", "import time; time.sleep(60)"], memory_bytes=1 << 30)
keeper.start()
for _ in range(1_000):
    if keeper.pid is not None and os.getpriority(os.PRIO_PROCESS, keeper.pid) > os.getpriority(os.PRIO_PROCESS, 0):
        break
    time.sleep(0.01)
else:
    sys.exit("it is not confined")
print(keeper.starts, *resource.prlimit(keeper.pid, resource.RLIMIT_DATA))
keeper.stop()
"""
_CAP_SYS_RESOURCE = 24
_PR_CAPBSET_DROP = 24


def test_a_lower_limit_of_the_host_is_kept() -> None:
    """As somebody who may not raise it, which root could."""

    def limited() -> None:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_SYS_RESOURCE)
        resource.setrlimit(resource.RLIMIT_DATA, (1 << 29, 1 << 29))

    found = subprocess.run(
        [sys.executable, "-c", LOWER],
        check=False,
        preexec_fn=limited,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
    )
    assert found.stdout.split() == ["1", str(1 << 29), str(1 << 29)], found.stderr
