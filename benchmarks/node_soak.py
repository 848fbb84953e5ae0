"""Nodes that run pods, many and for long: `make node-soak [ARGS="--only lives"]`.

Three replicas on this host and bounded nodes beside them, whose pods are real processes. Three parts:

many     100 agents with 20 pods of `sleep` each: what memory and processor time agents and shims take, told and not demanded; all
         pods are Ready
lives    1,000 pods after each other on one node, 20 at a time: memory and descriptors of agent and replicas are level, nothing
         of a pod is left
logs     1,000,000 numbered lines followed over rotation, while the node's agent is killed twice: none lost, none doubled

Exit code 1 where a demand is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Final

from benchmarks.nodes import Part, Stage, a_pod, run_parts, shims_below
from benchmarks.processes import all_cpu_seconds
from benchmarks.soak_samples import ProcessSample, process_sample, tree_samples
from rayched.api.kinds import POD
from rayched.cli import printing
from rayched.cli.nodes.real_nodes import RealNodes
from rayched.v1.core_pb2 import Pod

AGENTS: Final = 100
PODS_EACH: Final = 20
LIVES: Final = 1_000
LINES: Final = 1_000_000
GROWTH_MAX: Final = 0.1
"""Of memory, from the second third of the lives to the last."""
_AT_A_TIME: Final = 20
_LARGE: Final = ("--memory", "8Gi", "--heartbeat", "10")
"""A node of 1 GiB looks each second, as it could be filled within that. Signs of life as often as by default."""
_STARTED_TOGETHER: Final = 100
"""A hundred nodes have as many processors; here the replicas share two with all that starts."""
_READY_SECONDS_MAX: Final = 900.0
_LIST_SECONDS: Final = 5.0
"""Between two lists of all pods, which are work for the replicas."""
_CPU_SECONDS: Final = 60.0
_QUIT_SECONDS_MAX: Final = 10.0
_KILLS: Final = 2
_WRITES: Final = f"""
import time
for number in range(1, {LINES} + 1):
    print(number)
    if number % 1_000 == 0:
        time.sleep(0.01)
"""
"""It still writes when its agent is killed: at each third of the lines."""
_MIB: Final = 1 << 20


def many(stage: Stage, agents: int = AGENTS) -> Part:
    part = Part()
    with stage.nodes("many", agents, _LARGE, ready_seconds=_READY_SECONDS_MAX) as nodes:
        pods = [a_pod(f"{node}-{number}", node, "sleep", "100000") for node in nodes.names for number in range(PODS_EACH)]
        for begun in range(0, len(pods), _STARTED_TOGETHER):
            stage.client.submit(pods[begun : begun + _STARTED_TOGETHER])
            there = min(begun + _STARTED_TOGETHER, len(pods))
            stage.until(partial(_are_ready, stage, there), f"{there} pods are Ready", _READY_SECONDS_MAX, _LIST_SECONDS)
            printing.note(f"{there} of {len(pods)} pods are Ready")
        shims = shims_below(stage.directory / "many")
        owned = nodes.pids
        before = sum(map(all_cpu_seconds, owned)), sum(map(all_cpu_seconds, shims))
        time.sleep(_CPU_SECONDS)
        after = sum(map(all_cpu_seconds, owned)), sum(map(all_cpu_seconds, shims))
        for name, pids, first, last in (("agent", owned, before[0], after[0]), ("shim", shims, before[1], after[1])):
            memory = [one.memory for one in _sampled(name, pids)]
            part.figures.append(
                (
                    f"{len(pids):,} {name}s",
                    f"{sum(memory) / _MIB:,.0f} MiB, {median(memory) / _MIB:.1f} each; "
                    f"{(last - first) / _CPU_SECONDS:.2f} of a processor with nothing to do",
                )
            )
        if len(shims) != len(pods):
            part.wrong.append(f"many: {len(shims)} shims live, {len(pods)} pods are Ready")
        names = [pod.metadata.name for pod in pods]
        for begun in range(0, len(names), _STARTED_TOGETHER):
            stage.remove(names[begun : begun + _STARTED_TOGETHER])
    return part


def lives(stage: Stage, count: int = LIVES) -> Part:
    """Pods that end by themselves, by a deletion, and in failure, in turn."""
    part = Part()
    samples: list[list[ProcessSample]] = []
    commands = (("true",), ("sh", "-c", "echo some text; exit 3"), ("sleep", "1000"))
    with stage.nodes("lives", 1) as nodes:
        (node,) = nodes.names
        for numbers in _batches(count):
            pods = [a_pod(f"life-{number}", node, *commands[number % len(commands)]) for number in numbers]
            names = [pod.metadata.name for pod in pods]
            for pod in pods:
                stage.client.submit(pod)
            for name, number in zip(names, numbers, strict=True):
                stage.in_phase(
                    name, "Running" if number % len(commands) == 2 else ("Succeeded", "Failed")[number % len(commands)]
                )
            stage.remove(names)
            samples.append(_all_samples(stage, nodes))
        # A shim that is told to quit does so by itself, after its pod's object is gone.
        stage.until(lambda: not shims_below(stage.directory / "lives"), "no shim is left", _QUIT_SECONDS_MAX)
    part.figures.append(("pods through their lives", f"{count:,}, {_AT_A_TIME} at a time"))
    for name in sorted({one.name for one in samples[-1]}):
        level(part, name, samples)
    return part


def _batches(count: int) -> Iterator[range]:
    for first in range(0, count, _AT_A_TIME):
        yield range(first, min(first + _AT_A_TIME, count))


def level(part: Part, name: str, samples: Sequence[Sequence[ProcessSample]]) -> None:
    """Compares medians of the second and of the last third: the first one fills what is kept for good."""
    third = len(samples) // 3
    for what, scale in (("memory", _MIB), ("fds", 1)):
        sums = [sum(getattr(one, what) for one in sample if one.name == name) for sample in samples]
        before, after = median(sums[third : 2 * third]), median(sums[2 * third :])
        unit = " MiB" if scale != 1 else ""
        part.figures.append((f"{name}: {what}", f"{before / scale:,.1f}{unit} became {after / scale:,.1f}{unit}"))
        if after > before * (1 + GROWTH_MAX):
            part.wrong.append(f"lives: {what} of {name} grew from {before:,.0f} to {after:,.0f}")


def logs(stage: Stage) -> Part:
    part = Part()
    with stage.nodes("logs", 1) as nodes:
        (node,) = nodes.names
        stage.client.submit(a_pod("writer", node, "python3", "-u", "-c", _WRITES))
        stage.until(lambda: stage.pod("writer").status.phase != "Pending", "the writer has begun")
        killed = 0

        def reached(number: int) -> None:
            nonlocal killed
            if killed < _KILLS and number >= (killed + 1) * LINES // (_KILLS + 1):
                killed += 1
                nodes.kill(node)
                nodes.start(node)

        last, wrong = _followed(stage, "writer", reached)
        stage.in_phase("writer", "Succeeded", "Failed")
        stage.remove(["writer"])
    told = f"{last:,} of {LINES:,}, the agent killed {killed} times; {wrong} do not follow the one before"
    part.figures.append(("lines followed", told))
    if last != LINES or wrong or killed != _KILLS:
        part.wrong.append(f"logs: the last line is {last}, {wrong} lines do not follow the one before, {killed} kills")
    return part


def _followed(stage: Stage, name: str, reached: Callable[[int], None]) -> tuple[int, int]:
    """The last number that came, and how many did not follow the one before. `reached` is told how far it has come."""
    last, wrong, rest = 0, 0, b""
    with stage.client.logs(name, follow=True) as chunks:
        for chunk in chunks:
            *lines, rest = (rest + chunk.data).split(b"\n")
            for line in lines:
                wrong += int(line) != last + 1
                last = int(line)
            wrong += chunk.lost
            reached(last)
    return last, wrong + bool(rest)


def _are_ready(stage: Stage, count: int) -> bool:
    pods = [pod for pod in stage.client.list(POD) if isinstance(pod, Pod)]
    return sum(any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions) for pod in pods) >= count


def _sampled(name: str, pids: Iterable[int]) -> list[ProcessSample]:
    return [sample for pid in pids if (sample := process_sample(pid, name, None)) is not None]


def _all_samples(stage: Stage, nodes: RealNodes) -> list[ProcessSample]:
    found = _sampled("agent", nodes.pids)
    for replica in stage.rehearsal.cluster.replicas:
        found += [one for one in tree_samples(replica.pid, replica.number) if one.name == "replica"]
    return found


PARTS: Final = ("many", "lives", "logs")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make node-soak", description="Nodes that run pods, many and for long.")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be repeated")
    parser.add_argument("--agents", type=int, default=AGENTS, help="of the part many (default 100)")
    parser.add_argument("--lives", type=int, default=LIVES, help="pods of the part lives (default 1000)")
    options = parser.parse_args(arguments)
    parts: dict[str, Callable[[Stage], Part]] = {
        "many": partial(many, agents=options.agents),
        "lives": partial(lives, count=options.lives),
        "logs": logs,
    }
    return run_parts("node-soak", "nodes, many and for long", {name: parts[name] for name in options.only or PARTS}, 1)


if __name__ == "__main__":
    sys.exit(main())
