"""Whether anything grows in the course of time: `make soak [MINUTES=60]`.

Three replicas and etcd on this host, nodes with agents, 100 pods a second, each deleted 5 s after it was submitted. Five leaders
are killed with SIGKILL, evenly over the time, and started again. Every few seconds the memory, file descriptors and threads of
each process are sampled, etcd's keys and bytes, and the pods (`soak_samples`); `soak_judging` says what is demanded of these
series, and why. Demanded besides:

* every pod is bound, none before its deletion, and none is left,
* there are no more epochs than the kills and the beginning call for,
* nothing is refused.

Exit code 1 where a demand is missed. The samples go to a file, one JSON object a line, as they are taken; `--judge FILE` judges
such a file, also of a run that goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final, TextIO

import grpc

from benchmarks.measured import percentile
from benchmarks.soak_judging import judged
from benchmarks.soak_picture import check_path, draw
from benchmarks.soak_processes import Load, Onlooker
from benchmarks.soak_samples import EtcdGauge, Sample, process_sample, tree_samples
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import Rehearsal, RehearsalFailed, scratch_directory
from rayched.client.errors import ApiError
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.local_cluster import ReplicaFailed, ReplicaProcess
from rayched.store.errors import StoreError

_ZONES: Final = 3
_LIFE_SECONDS: Final = 5.0
_SAMPLES: Final = 360
_SAMPLE_SECONDS_MIN, _SAMPLE_SECONDS_MAX = 2.0, 10.0
_REVIVED_AFTER_SECONDS: Final = 5.0
"""A killed replica is away for so long: another one leads by then."""
_ENDED_SECONDS_MAX: Final = 10.0
_LAST_SECONDS_MAX: Final = 120.0
"""For the last pods to go, after the load has ended."""
_LEADER_SECONDS_MAX: Final = 2.0
_ETCD_MISSES_MAX: Final = 10
"""Samples in a row that etcd may leave unanswered."""


def soak(given: argparse.Namespace, samples: TextIO) -> list[Sample]:
    """Runs for the time asked for. Raises RehearsalFailed, ReplicaFailed, ApiError, TimeoutError."""
    shape = NodeShape({"cpu": "64", "memory": "256Gi", "pods": "250"})
    with _directory(given.logs) as directory, contextlib.ExitStack() as owned:
        nodes = hollow_nodes(given.nodes, _ZONES, shape)
        # Nobody audits: history is compacted in a run that is long.
        rehearsal = owned.enter_context(Rehearsal(directory, nodes, audit_later=True))
        run = _Run(given, rehearsal, samples, owned)
        run.steady()
        run.finish()
        return run.samples


class _Run:
    """One soak, from the first pod to the last. Owner of load and onlooker, which end with `owned`."""

    def __init__(self, given: argparse.Namespace, rehearsal: Rehearsal, samples: TextIO, owned: contextlib.ExitStack) -> None:
        self.samples: list[Sample] = []
        self._given = given
        self._rehearsal = rehearsal
        self._file = samples
        self._etcd = EtcdGauge(rehearsal.cluster.etcd_endpoints, rehearsal.cluster.directory / "etcd")
        self._onlooker = Onlooker(rehearsal.cluster.etcd_endpoints)
        owned.callback(self._onlooker.stop)
        self._load = Load(rehearsal.cluster.addresses, given.rate, _LIFE_SECONDS)
        owned.callback(self._load.stop)
        self._began = time.monotonic()
        self._kills = 0
        self._misses = 0
        self._away: tuple[float, ReplicaProcess] | None = None
        """The replica that was killed, and when it is to be started."""

    def steady(self) -> None:
        """Load, samples and kills, until the time is over."""
        seconds = 60.0 * self._given.minutes
        period = min(_SAMPLE_SECONDS_MAX, max(_SAMPLE_SECONDS_MIN, seconds / _SAMPLES))
        due = self._began
        with printing.progress("seconds", round(seconds)) as bar:
            while (now := time.monotonic()) < self._began + seconds:
                if now >= due:
                    due = max(due + period, now)
                    self._sample()
                    self._rehearsal.cluster.check()
                if self._away is not None and now >= self._away[0]:
                    self._away[1].start()
                    self._away = None
                elif self._kills < self._given.kills and now >= self._began + seconds * (self._kills + 1) / (
                    self._given.kills + 1
                ):
                    self._kill()
                bar.reach(min(seconds, now - self._began))
                time.sleep(0.1)

    def finish(self) -> None:
        """The last pods are deleted and seen to be gone; the last sample tells."""
        self._load.end()
        deadline = time.monotonic() + _LAST_SECONDS_MAX
        self._sample()
        while self.samples[-1].present and time.monotonic() < deadline:
            time.sleep(_SAMPLE_SECONDS_MIN)
            self._sample()

    def _kill(self) -> None:
        """One that leads, once there is one."""
        with contextlib.suppress(RehearsalFailed, ApiError):
            leader = self._rehearsal.leader()
            leader.signal(signal.SIGKILL)
            leader.wait(_ENDED_SECONDS_MAX)
            self._kills += 1
            self._away = (time.monotonic() + _REVIVED_AFTER_SECONDS, leader)

    def _sample(self) -> None:
        cluster = self._rehearsal.cluster
        try:
            etcd = self._etcd.sample()
            self._misses = 0
        except (grpc.RpcError, StoreError) as error:
            self._misses += 1
            if self._misses > _ETCD_MISSES_MAX:
                raise RehearsalFailed(f"etcd gave no answer to {self._misses} samples in a row: {error}") from error
            return
        loaded, seen = self._load.loaded(), self._onlooker.seen()
        processes = [one for replica in cluster.replicas if replica.running for one in tree_samples(replica.pid, replica.number)]
        if cluster.etcd is not None and cluster.etcd.pid is not None:
            processes += [one for one in [process_sample(cluster.etcd.pid, "etcd", None)] if one is not None]
        waited = sorted(seen.waited)
        sample = Sample(
            seconds=time.monotonic() - self._began,
            leader=self._leader(),
            kills=self._kills,
            epochs=seen.epochs,
            submitted=loaded.acknowledged,
            refused=loaded.refused,
            created=seen.created,
            bound=seen.bound,
            removed=seen.removed,
            removed_unbound=seen.removed_unbound,
            present=seen.present,
            waiting=seen.waiting,
            p50=percentile(waited, 50) if waited else None,
            p99=percentile(waited, 99) if waited else None,
            processes=processes,
            **asdict(etcd),
        )
        self.samples.append(sample)
        self._file.write(json.dumps(sample.as_json()) + "\n")
        self._file.flush()
        for words in loaded.refusals[:1]:
            printing.note(f"refused: {words}")

    def _leader(self) -> int | None:
        with contextlib.suppress(ApiError, KeyError):
            address = self._rehearsal.client.leader(timeout_seconds=_LEADER_SECONDS_MAX).address
            if address:
                return self._rehearsal.cluster.replica_at(address).number
        return None


# --------------------------------------------------------------------------------------------------------- command


def read(path: Path) -> list[Sample]:
    """The samples of a file, also of one that is being written. Raises OSError, ValueError."""
    found = []
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            found.append(Sample.of_json(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines):
                break
            raise ValueError(f"{path}:{number}: found {line[:40]!r}, a sample is wanted") from error
    if not found:
        raise ValueError(f"{path}: there are no samples")
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak", description="Whether anything grows in the course of time."
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=5, help="of leaders")
    parser.add_argument("--rate", type=float, default=100.0, help="pods a second")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument(
        "--samples", type=Path, default=Path("reports/soak.jsonl"), help="where they are written as they are taken"
    )
    parser.add_argument("--judge", type=Path, metavar="FILE", help="judge the samples of a file; nothing is started")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="draw the series there: .svg or .png")
    parser.add_argument("--logs", type=Path, help="keep the replicas' logs there, in an empty directory")
    given = parser.parse_args(arguments)
    if not (given.minutes > 0 and given.rate > 0 and given.nodes > 0 and given.kills >= 0):
        parser.error("--minutes, --rate and --nodes must be more than 0, and --kills not less")
    try:
        if given.picture:
            check_path(given.picture)
        if given.judge:
            samples = read(given.judge)
        else:
            given.samples.parent.mkdir(parents=True, exist_ok=True)
            with open(given.samples, "w") as file:
                samples = soak(given, file)
        rows = judged(samples, given.kills)
        if given.picture:
            draw(samples, given.picture)
    except (RehearsalFailed, ReplicaFailed, ApiError, TimeoutError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    last = samples[-1]
    print(f"{last.seconds / 60:.1f} minutes, {len(samples)} samples, {last.submitted:,} pods, {last.kills} leaders killed")
    printing.plain_table(
        ("SERIES", "START", "END", "AN HOUR", "DEMAND", "MET"),
        [(row.series, row.start, row.end, row.slope, row.demand, _WORDS[row.met]) for row in rows],
    )
    missed = [row for row in rows if row.met is False]
    for row in missed:
        print(f"error: {row.series}: {row.start} became {row.end}; {row.demand}", file=sys.stderr)
    return 1 if missed else 0


_WORDS: Final = {None: "", True: "met", False: "MISSED"}


@contextlib.contextmanager
def _directory(logs: Path | None) -> Iterator[Path]:
    if logs is None:
        with scratch_directory("soak") as directory:
            yield directory
        return
    logs.mkdir(parents=True, exist_ok=True)
    if any(logs.iterdir()):
        raise RehearsalFailed(
            f"--logs {logs}: has files of an earlier run, whose etcd would be taken over; name an empty directory"
        )
    yield logs


if __name__ == "__main__":
    sys.exit(main())
