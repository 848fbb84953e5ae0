"""Ages by revisions: never too great, and too small by no more than the looks are apart."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from rayched.store.revision_clock import RevisionClock


def test_something_is_as_old_as_the_first_look_that_saw_its_revision() -> None:
    clock = RevisionClock()
    for time, revision in ((0.0, 10), (5.0, 20), (10.0, 30)):
        clock.observed(revision, time)
    assert [clock.since(revision, 12.0) for revision in (5, 10, 11, 20, 25, 30, 31)] == [0.0, 0.0, 5.0, 5.0, 10.0, 10.0, 12.0]


def test_a_revision_that_goes_back_is_another_history_and_all_of_it_begins_now() -> None:
    clock = RevisionClock()
    clock.observed(1000, 0.0)
    clock.observed(50, 100.0)
    assert clock.since(40, 101.0) == 100.0
    assert clock.revision == 50


def test_the_revision_of_a_time_is_the_newest_that_was_seen_by_then() -> None:
    clock = RevisionClock()
    for time, revision in ((10.0, 10), (15.0, 20)):
        clock.observed(revision, time)
    assert [clock.revision_at(time) for time in (9.0, 10.0, 14.9, 15.0, 99.0)] == [0, 10, 10, 20, 20]


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0.01, 40.0)), min_size=1, max_size=300), st.integers(0, 4000))
def test_an_age_is_never_too_great_and_little_too_small(steps: list[tuple[int, float]], asked: int) -> None:
    """`steps`: by how much the revision and the time have grown at each look."""
    clock, seen, now, revision = RevisionClock(), list[tuple[int, float]](), 0.0, 1
    for grown, later in steps:
        revision, now = revision + grown, now + later
        clock.observed(revision, now)
        seen.append((revision, now))
    first = next((time for found, time in seen if found >= asked), now)
    since = clock.since(asked, now)
    assert first <= since <= now
    # Looks are up to 40 s apart here; what is thinned adds a coarse step, what is beyond the span counts as that old.
    assert since - first <= 10.0 + 40.0 or now - since >= 7200.0 - 60.0


def test_ages_of_a_minute_are_known_to_two_seconds_and_those_of_an_hour_to_twenty() -> None:
    clock, now = RevisionClock(), 3600.0
    for look in range(3601):
        clock.observed(look, float(look))
    assert all(clock.since(revision, now) - revision <= 2.0 for revision in range(3540, 3601))
    assert all(0 <= clock.since(revision, now) - revision <= 20.0 for revision in range(3601))


def test_hours_of_looks_take_some_hundred_samples() -> None:
    clock = RevisionClock()
    for second in range(4 * 3600):
        clock.observed(second, float(second))
    assert len(clock._times) < 1200
    assert clock.since(0, 14400.0) >= 14400 - 7200 - 130


def test_a_clock_that_has_seen_nothing_knows_nothing() -> None:
    clock = RevisionClock()
    assert (clock.revision, clock.revision_at(5.0), clock.since(7, 5.0)) == (0, 0, 5.0)


def test_a_revision_that_is_seen_again_keeps_the_time_at_which_it_was_seen_first() -> None:
    clock = RevisionClock()
    for revision, time in ((10, 0.0), (10, 4.0), (20, 5.0), (30, 5.9), (30, 5.95), (30, 9.0)):
        clock.observed(revision, time)
    assert [clock.since(revision, 10.0) for revision in (10, 20, 30)] == [0.0, 5.0, 5.9]
    assert clock.revision == 30


def test_a_revision_between_those_that_were_seen_is_another_history_too() -> None:
    clock = RevisionClock()
    for revision, time in ((10, 0.0), (20, 5.0), (30, 10.0), (25, 15.0)):
        clock.observed(revision, time)
    assert clock.revision == 25
    assert [clock.since(revision, 16.0) for revision in (5, 10, 25, 26)] == [15.0, 15.0, 15.0, 16.0]
    assert [clock.revision_at(time) for time in (14.0, 15.0)] == [0, 25]


def test_looks_half_a_second_apart_are_all_known_and_closer_ones_are_told_from_them_by_half_a_second() -> None:
    clock = RevisionClock()
    for look in range(100):
        clock.observed(look + 1, look / 2)
    assert [clock.since(look + 1, 50.0) for look in range(100)] == [look / 2 for look in range(100)]
    clock = RevisionClock()
    for look in range(1000):
        clock.observed(look + 1, look / 100)
    assert len(clock._times) <= 21
    assert all(later - earlier >= 1.0 for earlier, later in zip(clock._times[:-2], clock._times[2:-1], strict=False))


class NotedClock(RevisionClock):
    def __init__(self) -> None:
        super().__init__()
        self.thinned: list[float] = []

    def _thin(self, now: float) -> None:
        self.thinned.append(now)
        super()._thin(now)


def test_what_is_old_is_thinned_once_a_minute() -> None:
    clock = NotedClock()
    for second in range(601):
        clock.observed(second + 1, float(second))
    assert clock.thinned == [60.0 * minute for minute in range(11)]
    old = [time for time in clock._times if time < 600.0 - 120.0]
    assert all(later - earlier <= 10.0 for earlier, later in itertools.pairwise(old))
    assert all(later - earlier >= 10.0 for earlier, later in zip(old, old[2:], strict=False))


def test_beyond_the_span_the_oldest_that_is_left_stands_for_all_before_it() -> None:
    clock = RevisionClock(span_seconds=500.0)
    for second in range(0, 2000, 10):
        clock.observed(second, float(second))
    assert 500.0 <= 1990.0 - clock.since(0, 1990.0) <= 570.0
    clock.observed(5000, 9000.0)
    assert [clock.since(revision, 9001.0) for revision in (0, 5000, 5001)] == [9000.0, 9000.0, 9001.0]
