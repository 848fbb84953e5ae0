"""The core of list+watch: its paces, its bounds, what it tells before it has begun, and what proves its past."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from leader.etcd_shim import kv, rpc
from rayched.store.entries import Deleted, Entry
from rayched.store.list_watch import PAGE_ENTRIES, ListWatchCore, Pace
from rayched.store.list_watch_effects import (
    Break,
    Broken,
    CallFailure,
    Changed,
    CloseStream,
    Effect,
    FetchPage,
    ListedAll,
    OpenStream,
    Resumed,
    SendOnStream,
)
from rayched.store.page_size import FIRST
from tests.store.test_list_watch import (
    PACE,
    a_core_that_follows,
    a_page,
    again,
    changes,
    created,
    delete,
    header,
    kinds_of,
    listing,
    opened,
    put,
    resumed,
)

SLOW = Pace(ask_seconds=10.0, answer_seconds=20.0, page_seconds_max=30.0, pause_seconds_min=4.0, pause_seconds_max=40.0)


def the_fetch(effects: list[Effect]) -> FetchPage:
    (fetch,) = [effect for effect in effects if isinstance(effect, FetchPage)]
    return fetch


def entry(key: str, revision: int) -> Entry:
    return Entry(key.encode(), b"v", 0, revision)


# ------------------------------------------------------------------------------------------------------------- the carrier


def test_before_its_start_a_core_wants_nothing_and_knows_nothing() -> None:
    core = ListWatchCore(b"/a/")
    assert (core.following, core.reads, core.due_at, core.revision, core.lists) == (False, False, None, 0, 0)
    assert core.tick(1e9) == [] and not core.breaks
    assert core.stream_message(0, created(5), 0.0) == [] == core.stream_ended(0, CallFailure("none"), 0.0)


def test_what_is_read_when() -> None:
    core = ListWatchCore(b"/a/", pace=PACE)
    (opening,) = core.start(0.0)
    assert core.reads and not core.following
    core.stream_message(opened([opening]).stream, created(9), 0.0)
    assert (core.reads, core.following, core.due_at, core.tick(1e9)) == (False, False, None, [])
    core.page_arrived(a_page(9), 0.0)
    assert core.reads and core.following and core.lists == 1
    core, stream = a_core_that_follows(10)
    opening = opened(core.stream_ended(stream, CallFailure("reset"), 5.0))
    assert core.reads and not core.following
    core.stream_message(opening.stream, created(10), 5.0)
    assert core.reads and not core.following, "its past has to be proved first"
    core.stream_ended(opening.stream, CallFailure("reset"), 5.0)
    assert not core.reads and not core.following, "it pauses"


def test_each_pace_is_the_one_that_was_given() -> None:
    core = ListWatchCore(b"/a/", pace=SLOW)
    opening = opened(core.start(5.0))
    assert core.due_at == 25.0 and core.tick(24.999) == []
    fetch = the_fetch(core.stream_message(opening.stream, created(9), 6.0))
    assert fetch.timeout_seconds == 30.0
    core.page_arrived(a_page(9, "/a/1"), 7.0)
    assert core.due_at == 17.0 and core.tick(16.999) == []
    assert kinds_of(core.tick(17.5)) == [SendOnStream]
    assert core.due_at == 37.5
    (answer,) = core.stream_message(opening.stream, changes(put("/a/1", 10)), 20.0)
    assert isinstance(answer, Changed) and core.due_at == 30.0, "an answer of any kind puts the next question off"
    core.tick(30.0)
    _, broken, opening = core.tick(50.0)
    assert broken == Broken(Break.SILENT, "no message for 20 s after a request")
    now, pauses = 50.0, []
    for _ in range(5):
        assert isinstance(opening, OpenStream)
        core.stream_ended(opening.stream, CallFailure("down"), now)
        assert core.due_at is not None
        pauses.append(core.due_at - now)
        now = core.due_at
        (opening,) = core.tick(now)
    assert pauses == [4.0, 8.0, 16.0, 32.0, 40.0]


def test_a_store_that_tells_nothing_of_the_last_change_has_the_time_of_an_answer_for_it() -> None:
    core = ListWatchCore(b"/a/", pace=SLOW)
    stream = listing(core, 9)
    core.page_arrived(a_page(9, "/a/1"), 0.0)
    core.stream_message(stream, changes(put("/a/1", 10)), 0.0)
    again(core.stream_ended(stream, CallFailure("restored"), 50.0), core, 51.0)
    assert core.due_at == 71.0 and core.tick(70.999) == []
    _, broken, *_ = core.tick(71.0)
    assert broken == Broken(Break.SET_BACK, "it tells nothing of revision 10 within 20 s")


@pytest.mark.parametrize(("seconds", "at_once"), [(0.999, False), (1.0, True), (1.001, True)])
def test_who_has_followed_for_the_longest_pause_is_repaired_at_once(seconds: float, at_once: bool) -> None:
    core, stream = a_core_that_follows(10, now=100.0)
    stream = opened(core.stream_ended(stream, CallFailure("reset"), 100.0)).stream
    core.stream_ended(stream, CallFailure("reset"), 100.0)
    assert core.due_at is not None
    stream = opened(core.tick(core.due_at)).stream
    assert resumed(core, stream, 10, 110.0) == [Resumed(10)]
    effects = core.stream_ended(stream, CallFailure("reset"), 110.0 + seconds)
    assert kinds_of(effects) == [CloseStream, Broken, *([OpenStream] if at_once else [])]


def test_what_comes_late_while_it_pauses_is_ignored() -> None:
    core, stream = a_core_that_follows(10)
    second = opened(core.stream_ended(stream, CallFailure("down"), 5.0)).stream
    assert kinds_of(core.stream_ended(second, CallFailure("down"), 5.0)) == [CloseStream, Broken]
    due_at, breaks = core.due_at, core.breaks.total()
    for late in (stream, second):
        assert core.stream_message(late, changes(put("/a/1", 11)), 5.0) == []
        assert core.stream_ended(late, CallFailure("down"), 5.0) == []
    assert (core.revision, core.due_at, core.breaks.total()) == (10, due_at, breaks)


# ---------------------------------------------------------------------------------------------------------------- listing


def test_the_next_page_begins_behind_the_last_key_of_the_one_before() -> None:
    core = ListWatchCore(b"/a/", page_size=4, pace=PACE)
    listing(core, 9)
    fetch = the_fetch(core.page_arrived(a_page(9, "/a/1", "/a/2", "/a/3", "/a/4", more=True), 0.0))
    assert (fetch.request.key, fetch.request.limit) == (b"/a/4\0", 4)
    fetch = the_fetch(core.page_arrived(a_page(9, "/a/5", more=True), 0.0))
    assert fetch.request.key == b"/a/5\0"


def test_a_page_with_nothing_on_it_is_the_last_one_whatever_it_says() -> None:
    core = ListWatchCore(b"/a/", pace=PACE)
    listing(core, 9)
    assert core.page_arrived(a_page(9, more=True), 0.0) == [ListedAll((), 9), Resumed(9)]


def test_a_page_that_failed_is_asked_for_in_half_and_after_a_pause_once() -> None:
    core = ListWatchCore(b"/a/", pace=PACE)
    listing(core, 9)
    _, fetch = core.page_failed(CallFailure("slow"), 3.0)
    assert the_fetch([fetch]).request.limit == FIRST // 2
    assert core.page_failed(CallFailure("slow"), 6.0) == [Broken(Break.LIST_FAILED, "slow")]
    assert core.due_at == 6.05 and not core.reads
    assert the_fetch(core.tick(6.05)).request.limit == FIRST // 4
    assert core.due_at is None and core.tick(1e9) == [], "only an answer moves things on"
    listed, resumption = core.page_arrived(a_page(9, "/a/1"), 7.0)
    assert isinstance(listed, ListedAll) and resumption == Resumed(9)


def test_pages_of_light_objects_have_as_many_as_is_usual() -> None:
    core = ListWatchCore(b"/a/", pace=PACE)
    listing(core, 9)
    fetch = the_fetch(core.page_arrived(a_page(9, "/a/1", more=True), 0.0))
    assert fetch.request.limit == PAGE_ENTRIES


def test_what_was_listed_and_delivered_is_not_kept() -> None:
    core = ListWatchCore(b"/a/", pace=PACE)
    listing(core, 9)
    effects = core.page_arrived(a_page(9, "/a/1"), 0.0)
    (listed, _) = effects
    assert isinstance(listed, ListedAll)
    first = listed.entries[0]
    del effects, listed, _
    assert sys.getrefcount(first) == 2


# ------------------------------------------------------------------------------------------------------------------ proof


def test_a_fragment_is_delivered_up_to_the_revision_that_may_go_on() -> None:
    core, stream = a_core_that_follows(10)
    fragment = changes(put("/a/1", 11), put("/a/2", 12), put("/a/3", 13), put("/a/4", 13), fragment=True)
    (delivery,) = core.stream_message(stream, fragment, 1.0)
    assert delivery == Changed((entry("/a/1", 11), entry("/a/2", 12)), 12)
    (delivery,) = core.stream_message(stream, changes(put("/a/5", 13)), 1.0)
    assert delivery == Changed((entry("/a/3", 13), entry("/a/4", 13), entry("/a/5", 13)), 13)


def test_all_from_the_last_put_on_has_to_be_told_once_more_and_nothing_before_it() -> None:
    core, stream = a_core_that_follows(10)
    core.stream_message(stream, changes(put("/a/1", 11), put("/a/2", 12), delete("/a/3", 12), delete("/a/1", 13)), 1.0)
    opening = opened(core.stream_ended(stream, CallFailure("reset"), 5.0))
    assert opening.request.create_request.start_revision == 12
    assert core.stream_message(opening.stream, created(500), 5.0) == []
    told = changes(put("/a/2", 12), delete("/a/3", 12), delete("/a/1", 13), put("/a/9", 14), delete("/a/9", 15))
    effects = core.stream_message(opening.stream, told, 5.0)
    assert effects == [Resumed(13), Changed((entry("/a/9", 14), Deleted(b"/a/9", 15)), 15)]
    assert core.stream_message(opening.stream, changes(put("/a/1", 16)), 5.0) == [Changed((entry("/a/1", 16),), 16)]
    assert core.lists == 1 and core.revision == 16


def test_what_is_told_differently_says_from_where_to_where() -> None:
    core, stream = a_core_that_follows(10)
    core.stream_message(stream, changes(delete("/a/1", 11)), 1.0)
    stream = again(core.stream_ended(stream, CallFailure("restored"), 5.0), core, 5.0)
    effects = core.stream_message(stream, changes(put("/a/1", 10, "w")), 5.0)
    told = "what it tells from revision 10 to 11 is not what was delivered"
    assert effects[:2] == [CloseStream(stream), Broken(Break.SET_BACK, told)]


@pytest.mark.parametrize(("deletions", "start"), [(999, 10), (1000, 0)])
def test_a_thousand_changes_are_remembered_to_prove_the_past(deletions: int, start: int) -> None:
    core, stream = a_core_that_follows(10)
    told: list[Any] = [delete("/a/1", revision) for revision in range(11, 11 + deletions)]
    for event in told:
        core.stream_message(stream, changes(event), 1.0)
    opening = opened(core.stream_ended(stream, CallFailure("reset"), 5.0))
    assert opening.request.create_request.start_revision == start
    if start:
        core.stream_message(opening.stream, created(5000), 5.0)
        assert core.stream_message(opening.stream, changes(put("/a/1", 10), *told), 5.0) == [Resumed(10 + deletions)]


@pytest.mark.parametrize("puts", [1, 0])
def test_where_the_rule_of_compacted_history_is_broken_the_gap_is_left_out(puts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the planted bug of that name does: without it the same course ends in a list."""
    for broken in (True, False):
        monkeypatch.setattr(ListWatchCore, "RULE_COMPACTED_HISTORY_IS_LISTED", not broken)
        core = ListWatchCore(b"/a/", pace=PACE)
        stream = listing(core, 9)
        core.page_arrived(a_page(9, "/a/1"), 0.0)
        if puts:
            core.stream_message(stream, changes(put("/a/1", 10)), 0.0)
        compacted = rpc.WatchResponse(header=header(500), canceled=True, compact_revision=400)
        opening = opened(core.stream_message(stream, compacted, 5.0))
        assert opening.request.create_request.start_revision == (401 if broken else 0)
        assert core.breaks[Break.COMPACTED] == 1
        effects = core.stream_message(opening.stream, created(500), 5.0)
        assert kinds_of(effects) == ([Resumed] if broken else [FetchPage])
        if broken:
            event = kv.Event(type=kv.Event.PUT, kv=kv.KeyValue(key=b"/a/2", value=b"v", mod_revision=401))
            assert core.stream_message(opening.stream, changes(event), 5.0) == [Changed((entry("/a/2", 401),), 401)]
