"""`make storage`: an etcd that is slow, wiped or restored from a snapshot, under real replicas.

Each play has a cluster of its own on this host, and judges what it demands (docs/chaos.md). Exit code 1 where a demand is missed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rayched.client.errors import ApiError
from rayched.replica.etcd.etcd_binary import EtcdBinary, EtcdServerError, find_etcd
from tests.chaos.demands import Demand, Demands, table
from tests.chaos.etcd_members import EtcdDown
from tests.chaos.stage import Stage, StageFailed
from tests.chaos.storage_history import CPU, restore, wipe
from tests.chaos.storage_quota import QUOTA_BYTES, filled_by_a_client, filled_by_somebody_else, left_to_an_administrator
from tests.chaos.storage_slow import SECONDS, slow

PROFILES: Final = ("fast", "kube")


def play_quota(given: argparse.Namespace, directory: Path, binary: EtcdBinary, demands: Demands) -> None:
    with Stage(directory / "kept", binary, members=1, replicas=given.replicas, options=(), quota_bytes=QUOTA_BYTES) as stage:
        filled_by_a_client(stage, demands, 60.0 * given.minutes)
        filled_by_somebody_else(stage, demands)
    with Stage(directory / "left", binary, members=1, replicas=given.replicas, quota_bytes=QUOTA_BYTES) as stage:
        left_to_an_administrator(stage, demands)


def play_slow(given: argparse.Namespace, directory: Path, binary: EtcdBinary, demands: Demands) -> None:
    for profile in given.profiles:
        options = ("--no-compact", "--election-profile", profile)
        with Stage(directory / profile, binary, members=1, replicas=given.replicas, options=options) as stage:
            slow(stage, profile, demands, seconds=given.seconds)


def play_wipe(given: argparse.Namespace, directory: Path, binary: EtcdBinary, demands: Demands) -> None:
    with Stage(directory, binary, members=1, replicas=given.replicas, cpu=CPU) as stage:
        for _, paused in itertools.product(range(given.rounds), (False, True)):
            wipe(stage, demands, paused=paused)


def play_restore(given: argparse.Namespace, directory: Path, binary: EtcdBinary, demands: Demands) -> None:
    with Stage(directory, binary, members=1, replicas=given.replicas, cpu=CPU) as stage:
        for number, paused in itertools.product(range(given.rounds), (False, True)):
            restore(stage, demands, directory / f"{number}-{paused}.db", paused=paused)


PLAYS: Final[dict[str, Callable[[argparse.Namespace, Path, EtcdBinary, Demands], None]]] = {
    "quota": play_quota,
    "slow": play_slow,
    "wipe": play_wipe,
    "restore": play_restore,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.storage", description="An etcd that fails its replicas.")
    parser.add_argument("--only", action="append", choices=PLAYS, help="this play; may be repeated")
    parser.add_argument("--minutes", type=float, default=10.0, help="for which a client fills an etcd of 64 MiB")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each delay of a slow etcd")
    parser.add_argument("--profiles", nargs="+", choices=PROFILES, default=PROFILES, help="of the election, under a slow etcd")
    parser.add_argument(
        "--rounds", type=int, default=1, help="of wiping and of restoring, each under running and paused replicas"
    )
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--logs", type=Path, help="keep the replicas' logs below that directory")
    given = parser.parse_args(arguments)
    try:
        binary = find_etcd()
    except EtcdServerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    found: list[Demand] = []
    for play in given.only or PLAYS:
        demands = Demands(play, lambda line: print(line, flush=True))
        directory = Path(tempfile.mkdtemp(prefix=f"rayched-storage-{play}-", dir=given.logs))
        try:
            PLAYS[play](given, directory, binary, demands)
        except (StageFailed, EtcdDown, ApiError) as failure:
            demands.holds("it can be played to its end", False, str(failure))
        if given.logs is None and all(one.met for one in demands.found):
            shutil.rmtree(directory, ignore_errors=True)
        else:
            print(f"{play}: the replicas' logs stay in {directory}", flush=True)
        found += demands.found
    table(found)
    print(f"load of the machine in the last minutes: {', '.join(f'{one:.1f}' for one in os.getloadavg())}, {os.cpu_count()} CPUs")
    missed = [one for one in found if not one.met]
    for one in missed:
        print(f"error: {one.play}: {one.what}: {one.shown}, demanded is {one.demanded}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
