"""Submits many objects: cut into batches, several of them under way, every outcome in the order of the objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from rayched.api.kinds import AnyObject
from rayched.client.errors import ApiError
from rayched.client.submissions import BATCHES_IN_FLIGHT, BatchOutcomes, Outgoing, Submitted, outgoing_batches
from rayched.client.transport import Transport
from rayched.v1.workloads_pb2 import Object


class BulkSubmission:
    """One run over many objects; those without a uid get one."""

    def __init__(self, transport: Transport, timeout_seconds: float | None) -> None:
        self._transport = transport
        self._total_seconds = transport.patience.total_seconds if timeout_seconds is None else timeout_seconds

    def run(self, items: Iterable[AnyObject | Object], progress: Callable[[int], None] | None) -> tuple[Submitted, ...]:
        results: list[Submitted] = []
        under_way: deque[Future[list[Submitted]]] = deque()

        def collect() -> None:
            done = under_way.popleft().result()
            results.extend(done)
            if progress is not None:
                progress(len(done))

        with ThreadPoolExecutor(BATCHES_IN_FLIGHT, "submit") as pool:
            for batch in outgoing_batches(items):
                under_way.append(pool.submit(self._batch, batch))
                # One more than can be under way waits, so that none of the threads idles while the next batch is cut.
                if len(under_way) > BATCHES_IN_FLIGHT:
                    collect()
            while under_way:
                collect()
        return tuple(results)

    def _batch(self, batch: Sequence[Outgoing]) -> list[Submitted]:
        outcomes = BatchOutcomes(batch)
        try:
            self._transport.call_until("Submission.SubmitMany", outcomes.request, outcomes.take, self._total_seconds)
        except ApiError as error:
            outcomes.give_up(error)
        return outcomes.results()
