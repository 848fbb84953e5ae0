"""A production trace on a cluster of three replicas, with one leader kill: `make trace TRACE=DIR`.

The trace's nodes become hollow nodes, its pods are submitted in their order through gRPC. In the middle the leader is killed. At
the end: pods per second, what is allocated, and what stays pending for which reason. Exit code 1 when the auditor found a
violation.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path

from benchmarks.trace_objects import NODES_FILE, PODS_FILE, WHERE_FROM, TraceError, priority_classes, read_nodes, read_pods
from rayched.audit.auditor import Auditor
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import Rehearsal, RehearsalFailed, apply_all, scratch_directory
from rayched.client.errors import ApiError
from rayched.replica.cluster.local_cluster import ReplicaFailed
from rayched.v1.core_pb2 import Pod

_QUIET_SECONDS = 6.0
"""Without a binding for so long, what is pending stays pending."""
_SECONDS_MAX = 240.0
_GIB = 1 << 30


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        files = f"{NODES_FILE} and {PODS_FILE}, gzipped or not"
        print(f"error: name the trace's directory: make trace TRACE=DIR, with {files}; {WHERE_FROM}", file=sys.stderr)
        return 2
    try:
        return _run(Path(arguments[0]))
    except (TraceError, RehearsalFailed, ReplicaFailed, ApiError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(directory: Path) -> int:
    nodes, pods = read_nodes(directory), read_pods(directory)
    with scratch_directory("trace") as scratch, Rehearsal(scratch, nodes) as rehearsal:
        apply_all(rehearsal.client, priority_classes())
        began = time.monotonic()
        half = len(pods) // 2
        with printing.progress("submitted", len(pods)) as bar:
            rehearsal.submit(pods[:half], bar.advance)
            rehearsal.wait_until_bound(half // 2, _SECONDS_MAX)
            kill = rehearsal.kill_leader()
            rehearsal.submit(pods[half:], bar.advance)
        binding = rehearsal.first_binding_after(kill, 20.0)
        last = _wait_until_quiet(rehearsal, len(pods))
        verdict = rehearsal.verdict()
        reasons = _pending_reasons(rehearsal)
        allocated = rehearsal.follower.ask(_allocated)
    pause = "none came" if binding is None else f"{binding.seconds - kill.seconds:.2f} s"
    rows = [
        ("nodes, pods", f"{len(nodes):,}, {len(pods):,}"),
        ("pods bound", f"{verdict.bound:,}"),
        ("pods per second", f"{verdict.bound / (last - began):,.0f}, from the first submission to the last binding"),
        ("kill to next binding", pause),
        *allocated,
        ("pending", f"{len(pods) - verdict.bound:,}"),
        *((f"  {count:,} times", reason) for reason, count in reasons.most_common()),
        ("lost", str(verdict.lost)),
        ("bound twice", str(verdict.bound_twice)),
        ("over capacity", str(verdict.over_capacity)),
    ]
    printing.figures("production trace", rows)
    for words in verdict.words:
        print(f"error: {words}", file=sys.stderr)
    return 0 if verdict.clean and binding is not None else 1


def _wait_until_quiet(rehearsal: Rehearsal, pods: int) -> float:
    """When the last binding came, on the monotonic clock."""
    deadline = time.monotonic() + _SECONDS_MAX
    while True:
        bound, last = rehearsal.follower.ask(lambda auditor: (auditor.bound_pods(), _last_binding(auditor)))
        if bound == pods or time.monotonic() > min(deadline, last + _QUIET_SECONDS):
            return last
        time.sleep(0.2)


def _last_binding(auditor: Auditor) -> float:
    return auditor.bindings[-1].seconds if auditor.bindings else time.monotonic()


def _allocated(auditor: Auditor) -> list[tuple[str, str]]:
    cpu, cpus = auditor.allocated("cpu")
    memory, memories = auditor.allocated("memory")
    whole, gpus = auditor.allocated("nvidia.com/gpu")
    shared, _ = auditor.allocated("example.com/gpu-milli")
    gpu = whole + shared / 1000
    return [
        ("CPU allocated", f"{float(cpu):,.0f} of {float(cpus):,.0f} ({_percent(cpu, cpus)})"),
        ("memory allocated", f"{float(memory) / _GIB:,.0f} of {float(memories) / _GIB:,.0f} GiB ({_percent(memory, memories)})"),
        ("GPUs allocated", f"{float(gpu):,.1f} of {float(gpus):,.0f} ({_percent(gpu, gpus)})"),
    ]


def _percent(part: Fraction, whole: Fraction) -> str:
    return f"{float(100 * part / whole):.1f} %" if whole else "none"


def _pending_reasons(rehearsal: Rehearsal) -> Counter[str]:
    """How many pending pods give which reason in their condition PodScheduled."""
    reasons: Counter[str] = Counter()
    for item in rehearsal.client.list("pods", field_selector="spec.nodeName="):
        if isinstance(item, Pod):
            condition = next((c for c in item.status.conditions if c.type == "PodScheduled"), None)
            reasons[condition.message if condition is not None and condition.message else "not tried yet"] += 1
    return reasons


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
