"""What is measured of pods' waits for their first attempt, from what the hub is fed with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rayched.api.kinds import NODE, POD, wrap
from rayched.server.admission.attempt_delays import FORGOTTEN_SECONDS, SAMPLE_SECONDS, SAMPLES_MAX, AttemptDelays
from rayched.store.codec import encode
from rayched.store.entries import Deleted, Entry
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Pod
from tests.server.objects import a_node, a_pod

KEYS = Keys()


class Play:
    """A clock of its own, and what was told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[tuple[float, float]] = []
        self.delays = AttemptDelays(KEYS.prefix(POD), lambda seconds, now: self.told.append((seconds, now)), lambda: self.now)
        self.revision = 0

    def create(self, name: str, change: Callable[[Pod], None] = lambda _: None) -> None:
        pod = a_pod(name, namespace="default")
        change(pod)
        self.revision += 1
        self.entry(name, encode(wrap(pod)), self.revision)

    def entry(self, name: str, value: bytes, created: int) -> None:
        self.delays.changed([Entry(KEYS.object_key(POD, "default", name), value, created, self.revision)])

    def write(self, name: str) -> None:
        self.revision += 1
        self.entry(name, encode(wrap(a_pod(name, namespace="default"))), 1 if self.revision > 1 else 0)


def test_the_first_change_of_a_pod_ends_its_wait() -> None:
    play = Play()
    play.create("a")
    play.now = 0.3
    play.create("b")
    play.now = 1.5
    play.write("a")
    play.write("a")
    assert play.told == [(1.5, 1.5)]
    play.now = 2.0
    play.write("b")
    assert play.told[1:] == [(pytest.approx(1.7), 2.0)]


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: setattr(pod.spec, "node_name", "n"),
        lambda pod: pod.spec.scheduling_gates.add(name="later"),
        lambda pod: pod.metadata.annotations.update({"text": "x" * 3_000}),
    ],
)
def test_who_waits_for_nobody_or_is_large_is_no_sample(change: Callable[[Pod], None]) -> None:
    play = Play()
    play.create("a", change)
    play.write("a")
    assert not play.told


def test_what_is_deleted_no_pod_unreadable_or_there_before_is_no_sample() -> None:
    play = Play()
    play.create("a")
    key = KEYS.object_key(POD, "default", "a")
    play.delays.changed([Deleted(key, 2)])
    play.revision = 3
    play.write("a")
    play.now += 1.0
    node = encode(wrap(a_node("n")))
    play.delays.changed([Entry(KEYS.object_key(NODE, "", "n"), node, 7, 7), Entry(KEYS.object_key(NODE, "", "n"), node, 7, 8)])
    play.delays.changed([Entry(key, b"\xff\xff", 9, 9), Entry(key, b"\xff\xff", 9, 10)])
    assert not play.told


def test_samples_are_few_and_those_that_nobody_tries_are_forgotten() -> None:
    play = Play()
    for number in range(2 * SAMPLES_MAX):
        play.create(f"never-{number}")
        play.create(f"same-time-{number}")
        play.now += 0.1
    assert len(play.delays._waiting) == SAMPLES_MAX
    play.create("one")
    play.write("one")
    assert not play.told
    play.now += FORGOTTEN_SECONDS
    play.create("two")
    play.now += 0.1
    play.write("two")
    assert play.told == [(pytest.approx(0.1), play.now)]
    assert len(play.delays._waiting) == 0


def test_soon_after_a_sample_nobody_is_taken_for_another_one() -> None:
    play = Play()
    play.create("a")
    play.now = SAMPLE_SECONDS / 2
    play.create("too-soon")
    play.now = SAMPLE_SECONDS
    play.create("b")
    play.now = 3.0
    for name in ("too-soon", "a", "b"):
        play.write(name)
    assert play.told == [(3.0, 3.0), (3.0 - SAMPLE_SECONDS, 3.0)]


def test_a_sample_is_forgotten_after_a_minute_and_not_before() -> None:
    """Seen by what its binding still tells once another sample was taken."""
    for waited, told in ((FORGOTTEN_SECONDS - 0.5, 1), (FORGOTTEN_SECONDS, 0)):
        play = Play()
        play.create("a")
        play.now = waited
        play.create("b")
        play.write("a")
        assert len(play.told) == told
