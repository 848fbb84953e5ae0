"""A cluster as it was at one revision, handed by whoever may read it to a process that makes a plan and asks nobody.

    the basis of the plan | a page of a list | another one ... | nothing

Each is a message behind its length (4 bytes, the highest first). The last length is 0: without it something is missing. Who
writes holds one page at a time, whatever the cluster has, and waits while nobody reads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, BinaryIO, Final

from google.protobuf.message import Message

from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.client import calls
from rayched.v1.services_pb2 import GetPlanBasisResponse, ListResponse

if TYPE_CHECKING:
    from rayched.client.async_client import AsyncClient

PLAN_KINDS: Final = tuple(kind for kind in kinds.KINDS if kind is not kinds.EVENT)
"""All that a plan reads."""
_LENGTH_BYTES: Final = 4


class PlanIncomplete(Exception):
    """What was handed over ended in the middle."""


async def handed_over(client: AsyncClient, basis: GetPlanBasisResponse) -> AsyncIterator[bytes]:
    """Everything at the basis' revision, in pieces. Raises ApiError."""
    yield _framed(basis)
    for kind in PLAN_KINDS:
        async for page in client.pages(kind, revision=basis.revision):
            if page.objects:
                yield _framed(page)
    yield bytes(_LENGTH_BYTES)


def taken_over(stream: BinaryIO) -> tuple[GetPlanBasisResponse, list[AnyObject]]:
    """The basis, and all objects. Raises PlanIncomplete."""
    basis = GetPlanBasisResponse.FromString(_frame(stream))
    pages: list[ListResponse] = []
    while frame := _frame(stream):
        pages.append(ListResponse.FromString(frame))
    return basis, list(calls.listing_of(pages).objects) if pages else []


def _framed(message: Message) -> bytes:
    data = message.SerializeToString()
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def _frame(stream: BinaryIO) -> bytes:
    return _exactly(stream, int.from_bytes(_exactly(stream, _LENGTH_BYTES), "big"))


def _exactly(stream: BinaryIO, count: int) -> bytes:
    found = stream.read(count)
    if len(found) < count:
        raise PlanIncomplete("the cluster's objects did not come in full")
    return found
