"""A fence is kept whatever the shim waits for: a disk that does not answer, requests that came late, a host that slept."""

from __future__ import annotations

import select
import time
from pathlib import Path

import pytest

from rayched.nodes.agent.shim.boot_timer import boottime
from rayched.nodes.agent.shim.watchdog import FenceWatchdog
from tests.nodes.bare_shim import bare_shim, unread_log, until

FLOODS = "while :; do echo 0123456789012345678901234567890123456789; done"


@pytest.mark.row("N73")
def test_a_shim_whose_disk_does_not_answer_has_ended_its_pod_by_the_fence(tmp_path: Path) -> None:
    """Its loop is held up by the write of a log; one container of two writes to it, and both leave something behind."""
    leaves = "(setsid sleep 1001 &) ; env -i setsid sleep 1002 & "
    with unread_log(tmp_path) as log, bare_shim(tmp_path / "pod") as shim:
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
    with bare_shim(tmp_path / "pod") as shim:
        shim.attempt("stays", "trap '' TERM; while :; do sleep 0.1; done")
        assert shim.asked("start", container="stays", attempt=0)["ok"]
        at = boottime() + 1.0
        assert not shim.asked("fence", at=at, grace=0.0)["fenced"]
        until(lambda: boottime() > at, "it has come")
        assert shim.asked("fence", at=at + 1000.0, grace=0.0)["fenced"]
        until(lambda: not shim.below(), "all of it is dead")
