"""What a flood of submissions does to those who lead and bind: `make flood`.

Three replicas on this host, 1,000 nodes, and 100 clients that submit 50,000 pods at once, all on the same processors. It is done
with the leader left alone, and again with SIGKILL of the leader's whole process tree in the middle of the submissions. Demanded:

* nobody else leads, but for the kill,
* from the kill to the first binding under a later epoch at most 4 s,
* otherwise bindings never pause for more than 2 s while a pod waits,
* every pod is acknowledged in the end, and every acknowledged pod is bound, once and within capacity.

Exit code 1 where a demand is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.flood_processes import Clients, Moment, Onlooker, Seen, Submitted
from benchmarks.processes import wait_until_quiet
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import Rehearsal, RehearsalFailed, Verdict, scratch_directory
from rayched.client.errors import ApiError
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.ray.processes import descendants

FAILOVER_SECONDS_MAX = 4.0
PAUSE_SECONDS_MAX = 2.0
_PODS, _CLIENTS, _PROCESSES, _NODES = 50_000, 100, 4, 1_000
_KILLED_AT = 0.4
"""The part of the pods that is there when the leader is killed."""
_LOOK_SECONDS = 0.02
_STUCK_SECONDS_MAX = 120.0
"""Without one binding or creation more."""
_QUIET_SECONDS_MAX = 60.0
_CLIENT_SECONDS_MAX = 300.0
_AUDIT_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Flood:
    """One run, as asked for."""

    pods: int = _PODS
    clients: int = _CLIENTS
    processes: int = _PROCESSES
    nodes: int = _NODES
    kill: bool = False
    agents: bool = False
    directory: Path | None = None
    """Where the replicas' logs stay; None: nowhere."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run, in figures; seconds."""

    killed: bool
    pods: int
    acknowledged: int
    acknowledged_after: float
    bound: int
    bound_after: float
    changes_of_leader: int
    longest_pause: float
    to_first_binding: float | None
    """From the kill."""
    wrong: tuple[str, ...]
    """Demands that were missed."""


def run(flood: Flood) -> Result:
    """Raises RehearsalFailed where the cluster does not come up or nothing moves any more."""
    shape = NodeShape({"cpu": "64", "memory": "256Gi", "pods": "250"})
    with _directory(flood) as directory, contextlib.ExitStack() as owned:
        nodes = hollow_nodes(flood.nodes, 3, shape)
        # The auditor reads when all is over, so that it takes no time from what is measured.
        rehearsal = owned.enter_context(
            Rehearsal(directory, nodes, options=["--no-compact"], agents=flood.agents, audit_later=True)
        )
        onlooker = Onlooker(rehearsal.cluster.etcd_endpoints)
        owned.callback(onlooker.stop)
        clients = Clients(rehearsal.cluster.addresses, flood.clients, flood.pods, flood.processes, _CLIENT_SECONDS_MAX)
        owned.callback(clients.stop)
        if not wait_until_quiet(_below(rehearsal), _QUIET_SECONDS_MAX):
            raise RehearsalFailed(f"the processes did not come to rest within {_QUIET_SECONDS_MAX:.0f} s")
        leader = rehearsal.leader()
        tree = [leader.pid, *descendants(leader.pid)] if flood.kill else []
        began = time.monotonic()
        clients.begin()
        killed = None
        if flood.kill:
            _wait_until_created(onlooker, round(flood.pods * _KILLED_AT))
            killed = time.monotonic()
            for pid in dict.fromkeys([*tree, *descendants(leader.pid)]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        submitted = clients.wait()
        acknowledged = time.monotonic()
        _wait_until_bound(onlooker, len(submitted.acknowledged))
        seen = onlooker.seen()
        rehearsal.acknowledged += submitted.acknowledged
        verdict = _audited(rehearsal, seen)
    return judged(seen, submitted, verdict, flood.pods, began, acknowledged, killed)


def judged(
    seen: Seen, submitted: Submitted, verdict: Verdict, pods: int, began: float, acknowledged: float, killed: float | None
) -> Result:
    """The run's figures, and which demands they miss."""
    first = None
    if killed is not None:
        before = max((epoch for seconds, epoch in seen.epochs if seconds < killed), default=0)
        before = max([before, *(one.epoch for one in seen.bindings if one.seconds < killed)])
        first = next((one.seconds for one in seen.bindings if one.seconds >= killed and one.epoch > before), None)
    after = None if first is None or killed is None else first - killed
    result = Result(
        killed=killed is not None,
        pods=pods,
        acknowledged=len(submitted.acknowledged),
        acknowledged_after=acknowledged - began,
        bound=verdict.bound,
        bound_after=max((one.seconds for one in seen.bindings), default=began) - began,
        changes_of_leader=sum(seconds >= began for seconds, _ in seen.epochs),
        longest_pause=longest_pause(seen.moments, killed, first),
        to_first_binding=after,
        wrong=(),
    )
    wrong = list(verdict.words)
    if result.changes_of_leader != (killed is not None):
        wrong.append(f"the leader changed {result.changes_of_leader} times")
    if killed is not None and (after is None or after > FAILOVER_SECONDS_MAX):
        wrong.append(f"the first binding came {_seconds(after)} after the kill, allowed are {FAILOVER_SECONDS_MAX} s")
    if result.longest_pause > PAUSE_SECONDS_MAX:
        wrong.append(f"bindings paused for {_seconds(result.longest_pause)}, allowed are {PAUSE_SECONDS_MAX} s")
    if submitted.refused:
        wrong.append(f"{len(submitted.refused)} pods were refused for good; the first: {submitted.refused[0]}")
    if result.bound < result.acknowledged:
        wrong.append(f"{result.bound} of {result.acknowledged} acknowledged pods were bound")
    return Result(**(asdict(result) | {"wrong": tuple(wrong)}))


def longest_pause(moments: Sequence[Moment], killed: float | None = None, first_after: float | None = None) -> float:
    """The longest time without a binding while somebody waits for one, but for that from a kill to the first binding after it."""
    longest = 0.0
    for (before, waiting), (after, _) in itertools.pairwise(moments):
        if killed is not None and first_after is not None and before < first_after and after > killed:
            # What came after the kill is the failover's.
            after = min(after, max(before, killed))
        if waiting:
            longest = max(longest, after - before)
    return longest


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flood", description="What a flood of submissions does.")
    parser.add_argument("--pods", type=int, default=_PODS)
    parser.add_argument("--clients", type=int, default=_CLIENTS)
    parser.add_argument("--processes", type=int, default=_PROCESSES, help="that the clients share")
    parser.add_argument("--nodes", type=int, default=_NODES)
    parser.add_argument("--runs", type=int, default=3, help="of each kind")
    parser.add_argument("--only", choices=("kill", "calm"), help="with the leader killed, or left alone; without it both")
    parser.add_argument("--agents", action="store_true", help="agents answer for the nodes, on the same processors")
    parser.add_argument("--logs", type=Path, help="keep the replicas' logs there")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args(arguments)
    if given.logs and given.logs.exists() and any(given.logs.iterdir()):
        parser.error(f"--logs {given.logs}: has files of an earlier run, whose etcd would be taken over; name an empty directory")
    kinds = [kill for kill in (False, True) if given.only in (None, "kill" if kill else "calm")]
    results: list[Result] = []
    try:
        for number, kill in itertools.product(range(given.runs), kinds):
            logs = given.logs / f"{'kill' if kill else 'calm'}-{number}" if given.logs else None
            flood = Flood(given.pods, given.clients, given.processes, given.nodes, kill, given.agents, logs)
            results.append(run(flood))
            _print(results[-1:], "this run")
    except (RehearsalFailed, ApiError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if given.json:
        given.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    if len(results) > 1:
        _print(results, f"{given.pods:,} submissions by {given.clients} clients at once")
    for words in [words for result in results for words in result.wrong]:
        print(f"error: {words}", file=sys.stderr)
    return 1 if any(result.wrong for result in results) else 0


@contextlib.contextmanager
def _directory(flood: Flood) -> Iterator[Path]:
    if flood.directory is None:
        with scratch_directory("flood") as directory:
            yield directory
    else:
        flood.directory.mkdir(parents=True, exist_ok=True)
        yield flood.directory


def _below(rehearsal: Rehearsal) -> list[int]:
    """All processes of the replicas; spares of the scheduler, too, take a processor for some seconds when they start."""
    return [pid for replica in rehearsal.cluster.replicas for pid in (replica.pid, *descendants(replica.pid))]


def _wait_until_created(onlooker: Onlooker, pods: int) -> None:
    deadline = time.monotonic() + _STUCK_SECONDS_MAX
    while onlooker.counts()[0] < pods:
        if time.monotonic() > deadline:
            raise RehearsalFailed(f"not {pods} pods were created within {_STUCK_SECONDS_MAX:.0f} s")
        time.sleep(_LOOK_SECONDS)


def _wait_until_bound(onlooker: Onlooker, pods: int) -> None:
    """Returns also when nothing moves any more: then the verdict says what is missing."""
    last, since = onlooker.counts(), time.monotonic()
    while last[1] < pods and time.monotonic() - since < _STUCK_SECONDS_MAX:
        time.sleep(_LOOK_SECONDS)
        counts = onlooker.counts()
        if counts != last:
            last, since = counts, time.monotonic()


def _audited(rehearsal: Rehearsal, seen: Seen) -> Verdict:
    rehearsal.audit()
    created, bound = seen.created, len(seen.bindings)
    if not rehearsal.follower.wait_for(
        lambda auditor: len(auditor.pods) >= created and auditor.bound_pods() >= bound, _AUDIT_SECONDS_MAX
    ):
        found = rehearsal.ask(lambda auditor: len(auditor.pods))
        raise RehearsalFailed(f"the auditor found {found} of {created} pods: {rehearsal.follower.error or 'too slow'}")
    return rehearsal.verdict()


def _print(results: Sequence[Result], title: str) -> None:
    rows = []
    for number, one in enumerate(results, 1):
        told = [
            f"{one.acknowledged:,} of {one.pods:,} acknowledged in {one.acknowledged_after:.1f} s, "
            f"{one.bound:,} bound in {one.bound_after:.1f} s",
            f"{one.changes_of_leader} changes of leader, longest pause {one.longest_pause:.2f} s",
        ]
        if one.killed:
            told.append(f"{_seconds(one.to_first_binding)} from the kill to the first binding")
        rows.append((f"{number}: {'leader killed' if one.killed else 'left alone'}", "; ".join(told)))
    printing.figures(title, rows)


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.2f} s"


if __name__ == "__main__":
    sys.exit(main())
