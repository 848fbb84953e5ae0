"""The pool of workers as the API shows it: who runs where, and what it has done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rayched.actors.scheduler_values import WorkerCounts, WorkerPlace
from rayched.v1.services_pb2 import PoolWorker

_NOWHERE = WorkerPlace(0, "", "", "")
"""Of one that has not said yet where it runs."""


def pool_workers(names: Iterable[str], counts: Sequence[WorkerCounts], places: Mapping[str, WorkerPlace]) -> list[PoolWorker]:
    """One for each name. `counts` of those that the scheduler asks; `places` by name, of those that run."""
    by_name = {one.name: one for one in counts}
    return [_pool_worker(by_name.get(name) or WorkerCounts(name, 0, 0, 0.0, 0), places.get(name, _NOWHERE)) for name in names]


def _pool_worker(counts: WorkerCounts, place: WorkerPlace) -> PoolWorker:
    return PoolWorker(
        name=counts.name,
        host=place.host,
        pid=place.pid,
        ray_node=place.ray_node,
        evaluations=counts.evaluations,
        rows=counts.rows,
        seconds=counts.seconds,
        under_way=counts.under_way,
    )
