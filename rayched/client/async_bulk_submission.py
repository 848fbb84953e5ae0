"""Submits many objects from a coroutine: batches, several of them under way, every outcome in the order of the objects."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from rayched.api.kinds import AnyObject
from rayched.client.async_transport import AsyncTransport
from rayched.client.errors import ApiError
from rayched.client.submissions import BATCHES_IN_FLIGHT, BatchOutcomes, Outgoing, Submitted, outgoing_batches
from rayched.v1.workloads_pb2 import Object


class AsyncBulkSubmission:
    """One run over many objects; those without a uid get one."""

    def __init__(self, transport: AsyncTransport, timeout_seconds: float | None) -> None:
        self._transport = transport
        self._total_seconds = transport.patience.total_seconds if timeout_seconds is None else timeout_seconds

    async def run(self, items: Iterable[AnyObject | Object], progress: Callable[[int], None] | None) -> tuple[Submitted, ...]:
        results: list[Submitted] = []
        under_way: deque[asyncio.Task[list[Submitted]]] = deque()

        async def collect() -> None:
            done = await under_way.popleft()
            results.extend(done)
            if progress is not None:
                progress(len(done))

        # Leaving the group cancels what is under way when this task is cancelled.
        async with asyncio.TaskGroup() as group:
            for batch in outgoing_batches(items):
                under_way.append(group.create_task(self._batch(batch)))
                if len(under_way) >= BATCHES_IN_FLIGHT:
                    await collect()
            while under_way:
                await collect()
        return tuple(results)

    async def _batch(self, batch: Sequence[Outgoing]) -> list[Submitted]:
        outcomes = BatchOutcomes(batch)
        try:
            await self._transport.call_until("Submission.SubmitMany", outcomes.request, outcomes.take, self._total_seconds)
        except ApiError as error:
            outcomes.give_up(error)
        return outcomes.results()
