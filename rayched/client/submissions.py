"""What became of submitted objects, and which of a batch are still open. Pure; shared by the two clients.

An entry whose outcome the server does not know (etcd did not answer in time) is submitted again with the same uid, until it is
known or the batch's time is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import grpc

from rayched.api import kinds
from rayched.api.manifest import ReadResult
from rayched.client.calls import with_uid
from rayched.client.errors import ApiError, outcome_error
from rayched.v1.services_pb2 import SubmitManyRequest, SubmitManyResponse, SubmitResponse
from rayched.v1.workloads_pb2 import Object

BATCHES_IN_FLIGHT: Final = 4
_NAMED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of one object. `error` None: it is stored, at `revision`."""

    uid: str
    revision: int
    warnings: tuple[str, ...]
    error: ApiError | None
    kind: str = ""
    namespace: str = ""
    name: str = ""
    """Empty where the server has chosen it, from metadata.generateName."""

    @property
    def open(self) -> bool:
        """Nobody knows whether it is stored."""
        return self.error is not None and self.error.code is grpc.StatusCode.UNAVAILABLE


class NotAllSubmitted(ApiError):
    """Some of the objects of one `submit` were refused; the others are stored. `outcomes` has all of them, in order."""

    def __init__(self, outcomes: Sequence[Submitted]) -> None:
        failed = [outcome for outcome in outcomes if outcome.error is not None]
        named = "; ".join(f"{one.kind} {one.name or one.uid}: {one.error.message}" for one in failed[:_NAMED_MAX] if one.error)
        more = f"; and {len(failed) - _NAMED_MAX} more" if len(failed) > _NAMED_MAX else ""
        first = failed[0].error
        assert first is not None
        super().__init__(first.code, f"{len(failed)} of {len(outcomes)} objects were refused: {named}{more}", first.violations)
        self.outcomes = tuple(outcomes)


class BatchOutcomes:
    """One batch of objects that all have a uid: what is known of each."""

    def __init__(self, batch: Sequence[Object]) -> None:
        self._batch = batch
        self._results: dict[int, Submitted] = {}
        self._asked: list[int] = []

    def request(self) -> SubmitManyRequest:
        """For the entries without a known outcome."""
        self._asked = [index for index in range(len(self._batch)) if self._is_open(index)]
        return SubmitManyRequest(objects=[self._batch[index] for index in self._asked])

    def take(self, answer: SubmitManyResponse) -> None:
        """Raises the error of an entry that still has no known outcome."""
        for index, result in zip(self._asked, answer.results, strict=True):
            error = outcome_error(result.outcome)
            self._results[index] = _submitted(self._batch[index], result.uid, result.revision, result.warnings, error)
        for submitted in self._results.values():
            if submitted.open and submitted.error is not None:
                raise submitted.error

    def give_up(self, error: ApiError) -> None:
        """All that is open ends with this error."""
        for index, item in enumerate(self._batch):
            if self._is_open(index):
                self._results[index] = _submitted(item, "", 0, (), error)

    def results(self) -> list[Submitted]:
        return [self._results[index] for index in range(len(self._batch))]

    def _is_open(self, index: int) -> bool:
        return index not in self._results or self._results[index].open


def tried(item: Object, response: SubmitResponse) -> Submitted:
    """The outcome of a single submission that went well."""
    return _submitted(item, response.uid, response.revision, response.warnings, None)


def refused(item: Object, error: ApiError) -> Submitted:
    """The outcome of a single submission that failed."""
    return _submitted(item, "", 0, (), error)


def read_objects(read: Sequence[ReadResult]) -> list[Object]:
    """The objects that were read, each with its uid."""
    return [with_uid(result.object) for result in read]


def all_submitted(read: Sequence[ReadResult], outcomes: Sequence[Submitted]) -> tuple[Submitted, ...]:
    """The outcomes, with what was left out of the manifests; raises NotAllSubmitted."""
    found = tuple(
        Submitted(
            outcome.uid,
            outcome.revision,
            (*map(str, result.warnings), *outcome.warnings),
            outcome.error,
            outcome.kind,
            outcome.namespace,
            outcome.name,
        )
        for result, outcome in zip(read, outcomes, strict=True)
    )
    if any(outcome.error is not None for outcome in found):
        raise NotAllSubmitted(found)
    return found


def _submitted(item: Object, uid: str, revision: int, warnings: Iterable[str], error: ApiError | None) -> Submitted:
    if item.WhichOneof("kind") is None:
        return Submitted(uid, revision, tuple(warnings), error)
    kind, metadata = kinds.of(item), kinds.unwrap(item).metadata
    namespace = (metadata.namespace or "default") if kind.namespaced else ""
    return Submitted(uid or metadata.uid, revision, tuple(warnings), error, kind.name, namespace, metadata.name)
