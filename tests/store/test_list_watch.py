"""The core of list+watch, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from leader.etcd_shim import kv, rpc
from rayched.store.entries import Deleted, Entry
from rayched.store.list_watch import ListWatchCore, Pace
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

PACE = Pace(ask_seconds=1.0, answer_seconds=2.0, pause_seconds_min=0.05, pause_seconds_max=1.0)


def header(revision: int, cluster: int = 7) -> Any:
    return rpc.ResponseHeader(cluster_id=cluster, revision=revision)


def put(key: str, revision: int, value: str = "v") -> Any:
    return kv.Event(type=kv.Event.PUT, kv=kv.KeyValue(key=key.encode(), value=value.encode(), mod_revision=revision))


def delete(key: str, revision: int) -> Any:
    return kv.Event(type=kv.Event.DELETE, kv=kv.KeyValue(key=key.encode(), mod_revision=revision))


def a_page(revision: int, *names: str, more: bool = False) -> Any:
    pairs = [kv.KeyValue(key=name.encode(), value=b"v", create_revision=1, mod_revision=2) for name in names]
    return rpc.RangeResponse(header=header(revision), kvs=pairs, more=more)


def created(revision: int, cluster: int = 7) -> Any:
    return rpc.WatchResponse(header=header(revision, cluster), created=True)


def changes(*events: Any, fragment: bool = False) -> Any:
    return rpc.WatchResponse(header=header(99), events=events, fragment=fragment)


def opened(effects: list[Effect]) -> OpenStream:
    (opening,) = [effect for effect in effects if isinstance(effect, OpenStream)]
    return opening


def kinds_of(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


def listing(core: ListWatchCore, revision: int = 1, now: float = 0.0) -> int:
    """Starts a core up to the request for its first page; gives the number of the stream that is open."""
    (opening,) = core.start(now)
    (fetch,) = core.stream_message(opened([opening]).stream, created(revision), now)
    assert isinstance(fetch, FetchPage)
    return opened([opening]).stream


def a_core_that_follows(revision: int = 10, now: float = 0.0) -> tuple[ListWatchCore, int]:
    """A core that follows since `now` and was told what was put at `revision`; and the number of its stream."""
    core = ListWatchCore(b"/a/", pace=PACE)
    stream = listing(core, revision - 1, now)
    assert kinds_of(core.page_arrived(a_page(revision - 1, "/a/1"), now)) == [ListedAll, Resumed]
    assert kinds_of(core.stream_message(stream, changes(put("/a/1", revision)), now)) == [Changed]
    return core, stream


def resumed(core: ListWatchCore, stream: int, revision: int, now: float) -> list[Effect]:
    """A new stream tells what was put last once more."""
    assert core.stream_message(stream, created(revision), now) == []
    return core.stream_message(stream, changes(put("/a/1", revision)), now)


def test_pages_are_read_at_the_revision_of_the_first_and_delivered_as_one_list() -> None:
    core = ListWatchCore(b"/a/", page_size=2)
    (opening,) = core.start(0.0)
    create = opened([opening]).request.create_request
    assert (create.start_revision, create.fragment, create.progress_notify) == (0, True, True)
    assert opened([opening]).metadata == (("hasleader", "true"),)
    (first,) = core.stream_message(opened([opening]).stream, created(9), 0.0)
    assert isinstance(first, FetchPage)
    assert (first.request.key, first.request.range_end, first.request.limit, first.request.revision) == (b"/a/", b"/a0", 2, 0)
    (second,) = core.page_arrived(a_page(10, "/a/1", "/a/2", more=True), 0.0)
    assert isinstance(second, FetchPage)
    assert (second.request.key, second.request.revision) == (b"/a/2\0", 10)
    listed, following = core.page_arrived(a_page(12, "/a/3"), 0.0)
    assert isinstance(listed, ListedAll)
    assert ([entry.key for entry in listed.entries], listed.revision) == ([b"/a/1", b"/a/2", b"/a/3"], 10)
    assert following == Resumed(10)


def test_what_happened_while_the_list_was_read_is_told_after_it_and_once() -> None:
    core = ListWatchCore(b"/a/", pace=PACE)
    stream = listing(core, 8)
    assert not core.reads
    core.page_arrived(a_page(10, "/a/1"), 0.0)
    assert core.reads
    assert core.stream_message(stream, changes(put("/a/1", 9), put("/a/2", 10), put("/a/3", 11)), 0.0) == [
        Changed((Entry(b"/a/3", b"v", 0, 11),), 11)
    ]


@pytest.mark.parametrize(
    "pages",
    [
        [rpc.RangeResponse(header=header(8))],
        [rpc.RangeResponse(header=header(20, cluster=8))],
        [a_page(20, "/a/1", more=True), a_page(19, "/a/2")],
        [a_page(20, "/a/1", more=True), rpc.RangeResponse(header=header(21, cluster=8))],
    ],
    ids=["older than the stream", "of another cluster", "a page of less than the first", "a page of another cluster"],
)
def test_a_list_of_another_history_than_its_stream_or_its_first_page_begins_anew(pages: list[Any]) -> None:
    core = ListWatchCore(b"/a/", page_size=1, pace=PACE)
    stream = listing(core, 9)
    effects: list[Effect] = []
    for page in pages:
        effects = core.page_arrived(page, 0.0)
    assert kinds_of(effects) == [CloseStream, Broken, OpenStream] and core.breaks[Break.SET_BACK] == 1
    assert opened(effects).stream != stream and opened(effects).request.create_request.start_revision == 0


# ------------------------------------------------------------------------------------------------- the past that was followed

LAST = Entry(b"/a/1", b"v", 0, 10)


def again(effects: list[Effect], core: ListWatchCore, now: float) -> int:
    """The stream that is opened after a break, which begins at the last put; created."""
    opening = opened(effects)
    assert opening.request.create_request.start_revision == 10
    assert core.stream_message(opening.stream, created(500), now) == []
    assert not core.following
    return opening.stream


def test_a_store_that_tells_the_last_change_once_more_is_followed_on_from_there() -> None:
    core, stream = a_core_that_follows(10)
    stream = again(core.stream_ended(stream, CallFailure("reset"), 5.0), core, 5.0)
    effects = core.stream_message(stream, changes(put("/a/1", 10), put("/a/2", 11)), 5.0)
    assert effects == [Resumed(10), Changed((Entry(b"/a/2", b"v", 0, 11),), 11)]


@pytest.mark.parametrize(
    "told",
    [
        [put("/a/1", 10, "w")],
        [put("/a/2", 10)],
        [delete("/a/1", 10)],
        [put("/a/1", 11)],
        [put("/a/1", 10), put("/a/2", 10)][::-1],
    ],
    ids=["another value", "another key", "a deletion", "nothing of that revision", "something more"],
)
def test_a_store_that_has_grown_past_the_last_revision_with_another_history_is_listed_anew(told: list[Any]) -> None:
    core, stream = a_core_that_follows(10)
    stream = again(core.stream_ended(stream, CallFailure("restored"), 5.0), core, 5.0)
    effects = core.stream_message(stream, changes(*told), 5.0)
    assert kinds_of(effects)[:2] == [CloseStream, Broken] and core.breaks[Break.SET_BACK] == 1
    effects = effects[2:] or core.tick(core.due_at or 0.0)
    assert opened(effects).request.create_request.start_revision == 0


def test_a_store_in_which_nothing_happened_since_the_last_change_is_listed_anew_after_a_while() -> None:
    core, stream = a_core_that_follows(10)
    again(core.stream_ended(stream, CallFailure("restored"), 5.0), core, 5.0)
    assert core.due_at == 7.0
    effects = core.tick(7.0)
    effects = effects[2:] or core.tick(core.due_at or 0.0)
    assert opened(effects).request.create_request.start_revision == 0


def test_deletions_are_told_once_more_with_the_put_before_them_since_they_leave_but_a_name() -> None:
    for second, same in ((delete("/a/2", 12), True), (delete("/a/3", 12), False)):
        core, stream = a_core_that_follows(10)
        core.stream_message(stream, changes(delete("/a/1", 11)), 1.0)
        core.stream_message(stream, changes(delete("/a/2", 12)), 1.0)
        stream = again(core.stream_ended(stream, CallFailure("reset"), 5.0), core, 5.0)
        assert core.stream_message(stream, changes(put("/a/1", 10), delete("/a/1", 11)), 5.0) == []
        effects = core.stream_message(stream, changes(second), 5.0)
        assert (effects == [Resumed(12)]) is same and (core.breaks[Break.SET_BACK] == 0) is same


def test_what_is_told_once_more_may_come_in_fragments() -> None:
    core, stream = a_core_that_follows(10)
    core.stream_message(stream, changes(put("/a/1", 12), put("/a/2", 12)), 1.0)
    effects = core.stream_ended(stream, CallFailure("reset"), 5.0)
    assert opened(effects).request.create_request.start_revision == 12
    stream = opened(effects).stream
    core.stream_message(stream, created(500), 5.0)
    assert core.stream_message(stream, changes(put("/a/1", 12), fragment=True), 5.0) == []
    assert core.stream_message(stream, changes(put("/a/2", 12), fragment=False), 5.0) == [Resumed(12)]


def test_a_break_before_anything_was_put_is_followed_by_a_list() -> None:
    core = ListWatchCore(b"/a/", pace=PACE)
    stream = listing(core, 10)
    core.page_arrived(a_page(10, "/a/1"), 0.0)
    core.stream_message(stream, changes(delete("/a/1", 11)), 1.0)
    assert opened(core.stream_ended(stream, CallFailure("reset"), 5.0)).request.create_request.start_revision == 0


def test_after_a_flood_of_deletions_alone_a_break_is_followed_by_a_list() -> None:
    core, stream = a_core_that_follows(10)
    for revision in range(11, 1012):
        core.stream_message(stream, changes(delete("/a/1", revision)), 1.0)
    assert opened(core.stream_ended(stream, CallFailure("reset"), 5.0)).request.create_request.start_revision == 0


# ------------------------------------------------------------------------------------------------------------------ following


def test_revisions_in_one_message_are_delivered_together_and_in_order() -> None:
    core, stream = a_core_that_follows(10)
    assert core.stream_message(stream, changes(put("/a/1", 11), delete("/a/2", 11), put("/a/1", 12, "w")), 1.0) == [
        Changed((Entry(b"/a/1", b"v", 0, 11), Deleted(b"/a/2", 11), Entry(b"/a/1", b"w", 0, 12)), 12)
    ]


def test_a_revision_split_over_fragments_is_delivered_whole_after_its_last_fragment() -> None:
    core, stream = a_core_that_follows(10)
    first = core.stream_message(stream, changes(put("/a/1", 11), put("/a/1", 12), fragment=True), 1.0)
    assert first == [Changed((Entry(b"/a/1", b"v", 0, 11),), 11)]
    assert core.stream_message(stream, changes(put("/a/2", 12), fragment=True), 1.0) == []
    last = core.stream_message(stream, changes(put("/a/3", 12), put("/a/1", 13)), 1.0)
    assert [(type(d), d.revision, len(d.changes)) for d in last if isinstance(d, Changed)] == [(Changed, 13, 4)]


def test_a_break_between_fragments_resumes_at_the_revision_that_was_cut() -> None:
    core, stream = a_core_that_follows(10)
    core.stream_message(stream, changes(put("/a/1", 11), put("/a/1", 12), fragment=True), 5.0)
    effects = core.stream_ended(stream, CallFailure("reset"), 5.0)
    assert opened(effects).request.create_request.start_revision == 11
    assert resumed(core, opened(effects).stream, 11, 5.0) == [Resumed(11)]


def test_what_was_delivered_before_is_dropped_when_etcd_sends_it_again() -> None:
    core, stream = a_core_that_follows(10)
    assert core.stream_message(stream, changes(put("/a/1", 9), put("/a/1", 10)), 1.0) == []
    (delivery,) = core.stream_message(stream, changes(put("/a/1", 10), put("/a/2", 11)), 1.0)
    assert delivery == Changed((Entry(b"/a/2", b"v", 0, 11),), 11)


def test_a_stream_that_ends_is_opened_again_at_once_and_from_the_last_put() -> None:
    core, stream = a_core_that_follows(10, now=0.0)
    core.stream_message(stream, changes(put("/a/1", 11)), 1.0)
    effects = core.stream_ended(stream, CallFailure("socket closed"), 5.0)
    assert kinds_of(effects) == [CloseStream, Broken, OpenStream]
    assert opened(effects).request.create_request.start_revision == 11
    assert not core.following


def test_pauses_between_failing_attempts_double_and_stay_within_bounds() -> None:
    core, stream = a_core_that_follows(10)
    now = 5.0
    effects = core.stream_ended(stream, CallFailure("down"), now)
    pauses = []
    for _ in range(8):
        core.stream_ended(opened(effects).stream, CallFailure("down"), now)
        due_at = core.due_at
        assert due_at is not None
        assert core.tick(due_at - 0.001) == []
        effects = core.tick(due_at)
        pauses.append(round(due_at - now, 3))
        now = due_at
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def test_a_stream_that_dies_young_again_and_again_is_not_reopened_in_a_tight_loop() -> None:
    core, stream = a_core_that_follows(10)
    now, opens = 0.0, 0
    while now < 10.0:
        effects = core.stream_ended(stream, CallFailure("reset"), now)
        if not any(isinstance(effect, OpenStream) for effect in effects):
            assert core.due_at is not None
            now = core.due_at
            effects = core.tick(now)
        stream = opened(effects).stream
        assert resumed(core, stream, 10, now) == [Resumed(10)]
        opens += 1
    assert opens < 20


def test_after_steady_following_the_pauses_begin_anew() -> None:
    core, stream = a_core_that_follows(10)
    for _ in range(5):
        effects = core.stream_ended(stream, CallFailure("down"), 5.0) or []
        effects += core.tick(core.due_at or 0.0)
        stream = opened(effects).stream
    assert resumed(core, stream, 10, 20.0) == [Resumed(10)]
    assert kinds_of(core.stream_ended(stream, CallFailure("down"), 22.0)) == [CloseStream, Broken, OpenStream]


def test_a_compacted_start_lists_anew() -> None:
    core, stream = a_core_that_follows(10)
    stream = opened(core.stream_ended(stream, CallFailure("reset"), 5.0)).stream
    core.stream_message(stream, created(500), 5.0)
    refusal = rpc.WatchResponse(header=header(500), canceled=True, compact_revision=400)
    effects = core.stream_message(stream, refusal, 5.0)
    assert kinds_of(effects) == [CloseStream, Broken]
    (fetch,) = core.stream_message(opened(core.tick(core.due_at or 0.0)).stream, created(500), 6.0)
    assert isinstance(fetch, FetchPage)
    assert fetch.request.revision == 0
    listed, following = core.page_arrived(a_page(501, "/a/9"), 6.0)
    assert isinstance(listed, ListedAll) and following == Resumed(501)
    assert core.breaks[Break.COMPACTED] == 1


def test_a_member_that_lags_has_a_moment_to_tell_the_last_change() -> None:
    core, stream = a_core_that_follows(10)
    stream = opened(core.stream_ended(stream, CallFailure("restart"), 5.0)).stream
    assert core.stream_message(stream, created(9), 5.0) == []
    assert core.stream_message(stream, changes(put("/a/1", 10)), 6.5) == [Resumed(10)]


@pytest.mark.parametrize(("revision", "cluster"), [(10, 8), (5000, 8)])
def test_a_store_of_another_cluster_is_listed_anew(revision: int, cluster: int) -> None:
    core, stream = a_core_that_follows(10)
    stream = opened(core.stream_ended(stream, CallFailure("restart"), 5.0)).stream
    core.stream_message(stream, created(revision, cluster), 5.0)
    assert core.breaks[Break.SET_BACK] == 1
    core.stream_message(opened(core.tick(core.due_at or 0.0)).stream, created(9), 6.0)
    listed, *_ = core.page_arrived(a_page(9, "/a/1"), 6.0)
    assert listed == ListedAll(listed.entries, 9) if isinstance(listed, ListedAll) else False


def test_a_list_whose_revision_is_compacted_or_lost_half_way_begins_anew() -> None:
    for lost in (Break.COMPACTED, Break.SET_BACK):
        core = ListWatchCore(b"/a/", page_size=1, pace=PACE)
        listing(core)
        core.page_arrived(a_page(10, "/a/1", more=True), 0.0)
        effects = core.page_failed(CallFailure("gone", lost), 0.0)
        (fetch,) = core.stream_message(opened(effects).stream, created(10), 0.0)
        assert isinstance(fetch, FetchPage)
        assert (fetch.request.key, fetch.request.revision) == (b"/a/", 0)
        listed, _ = core.page_arrived(a_page(20, "/a/2"), 0.0)
        assert isinstance(listed, ListedAll)
        assert [entry.key for entry in listed.entries] == [b"/a/2"]


def test_a_page_without_an_answer_is_asked_for_again_at_the_same_revision() -> None:
    core = ListWatchCore(b"/a/", page_size=1, pace=PACE)
    listing(core)
    core.page_arrived(a_page(10, "/a/1", more=True), 0.0)
    (broken, fetch) = core.page_failed(CallFailure("timeout"), 0.0)
    assert broken == Broken(Break.LIST_FAILED, "timeout")
    assert isinstance(fetch, FetchPage)
    assert (fetch.request.key, fetch.request.revision) == (b"/a/1\0", 10)


def test_silence_is_answered_by_a_question_and_then_by_giving_up() -> None:
    core, stream = a_core_that_follows(10, now=0.0)
    assert core.due_at == 1.0
    (asking,) = core.tick(1.0)
    assert isinstance(asking, SendOnStream)
    assert asking.stream == stream
    assert asking.request.WhichOneof("request_union") == "progress_request"
    assert core.due_at == 3.0
    effects = core.tick(3.0)
    assert kinds_of(effects) == [CloseStream, Broken, OpenStream]
    assert core.breaks[Break.SILENT] == 1


def test_an_answer_to_the_question_proves_life_and_does_not_move_the_revision() -> None:
    core, stream = a_core_that_follows(10, now=0.0)
    core.tick(1.0)
    answer = rpc.WatchResponse(header=header(77), watch_id=-1)
    assert core.stream_message(stream, answer, 1.5) == []
    assert core.revision == 10
    assert core.due_at == 2.5


def test_a_process_that_slept_asks_before_it_gives_a_stream_up() -> None:
    core, _ = a_core_that_follows(10, now=0.0)
    assert kinds_of(core.tick(3600.0)) == [SendOnStream]


def test_a_stream_that_is_never_created_is_given_up() -> None:
    core = ListWatchCore(b"/a/", pace=PACE)
    core.start(0.0)
    assert core.due_at == 2.0
    assert kinds_of(core.tick(2.0)) == [CloseStream, Broken, OpenStream]


def test_a_watch_that_etcd_cancels_is_opened_again_and_tells_the_reason() -> None:
    core, stream = a_core_that_follows(10)
    refusal = rpc.WatchResponse(header=header(10), canceled=True, cancel_reason="no leader")
    effects = core.stream_message(stream, refusal, 5.0)
    assert effects[:2] == [CloseStream(stream), Broken(Break.REFUSED, "no leader")]
    assert opened(effects).request.create_request.start_revision == 10


def test_what_comes_late_from_a_stream_that_was_given_up_is_ignored() -> None:
    core, stream = a_core_that_follows(10)
    newer = opened(core.stream_ended(stream, CallFailure("reset"), 5.0)).stream
    assert core.stream_message(stream, changes(put("/a/1", 11)), 5.0) == []
    assert core.stream_ended(stream, CallFailure("reset"), 5.0) == []
    assert resumed(core, newer, 10, 5.0) == [Resumed(10)]
