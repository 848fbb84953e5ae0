"""Nodes that run pods, through kills and under real pressure: `make nodes [ARGS="--only job"]`.

Three replicas on this host and bounded nodes beside them (`rayched node --memory 1Gi ...`), whose pods are real processes. Three
parts, each with its demands:

kills      the agent of a node is killed 50 times at random moments of 20 pods' lives: no container is started twice, no process
           of those that go on has changed, each pod ends as it should
pressure   20 times a pod grows until its node's memory is short, beside two that stay within what they asked for: it is the one
           that is evicted, at most 0.3 s after the threshold was crossed
job        a Job of 500 short pods over five nodes; in the middle one node's agent and the leader are killed: 500 completions,
           each index once

Exit code 1 where a demand is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from rayched.api.kinds import JOB, NODE, POD
from rayched.api.termination import FINAL_PHASES
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import Rehearsal, RehearsalFailed, scratch_directory
from rayched.cli.nodes.real_nodes import READY_SECONDS_MAX, RealNodes
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.agent.shim.proc_table import command_of
from rayched.replica.cluster.local_cluster import ReplicaFailed
from rayched.replica.ray.processes import end_tree
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.workloads_pb2 import Job

DECISION_SECONDS_MAX: Final = 0.3
KILLS: Final = 50
EVICTIONS: Final = 20
COMPLETIONS: Final = 500
_LIFE_SECONDS_MAX: Final = 120.0
_JOB_SECONDS_MAX: Final = 240.0
_BETWEEN_KILLS: Final = (0.2, 3.0)
"""Seconds that an agent lives, at least and at most."""
_AGENT_AWAY_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.1
_PRESSURE: Final = ("--eviction-hard", "memory.available<300Mi", "--eviction-pressure-transition-period", "1s")
_GROWS: Final = """
import time
kept = []
while True:
    kept.append(bytearray(b"x" * (4 << 20)))
    with open("/proc/self/statm") as file:
        print(time.monotonic(), int(file.read().split()[1]) * 4, flush=True)
    time.sleep(0.02)
"""
"""Writes the time and what it holds, in KiB, after each 4 MiB."""
_HOLDS: Final = "import time; kept = bytearray(b'x' * (48 << 20)); print('held', flush=True); time.sleep(1000)"
_EVICTED: Final = re.compile(
    r"The node was low on resource: memory\. Threshold quantity: 300Mi, available: (\d+)Ki\. "
    r"Container main was using (\d+)Ki, request is \S+, has larger consumption of memory\. "
)


@dataclass(slots=True)
class Part:
    """The figures of one part, and which demands it missed."""

    figures: list[tuple[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Stage:
    """A cluster with real nodes. Knows how to wait for pods on them."""

    def __init__(self, rehearsal: Rehearsal, directory: Path, seed: int) -> None:
        self.rehearsal = rehearsal
        self.client: Client = rehearsal.client
        self.directory = directory
        self.chance = random.Random(seed)

    @contextlib.contextmanager
    def nodes(
        self, prefix: str, count: int, options: Sequence[str] = (), *, ready_seconds: float = READY_SECONDS_MAX
    ) -> Iterator[RealNodes]:
        names = [f"{prefix}-{number}" for number in range(count)]
        words = ("--crash-loop-max-period", "1s", *options)
        with RealNodes(self.client, self.directory / prefix, names, words, ready_seconds=ready_seconds) as nodes:
            yield nodes
        # The next part's pods would be bound to them for as long as nobody knows that their agents have gone.
        for name in names:
            self.client.delete(NODE, name)

    def pod(self, name: str) -> Pod:
        found = self.client.get(POD, name)
        assert isinstance(found, Pod)
        return found

    def until(
        self, holds: Callable[[], bool], what: str, seconds: float = _LIFE_SECONDS_MAX, look_seconds: float = _LOOK_SECONDS
    ) -> None:
        """Raises RehearsalFailed after the time. `look_seconds`: between two looks."""
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise RehearsalFailed(f"after {seconds:.0f} s still not: {what}")
            time.sleep(look_seconds)

    def in_phase(self, name: str, *phases: str) -> Pod:
        self.until(lambda: self.pod(name).status.phase in phases, f"pod {name} is {' or '.join(phases)}")
        return self.pod(name)

    def log(self, name: str) -> list[str]:
        with self.client.logs(name) as chunks:
            return b"".join(chunk.data for chunk in chunks).decode().splitlines()

    def remove(self, names: Sequence[str]) -> None:
        """Returns when they are gone."""
        for name in names:
            self.client.delete(POD, name, grace_period_seconds=1)
        self.until(lambda: not self._left(names), "the pods are gone")

    def _left(self, names: Sequence[str]) -> set[str]:
        return {pod.metadata.name for pod in self.client.list(POD)} & set(names)


def a_pod(name: str, node: str, *command: str, policy: str = "Never", memory: str = "") -> Pod:
    pod = Pod(api_version="v1", kind="Pod", metadata={"name": name})
    pod.metadata.annotations["rayched.dev/stop-after-disconnect"] = "60s"
    pod.spec.node_name = node
    pod.spec.restart_policy = policy
    pod.spec.termination_grace_period_seconds = 1
    container = pod.spec.containers.add(name="main", command=command)
    if memory:
        container.resources.requests["memory"].string = memory
    return pod


def kills(stage: Stage) -> Part:
    """Each run of a container appends its attempt and process to a file: what is there twice was started twice."""
    part = Part()
    notes = stage.directory / "notes"
    notes.mkdir()
    note = f"echo $RAYCHED_ATTEMPT $$$$ >> {notes}/$RAYCHED_POD_NAME"
    with stage.nodes("kills", 1) as nodes:
        (node,) = nodes.names
        lasting = [a_pod(f"lasting-{i}", node, "sh", "-c", f"{note}; exec sleep 1000", policy="Always") for i in range(7)]
        short = [a_pod(f"short-{i}", node, "sh", "-c", f"{note}; sleep 5") for i in range(7)]
        retried = f"{note}; sleep 2; [ $RAYCHED_ATTEMPT = 2 ]"
        again = [a_pod(f"again-{i}", node, "sh", "-c", retried, policy="OnFailure") for i in range(6)]
        for pod in [*lasting, *short, *again]:
            stage.client.submit(pod)
        for _ in range(KILLS):
            time.sleep(stage.chance.uniform(*_BETWEEN_KILLS))
            nodes.kill(node)
            nodes.start(node)
        for pod in [*short, *again]:
            stage.in_phase(pod.metadata.name, "Succeeded", "Failed")
        twice, changed, ended_wrong = [], [], []
        for pod in [*lasting, *short, *again]:
            name = pod.metadata.name
            lines = [line.split() for line in (notes / name).read_text().splitlines()]
            if [attempt for attempt, _ in lines] != (["0", "1", "2"] if pod in again else ["0"]):
                twice.append(name)
            if pod in lasting and not Path("/proc", lines[0][1]).exists():
                changed.append(name)
            if stage.pod(name).status.phase != ("Running" if pod in lasting else "Succeeded"):
                ended_wrong.append(name)
        stage.remove([pod.metadata.name for pod in [*lasting, *short, *again]])
    part.figures.append(("agent killed", f"{KILLS} times at random moments of 20 pods' lives"))
    for names, words in (
        (twice, "whose containers were not started as often as they should be"),
        (changed, "whose process has gone"),
        (ended_wrong, "that are not in the phase they should be in"),
    ):
        part.figures.append((f"pods {words}", str(len(names))))
        if names:
            part.wrong.append(f"kills: {len(names)} pods {words}, {names[0]} first")
    return part


def pressure(stage: Stage) -> Part:
    part = Part()
    delays: list[float] = []
    right = 0
    with stage.nodes("pressed", 4, _PRESSURE) as nodes:
        calm = [
            a_pod(f"calm-{node}-{number}", node, "python3", "-c", _HOLDS, memory=memory)
            for node in nodes.names
            for number, memory in enumerate(("100Mi", ""))
        ]
        for pod in calm:
            stage.client.submit(pod)
        for pod in calm:
            name = pod.metadata.name
            stage.until(partial(_holds, stage, name), f"pod {name} holds its memory")
        for number, node in enumerate(islice(cycle(nodes.names), EVICTIONS)):
            stage.until(partial(_has_room, stage.client, node), f"node {node} has room again")
            grower = a_pod(f"grower-{number}", node, "python3", "-c", _GROWS, memory="64Mi")
            name = grower.metadata.name
            stage.client.submit(grower)
            found = stage.in_phase(name, *FINAL_PHASES)
            others = [stage.pod(pod.metadata.name).status.phase for pod in calm]
            told = _EVICTED.fullmatch(found.status.message)
            if found.status.reason == "Evicted" and told and set(others) == {"Running"}:
                right += 1
                delays.append(decided_after(stage.log(name), int(told[1]), int(told[2])))
            else:
                part.wrong.append(
                    f"pressure: {name} ended as {found.status.reason}: {found.status.message}; the others are {Counter(others)}"
                )
            stage.remove([name])
        stage.remove([pod.metadata.name for pod in calm])
    part.figures.append(("right victim under real pressure", f"{right} of {EVICTIONS} times"))
    slowest = max(delays, default=float("inf"))
    part.figures.append(("ended after the crossing", f"{slowest:.2f} s at most, {DECISION_SECONDS_MAX} s are allowed"))
    if slowest > DECISION_SECONDS_MAX:
        part.wrong.append(f"pressure: a victim ended {slowest:.2f} s after the threshold was crossed")
    return part


def decided_after(lines: Sequence[str], available: int, used: int) -> float:
    """From when a growing pod crossed a threshold of 300Mi to the last that it wrote, seconds.

    `lines`: its times and KiB held. `available` and `used`: KiB of the node and of the pod, at the decision.
    """
    moments = [(float(time), int(held)) for time, held in (line.split() for line in lines)]
    crossing = used - ((300 << 10) - available)
    crossed = next((time for time, held in moments if held >= crossing), moments[-1][0])
    return moments[-1][0] - crossed


def _holds(stage: Stage, name: str) -> bool:
    return stage.pod(name).status.phase == "Running" and stage.log(name) == ["held"]


def _has_room(client: Client, node: str) -> bool:
    found = client.get(NODE, node)
    assert isinstance(found, Node)
    return all(one.status == "False" for one in found.status.conditions if one.type == "MemoryPressure")


def job(stage: Stage) -> Part:
    part = Part()
    done = stage.directory / "done"
    with stage.nodes("worker", 5) as nodes:
        template = a_pod("", "", "sh", "-c", f"sleep 0.5; echo $JOB_COMPLETION_INDEX >> {done}")
        work = Job(api_version="batch/v1", kind="Job", metadata={"name": "many"})
        work.spec.completions, work.spec.parallelism, work.spec.completion_mode = COMPLETIONS, 50, "Indexed"
        work.spec.template.spec.CopyFrom(template.spec)
        began = time.monotonic()
        stage.client.submit(work)
        stage.until(lambda: _succeeded(stage.client) >= COMPLETIONS // 3, "a third of the pods have succeeded", _JOB_SECONDS_MAX)
        nodes.kill(nodes.names[0])
        stage.rehearsal.kill_leader()
        time.sleep(_AGENT_AWAY_SECONDS)
        nodes.start(nodes.names[0])
        stage.until(lambda: _is_over(stage.client), "the job has ended", _JOB_SECONDS_MAX)
        took = time.monotonic() - began
        status = _job(stage.client).status
        indexes = Counter(int(line) for line in done.read_text().split())
        stage.client.delete(JOB, "many")
        stage.until(lambda: not list(stage.client.list(POD)), "the job's pods are gone")
    once = sum(count == 1 for count in indexes.values())
    part.figures += [
        ("completions of a job over five nodes", f"{status.succeeded} of {COMPLETIONS}, {status.failed} failed, in {took:.0f} s"),
        ("indexes that ran once", f"{once} of {COMPLETIONS}"),
    ]
    if status.succeeded != COMPLETIONS or status.completed_indexes != f"0-{COMPLETIONS - 1}":
        part.wrong.append(f"job: {status.succeeded} completions, of the indexes {status.completed_indexes}")
    if indexes != Counter(range(COMPLETIONS)):
        part.wrong.append(f"job: {once} indexes ran once, {COMPLETIONS} should have")
    return part


def _job(client: Client) -> Job:
    found = client.get(JOB, "many")
    assert isinstance(found, Job)
    return found


def _succeeded(client: Client) -> int:
    return _job(client).status.succeeded


def _is_over(client: Client) -> bool:
    return any(one.type in ("Complete", "Failed") and one.status == "True" for one in _job(client).status.conditions)


PARTS: Final[dict[str, Callable[[Stage], Part]]] = {"kills": kills, "pressure": pressure, "job": job}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make nodes", description="Real pods through kills and under real pressure.")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of kills (default 1)")
    options = parser.parse_args(arguments)
    return run_parts("nodes", "nodes that run pods", {name: PARTS[name] for name in options.only or PARTS}, options.seed)


def shims_below(root: Path) -> list[int]:
    """Process ids of the shims that live, of all pods below. Directories may go meanwhile."""
    found = []
    for directory, _, names in os.walk(root):
        if Path(directory).name == "shim" and "state.json" in names:
            with contextlib.suppress(FileNotFoundError):
                pid = int(json.loads(Path(directory, "state.json").read_text())["pid"])
                # Another process may have that number by now.
                if str(root) in " ".join(command_of(pid)):
                    found.append(pid)
    return found


@contextlib.contextmanager
def shims_ended(root: Path) -> Iterator[None]:
    """Shims outlive their agents, and with them what they run: none of those below lives on."""
    try:
        yield
    finally:
        for pid in shims_below(root):
            end_tree(pid)


def run_parts(name: str, title: str, parts: Mapping[str, Callable[[Stage], Part]], seed: int) -> int:
    """In turn, in one cluster; prints their figures and what is wrong. Exit code."""
    done: list[Part] = []
    began = time.monotonic()
    try:
        with scratch_directory(name) as directory, shims_ended(directory), Rehearsal(directory, []) as rehearsal:
            stage = Stage(rehearsal, directory, seed)
            for words, part in parts.items():
                printing.note(words)
                done.append(part(stage))
                rehearsal.revive()
            verdict = rehearsal.verdict()
    except (RehearsalFailed, ReplicaFailed, ApiError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    figures = [figure for part in done for figure in part.figures]
    printing.figures(title, [*figures, ("took", f"{time.monotonic() - began:.0f} s")])
    wrong = [words for part in done for words in part.wrong] + verdict.words
    for words in wrong:
        print(f"error: {words}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
