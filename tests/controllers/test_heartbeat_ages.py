"""The silence of nodes, measured by the observer's own clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rayched.controllers.heartbeat_ages import HeartbeatAges

GAP = 10.0
NODES = ("a", "b", "c")


def test_an_observer_that_has_just_begun_takes_every_node_to_have_spoken_now() -> None:
    ages = HeartbeatAges(GAP)
    ages.observed({"a": 5}, 1_000.0)
    assert ages.silent_seconds("a") == 0
    assert ages.silent_seconds("never heard of") == 0
    ages.observed({"a": 5}, 1_008.0)
    assert (ages.silent_seconds("a"), ages.silent_seconds("never heard of")) == (8, 8)


def test_only_a_new_revision_is_a_sign_of_life() -> None:
    ages = HeartbeatAges(GAP)
    for now, revision in ((0, 5), (5, 5), (10, 9), (15, 9)):
        ages.observed({"a": revision}, float(now))
    assert ages.silent_seconds("a") == 5
    assert ages.revision("a") == 9


def test_a_node_whose_heartbeat_was_deleted_begins_anew() -> None:
    ages = HeartbeatAges(GAP)
    ages.observed({"a": 5}, 0.0)
    ages.observed({}, 5.0)
    assert (ages.revision("a"), ages.silent_seconds("a")) == (0, 0)
    ages.observed({}, 10.0)
    assert ages.silent_seconds("a") == 5


def test_time_in_which_nothing_could_be_read_does_not_count() -> None:
    ages = HeartbeatAges(GAP)
    ages.observed({"a": 5}, 0.0)
    ages.observed({"a": 5}, 5.0)
    ages.observed({"a": 5}, 3_605.0)
    assert ages.silent_seconds("a") == 5 + GAP


readings = st.lists(st.tuples(st.integers(1, 40), st.sets(st.sampled_from(NODES))), min_size=1, max_size=30)


@given(readings)
def test_silence_is_the_counted_time_since_the_last_change(steps: list[tuple[int, set[str]]]) -> None:
    """Against the sum over all past steps, kept in full."""
    ages, revisions, now = HeartbeatAges(GAP), dict.fromkeys(NODES, 1), 0
    ages.observed(revisions, 0.0)
    history: list[tuple[int, set[str]]] = []
    for seconds, spoke in steps:
        now += seconds
        history.append((seconds, spoke))
        revisions = {name: revision + (name in spoke) for name, revision in revisions.items()}
        ages.observed(revisions, float(now))
        for name in NODES:
            expected = 0
            for past, heard in reversed(history):
                if name in heard:
                    break
                expected += min(past, 10)
            assert ages.silent_seconds(name) == expected
