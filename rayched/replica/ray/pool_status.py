"""The pool of workers as the API shows it: who runs where, and what it has done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rayched.actors.scheduler_values import WorkerCounts, WorkerPlace
from rayched.v1.services_pb2 import PoolWorker

_NOWHERE = WorkerPlace(0, "", "")
"""Of one that has not said yet where it runs."""


def pool_workers(counts: Sequence[WorkerCounts], places: Mapping[str, WorkerPlace]) -> list[PoolWorker]:
    """In the order of their numbers. `places` by name."""
    names = [f"worker-{number}" for number in range(len(counts))]
    return [
        PoolWorker(
            name=name,
            host=places.get(name, _NOWHERE).host,
            pid=places.get(name, _NOWHERE).pid,
            evaluations=one.evaluations,
            rows=one.rows,
            seconds=one.seconds,
            under_way=one.under_way,
        )
        for name, one in zip(names, counts, strict=True)
    ]
