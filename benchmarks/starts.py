"""How long `rayched up` takes until it is up, and where that time goes: `make starts`.

Each start has an empty directory, and ports and a home of its own. Told are, in seconds from
the command's start, when the last replica

    loads       writes its first line: etcd is there, certificates are made, Python has loaded its modules
    has Ray     has a Ray of its own
    is warm     has a scheduler that has read the cluster

and when the command says that it is up; and how much of a processor's time all of it took until then.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from benchmarks.idle_processes import ProcessWatch, total
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import scratch_directory
from rayched.replica.cluster.free_ports import neighbouring_ports
from rayched.replica.ray.processes import dying_with_us, end_tree

STAGES: Final = ("loads", "has Ray", "is warm", "is up")
_LINES: Final = {"has Ray": "Ray is there", "is warm": "the scheduler has read the cluster"}
_WRITTEN: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ")
_START_SECONDS_MAX: Final = 300.0
_END_SECONDS_MAX: Final = 60.0
_REST_SECONDS: Final = 3.0
"""Between two starts."""
_LOOK_SECONDS: Final = 0.1


class StartFailed(Exception):
    """The command ended, or is not up in time. The message is for a person."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start."""

    stages: tuple[float, ...]
    """Seconds until each of STAGES."""
    cpu_seconds: float


def started(directory: Path, replicas: int) -> Start:
    """Starts a cluster in an empty directory, and ends it. Raises StartFailed."""
    home, data = directory / "home", directory / "data"
    home.mkdir(parents=True)
    flags = [word for name in ("--port", "--http-port", "--gateway-port") for word in (name, str(neighbouring_ports(replicas)))]
    command = [sys.executable, "-m", "rayched.cli.main", "up", "--replicas", str(replicas), "--data-dir", str(data), *flags]
    log = directory / "up.log"
    began, wall = time.monotonic(), time.time()
    with open(log, "wb") as said:
        process = subprocess.Popen(
            dying_with_us(command), stdout=said, stderr=said, env={**os.environ, "HOME": str(home)}, start_new_session=True
        )
    try:
        watch = ProcessWatch((process.pid,))
        while "rayched is up" not in log.read_text():
            watch.look()
            if process.poll() is not None or time.monotonic() - began > _START_SECONDS_MAX:
                raise StartFailed(f"`rayched up` did not come up: {printing.shown(log.read_text().strip()[-500:])}")
            time.sleep(_LOOK_SECONDS)
        up = time.monotonic() - began
        cpu_seconds = total(watch.used().values()).cpu_seconds
        logs = [file.read_text() for file in sorted(data.rglob("replica-*.log"))]
        if len(logs) != replicas:
            raise StartFailed(f"{len(logs)} logs of {replicas} replicas are below {data}")
        seen = [max(first_seen(text, _LINES.get(stage, "")) for text in logs) - wall for stage in STAGES[:-1]]
        return Start((*seen, up), cpu_seconds)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            end_tree(process.pid)
            process.wait()


def first_seen(log: str, words: str) -> float:
    """When the first line with these words was written, in Unix seconds. Raises StartFailed where there is none."""
    for line in log.splitlines():
        found = _WRITTEN.match(line)
        if found is not None and words in line:
            return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()
    raise StartFailed(f"a replica's log does not say {words!r}")


def told(starts: Sequence[Start]) -> list[tuple[str, str]]:
    """Rows of a table: medians, and each start."""
    rows = []
    for place, stage in enumerate(STAGES):
        seconds = [start.stages[place] for start in starts]
        rows.append((stage, f"{statistics.median(seconds):.1f} s of {', '.join(f'{one:.1f}' for one in seconds)}"))
    rows.append(("processors' time", f"{statistics.median(start.cpu_seconds for start in starts):.1f} s until then"))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starts", description="How long a cluster takes to start.")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args(arguments)
    starts = []
    try:
        with scratch_directory("starts") as directory:
            for number in range(given.times):
                starts.append(started(directory / str(number), given.replicas))
                time.sleep(_REST_SECONDS)
    except StartFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    printing.figures(f"rayched up, {given.replicas} replicas, from an empty directory", told(starts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
