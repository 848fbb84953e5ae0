"""What pods that cost as much as they may do to all others: `make hostile`.

Replicas on this host, 1,000 nodes with 40 bound pods each, all with labels of their own. Then 10,000 hostile pods are submitted
at once (`hostile_pods`: legal, seeded, everything that the limits allow), and beside them 200 ordinary pods a second, for as long
as hostile ones come and two minutes at least. Demanded:

* nobody else leads: there is no further epoch,
* the ordinary pods are acknowledged at their rate,
* each of them is bound, 99 of 100 within a second of their creation,
* no hostile pod is refused for anything but its own size.

Exit code 1 where a demand is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.asked_processes import SPAWN, AskedProcess, look
from benchmarks.hostile_pods import OWN, hostile_pods
from benchmarks.load import SteadyLoad, small_pods
from benchmarks.processes import wait_until_quiet
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import Rehearsal, RehearsalFailed, scratch_directory
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.ray.processes import descendants
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored

P99_SECONDS_MAX: Final = 1.0
ACHIEVED_MIN: Final = 0.95
"""Of the ordinary pods wanted."""
LOADS: Final = 8
WINDOW_SECONDS: Final = 10
WINDOWS_SHOWN: Final = 6
_QUIET_SECONDS_MAX: Final = 90.0
_HOSTILE_SECONDS_MAX: Final = 600.0
"""For all hostile pods to be submitted."""
_LAST_SECONDS_MAX: Final = 60.0
"""For the last ordinary pods, after the load has ended."""


@dataclass(slots=True)
class Seen:
    """What etcd showed. Seconds of CLOCK_MONOTONIC."""

    epochs: int = 0
    waited: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of ordinary pods that are bound: when they were created, and how long it took from there to the binding."""
    waiting: dict[str, float] = field(default_factory=dict)
    """Since when ordinary pods wait."""
    hostile: int = 0
    hostile_bound: int = 0


class Onlooker(AskedProcess):
    """Watches pods and epochs in etcd."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        super().__init__(_look, tuple(endpoints))

    def seen(self) -> Seen:
        found: Seen = self.ask("seen")
        return found


@dataclass(frozen=True)
class Result:
    """One run, in figures; seconds."""

    hostile: int
    hostile_bound: int
    hostile_seconds: float
    """Until the last one was acknowledged."""
    hostile_refused: tuple[str, ...]
    ordinary: int
    achieved: float
    """Ordinary pods acknowledged a second."""
    wanted: float
    waits: tuple[tuple[float, float], ...]
    """When a pod was created, since the first hostile one was sent, and how long it waited."""
    unbound: int
    epochs: int

    @cached_property
    def waited(self) -> list[float]:
        """Rising."""
        return sorted(waited for _, waited in self.waits)

    @property
    def slowest(self) -> str:
        """The windows of time whose pods waited longest: what a stall looks like, beside what is always so."""
        windows: defaultdict[int, list[float]] = defaultdict(list)
        for created, waited in self.waits:
            windows[int(created // WINDOW_SECONDS)].append(waited)
        worst = sorted(windows.items(), key=lambda window: max(window[1]), reverse=True)[:WINDOWS_SHOWN]
        return ", ".join(
            f"{number * WINDOW_SECONDS} s: {max(waited):.1f} s, median {median(waited):.1f} s" for number, waited in sorted(worst)
        )

    def percentile(self, share: float) -> float:
        return self.waited[min(len(self.waited) - 1, int(share * len(self.waited)))] if self.waited else float("inf")

    @property
    def wrong(self) -> list[str]:
        found = []
        if self.epochs:
            found.append(f"{self.epochs} further epochs began")
        if self.unbound:
            found.append(f"{self.unbound} of {self.ordinary} ordinary pods were not bound")
        if self.achieved < ACHIEVED_MIN * self.wanted:
            found.append(f"{self.achieved:.0f} ordinary pods were acknowledged a second, wanted were {self.wanted:.0f}")
        if self.percentile(0.99) > P99_SECONDS_MAX:
            found.append(f"ordinary pods were bound within {self.percentile(0.99):.2f} s (p99), allowed are {P99_SECONDS_MAX} s")
        if self.hostile_refused:
            found.append(f"{len(self.hostile_refused)} hostile pods were refused; the first: {self.hostile_refused[0]}")
        return found


def run(given: argparse.Namespace) -> Result:
    """Raises RehearsalFailed where the cluster does not come up."""
    shape = NodeShape({"cpu": "64", "memory": "256Gi", "pods": "500"})
    with _directory(given.logs) as directory, contextlib.ExitStack() as owned:
        nodes = hollow_nodes(given.nodes, 3, shape)
        for number, node in enumerate(nodes):
            node.metadata.labels.update({f"rack-{place}": f"r{number % (place + 2)}" for place in range(16)})
        rehearsal = owned.enter_context(
            Rehearsal(directory, nodes, replicas=given.replicas, options=["--no-compact"], agents=False, audit_later=True)
        )
        bound = given.nodes * given.bound
        _acknowledged(
            rehearsal.client.submit_many(_bound_pods([node.metadata.name for node in nodes], bound), timeout_seconds=120.0),
            "bound pods",
        )
        pids = [pid for replica in rehearsal.cluster.replicas for pid in (replica.pid, *descendants(replica.pid))]
        if not wait_until_quiet(pids, _QUIET_SECONDS_MAX):
            raise RehearsalFailed(f"the processes did not come to rest within {_QUIET_SECONDS_MAX:.0f} s")
        onlooker = Onlooker(rehearsal.cluster.etcd_endpoints)
        owned.callback(onlooker.stop)
        enemy = SPAWN.Pipe()
        arguments = enemy[1], tuple(rehearsal.cluster.addresses), given.seed, given.hostile, bound
        process = SPAWN.Process(target=_submit_hostile, args=arguments, daemon=True)
        owned.callback(process.kill)
        process.start()
        enemy[1].close()
        enemy[0].recv()
        # Several at once: one alone is as slow as each of its calls.
        rate = given.rate / LOADS
        loads = [
            SteadyLoad(rehearsal.client, small_pods(f"ordinary-{number}"), rate, batch=max(1, round(rate / 10))).start()
            for number in range(LOADS)
        ]
        enemy[0].send(None)
        began = time.monotonic()
        submitted = enemy[0].poll(_HOSTILE_SECONDS_MAX)
        refused, hostile_seconds = enemy[0].recv() if submitted else ["not all were submitted in time"], time.monotonic() - began
        time.sleep(max(0.0, given.seconds - hostile_seconds))
        for load in loads:
            load.stop()
        seen, deadline = onlooker.seen(), time.monotonic() + _LAST_SECONDS_MAX
        while seen.waiting and time.monotonic() < deadline:
            time.sleep(0.2)
            seen = onlooker.seen()
        return Result(
            hostile=seen.hostile,
            hostile_bound=seen.hostile_bound,
            hostile_seconds=hostile_seconds,
            hostile_refused=tuple(refused),
            ordinary=sum(len(load.acknowledged) for load in loads),
            achieved=sum(load.achieved for load in loads),
            wanted=given.rate,
            waits=tuple((created - began, waited) for created, waited in seen.waited.values()),
            unbound=len(seen.waiting),
            epochs=seen.epochs,
        )


def _bound_pods(nodes: Sequence[str], count: int) -> Iterator[Pod]:
    """With a label of its own each, on their nodes from the start."""
    for number, pod in zip(range(count), small_pods("app", cpu="1m", memory="1Mi"), strict=False):
        pod.metadata.labels[OWN] = f"app-{number}"
        pod.spec.node_name = nodes[number % len(nodes)]
        yield pod


def _acknowledged(outcomes: Sequence[Any], what: str) -> None:
    failed = [str(outcome.error) for outcome in outcomes if outcome.error is not None]
    if failed:
        raise RehearsalFailed(f"{len(failed)} {what} were refused; the first: {failed[0]}")


@contextlib.contextmanager
def _directory(logs: Path | None) -> Iterator[Path]:
    if logs is None:
        with scratch_directory("hostile") as directory:
            yield directory
    else:
        logs.mkdir(parents=True, exist_ok=True)
        yield logs


# ---------------------------------------------------------------------------------------------------- in processes


def _submit_hostile(end: Connection, addresses: Sequence[str], seed: int, count: int, bound: int) -> None:
    pods = list(hostile_pods(seed, count, bound))
    end.send("ready")
    end.recv()
    with Client(addresses, timeout_seconds=_HOSTILE_SECONDS_MAX) as client:
        outcomes = client.submit_many(pods, timeout_seconds=_HOSTILE_SECONDS_MAX)
    end.send([str(outcome.error) for outcome in outcomes if outcome.error is not None])


def _look(end: Connection, endpoints: Sequence[str]) -> None:
    seen, hostile = Seen(), set[bytes]()
    look(end, endpoints, lambda pair, keys: _note(seen, hostile, pair, keys.epoch), lambda _: seen)


def _note(seen: Seen, hostile: set[bytes], pair: Any, epoch_key: bytes) -> None:
    now, key = time.monotonic(), pair.key
    if key == epoch_key:
        seen.epochs += 1
    elif b"/hostile-" in key:
        seen.hostile += pair.version == 1
        if key not in hostile and b"\n\x04bind" in pair.value:
            hostile.add(key)
            seen.hostile_bound += 1
    elif b"/ordinary-" in key:
        name = key.decode()
        if pair.version == 1:
            seen.waiting[name] = now
        elif name in seen.waiting and Stored.FromString(pair.value).object.pod.spec.node_name:
            created = seen.waiting.pop(name)
            seen.waited[name] = created, now - created


# --------------------------------------------------------------------------------------------------------- command


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description="What hostile pods do to all others.")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--bound", type=int, default=40, help="pods on each node, with labels of their own")
    parser.add_argument("--hostile", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=200, help="ordinary pods a second")
    parser.add_argument("--seconds", type=int, default=120, help="of ordinary pods, at least")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path, help="keep the replicas' logs there, in an empty directory")
    given = parser.parse_args(arguments)
    try:
        result = run(given)
    except (RehearsalFailed, ApiError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    printing.figures(
        f"{given.hostile:,} hostile pods, {given.nodes:,} nodes with {given.bound} bound pods each",
        [
            ("hostile pods", f"{result.hostile:,} created within {result.hostile_seconds:.0f} s, {result.hostile_bound:,} bound"),
            ("ordinary pods", f"{result.ordinary:,} acknowledged, {result.achieved:.0f} a second, {len(result.waited):,} bound"),
            ("from creation to binding", ", ".join(f"p{share} {result.percentile(share / 100):.3f} s" for share in (50, 90, 99))),
            ("longest", f"{result.waited[-1] if result.waited else float('inf'):.3f} s"),
            (f"longest, of those created within {WINDOW_SECONDS} s from", result.slowest),
            ("further epochs", str(result.epochs)),
        ],
    )
    for words in result.wrong:
        print(f"error: {words}", file=sys.stderr)
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
