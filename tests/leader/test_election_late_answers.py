"""Answers that come after their request is no longer waited for: of renewals and new terms they count, as of the sending."""

from __future__ import annotations

import pytest

from leader import effects as fx
from leader import events as ev
from leader.config import FAST, KUBE, ElectionConfig, TimingProfile
from leader.record import Epoch
from tests.leader.arena import Arena
from tests.leader.model import Desk, ModelStore, a_record, leading


def slow(profile: TimingProfile = FAST) -> Desk:
    """A leader whose store performs what it is sent, and answers when the test says so."""
    desk = Desk(config=ElectionConfig.of(profile, identity="baz")).start()
    assert desk.leads
    desk.script.extend(["hangs committed"] * 1000)
    return desk


def answer(desk: Desk, request: fx.Request, outcome: ev.Outcome | None = None) -> None:
    if outcome is None:
        assert desk.store.record is not None
        outcome = ev.Written(desk.store.record.mod_revision)
    desk.do(ev.Answered(request.number, outcome))


@pytest.mark.parametrize("profile", [FAST, KUBE], ids=["fast", "kube"])
def test_a_renewal_that_is_not_answered_soon_has_another_one_sent_beside_it(profile: TimingProfile) -> None:
    desk = slow(profile)
    desk.pass_time(profile.renew_deadline * 0.99)
    sent = [moment - 1000 for moment, call in zip(desk.times, desk.calls, strict=True) if call == "renew"]
    patience = min(profile.retry_period, profile.renew_deadline / 10)
    assert sent[:3] == pytest.approx([profile.retry_period, profile.retry_period + patience, profile.retry_period + 2 * patience])


@pytest.mark.parametrize("seconds", [0.45, 0.6, 0.9, 1.0])
def test_a_leader_keeps_the_lease_while_every_answer_takes_as_long(seconds: float) -> None:
    desk = slow()
    answered: list[int] = []
    for _ in range(3000):
        desk.pass_time(0.01)
        for request, moment in zip(list(desk.requests), list(desk.times), strict=True):
            if isinstance(request, fx.Renew) and desk.now >= moment + seconds and request.number not in answered:
                answered.append(request.number)
                answer(desk, request)
        # The first answer is as late as all others, and belief began with an acquisition answered at once.
        assert desk.leads or desk.now < 1000 + FAST.retry_period + seconds + 0.3
    assert len(answered) > 50
    # It may stop once: when the answers begin to take so long just after a renewal was sent.
    assert len(desk.of(fx.StopLeading)) <= (1 if seconds + FAST.retry_period > FAST.renew_deadline - 0.02 else 0)


@pytest.mark.parametrize("seconds", [0.45, 0.9, 1.0, 1.05])
def test_who_takes_the_lease_of_a_slow_store_leads_for_good_after_two_answers(seconds: float) -> None:
    desk = Desk(config=ElectionConfig.of(FAST, identity="baz"))
    desk.script.extend(["hangs committed"] * 1000)
    desk.start()
    answered: set[int] = set()
    while desk.now < 1030:
        desk.pass_time(0.01)
        for request, moment in zip(list(desk.requests), list(desk.times), strict=True):
            if request.number in answered or desk.now < moment + (0 if isinstance(request, fx.Get) else seconds):
                continue
            answered.add(request.number)
            if isinstance(request, fx.Get):
                desk.do(ev.Answered(request.number, ev.Found(desk.store.view())))
            else:
                answer(desk, request)
        assert desk.leads or desk.now < 1000 + 2 * seconds + 0.1
    assert desk.transitions == 0 and "baz stopped leading" not in desk.texts


def test_belief_after_a_late_answer_counts_from_the_sending() -> None:
    desk = slow()
    desk.pass_time(1.2)
    first = next(request for request in desk.requests if isinstance(request, fx.Renew))
    answer(desk, first)
    assert desk.belief is not None and desk.belief[1] == pytest.approx(1000.4 + 1.3)


def test_an_earlier_answer_after_a_later_one_takes_nothing_back() -> None:
    desk = slow()
    desk.pass_time(1.2)
    renewals = [request for request in desk.requests if isinstance(request, fx.Renew)]
    answer(desk, renewals[2])
    later = desk.belief
    answer(desk, renewals[0])
    assert desk.belief == later


def test_a_late_answer_brings_a_suspended_leader_back_while_its_belief_would_last() -> None:
    desk = slow()
    desk.pass_time(1.4)
    assert desk.state == "suspended"
    answer(desk, [request for request in desk.requests if isinstance(request, fx.Renew)][-1])
    assert desk.leads and desk.state == "leading" and desk.texts[-1] == "baz resumed leading"


def test_an_answer_that_is_later_than_the_lease_is_not_heard() -> None:
    desk = slow()
    desk.pass_time(1.2)
    first = next(request for request in desk.requests if isinstance(request, fx.Renew))
    desk.pass_time(1.3)
    before = desk.belief
    answer(desk, first)
    assert desk.belief == before


def test_a_late_refusal_that_shows_another_holder_ends_leading() -> None:
    desk = slow()
    desk.pass_time(0.8)
    first = next(request for request in desk.requests if isinstance(request, fx.Renew))
    desk.store.put(a_record("bing"), Epoch(1, "bing", "of-bing"))
    answer(desk, first, ev.Refused(desk.store.view()))
    assert not desk.leads and desk.texts[-1] == "baz stopped leading"


def test_a_refusal_later_than_the_lease_ends_leading_too_where_it_shows_another_holder() -> None:
    desk = slow()
    desk.pass_time(1.2)
    renewals = [request for request in desk.requests if isinstance(request, fx.Renew)]
    answer(desk, renewals[-1])
    desk.pass_time(1.1)
    answer(desk, [request for request in desk.requests if isinstance(request, fx.Renew)][-1])
    desk.pass_time(0.5)
    assert desk.leads and round(max(one.since_ns / 1e9 for one in desk.of(fx.NotRenewed)), 3) >= FAST.lease_duration
    desk.store.put(a_record("bing"), Epoch(1, "bing", "of-bing"))
    answer(desk, renewals[0], ev.Refused(desk.store.view()))
    assert not desk.leads and desk.texts[-1] == "baz stopped leading"


def test_a_new_term_is_not_believed_in_where_the_answer_to_a_renewal_given_up_for_it_shows_another_holder() -> None:
    desk = slow()
    desk.pass_time(0.7)
    renewal = next(request for request in desk.requests if isinstance(request, fx.Renew))
    desk.do(ev.NewTermRequested())
    begin, begun = desk.requests[-1], desk.store.revision
    assert isinstance(begin, fx.BeginTerm)
    desk.store.put(a_record("bing"), Epoch(2, "bing", "of-bing"))
    answer(desk, renewal, ev.Refused(desk.store.view()))
    answer(desk, begin, ev.Written(begun))
    assert not desk.leads and desk.texts[-1] == "baz stopped leading" and desk.of(fx.TermFailed)


def test_an_acquisition_is_not_believed_in_where_the_answer_to_an_earlier_call_shows_another_holder() -> None:
    desk = Desk(config=ElectionConfig.of(FAST, identity="baz"))
    desk.script.extend(["hangs", "answer", "hangs committed"])
    desk.start().pass_time(1.9)
    read, _, acquire = desk.requests
    assert isinstance(acquire, fx.Acquire)
    acquired = desk.store.revision
    desk.store.put(a_record("bing"), Epoch(1, "bing", "of-bing"))
    desk.do(ev.Answered(read.number, ev.Found(desk.store.view())))
    answer(desk, acquire, ev.Written(acquired))
    assert not desk.leads and desk.state == "follower" and not desk.of(fx.PublishBelief)


def test_a_new_term_that_was_begun_twice_is_not_lost_by_the_second_ones_refusal() -> None:
    desk = slow()
    desk.do(ev.NewTermRequested()).pass_time(1.15)
    first, second = [request for request in desk.requests if isinstance(request, fx.BeginTerm)]
    assert desk.store.epoch is not None
    answer(desk, first, ev.Written(desk.store.epoch.mod_revision))
    assert desk.leads and desk.transitions == 1
    answer(desk, second, ev.Refused(desk.store.view()))
    assert desk.leads and desk.belief is not None and desk.belief[0] == desk.store.epoch.mod_revision
    assert [begun.epoch for begun in desk.of(fx.TermBegun)] == [desk.belief[0]] and not desk.of(fx.StopLeading)


def test_a_late_answer_to_a_renewal_of_the_term_before_does_not_prolong_the_present_one() -> None:
    desk = slow()
    desk.pass_time(0.7)
    renewal = next(request for request in desk.requests if isinstance(request, fx.Renew))
    desk.do(ev.NewTermRequested())
    answer(desk, renewal)
    assert desk.belief is None


def test_nothing_that_was_under_way_is_heard_after_leading_was_given_up() -> None:
    desk = slow()
    desk.pass_time(0.7)
    renewal = next(request for request in desk.requests if isinstance(request, fx.Renew))
    desk.script.clear()
    desk.do(ev.ResignRequested("asked to"))
    assert desk.holder == ""
    effects = len(desk.effects)
    answer(desk, renewal)
    assert not [effect for effect in desk.effects[effects:] if isinstance(effect, fx.PublishBelief | fx.StartLeading)]


def test_every_renewal_is_told_of_with_the_time_that_it_took_or_was_waited_for() -> None:
    desk = slow()
    desk.pass_time(1.2)
    renewals = [request for request in desk.requests if isinstance(request, fx.Renew)]
    answer(desk, renewals[0])
    assert [round(one.round_trip_ns / 1e9, 3) for one in desk.of(fx.Renewed)] == [0.8]
    desk.pass_time(4.0)
    missed = [one.since_ns / 1e9 for one in desk.of(fx.NotRenewed)]
    assert len(missed) >= len(renewals) - 1 and max(missed) > FAST.renew_deadline


def test_a_renewal_that_fails_is_told_of_and_made_again_after_the_retry_period() -> None:
    desk = leading(config=ElectionConfig.of(FAST, identity="baz"))
    desk.script.append("failed")
    desk.pass_time(0.9)
    assert desk.times[-2:] == pytest.approx([1000.4, 1000.8]) and len(desk.of(fx.NotRenewed)) == 1


@pytest.mark.parametrize("seed", range(8))
def test_a_store_that_takes_up_to_a_second_has_one_leader_who_stays(seed: int) -> None:
    arena = Arena([ElectionConfig.of(FAST, identity=f"m{number}") for number in range(3)], seed, delay_ms=(250, 500)).start()
    arena.run_until(lambda: arena.leader() is not None, 10)
    arena.run(5)
    leader, epochs = arena.leader(), list(arena.epochs)
    assert leader is not None
    for _ in range(600):
        arena.run(0.1)
        assert arena.leader() is leader
    assert arena.epochs == epochs and arena.overlaps == 0


def test_every_call_of_a_slow_candidate_is_heard_within_a_second() -> None:
    config = ElectionConfig.of(FAST, identity="baz")
    assert config.call_timeout_ns > 1_000_000_000
    desk = Desk(ModelStore(), config)
    desk.script.append("hangs")
    desk.start().sleep(1.0)
    desk.do(ev.Answered(desk.requests[0].number, ev.Found(desk.store.view())))
    assert desk.leads


def test_no_call_takes_longer_than_belief_lasts() -> None:
    config = ElectionConfig(identity="a", lease_duration=0.9, renew_deadline=0.6, retry_period=0.2, store_ttl_seconds=1)
    assert config.call_timeout_ns == config.renew_deadline_ns


def test_who_could_lead_but_for_a_store_that_is_too_slow_says_so_once_and_its_renewals_are_counted() -> None:
    desk = Desk(config=ElectionConfig.of(FAST, identity="baz"))
    desk.script.extend(["hangs committed"] * 1000)
    desk.start()
    answered: set[int] = set()
    while desk.now < 1015:
        desk.pass_time(0.01)
        for request, moment in zip(list(desk.requests), list(desk.times), strict=True):
            if request.number not in answered and desk.now >= moment + (0 if isinstance(request, fx.Get) else 1.5):
                answered.add(request.number)
                found = ev.Found(desk.store.view()) if isinstance(request, fx.Get) else None
                answer(desk, request, found)
    assert not desk.of(fx.StartLeading)
    (told,) = [text for text in desk.texts if "cannot take the lead" in text]
    assert told == "baz cannot take the lead: no answer of the store to a write for 1.1 s, and belief lasts 1.3 s"
    assert desk.of(fx.NotRenewed)
