"""How long bindings pause when a leader dies: `make failover`.

Three replicas, hollow nodes, some pods that stay pending, and a steady stream of submissions around each fault. Then

* fifty faults of each kind, in turn: SIGKILL of the leading replica's process, of its whole tree (guardian, Ray and actors
  with it), of its SchedulerActor's process; and a graceful stop with SIGTERM;
* 5,000 submissions a second to the leader for 30 s, under which it must keep its lease: once of pods for another scheduler, so
  that the API alone is loaded, and once of pods that are scheduled meanwhile, as fast as the machine goes.

The pause is the time from the signal to the moment at which an auditor, reading etcd's history, sees the first binding under a
later epoch. Exit code 1 when the median or the 99th percentile of a kind is longer than demanded, or the auditor found a
violation.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.load import SteadyLoad, small_pods, too_large_pods
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import Kill, Rehearsal, RehearsalFailed, scratch_directory
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.local_start import wait_until_up
from rayched.v1.core_pb2 import Pod


@dataclass(frozen=True, slots=True)
class Demand:
    """Of the pauses of one kind, in seconds."""

    median: float
    p99: float


DEMANDS = {
    "replica": Demand(0.3, 0.6),
    "tree": Demand(0.3, 0.6),
    "scheduler": Demand(0.3, 0.3),
    "stop": Demand(0.3, 0.3),
}
_ZONES = 3
_NODES = 100
_RATE = 100.0
_PENDING = 20
_SEARCH_SECONDS = 20.0
_STORM_NODES = 1500
_STORM_CLIENTS = 4
_STORM_BATCH = 100
_STORMS = ("another-scheduler", "")
"""Names of schedulers."""
_AUDIT_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Pause:
    kind: str
    seconds: float | None
    """None: no binding came."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.failover", description="How long bindings pause when a leader dies."
    )
    parser.add_argument("--kills", type=int, default=50, help="of each kind")
    parser.add_argument("--kinds", nargs="+", choices=DEMANDS, default=list(DEMANDS))
    parser.add_argument("--rate", type=float, default=_RATE, help="submissions a second meanwhile")
    parser.add_argument(
        "--storm-rate",
        type=float,
        default=6000.0,
        help="submissions a second; what is late is not made up for",
    )
    parser.add_argument("--storm-seconds", type=float, default=30.0, help="0: no storm")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    wrong_in_storms: list[str] = []
    try:
        pauses, wrong = _failovers(arguments.kinds * arguments.kills, arguments.rate)
        storms = []
        for kind in _STORMS if arguments.storm_seconds else ():
            storm, storm_wrong = _storm(arguments.storm_rate, arguments.storm_seconds, kind)
            storms.append(storm)
            wrong_in_storms += storm_wrong
    except (RehearsalFailed, ApiError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    wrong += wrong_in_storms
    wrong += missed(pauses)
    _print(pauses, storms)
    if arguments.json:
        figures = {"pauses": [asdict(pause) for pause in pauses], "storms": storms, "wrong": wrong}
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    for words in wrong:
        print(f"error: {words}", file=sys.stderr)
    return 1 if wrong else 0


def missed(pauses: list[Pause]) -> list[str]:
    """The demands that were not met, in words."""
    words = [f"{pause.kind}: no binding came for {_SEARCH_SECONDS:.0f} s" for pause in pauses if pause.seconds is None]
    for kind, demand in DEMANDS.items():
        if seconds := _seconds_of(kind, pauses):
            found = Demand(statistics.median(seconds), percentile(seconds, 99))
            if found.median > demand.median or found.p99 > demand.p99:
                words.append(
                    f"{kind}: median {found.median:.3f} s, p99 {found.p99:.3f} s;"
                    f" demanded are {demand.median:.1f} and {demand.p99:.1f} s"
                )
    return words


def percentile(seconds: list[float], percent: float) -> float:
    """The nearest rank: of few values the longest."""
    return sorted(seconds)[max(0, math.ceil(len(seconds) * percent / 100) - 1)]


def _seconds_of(kind: str, pauses: list[Pause]) -> list[float]:
    return [pause.seconds for pause in pauses if pause.kind == kind and pause.seconds is not None]


def _failovers(kinds: list[str], rate: float) -> tuple[list[Pause], list[str]]:
    pauses: list[Pause] = []
    with scratch_directory("failover") as directory:
        nodes = hollow_nodes(_NODES, _ZONES, NodeShape({"cpu": "64", "memory": "256Gi", "pods": "2000"}))
        with Rehearsal(directory, nodes) as rehearsal:
            rehearsal.submit(too_large_pods("too-large", _PENDING))
            acknowledged, refused = list[str](), list[str]()
            with printing.progress("failovers", len(kinds)) as bar:
                for number, kind in enumerate(kinds):
                    load = _steady(rehearsal, f"steady-{number}", rate)
                    fault = strike(rehearsal, kind)
                    binding = rehearsal.first_binding_after(fault, _SEARCH_SECONDS)
                    pauses.append(Pause(kind, None if binding is None else binding.seconds - fault.seconds))
                    load.stop()
                    acknowledged += load.acknowledged
                    refused += load.refused
                    rehearsal.revive()
                    bar.advance()
            rehearsal.acknowledged += acknowledged
            rehearsal.wait_until_bound(len(acknowledged), 30.0)
            verdict = rehearsal.verdict()
            wrong = list(verdict.words)
            if refused:
                wrong.append(f"{len(refused)} submissions were refused; the first: {refused[0]}")
            if verdict.bound != len(acknowledged):
                wrong.append(f"{verdict.bound} pods are bound, {len(acknowledged)} were acknowledged and fit")
    return pauses, wrong


def strike(rehearsal: Rehearsal, kind: str) -> Kill:
    """One fault on the leader: its replica, its SchedulerActor, its whole tree, or a polite stop."""
    match kind:
        case "replica":
            return rehearsal.kill_leader(signal.SIGKILL)
        case "stop":
            return rehearsal.kill_leader(signal.SIGTERM)
        case "scheduler":
            pid = rehearsal.client.scheduler_status().pids["scheduler"]
            fault = Kill(kind, rehearsal.ask(lambda auditor: auditor.epoch), time.monotonic())
            os.kill(pid, signal.SIGKILL)
            return fault
        case "tree":
            return rehearsal.kill_leader(whole_tree=True)
        case _:
            raise ValueError(f"no fault is called {kind!r}")


def _steady(rehearsal: Rehearsal, prefix: str, rate: float) -> SteadyLoad:
    """All replicas are back with all that they start; pods come from now on, and bindings flow. Raises RehearsalFailed."""
    wait_until_up(rehearsal.cluster, rehearsal.client)
    rehearsal.settle()
    load = SteadyLoad(rehearsal.client, small_pods(prefix), rate).start()
    before = rehearsal.ask(lambda auditor: len(auditor.bindings))
    if not rehearsal.follower.wait_for(lambda auditor: len(auditor.bindings) > before, _SEARCH_SECONDS):
        bound = rehearsal.ask(lambda auditor: auditor.bound_pods())
        raise RehearsalFailed(
            f"no pod was bound for {_SEARCH_SECONDS:.0f} s without a fault; {bound} are; the load: {load.describe()}; "
            f"the queue: {dict(rehearsal.client.scheduler_status().pending_pods)}"
        )
    return load


def _storm(rate: float, seconds: float, scheduler_name: str) -> tuple[dict[str, float], list[str]]:
    """Submissions to the leader as fast as asked for; whether it kept its lease. No scheduler's name: the default one's."""
    with scratch_directory("storm") as directory:
        nodes = hollow_nodes(_STORM_NODES, _ZONES, NodeShape({"cpu": "64", "memory": "256Gi", "pods": "250"}))
        with Rehearsal(directory, nodes, agents=False, audit_later=True) as rehearsal:
            before = rehearsal.client.leader()
            clients = [Client([before.address], timeout_seconds=30.0) for _ in range(_STORM_CLIENTS)]
            loads = [
                SteadyLoad(client, pods, rate / _STORM_CLIENTS, _STORM_BATCH).start()
                for client, pods in zip(clients, _storm_pods(scheduler_name), strict=True)
            ]
            time.sleep(seconds)
            for load in loads:
                load.stop()
                rehearsal.acknowledged += load.acknowledged
            after = rehearsal.client.leader()
            for client in clients:
                client.close()
            rehearsal.audit()
            _caught_up(rehearsal)
            verdict = rehearsal.verdict()
    achieved = sum(load.achieved for load in loads)
    figures = {
        "seconds": seconds,
        "asked_per_second": rate,
        "submissions_per_second": round(achieved, 1),
        "bound": verdict.bound,
        "transitions": after.transitions - before.transitions,
    }
    wrong = list(verdict.words)
    if after.epoch != before.epoch:
        wrong.append(f"the leader lost its lease in the storm: epoch {before.epoch} became {after.epoch}")
    return figures, wrong


def _storm_pods(scheduler_name: str) -> list[Iterator[Pod]]:
    return [small_pods(f"storm-{number}", scheduler_name=scheduler_name) for number in range(_STORM_CLIENTS)]


def _caught_up(rehearsal: Rehearsal) -> None:
    """The auditor has read every acknowledged submission."""
    submitted = len(rehearsal.acknowledged)
    if not rehearsal.follower.wait_for(lambda auditor: len(auditor.pods) >= submitted, _AUDIT_SECONDS_MAX):
        found = rehearsal.ask(lambda auditor: len(auditor.pods))
        raise RehearsalFailed(f"the auditor found {found} of {submitted} submissions: {rehearsal.follower.error or 'too slow'}")


def _print(pauses: list[Pause], storms: list[dict[str, float]]) -> None:
    rows = []
    for kind in dict.fromkeys(pause.kind for pause in pauses):
        seconds, demand = _seconds_of(kind, pauses), DEMANDS[kind]
        text = f"median {statistics.median(seconds):.3f} s, p99 {percentile(seconds, 99):.3f} s" if seconds else "no binding came"
        count = sum(pause.kind == kind for pause in pauses)
        rows.append((f"{kind}, {count} times", f"{text}; demanded {demand.median:.1f} and {demand.p99:.1f} s"))
    for storm in storms:
        rate = f"{storm['submissions_per_second']:,.0f} submissions/s for {storm['seconds']:.0f} s"
        rows.append((f"storm, {storm['bound']:,.0f} bound", f"{rate}, {storm['transitions']:.0f} transitions"))
    printing.figures("from the fault to the first binding under a later epoch", rows)


if __name__ == "__main__":
    sys.exit(main())
