"""`make probe`: the attacks that worked before there were walls, against a replica of its own on loopback, as a table.

    make probe                          all of them, about two minutes
    make probe ARGS="--only F4,F5"

One replica with certificates, an etcd of its own and the limits of everybody. Each line says what the attack did then, what is
demanded now, what it has shown, by how much the replica and what it started have grown, and what processor time they took. Exit
code 1 where a demand is missed. F17, F18 and F22 are about what rayched stands on, and have an etcd or a Ray of their own.
"""

from __future__ import annotations

import argparse
import http.client
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.processes import all_cpu_seconds, resident_bytes
from rayched.cli import printing
from rayched.client.errors import ApiError
from rayched.pki.directory import PkiDirectory
from rayched.replica.cluster.local_cluster import LocalCluster, ReplicaFailed
from rayched.replica.cluster.local_pki import LocalPki
from rayched.replica.cluster.local_start import NotUpInTime, wait_until_up
from rayched.replica.etcd.etcd_binary import EtcdServerError
from tests.fuzz.callers import ADMIN, Callers
from tests.fuzz.world import restore
from tests.probe import attacks_from_below, attacks_on_cost, attacks_on_rights
from tests.probe.attack import Attack, Probed
from tests.probe.world import ProbeWorld

ATTACKS: Final = tuple(
    sorted(
        (*attacks_on_rights.ATTACKS, *attacks_on_cost.ATTACKS, *attacks_from_below.ATTACKS),
        key=lambda attack: int(attack.finding.removeprefix("F")),
    )
)
OPTIONS: Final = (
    *("--workers", "0", "--election-profile", "kube", "--log-level", "warning"),
    *("--seed", str(attacks_on_rights.SEED), "--node-monitor-grace-period", "24h"),
)
_START_SECONDS_MAX: Final = 180.0
_MIB: Final = 1 << 20


def probe(directory: Path, attacks: Sequence[Attack]) -> list[Probed]:
    """In a directory, where the replica's log stays."""
    pki = LocalPki(directory / "pki", 1)
    with LocalCluster(directory / "up", 1, unsafe_no_fsync=True, options=OPTIONS, pki=pki) as cluster:
        with cluster.client() as client:
            wait_until_up(cluster, client, _START_SECONDS_MAX, _tell)
        callers = Callers(PkiDirectory(directory / "pki"), cluster.addresses[0])
        with callers, callers.client(ADMIN) as admin:
            restore(admin, callers)
            world = ProbeWorld(cluster, callers, admin, directory)
            return [_made(world, attack) for attack in attacks]


def _made(world: ProbeWorld, attack: Attack) -> Probed:
    (bytes_before, cpu_before), began = _taken(world.tree()), time.monotonic()
    try:
        shown, met = attack.run(world)
    except (OSError, http.client.HTTPException, ApiError) as error:
        shown, met = f"cannot be made: {error}", False
    if not world.cluster.replicas[0].running:
        shown, met = f"{shown}; the replica has ended", False
    seconds = time.monotonic() - began
    bytes_after, cpu_after = _taken(world.tree())
    found = Probed(attack, shown, met, bytes_after - bytes_before, max(0.0, cpu_after - cpu_before), seconds)
    _tell(f"{attack.finding} {attack.what}: {shown}{'' if met else f' - MISSED, demanded is: {attack.demanded}'}")
    return found


def _taken(pids: Sequence[int]) -> tuple[int, float]:
    """Bytes and CPU seconds so far, of all together."""
    return sum(map(resident_bytes, pids)), sum(map(all_cpu_seconds, pids))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make probe")
    parser.add_argument("--only", metavar="F1,F2,...", default="", help="of the findings; none: all")
    given = parser.parse_args(arguments)
    wanted = [one.strip() for one in given.only.split(",") if one.strip()]
    known = [attack.finding for attack in ATTACKS]
    if unknown := [one for one in wanted if one not in known]:
        parser.error(f"--only {unknown[0]}: known are {', '.join(known)}")
    attacks = [attack for attack in ATTACKS if not wanted or attack.finding in wanted]
    try:
        with tempfile.TemporaryDirectory(prefix="rayched-probe-") as directory:
            found = probe(Path(directory), attacks)
    except (NotUpInTime, EtcdServerError, ReplicaFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    printing.plain_table(["", "ATTACK", "THEN", "DEMANDED", "SHOWN", "GROWN", "CPU", "MET"], [_row(one) for one in found])
    return 0 if all(one.met for one in found) else 1


def _row(one: Probed) -> list[str]:
    attack = one.attack
    return [
        *(attack.finding, attack.what, attack.then, attack.demanded, one.shown),
        *(f"{one.grown_bytes / _MIB:+.0f} MiB", f"{one.cpu_seconds:.1f} s", "yes" if one.met else "NO"),
    ]


if __name__ == "__main__":
    sys.exit(main())
