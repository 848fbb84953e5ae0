"""What became of submitted objects, and which of a batch are still open. Pure; shared by the two clients.

An entry whose outcome the server does not know (etcd did not answer in time), or that it has no room for at the moment, is
submitted again with the same uid, until its outcome is known or the batch's time is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import grpc

from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.api.manifest import ReadResult
from rayched.api.wire import framed
from rayched.client.batches import batches
from rayched.client.calls import as_object, new_uid, with_uid
from rayched.client.endpoints import is_overload
from rayched.client.errors import ApiError, outcome_error
from rayched.v1.services_pb2 import SubmitManyRequest, SubmitManyResponse, SubmitResponse
from rayched.v1.workloads_pb2 import Object

BATCHES_IN_FLIGHT: Final = 4
_NAMED_MAX: Final = 3
_OBJECTS: Final = SubmitManyRequest.DESCRIPTOR.fields_by_name["objects"].number


class Submitted(NamedTuple):
    """What became of one object. `error` None: it is stored, at `revision`."""

    uid: str
    revision: int
    warnings: tuple[str, ...]
    error: ApiError | None
    kind: str = ""
    namespace: str = ""
    name: str = ""
    """Empty where the server has chosen it, from metadata.generateName, and the object has not come back."""
    object: Object | None = None
    """As it is stored, where it was submitted by itself; others do not come back."""

    @property
    def open(self) -> bool:
        """Nobody knows whether it is stored, or there may be room for it later."""
        return self.error is not None and (self.error.code is grpc.StatusCode.UNAVAILABLE or is_overload(self.error))


class SubmitOutcomes(tuple[Submitted, ...]):
    """What `submit` answers, whatever it was given: one outcome for each object, in order.

    Of a single object its outcome can be read here as well; of several these raise ValueError.
    """

    __slots__ = ()

    @property
    def only(self) -> Submitted:
        if len(self) != 1:
            raise ValueError(f"{len(self)} objects were submitted, and each has an outcome of its own")
        return self[0]

    @property
    def uid(self) -> str:
        return self.only.uid

    @property
    def revision(self) -> int:
        """Of the commit; 0 of a dry run."""
        return self.only.revision

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.only.warnings

    @property
    def object(self) -> Object:
        """As it is stored, with defaults. ValueError where it did not come back."""
        found = self.only.object
        if found is None:
            raise ValueError(f"{self.only.kind} {self.only.name} did not come back; get reads it")
        return found


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


class Outgoing(NamedTuple):
    """An object on its way to a server, serialised once; with a uid, unless it is empty."""

    kind: str
    namespace: str
    name: str
    uid: str
    content: bytes

    def outcome(self, uid: str, revision: int, warnings: tuple[str, ...], error: ApiError | None) -> Submitted:
        return Submitted(uid or self.uid, revision, warnings, error, self.kind, self.namespace, self.name)


def outgoing(item: AnyObject | Object) -> Outgoing:
    """The object as it is now, with a uid; the item stays as it is."""
    copy = as_object(item)
    field = copy.WhichOneof("kind")
    if field is None:
        return Outgoing("", "", "", "", copy.SerializeToString())
    kind, metadata = kinds.of(copy), getattr(copy, field).metadata
    uid = metadata.uid
    if not uid:
        uid = metadata.uid = new_uid()
    namespace = (metadata.namespace or "default") if kind.namespaced else ""
    # Bytes that are equal for equal objects, so that the server knows them again.
    return Outgoing(kind.name, namespace, metadata.name, uid, copy.SerializeToString(deterministic=True))


def outgoing_batches(items: Iterable[AnyObject | Object]) -> Iterator[list[Outgoing]]:
    """Each is one call."""
    return batches(map(outgoing, items), size_of=lambda item: len(item.content))


class BatchOutcomes:
    """One batch of objects: what is known of each."""

    def __init__(self, batch: Sequence[Outgoing]) -> None:
        self._batch = batch
        self._results: dict[int, Submitted] = {}
        self._asked: Sequence[int] = range(len(batch))
        self._is_answered = False
        """The last attempt was."""

    def request(self) -> bytes:
        """A SubmitManyRequest of the entries without a known outcome."""
        self._is_answered = False
        if self._results:
            self._asked = [index for index in range(len(self._batch)) if self._is_open(index)]
        return b"".join([framed(_OBJECTS, self._batch[index].content) for index in self._asked])

    def take(self, answer: SubmitManyResponse) -> None:
        """Raises the error of an entry that is still open: of one that may be asked for again soon, where there is one."""
        self._is_answered = True
        still_open: ApiError | None = None
        for index, result in zip(self._asked, answer.results, strict=True):
            error, warnings = outcome_error(result.outcome), tuple(result.warnings)
            submitted = self._results[index] = self._batch[index].outcome(result.uid, result.revision, warnings, error)
            if error is not None and submitted.open and (still_open is None or is_overload(still_open)):
                still_open = error
        if still_open is not None:
            raise still_open

    def give_up(self, error: ApiError) -> None:
        """All that is open ends with this error, but for those of which nothing was done: they keep theirs."""
        for index, item in enumerate(self._batch):
            if self._is_open(index) and not (self._is_answered and is_overload(self._results[index].error)):
                self._results[index] = item.outcome("", 0, (), error)

    def results(self) -> list[Submitted]:
        return [self._results[index] for index in range(len(self._batch))]

    def _is_open(self, index: int) -> bool:
        return index not in self._results or self._results[index].open


def tried(item: Object, response: SubmitResponse) -> Submitted:
    """The outcome of a single submission that went well."""
    found = response.object if response.object.WhichOneof("kind") is not None else item
    return _submitted(found, response.uid, response.revision, response.warnings, None)._replace(object=response.object)


def refused(item: Object, error: ApiError) -> Submitted:
    """The outcome of a single submission that failed."""
    return _submitted(item, "", 0, (), error)


def read_objects(read: Sequence[ReadResult]) -> list[Object]:
    """The objects that were read, each with its uid."""
    return [with_uid(result.object) for result in read]


def all_submitted(read: Sequence[ReadResult], outcomes: Sequence[Submitted]) -> SubmitOutcomes:
    """The outcomes, with what was left out of the manifests; raises NotAllSubmitted."""
    found = SubmitOutcomes(
        outcome._replace(warnings=(*map(str, result.warnings), *outcome.warnings))
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
