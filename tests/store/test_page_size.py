"""How many entries a page asks for, by what the ones before it weighed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leader.etcd_shim import rpc
from rayched.store.list_watch import ListWatchCore
from rayched.store.list_watch_effects import FetchPage
from rayched.store.page_size import BYTES, FIRST, PageSize

MIB = 1 << 20


@pytest.mark.parametrize(
    ("most", "pages", "wanted"),
    [
        (2_000, [], FIRST),
        (10, [], 10),
        (2_000, [(256, 256 * 1_000)], 2_000),
        (2_000, [(256, 64 * MIB)], 32),
        (2_000, [(256, 64 * MIB), (32, 32_000)], 2_000),
        (2_000, [(1, 100 * MIB)], 1),
        (2_000, [(0, 0)], FIRST),
        (2_000, [(5, 0)], 2_000),
        (2_000, [None], FIRST // 2),
        (2_000, [None] * 20, 1),
    ],
)
def test_a_page_has_as_many_as_the_last_one_says_and_half_after_a_failure(
    most: int, pages: list[tuple[int, int] | None], wanted: int
) -> None:
    size = PageSize(most)
    for page in pages:
        size.failed() if page is None else size.arrived(*page)
    assert size.wanted == wanted


@given(st.lists(st.integers(1, 256 << 10), min_size=1, max_size=600), st.integers(1, 700))
def test_a_list_comes_to_its_end_in_pages_that_are_no_larger_than_the_last_one_says(weights: list[int], most: int) -> None:
    size, read, last = PageSize(most), 0, 0.0
    while read < len(weights):
        page = weights[read : read + size.wanted]
        assert 1 <= len(page) <= most
        assert not last or len(page) == 1 or len(page) * last <= BYTES
        size.arrived(len(page), sum(page))
        read, last = read + len(page), sum(page) / len(page)


def test_a_list_of_large_objects_is_read_in_smaller_pages_and_one_that_fails_in_smaller_ones_still() -> None:
    core = ListWatchCore(b"/a/")
    (_, *_), asked = core.start(0.0), list[int]()
    header = rpc.ResponseHeader(cluster_id=1, revision=9)
    effects = core.stream_message(1, rpc.WatchResponse(header=header, created=True), 0.0)
    for _ in range(3):
        (fetch,) = [effect for effect in effects if isinstance(effect, FetchPage)]
        asked.append(fetch.request.limit)
        answer = rpc.RangeResponse(header=header, more=True)
        for number in range(4):
            answer.kvs.add(key=b"/a/%d-%d" % (len(asked), number), value=bytes(MIB), mod_revision=1)
        effects = core.page_arrived(answer, 0.0)
    assert asked == [FIRST, 7, 7]
