"""What a follower takes for evidence that the leader is gone, and what not. Times are seconds."""

from __future__ import annotations

import pytest

from leader.clock import seconds_to_ns
from leader.failure_detector import (
    CHANGES_A_MINUTE_MAX,
    Connect,
    Connected,
    ConnectionBroken,
    ConnectionRefused,
    Counted,
    DetectorEffect,
    DetectorEvent,
    Disconnect,
    FailureDetector,
    LeaderSeen,
    Leading,
    LookAround,
    Revoke,
    TimePassed,
    Unanswered,
    Vote,
)
from leader.revocation import Evidence, HeldTerm

RETRY_PERIOD = 0.4
SUSPECT_AFTER = 0.7
START = 1000.0


def leading(epoch: int = 7, lease_id: int = 5, address: str = "127.0.0.1:1") -> Leading:
    return Leading("a", address, HeldTerm(lease_id, epoch))


class Follower:
    """A detector, and what it wants done."""

    def __init__(self, suspect_after: float | None = SUSPECT_AFTER) -> None:
        self.detector = FailureDetector(RETRY_PERIOD, suspect_after)
        self.now = START
        self.effects: list[DetectorEffect] = []
        self.attempts: set[int] = set()
        """Connections that were asked for, and of which nothing has been told yet."""

    def __call__(self, event: DetectorEvent, after: float = 0.0) -> list[DetectorEffect]:
        self.now += after
        effects = self.detector.step(seconds_to_ns(self.now), event)
        self.effects += effects
        if isinstance(event, Connected | ConnectionRefused | Unanswered):
            self.attempts.discard(event.number)
        self.attempts |= {effect.number for effect in effects if isinstance(effect, Connect)}
        self.attempts -= {effect.number for effect in effects if isinstance(effect, Disconnect)}
        return effects

    def due(self) -> float:
        """In seconds from now."""
        assert self.detector.due_ns is not None
        return self.detector.due_ns / 1e9 - self.now

    def connected(self) -> int:
        """Follows a leader over an open connection; its number."""
        *_, connect = self(LeaderSeen(leading()))
        assert isinstance(connect, Connect)
        assert self(Connected(connect.number)) == []
        return connect.number

    def silent(self, seconds: float) -> None:
        """Nothing is answered for so long from now, though it is asked for all the time."""
        until = self.now + seconds
        while self.now < until:
            self(TimePassed(), max(0.001, self.due()))

    @property
    def revoked(self) -> list[Revoke]:
        return [effect for effect in self.effects if isinstance(effect, Revoke)]

    @property
    def votes(self) -> list[int]:
        return [effect.epoch for effect in self.effects if isinstance(effect, Vote)]


def test_a_connection_that_breaks_and_is_refused_then_is_evidence() -> None:
    follower = Follower(suspect_after=None)
    link = follower.connected()
    (again,) = follower(ConnectionBroken(link), 10.0)
    assert isinstance(again, Connect) and again.number != link
    (revoke,) = follower(ConnectionRefused(again.number))
    assert isinstance(revoke, Revoke)
    assert (revoke.leading, revoke.evidence) == (leading(), Evidence.REFUSED)


def test_a_connection_that_breaks_and_is_there_again_is_none() -> None:
    follower = Follower(suspect_after=None)
    (again,) = follower(ConnectionBroken(follower.connected()), 10.0)
    assert isinstance(again, Connect)
    follower(Connected(again.number))
    assert follower.revoked == []


def test_an_address_that_never_worked_proves_nothing() -> None:
    follower = Follower(suspect_after=None)
    (first,) = follower(LeaderSeen(leading()))
    assert isinstance(first, Connect)
    assert follower(ConnectionRefused(first.number)) == []
    (second,) = follower(TimePassed(), follower.due())
    assert isinstance(second, Connect)
    assert follower(ConnectionRefused(second.number)) == []


def test_what_worked_under_a_former_leader_says_nothing_of_its_successor() -> None:
    follower = Follower(suspect_after=None)
    link = follower.connected()
    gone, connect = follower(LeaderSeen(leading(epoch=9)))
    assert gone == Disconnect(link) and isinstance(connect, Connect)
    assert follower(ConnectionRefused(connect.number)) == []
    assert follower(ConnectionRefused(link)) == [], "a connection that was given up"


def test_one_term_is_acted_on_once() -> None:
    follower = Follower(suspect_after=None)
    (again,) = follower(ConnectionBroken(follower.connected()), 10.0)
    assert isinstance(again, Connect)
    follower(ConnectionRefused(again.number))
    follower(LeaderSeen(leading(lease_id=6)))
    (third,) = follower(TimePassed(), 0.6)
    assert isinstance(third, Connect)
    follower(ConnectionRefused(third.number))
    assert len(follower.revoked) == 1, "a leader that kept its term lives"


def test_connections_that_break_at_once_are_not_opened_in_a_tight_loop() -> None:
    follower = Follower(suspect_after=None)
    number = follower.connected()
    opened = 0
    for _ in range(100):
        effects = follower(ConnectionBroken(number), 0.001)
        if not effects:
            break
        opened += 1
        (connect,) = effects
        assert isinstance(connect, Connect)
        number = connect.number
        follower(Connected(number))
    assert opened == 5
    assert follower.due() > 0.4


def test_a_leader_that_renews_is_not_asked_for_answers() -> None:
    follower = Follower()
    follower.connected()
    for _ in range(20):
        assert follower(LeaderSeen(leading()), RETRY_PERIOD) == []
        assert follower(TimePassed()) == []


def test_silence_is_voted_on_after_its_time_and_acted_on_when_two_followers_agree() -> None:
    follower = Follower()
    follower.connected()
    follower.now += 0.5
    began = follower.now
    follower.silent(SUSPECT_AFTER - 0.2)
    assert follower.votes == []
    follower.silent(0.4)
    assert set(follower.votes) == {7}
    assert follower.now - began < 1.2
    assert follower(Counted(7, 2, 1)) == [], "the other one has not said so"
    assert follower(Counted(6, 2, 2)) == [], "of an epoch that is over"
    (revoke,) = follower(Counted(7, 2, 2))
    assert isinstance(revoke, Revoke) and revoke.evidence is Evidence.SILENT


def a_vote_after(follower: Follower) -> float:
    """Seconds of silence until the first vote."""
    began = follower.now
    while not follower.votes:
        follower(TimePassed(), max(0.0, follower.due()))
    return follower.now - began


def test_the_time_counts_from_when_the_renewal_was_due() -> None:
    follower = Follower()
    follower.connected()
    assert a_vote_after(follower) == pytest.approx(RETRY_PERIOD + SUSPECT_AFTER, abs=0.001)


def test_after_an_answer_it_counts_from_the_first_attempt_without_one() -> None:
    follower = Follower()
    follower.connected()
    (probe,) = follower(TimePassed(), follower.due())
    assert isinstance(probe, Connect)
    follower(Connected(probe.number), 0.01)
    assert a_vote_after(follower) == pytest.approx(0.1 - 0.01 + SUSPECT_AFTER, abs=0.001)


def test_who_slept_itself_has_to_find_silence_before_it_votes() -> None:
    follower = Follower()
    follower.connected()
    follower.now += 60.0
    assert a_vote_after(follower) == pytest.approx(SUSPECT_AFTER - RETRY_PERIOD / 8, abs=0.001)


def test_who_is_first_not_answered_looks_around_once_until_there_is_an_answer() -> None:
    follower = Follower()
    follower.connected()
    follower.now += 0.5
    follower.silent(1.5)
    assert follower.effects.count(LookAround()) == 1
    first_vote = next(place for place, effect in enumerate(follower.effects) if isinstance(effect, Vote))
    assert follower.effects.index(LookAround()) < first_vote
    follower(Connected(min(follower.attempts)), 0.05)
    follower.silent(0.3)
    assert follower.effects.count(LookAround()) == 2


@pytest.mark.parametrize(("latency", "is_silent"), [(0.0, False), (0.3, False), (0.65, False), (0.75, True), (2.0, True)])
def test_a_host_behind_a_slow_network_answers_late_and_is_not_silent(latency: float, is_silent: bool) -> None:
    follower = Follower()
    follower.connected()
    follower.now += 0.5
    coming: list[tuple[float, DetectorEvent]] = []
    """What becomes of each attempt, and when."""
    until = follower.now + 20.0
    while follower.now < until:
        at, event = min(coming, key=lambda one: one[0], default=(follower.now + 60.0, TimePassed()))
        due_at = follower.now + max(0.0, follower.due())
        if due_at < at:
            at, event = due_at, TimePassed()
        else:
            coming.remove((at, event))
        for one in follower(event, at - follower.now):
            if isinstance(one, Connect):
                timeout = one.timeout_ns / 1e9
                outcome = Connected(one.number) if latency < timeout else Unanswered(one.number)
                coming.append((follower.now + min(latency, timeout), outcome))
        assert len(follower.attempts) <= 8, "no more are under way"
    assert bool(follower.votes) == is_silent


def test_an_attempt_is_waited_for_a_second_at_most() -> None:
    for suspect_after, seconds in ((0.3, 0.3), (0.7, 0.7), (30.0, 1.0)):
        follower = Follower(suspect_after)
        follower.connected()
        (probe,) = follower(TimePassed(), 0.5)
        assert isinstance(probe, Connect) and probe.timeout_ns == seconds_to_ns(seconds)


def test_where_there_is_one_follower_its_word_is_enough() -> None:
    follower = Follower()
    follower.connected()
    follower.now += 0.5
    follower.silent(1.0)
    (revoke,) = follower(Counted(7, 1, 1))
    assert isinstance(revoke, Revoke)


def test_any_answer_and_any_renewal_begins_the_time_anew() -> None:
    follower = Follower()
    follower.connected()
    follower.now += 0.5
    follower.silent(0.5)
    attempts = follower.attempts.copy()
    answered = follower(Connected(min(attempts)), 0.05)
    assert {effect.number for effect in answered if isinstance(effect, Disconnect)} == attempts
    follower.silent(0.5)
    assert follower.votes == []
    follower.silent(0.4)
    assert set(follower.votes) == {7}
    assert Vote(0) in follower(LeaderSeen(leading()))
    assert follower(Counted(7, 2, 2)) == [], "the vote was taken back"


def test_a_host_that_answers_without_the_connection_of_before_says_that_its_leader_is_gone() -> None:
    """The host was cut off, started anew, and knows of no connection."""
    follower = Follower()
    follower.connected()
    follower.now += 0.5
    (probe,) = follower(TimePassed())
    assert isinstance(probe, Connect)
    (revoke,) = follower(ConnectionRefused(probe.number))
    assert isinstance(revoke, Revoke) and revoke.evidence is Evidence.REFUSED


def test_silence_is_not_acted_on_while_the_lead_flaps() -> None:
    follower = Follower()
    for epoch in range(1, CHANGES_A_MINUTE_MAX + 1):
        follower(LeaderSeen(leading(epoch=epoch)), 1.0)
    follower.connected()
    follower.now += 0.5
    follower.silent(1.0)
    assert follower(Counted(7, 2, 2)) == []
    follower.silent(60.0)
    (revoke,) = follower(Counted(7, 2, 2))
    assert isinstance(revoke, Revoke)


def test_silence_never_counts_where_that_is_switched_off() -> None:
    follower = Follower(suspect_after=None)
    follower.connected()
    assert follower.detector.due_ns is None
    assert follower(TimePassed(), 100.0) == []


def test_nobody_is_watched_where_nobody_leads() -> None:
    follower = Follower()
    link = follower.connected()
    assert follower(LeaderSeen(None)) == [Disconnect(link)]
    assert follower.detector.due_ns is None
    assert follower(ConnectionBroken(link), 1.0) == []
