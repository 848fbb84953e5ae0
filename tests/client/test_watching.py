"""What a watch gives out when its stream breaks anywhere and replicas send again what was sent already."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rayched.api.kinds import wrap
from rayched.client import EventType
from rayched.client.watching import WatchProgress
from rayched.v1.services_pb2 import ListResponse, WatchEvent, WatchRequest, WatchResponse
from tests.server.objects import a_pod

History = list[tuple[int, str]]
"""Revision and name; several of one revision stand together."""


@st.composite
def histories(draw: st.DrawFn) -> History:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=12))
    return [(10 + 2 * place, f"pod-{place}-{i}") for place, size in enumerate(sizes) for i in range(size)]


def response_of(events: History, revision: int) -> WatchResponse:
    found = WatchResponse(revision=revision)
    for at, name in events:
        found.events.add(type=WatchEvent.Type.MODIFIED, revision=at, object=wrap(a_pod(name)))
    return found


@given(histories(), st.data())
def test_every_change_is_told_once_and_in_order_however_streams_break(history: History, data: st.DataObject) -> None:
    progress = WatchProgress(WatchRequest(kind="Pod", start_revision=10), bookmarks=False)
    told: History = []
    last = history[-1][0]
    for _ in range(200):
        start = progress.watch_request().start_revision
        if start > last:
            break
        # A replica may begin earlier than it was asked to, and a stream ends after any number of whole revisions.
        early = data.draw(st.integers(0, 6))
        end = data.draw(st.integers(start - 1, last))
        sent = [(at, name) for at, name in history if start - early <= at <= end]
        for event in progress.events_of(response_of(sent, max(end, start - 1))):
            assert event.object is not None and progress.revision < event.revision
            told.append((event.revision, event.object.metadata.name))
    else:
        told += [(e.revision, e.object.metadata.name) for e in progress.events_of(response_of(history, last)) if e.object]
    assert told == history


def test_a_watch_left_in_the_middle_of_a_revision_tells_where_a_new_one_begins() -> None:
    history = [(10, "a"), (12, "b"), (12, "c")]
    progress = WatchProgress(WatchRequest(kind="Pod", start_revision=10), bookmarks=False)
    events = progress.events_of(response_of(history, 12))
    next(events)
    assert next(events).revision == 12
    assert progress.revision == 11, "c is still to come, so 12 has to be asked for again"
    list(events)
    assert progress.revision == 12


def test_the_present_state_comes_page_by_page_and_the_watch_after_its_revision() -> None:
    progress = WatchProgress(WatchRequest(kind="Pod", label_selector="app=web"), bookmarks=True)
    pages = [ListResponse(revision=30), ListResponse(revision=30)]
    for number, page in enumerate(pages):
        pod = a_pod(f"pod-{number}")
        pod.metadata.resource_version = str(20 + number)
        page.objects.append(wrap(pod))
    setattr(pages[0], "continue", "more")
    assert [event.revision for event in progress.events_of_page(pages[0])] == [20]
    assert progress.is_listing and getattr(progress.list_request(), "continue") == "more"
    assert progress.list_request().label_selector == "app=web"
    second = list(progress.events_of_page(pages[1]))
    assert [(event.type, event.revision) for event in second] == [(EventType.ADDED, 21), (EventType.BOOKMARK, 30)]
    assert not progress.is_listing and progress.watch_request().start_revision == 31
