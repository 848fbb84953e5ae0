"""Depth `engine`: the scheduling cycle alone, over a snapshot, in this process; a decision counts as bound at once.

A decision is what the scheduler does for one pod: evaluate its template over all nodes, choose, assume, Reserve, Permit. Queue,
encoding, events and stores are left out.

`verify` asks a second scheduler about each pod first, one that keeps nothing from one decision to the next: each plugin over all
nodes, one after the other. It is slow: use small sizes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from typing import Final

from benchmarks.measured import Measured, percentile
from benchmarks.processes import peak_memory_bytes
from benchmarks.workloads import Workload
from rayched.api import kinds
from rayched.engine.engine import Engine
from rayched.framework.profile import Profile
from rayched.scheduler.attempt import Attempt
from rayched.scheduler.scheduler import PodToSchedule, Scheduler
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.v1.core_pb2 import Pod

CHURN_EVERY: Final = 1_000
"""Measured pods between two that fit nowhere, where a workload has such: elsewhere they come by the clock."""
SEED: Final = 1


class Differs(Exception):
    """A decision is not that of the plain serial evaluation: one line."""


class EngineRun:
    """One workload over one snapshot."""

    def __init__(self, workload: Workload, profile: Profile, templates: int) -> None:
        self._workload = workload
        self._templates = templates
        self._profile = profile
        self._table = TemplateTable()
        self.snapshot = Snapshot()
        for item in workload.objects:
            metadata = item.metadata
            self.snapshot.set_object(kinds.of_message(item).name, metadata.namespace, metadata.name, item)
        for node in workload.make_nodes(workload.nodes):
            self.snapshot.add_node(node)
        self._scheduler = Scheduler(self.snapshot, {profile.scheduler_name: profile}, SEED)
        self.unplaced = 0
        self.placements: list[tuple[Pod, str]] = []

    def run(self, *, verify: bool = False) -> Measured:
        for pod in self._interned(pod for group, pod in self._workload.pods_before() if not group.gated):
            self._decide(pod, verify=verify)
        pods = self._interned(self._workload.pods_measured(self._templates))
        never_fits = self._churn()
        self.unplaced = 0
        # The engine makes no cycles; a collection would be charged to whichever pod it falls on.
        gc.collect()
        gc.disable()
        taken: list[float] = []
        clock = time.perf_counter
        began, cpu_began = clock(), time.process_time()
        for number, pod in enumerate(pods):
            since = clock()
            self._decide(pod, verify=verify)
            taken.append(clock() - since)
            if never_fits is not None and not number % CHURN_EVERY:
                self._scheduler.schedule(never_fits, 0, 0.0)
        seconds, cpu_seconds = clock() - began, time.process_time() - cpu_began
        gc.enable()
        milliseconds = sorted(1000 * one for one in taken)
        return Measured(
            seconds=seconds,
            cpu_seconds={"engine": cpu_seconds},
            latency_ms_p50=percentile(milliseconds, 50),
            latency_ms_p99=percentile(milliseconds, 99),
            peak_bytes={"engine": peak_memory_bytes()},
            unplaced=self.unplaced,
        )

    def _interned(self, pods: Iterable[Pod]) -> list[PodToSchedule]:
        found = []
        for pod in pods:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            found.append(PodToSchedule(pod.metadata.uid, name, self._table.intern(pod), pod))
        return found

    def _churn(self) -> PodToSchedule | None:
        churn = self._workload.churn
        if churn is None:
            return None
        from benchmarks.shapes import a_pod

        return self._interned([a_pod(churn.pod, "churn", "never")])[0]

    def _decide(self, pod: PodToSchedule, *, verify: bool) -> None:
        expected = self._plainly(pod.template) if verify else None
        attempt = self._scheduler.schedule(pod, 0, 0.0)
        if isinstance(attempt, Attempt):
            if expected is not None and attempt.node_name not in expected:
                raise Differs(f"pod {pod.name} went to {attempt.node_name}; the best nodes are {', '.join(sorted(expected)[:5])}")
            self._scheduler.bound(attempt)
            self._scheduler.occupancy.observe(pod.uid, pod.template, attempt.node_name)
            self.placements.append((attempt.pod, attempt.node_name))
        else:
            if expected:
                raise Differs(f"pod {pod.name} has no node; the best nodes are {', '.join(sorted(expected)[:5])}")
            self.unplaced += 1

    def _plainly(self, template: PodTemplate) -> frozenset[str]:
        """Names of the best nodes, found by an engine that was made for this one question."""
        found = Engine(self.snapshot, self._profile).explain(template)
        if not found.status.ok or not len(found.rows.total) or found.rows.total.max() < 0:
            return frozenset()
        total = found.rows.total
        feasible = (total >= 0).nonzero()[0]
        # Of a single feasible node nobody asks the scores.
        best = feasible if len(feasible) == 1 else (total == total.max()).nonzero()[0]
        return frozenset(self.snapshot.name_of(row) for row in found.rows.index[best].tolist())
