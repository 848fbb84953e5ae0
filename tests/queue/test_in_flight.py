"""Pods in flight and their events: each attempt gets exactly what came about after its cycle began."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.framework.cluster_event import NODE_ADD
from rayched.queue.event_batch import EventBatch
from rayched.queue.in_flight import InFlightPod, InFlightPods
from rayched.queue.queued_pod import Place, QueuedPodInfo
from tests.queue.builders import pending


def began(pods: InFlightPods, name: str) -> QueuedPodInfo:
    pod = QueuedPodInfo(pending(name), 0.0)
    pod.place = Place.IN_FLIGHT
    pods.begin(pod, 0.0)
    return pod


def happened(pods: InFlightPods, what: str, position: int | None = None, only: str = "") -> None:
    pods.advance(position)
    pods.record(NODE_ADD, None, what, only)


def replayed(pods: InFlightPods, name: str, cycle_began: int | None = None) -> list[object] | None:
    flight = pods.get(f"uid-{name}")
    assert flight is not None
    occurrences = pods.since(flight, cycle_began)
    return None if occurrences is None else [occurrence.new for occurrence in occurrences]


@pytest.mark.row("Q42")
def test_an_attempt_gets_the_events_after_its_pop_and_no_earlier_ones() -> None:
    pods = InFlightPods()
    began(pods, "a")
    happened(pods, "first")
    began(pods, "b")
    happened(pods, "second")
    assert replayed(pods, "a") == ["first", "second"]
    assert replayed(pods, "b") == ["second"]


def test_an_attempt_that_began_after_its_pop_gets_only_what_its_snapshot_could_not_hold() -> None:
    pods = InFlightPods()
    began(pods, "a")
    for position in (3, 7, 7, 9):
        happened(pods, f"at {position}", position)
    assert replayed(pods, "a", 0) == ["at 3", "at 7", "at 7", "at 9"]
    assert replayed(pods, "a", 6) == ["at 7", "at 7", "at 9"]
    assert replayed(pods, "a", 7) == ["at 9"]
    assert replayed(pods, "a", 9) == []


def test_an_event_of_one_pod_is_replayed_to_that_pod_alone() -> None:
    pods = InFlightPods()
    began(pods, "a")
    began(pods, "b")
    happened(pods, "a's own", only="uid-a")
    assert replayed(pods, "a") == ["a's own"]
    assert replayed(pods, "b") == []


def test_positions_never_decrease() -> None:
    pods = InFlightPods()
    pods.advance(5)
    with pytest.raises(ValueError, match="position 4 of an event comes after position 5"):
        pods.advance(4)
    assert pods.advance(5) == 5
    assert pods.advance(None) == 6


def test_events_that_nobody_needs_are_dropped() -> None:
    pods = InFlightPods()
    happened(pods, "before any pod")
    assert pods.n_events == 0
    began(pods, "a")
    for i in range(5_000):
        happened(pods, str(i))
    began(pods, "b")
    happened(pods, "last")
    pods.end("uid-a")
    assert pods.n_events == 1
    assert len(pods._events) < 5_000
    assert replayed(pods, "b") == ["last"]
    pods.end("uid-b")
    assert (pods.n_events, len(pods)) == (0, 0)
    assert pods.end("uid-b") is None


def test_a_pod_in_flight_for_too_long_is_told_that_events_were_forgotten() -> None:
    pods = InFlightPods(limit=100)
    began(pods, "old")
    for i in range(1_000):
        happened(pods, str(i))
    began(pods, "new")
    happened(pods, "last")
    assert pods.n_events <= 100
    assert replayed(pods, "old") is None
    assert replayed(pods, "new") == ["last"]
    assert replayed(pods, "old", cycle_began=1_000) == ["last"]
    assert pods.verify() == []


@pytest.mark.parametrize("limit", range(1, 9))
def test_whatever_was_forgotten_a_replay_has_every_event_since_the_cycle_or_says_that_it_has_not(limit: int) -> None:
    """Whoever is told less than all would wait on, though one of the missing events helps it."""
    pods = InFlightPods(limit=limit)
    began(pods, "a")
    told_all = told_nothing = 0
    for position in range(1, 31):
        happened(pods, str(position), position)
        assert replayed(pods, "a", position) == [], "a cycle that has seen everything misses nothing"
        for cycle_began in range(position):
            events = replayed(pods, "a", cycle_began)
            if events is None:
                told_nothing += 1
            else:
                told_all += 1
                assert events == [str(later) for later in range(cycle_began + 1, position + 1)], (position, cycle_began)
    assert told_all and told_nothing


STEP = st.tuples(st.sampled_from(["begin", "end", "put off", "take up", "event", "event"]), st.integers(0, 5), st.integers(0, 2))


@given(st.lists(STEP, max_size=60))
def test_any_course_of_events_is_replayed_as_a_full_record_would_be(steps: list[tuple[str, int, int]]) -> None:
    pods = InFlightPods()
    record: list[tuple[int, str]] = []
    popped_at: dict[str, int] = {}
    put_off: set[str] = set()
    position = 0
    for number, (what, n, skip) in enumerate(steps):
        name = f"p{n}"
        if what == "begin" and name not in popped_at and name not in put_off:
            began(pods, name)
            popped_at[name] = position
        elif what == "end":
            pods.end(f"uid-{name}")
            popped_at.pop(name, None)
            put_off.discard(name)
        elif what == "put off":
            pods.put_off(f"uid-{name}")
            if popped_at.pop(name, None) is not None:
                put_off.add(name)
        elif what == "take up":
            pods.take_up(f"uid-{name}")
            if name in put_off:
                put_off.remove(name)
                popped_at[name] = position
        elif what == "event":
            position += skip
            happened(pods, str(number), position)
            record.append((position, str(number)))
        for name, at in popped_at.items():
            for cycle_began in (None, at + 1):
                start = at if cycle_began is None else cycle_began
                assert replayed(pods, name, cycle_began) == [text for when, text in record if when > start]
        assert pods.verify() == []
        assert popped_at or pods.n_events == 0
        assert {flight.pod.uid for flight in pods} == {f"uid-{name}" for name in (*popped_at, *put_off)}
        assert len(pods) == len(popped_at) + len(put_off)


def test_events_told_together_are_replayed_one_by_one_and_made_only_then() -> None:
    pods = InFlightPods(limit=20)
    began(pods, "a")
    asked: list[int] = []

    def several(*names: object) -> EventBatch:
        def make() -> list[object]:
            asked.append(len(names))
            return list(names)

        return EventBatch(len(names), make)

    pods.advance(1)
    pods.record(NODE_ADD, None, None, news=several("x", "y", "z"))
    happened(pods, "w")
    began(pods, "b")
    assert (pods.n_events, pods.events(), asked) == (4, {NODE_ADD.label: 4}, [])
    flight = pods.get("uid-a")
    assert flight is not None
    replays = pods.since(flight, None)
    assert replays is not None
    assert [new for one in replays for _, new in one.changes()] == ["x", "y", "z", "w"] and asked == [3]
    pods.end("uid-a")
    assert pods.n_events == 0 and not pods.verify()
    for position in range(20, 50):
        pods.advance(position)
        pods.record(NODE_ADD, None, None, news=several(*range(7)))
    assert pods.n_events <= 21 and not pods.verify()


def test_a_sound_record_has_no_faults_and_a_damaged_one_names_them() -> None:
    def fresh() -> InFlightPods:
        pods = InFlightPods()
        began(pods, "a")
        for position in (3, 3, 5):
            happened(pods, "event", position)
        began(pods, "b")
        began(pods, "c")
        happened(pods, "event", 8)
        assert pods.verify() == []
        return pods

    def flight(pods: InFlightPods, name: str) -> InFlightPod:
        found = pods.get(f"uid-{name}")
        assert found is not None
        return found

    pods = fresh()
    flight(pods, "a").began = 6
    assert pods.verify() == ["default/b is in flight out of order"]
    pods = fresh()
    flight(pods, "b").began = 4
    assert pods.verify() == []
    flight(pods, "c").began = 3
    assert pods.verify() == ["default/c is in flight out of order"]
    pods = fresh()
    pods.position = 4
    happened(pods, "late", 4)
    assert pods.verify() == ["events in flight are out of order"]
    pods = fresh()
    flight(pods, "b").deleted = True
    assert pods.verify() == ["pods are found in flight by name that are not in flight"]
    pods = fresh()
    flight(pods, "b").pod.uid = "another"
    assert pods.verify() == ["default/b is in flight under another pod's uid"]
    pods = fresh()
    pods.put_off("uid-b")
    assert pods.verify() == []
    pods.begin(flight(pods, "b").pod, 0.0)
    assert "default/b is in flight and put off" in pods.verify()
    pods = fresh()
    for name in "abc":
        pods.end(f"uid-{name}")
    assert pods.verify() == [] and pods.n_events == 0
    pods.n_events = 3
    assert pods.verify() == ["3 events are kept for no pod"]


@pytest.mark.parametrize("limit", range(2, 9))
def test_no_more_is_called_forgotten_than_was(limit: int) -> None:
    pods = InFlightPods(limit=limit)
    began(pods, "a")
    for position in range(1, 31):
        happened(pods, str(position), position)
        kept = pods.n_events
        assert replayed(pods, "a", position - kept) == [str(later) for later in range(position - kept + 1, position + 1)]


@pytest.mark.parametrize("dropped", [0, 1, 2, 5])
@pytest.mark.parametrize("limit", range(2, 12))
def test_all_up_to_the_limit_are_kept_and_beyond_it_the_newer_half(limit: int, dropped: int) -> None:
    pods = InFlightPods(limit=limit)
    began(pods, "early")
    for number in range(min(dropped, limit)):
        happened(pods, f"dropped {number}")
    began(pods, "a")
    pods.end("uid-early")
    names = [str(number) for number in range(limit + 1)]
    for name in names[:-1]:
        happened(pods, name)
    assert pods.n_events == limit and replayed(pods, "a") == names[:-1]
    happened(pods, names[-1])
    kept = (limit + 1) // 2
    assert pods.n_events == kept and replayed(pods, "a") is None
    assert replayed(pods, "a", pods.position - kept) == names[-kept:]


@pytest.mark.parametrize("dropped", [0, 3])
def test_a_batch_that_is_larger_than_the_limit_is_kept_until_something_else_happens(dropped: int) -> None:
    pods = InFlightPods(limit=5)
    began(pods, "early")
    for _ in range(dropped):
        happened(pods, "dropped")
    began(pods, "a")
    pods.end("uid-early")
    pods.advance(None)
    pods.record(NODE_ADD, None, None, news=EventBatch(20, lambda: list(range(20))))
    assert (pods.n_events, len(replayed(pods, "a") or [])) == (20, 1)
    happened(pods, "next")
    assert pods.n_events == 1 and replayed(pods, "a") is None
    assert replayed(pods, "a", pods.position - 1) == ["next"]


@pytest.mark.parametrize(
    ("dropped", "rest", "length"), [(1023, 0, 1023), (1024, 0, 0), (1024, 1024, 1024), (1024, 1025, 2049), (2000, 1999, 1999)]
)
def test_dropped_events_are_cut_off_once_they_are_many_and_half_of_the_list(dropped: int, rest: int, length: int) -> None:
    pods = InFlightPods()
    began(pods, "a")
    for number in range(dropped):
        happened(pods, str(number))
    began(pods, "b")
    for number in range(rest):
        happened(pods, f"rest {number}")
    pods.end("uid-a")
    assert len(pods._events) == length and pods.n_events == rest
    assert replayed(pods, "b") == [f"rest {number}" for number in range(rest)]
    happened(pods, "last")
    assert (replayed(pods, "b") or [])[-1:] == ["last"] and pods.n_events == rest + 1
