"""Submits many objects: cut into batches, several of them under way, every outcome in the order of the objects.

An entry whose outcome the server does not know (etcd did not answer in time) is submitted again with the same uid, until it is
known or the batch's time is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import grpc

from rayched.api.kinds import unwrap
from rayched.client.batches import batches
from rayched.client.errors import ApiError, outcome_error
from rayched.client.transport import Transport
from rayched.v1.services_pb2 import SubmitManyRequest, SubmitManyResponse
from rayched.v1.workloads_pb2 import Object

BATCHES_IN_FLIGHT: Final = 4


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of one object. `error` None: it is stored, at `revision`."""

    uid: str
    revision: int
    warnings: tuple[str, ...]
    error: ApiError | None

    @property
    def open(self) -> bool:
        """Nobody knows whether it is stored."""
        return self.error is not None and self.error.code is grpc.StatusCode.UNAVAILABLE


class BulkSubmission:
    """One run over many objects; all of them have a uid."""

    def __init__(self, transport: Transport, timeout_seconds: float | None) -> None:
        self._transport = transport
        self._total_seconds = transport.patience.total_seconds if timeout_seconds is None else timeout_seconds

    def run(self, items: Iterable[Object], progress: Callable[[int], None] | None) -> tuple[Submitted, ...]:
        results: list[Submitted] = []
        under_way: deque[Future[list[Submitted]]] = deque()

        def collect() -> None:
            done = under_way.popleft().result()
            results.extend(done)
            if progress is not None:
                progress(len(done))

        with ThreadPoolExecutor(BATCHES_IN_FLIGHT, "submit") as pool:
            for batch in batches(items):
                under_way.append(pool.submit(self._batch, batch))
                # One more than can be under way waits, so that none of the threads idles while the next batch is cut.
                if len(under_way) > BATCHES_IN_FLIGHT:
                    collect()
            while under_way:
                collect()
        return tuple(results)

    def _batch(self, batch: Sequence[Object]) -> list[Submitted]:
        results: dict[int, Submitted] = {}
        try:
            for attempt in self._transport.attempts(self._total_seconds):
                with attempt:
                    self._attempt(batch, results)
        except ApiError as error:
            for index, item in enumerate(batch):
                if index not in results or results[index].open:
                    results[index] = Submitted(unwrap(item).metadata.uid, 0, (), error)
        return [results[index] for index in range(len(batch))]

    def _attempt(self, batch: Sequence[Object], results: dict[int, Submitted]) -> None:
        """One call for the entries without a known outcome; raises the error of one that still has none."""
        indexes = [index for index in range(len(batch)) if index not in results or results[index].open]
        request = SubmitManyRequest(objects=[batch[index] for index in indexes])
        answer: SubmitManyResponse = self._transport.call("Submission.SubmitMany", request, total_seconds=self._total_seconds)
        for index, result in zip(indexes, answer.results, strict=True):
            uid = result.uid or unwrap(batch[index]).metadata.uid
            results[index] = Submitted(uid, result.revision, tuple(result.warnings), outcome_error(result.outcome))
        for submitted in results.values():
            if submitted.open and submitted.error is not None:
                raise submitted.error
