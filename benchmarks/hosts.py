"""What becomes of a cluster on three hosts whose network fails: `make hosts`.

Three hosts as network namespaces, one etcd member and one replica on each, a client on a fourth; everything over TLS. Pods are
submitted all the time. Then, each in a new cluster (hosts_plays.py):

* the interface of the leader's host goes down, twenty times, and five times where etcd's leader is there too,
* packets are lost one way, are 300 ms late, or a tenth of them is lost, for five minutes each.

A pause is the time from the moment at which the interface goes down to that at which an auditor, reading etcd's history from
another host, sees the first binding under a later epoch. Exit code 1 where a demand is missed. Where no network namespaces are
allowed it says so, and that is no failure.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, NoReturn

from benchmarks.failover import Demand, percentile
from benchmarks.hosts_plays import CLIENT, DOWNS, HOSTS, SEARCH_SECONDS, SPELLS, HostPause, HostsPlayed, NetworkSpell, played
from benchmarks.network_namespaces import HostNetwork, NamespacesNotAllowed, NetworkFailed, made_network
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import RehearsalFailed, scratch_directory
from rayched.client.errors import ApiError
from rayched.replica.cluster.local_cluster import ReplicaFailed
from rayched.replica.etcd.etcd_binary import EtcdServerError
from rayched.replica.ray.processes import dying_with_us, end_tree

DEMANDS: Final = {"down": Demand(1.2, 2.0), "etcd": Demand(3.0, 3.0)}
CHANGES_A_MINUTE_MAX: Final = 2
_NETWORK_VARIABLE: Final = "RAYCHED_HOSTS_NETWORK"
_RATE: Final = 30.0
_END_SECONDS_MAX: Final = 60.0
_SIGNALLED: Final = 128
"""And the signal's number: what a shell says of whoever ended by it."""


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    given = _parsed(words)
    # Whoever is told to end leaves its `with` statements, and once is enough.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    network = os.environ.pop(_NETWORK_VARIABLE, None)
    return _around(words) if network is None else _inside(HostNetwork.from_text(network), given)


def _parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hosts", description="Hosts whose network fails.")
    parser.add_argument("--downs", type=int, default=20, help="of the leader's host; a quarter as many with etcd's leader")
    parser.add_argument("--minutes", type=float, default=5.0, help="of each other fault")
    kinds = ",".join((*DOWNS, *SPELLS))
    parser.add_argument("--only", default=kinds, help=f"some of {kinds}")
    parser.add_argument("--rate", type=float, default=_RATE, help="submissions a second meanwhile")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args(words)
    given.only = given.only.split(",")
    for kind in given.only:
        if kind not in (*DOWNS, *SPELLS):
            parser.error(f"--only: {kind!r} is none of {kinds}")
    if given.downs < 1 or not 0 < given.minutes < 1440 or not 0 < given.rate <= 1000:
        parser.error("--downs is at least 1, --minutes above 0 and below a day, --rate above 0 and at most 1000")
    return given


def _leave(number: int, _: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(_SIGNALLED + number)


def _around(words: list[str]) -> int:
    """Makes the network, and plays in it by another process, which is on the client's host."""
    try:
        with made_network((CLIENT, *HOSTS)) as network:
            command = network.command(CLIENT, [sys.executable, "-m", "benchmarks.hosts", *words])
            # A session of its own: a Ctrl-C is for this process, which tells the other one to end.
            inside = subprocess.Popen(
                dying_with_us(command),
                env={**os.environ, _NETWORK_VARIABLE: network.as_text()},
                start_new_session=True,
            )
            try:
                return 1 if inside.wait() else 0
            finally:
                _end(inside)
    except NamespacesNotAllowed as why:
        printing.out(f"skipped: {why}")
        return 0
    except NetworkFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _end(inside: subprocess.Popen[bytes]) -> None:
    if inside.poll() is not None:
        return
    inside.terminate()
    try:
        inside.wait(_END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        end_tree(inside.pid)
        inside.wait()


def _inside(network: HostNetwork, given: argparse.Namespace) -> int:
    try:
        with scratch_directory("hosts") as directory:
            found = played(network, directory, given.only, given.downs, given.minutes, given.rate, printing.note)
    except (RehearsalFailed, ReplicaFailed, EtcdServerError, NetworkFailed, ApiError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        network.close()
    wrong = [*found.wrong, *missed(found.pauses, found.spells)]
    _print(found)
    if given.json:
        given.json.write_text(json.dumps({**asdict(found), "wrong": wrong}, indent=1) + "\n")
    for words in wrong:
        print(f"error: {words}", file=sys.stderr)
    return 1 if wrong else 0


def missed(pauses: Sequence[HostPause], spells: Sequence[NetworkSpell]) -> list[str]:
    """The demands that were not met, in words."""
    words = [f"{pause.kind}: no binding came for {SEARCH_SECONDS:.0f} s" for pause in pauses if pause.seconds is None]
    for kind, demand in DEMANDS.items():
        if seconds := _seconds_of(kind, pauses):
            found = Demand(statistics.median(seconds), percentile(seconds, 99))
            if found.median > demand.median or found.p99 > demand.p99:
                words.append(f"{kind}: {_words(found)}; demanded are {demand.median:.1f} and {demand.p99:.1f} s")
    for spell in spells:
        if spell.most_a_minute > CHANGES_A_MINUTE_MAX:
            changes = f"{spell.most_a_minute} changes of leader within a minute"
            words.append(f"{spell.kind}: {changes}, allowed are {CHANGES_A_MINUTE_MAX}")
    return words


def _seconds_of(kind: str, pauses: Sequence[HostPause]) -> list[float]:
    return [pause.seconds for pause in pauses if pause.kind == kind and pause.seconds is not None]


def _words(found: Demand) -> str:
    return f"median {found.median:.2f} s, p99 {found.p99:.2f} s"


def _print(found: HostsPlayed) -> None:
    rows = []
    for kind in dict.fromkeys(pause.kind for pause in found.pauses):
        seconds, demand = _seconds_of(kind, found.pauses), DEMANDS[kind]
        text = _words(Demand(statistics.median(seconds), percentile(seconds, 99))) if seconds else "no binding came"
        count = sum(pause.kind == kind for pause in found.pauses)
        rows.append((f"{kind}, {count} times", f"{text}; demanded {demand.median:.1f} and {demand.p99:.1f} s"))
    for spell in found.spells:
        text = f"{spell.changes} changes of leader, at most {spell.most_a_minute} within a minute; allowed {CHANGES_A_MINUTE_MAX}"
        rows.append((f"{spell.kind}, {spell.seconds:.0f} s", f"{text}; {spell.bound:,} pods bound"))
    rows.append(("acknowledged, bound", f"{found.acknowledged:,}, {found.bound:,}"))
    rows.append(("lost, twice, over capacity", f"{found.lost}, {found.bound_twice}, {found.over_capacity}"))
    printing.figures("from the interface that goes down to the first binding under a later epoch", rows)


if __name__ == "__main__":
    sys.exit(main())
