"""`make fuzz`: random requests, well-formed and not, over all methods and by all roles, to a real replica with certificates.

    make fuzz                           1,000,000 requests
    make fuzz REQUESTS=5000 SEED=7      fewer, and others

Sessions, two for each processor, share the requests, each with a seed, a replica on loopback and an etcd of its own; equal seeds
send equal requests. What is demanded of each: no INTERNAL, UNKNOWN or DATA_LOSS, and an answer to each call that is no stream; no
call that was refused and wrote; no change of leader; memory that is level. Exit code 1 where a demand is missed. Limits of rates
are lifted, so that calls are judged by what they say.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks.processes import resident_bytes
from rayched.pki.directory import PkiDirectory
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_pki import LocalPki
from rayched.replica.cluster.local_start import wait_until_up
from rayched.replica.ray.processes import descendants
from tests.fuzz.callers import ADMIN, Callers
from tests.fuzz.calls import FuzzedCalls
from tests.fuzz.history import EtcdHistory
from tests.fuzz.judging import FuzzReport, answers
from tests.fuzz.session import RESTORED_EVERY, FuzzSession

REQUESTS: Final = 1_000_000
_START_SECONDS_MAX: Final = 180.0
_RATE: Final = "1000000"
OPTIONS: Final = (
    *("--workers", "0", "--election-profile", "kube", "--log-level", "warning", "--node-monitor-grace-period", "24h"),
    *("--write-rate", _RATE, "--read-rate", _RATE, "--watch-rate", _RATE, "--heartbeat-rate", _RATE),
    *("--store-bytes", str(1 << 30)),
)


def fuzz(directory: Path, requests: int, seed: int) -> FuzzReport:
    """A run in a directory, where the replica's log stays."""
    pki = LocalPki(directory / "pki", 1)
    with LocalCluster(directory / "up", 1, unsafe_no_fsync=True, options=OPTIONS, pki=pki) as cluster:
        with cluster.client() as client:
            wait_until_up(cluster, client, _START_SECONDS_MAX, _tell)
        callers = Callers(PkiDirectory(directory / "pki"), cluster.addresses[0])
        replica = cluster.replicas[0].pid
        began = time.monotonic()

        def told(done: int) -> None:
            _tell(f"seed {seed}: {done} of {requests} requests, {done / (time.monotonic() - began):.0f} a second")

        with callers, callers.client(ADMIN) as admin, EtcdHistory(cluster.etcd_endpoints) as history:
            session = FuzzSession(callers, admin, history, lambda: sum(map(resident_bytes, (replica, *descendants(replica)))))
            return session.run(iter(FuzzedCalls(seed)), requests, told)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fuzz_all(directory: Path, requests: int, seed: int, sessions: int) -> dict[int, FuzzReport]:
    """The reports by their seeds, which are `seed` and those that follow upon it. Each session has a directory of its own."""
    shares = [requests // sessions + (number < requests % sessions) for number in range(sessions)]
    seeds = range(seed, seed + sessions)
    directories = [directory / str(one) for one in seeds]
    if sessions == 1:
        return {seed: fuzz(directories[0], requests, seed)}
    with ProcessPoolExecutor(sessions, mp_context=multiprocessing.get_context("spawn")) as pool:
        return dict(zip(seeds, pool.map(fuzz, directories, shares, seeds), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", type=int, default=2 * len(os.sched_getaffinity(0)))
    given = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="rayched-fuzz-"))
    reports = fuzz_all(directory, given.requests, given.seed, given.sessions)
    print("\n".join(answers(list(reports.values()))))
    for seed, report in reports.items():
        print(f"\nseed {seed}, the cluster put back every {RESTORED_EVERY} requests")
        print("\n".join(report.demands()))
    if any(report.faults for report in reports.values()):
        print(f"the replicas' logs are below {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
