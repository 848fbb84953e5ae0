"""What the workload controllers of this process did, for metrics. From any thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import Counter

from rayched.controllers.workloads.pod_writes import OP_ADOPT, OP_COUNT, OP_CREATE, OP_DELETE, OP_RELEASE
from rayched.store.event_writes import DROPPED, GIVEN_UP, WRITTEN
from rayched.store.transactions import Committed, GuardedDelete, Outcome, Write
from rayched.v1.storage_pb2 import Stored

PODS: Final = Counter(
    "rayched_workload_pods", "Pods that ReplicaSets and jobs have created, deleted, counted, adopted or released.", ["op"]
)
_OPS: Final = (OP_CREATE, OP_DELETE, OP_COUNT, OP_ADOPT, OP_RELEASE)
FAILED_TURNS: Final = Counter(
    "rayched_workload_failed_turns", "Turns of the workload controllers in which etcd did not do all that was asked."
)

FAILED_DECISIONS: Final = Counter(
    "rayched_workload_failed_decisions", "Controllers and pods about which nothing could be decided; each is tried again."
)

EVENTS: Final = Counter(
    "rayched_workload_events",
    "Events of ReplicaSets and jobs: written, dropped where there were too many, given up where etcd has no room.",
    ["outcome"],
)

for _outcome in (WRITTEN, DROPPED, GIVEN_UP):
    EVENTS.labels(_outcome)
for _op in _OPS:
    # Whoever computes a rate needs the zeros before the first one.
    PODS.labels(_op)


def count_committed(done: Iterable[tuple[Write, Outcome]]) -> None:
    """Of writes on pods."""
    for write, outcome in done:
        if isinstance(outcome, Committed):
            op = OP_DELETE if isinstance(write, GuardedDelete) else Stored.FromString(write.value).leader_write.op
            if op in _OPS:
                PODS.labels(op).inc()
