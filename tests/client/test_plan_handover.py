"""What a plan starts from comes whole or not at all."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from rayched.api import kinds
from rayched.api.kinds import Kind
from rayched.client.async_client import AsyncClient
from rayched.client.plan_handover import PLAN_KINDS, PlanIncomplete, handed_over, taken_over
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.services_pb2 import GetPlanBasisResponse, ListResponse
from tests.cli.cluster import run_here

BASIS = GetPlanBasisResponse(revision=11, seed=5, decisions=12, rows=["node-0", "node-1"])


class Pages:
    """Lists of two pages of nodes, one of pods, and nothing of any other kind."""

    def __init__(self) -> None:
        self.asked: list[tuple[Kind, int]] = []

    async def pages(self, kind: Kind, *, revision: int) -> AsyncIterator[ListResponse]:
        self.asked.append((kind, revision))
        names = {kinds.NODE: (["node-0"], ["node-1"]), kinds.POD: (["web"],)}.get(kind, ([],))
        for page in names:
            objects = [kinds.wrap(kind.message(metadata={"name": name})) for name in page]
            yield ListResponse(objects=objects, revision=revision)


def whole() -> tuple[Pages, bytes]:
    async def pieces(pages: Any) -> bytes:
        return b"".join([piece async for piece in handed_over(cast(AsyncClient, pages), BASIS)])

    pages = Pages()
    return pages, asyncio.run(pieces(pages))


def test_all_kinds_are_read_at_the_basis_revision_and_come_as_they_were() -> None:
    pages, data = whole()
    assert pages.asked == [(kind, 11) for kind in PLAN_KINDS] and kinds.EVENT not in PLAN_KINDS
    basis, objects = taken_over(io.BytesIO(data))
    assert basis == BASIS
    assert [item.metadata.name for item in objects if isinstance(item, Node)] == ["node-0", "node-1"]
    assert [item.metadata.name for item in objects if isinstance(item, Pod)] == ["web"] and len(objects) == 3


def test_what_ends_in_the_middle_is_no_smaller_cluster() -> None:
    _, data = whole()
    for end in range(len(data)):
        with pytest.raises(PlanIncomplete):
            taken_over(io.BytesIO(data[:end]))
    _, objects = taken_over(io.BytesIO(b"\0\0\0\0" * 2))
    assert objects == [], "a cluster may be empty"


def test_a_descriptor_that_has_nothing_of_the_kind_ends_the_command_in_a_line() -> None:
    result = run_here(["plan", "--handed-over", "987"])
    assert (result.code, len(result.errors)) == (2, 1) and "--handed-over 987: " in result.errors[0]
