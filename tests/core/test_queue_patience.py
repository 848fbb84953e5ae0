"""When a queue that does not answer is given up: by what it computed, not by how busy the machine is."""

from __future__ import annotations

import pytest

from rayched.core.exchange.queue_patience import CPU_SECONDS_MAX, LOOK_SECONDS_MAX, SECONDS_MAX, SILENT_SECONDS_MAX, QueuePatience


class FakeProcess:
    """Computes for a share of the time."""

    def __init__(self, share: float, *, stopped: bool = False, dead: bool = False) -> None:
        self.share, self.is_stopped, self.dead = share, stopped, dead
        self.seconds = 50.0

    def cpu_seconds(self) -> float:
        if self.dead:
            raise ProcessLookupError("gone")
        return self.seconds


def looked(process: FakeProcess | None, seconds: float, step: float = 0.1) -> tuple[float, str]:
    """After how many seconds of an exchange the process was given up, and why; an exchange that takes so long is answered."""
    patience, now = QueuePatience(process, 100.0), 100.0
    assert patience.why_ended(now) == ""
    patience.began()
    while now < 100.0 + seconds:
        now += step
        if process is not None:
            process.seconds += process.share * step
        why = patience.why_ended(now)
        if why:
            assert patience.why_ended(now + 100.0) == "", "it is said once"
            return now - 100.0, why
    patience.ended()
    for _ in range(1_000):
        now += step
        assert patience.why_ended(now) == ""
    return now, ""


@pytest.mark.parametrize(
    ("process", "seconds", "after", "why"),
    [
        (FakeProcess(1.0), 2.9, None, ""),
        (FakeProcess(1.0), 60.0, SECONDS_MAX, "computes"),
        (FakeProcess(0.2), 60.0, 5 * CPU_SECONDS_MAX, "computes"),
        (FakeProcess(0.05), 14.0, None, ""),
        (FakeProcess(0.0), 60.0, SILENT_SECONDS_MAX, "gives no sign of life"),
        (FakeProcess(0.0, stopped=True), 60.0, SECONDS_MAX, "is stopped"),
        (FakeProcess(1.0, dead=True), 60.0, None, ""),
        (None, 60.0, None, ""),
    ],
)
def test_a_queue_is_given_up_when_it_cannot_come_to_an_end(
    process: FakeProcess | None, seconds: float, after: float | None, why: str
) -> None:
    ended, said = looked(process, seconds)
    if after is None:
        assert said == ""
    else:
        assert said.endswith(f" s and {why}") and after - 0.01 <= ended <= after + 0.21


def test_time_in_which_nobody_looked_counts_as_one_look() -> None:
    ended, _ = looked(FakeProcess(0.0, stopped=True), 600.0, step=10.0)
    looks = round(SECONDS_MAX / LOOK_SECONDS_MAX)
    assert ended in (10.0 * looks, 10.0 * (looks + 1))


def test_a_process_that_is_known_only_now_has_all_the_time() -> None:
    patience, process = QueuePatience(None, 0.0), FakeProcess(0.0, stopped=True)
    patience.began()
    now = 0.0
    while now < 20.0:
        now += 0.1
        assert patience.why_ended(now) == ""
    patience.knows(process)
    assert patience.why_ended(now + 0.1) == ""
    while now < 22.5:
        now += 0.1
        assert patience.why_ended(now) == ""
    assert any(patience.why_ended(now + step / 10) for step in range(1, 20))
