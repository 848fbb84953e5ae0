"""The election's fine print: whose answer counts when the watch was faster, what is asked for at once, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from leader import effects as fx
from leader import events as ev
from leader.record import Epoch, LeaderRecord
from tests.leader.model import Desk, ModelStore, a_config, a_record, held_by, leading


def hung(desk: Desk) -> fx.Request:
    return desk.open_requests[-1] if desk.open_requests else desk.requests[-1]


def revision_of_epoch(desk: Desk) -> int:
    assert desk.store.epoch is not None
    return desk.store.epoch.mod_revision


# ------------------------------------------------------------------------------------------------------------ acquisitions


def test_an_acquisition_that_another_one_has_overtaken_by_the_time_of_its_answer_is_not_led() -> None:
    desk = Desk()
    desk.script.extend(["answer", "hangs committed"])
    desk.start()
    written = revision_of_epoch(desk)
    desk.store.put(a_record("bing"), Epoch(1, "bing", "of-bing"))
    desk.watch()
    desk.do(ev.Answered(hung(desk).number, ev.Written(written)))
    assert not desk.of(fx.StartLeading) and desk.belief is None and desk.leaders[-1] == "bing"


def test_a_new_term_that_another_candidate_has_overtaken_is_lost() -> None:
    desk = leading()
    desk.script.append("hangs committed")
    desk.do(ev.NewTermRequested())
    written = revision_of_epoch(desk)
    desk.store.put(a_record("bing"), Epoch(2, "bing", "of-bing"))
    desk.watch()
    desk.do(ev.Answered(hung(desk).number, ev.Written(written)))
    assert desk.belief is None and not desk.of(fx.TermBegun)
    assert [failed.reason for failed in desk.of(fx.TermFailed)] == ["the lease is lost or given up"]


def test_the_keys_are_read_at_once_where_the_watch_has_shown_but_one_of_them() -> None:
    desk = Desk(held_by("bing"))
    desk.do(ev.RecordChanged(desk.store.record, desk.store.revision)).start()
    assert desk.calls == ["get"]


def test_after_an_acquisition_without_an_answer_the_keys_are_read_though_another_one_leads_by_now() -> None:
    desk = Desk(held_by("bing", lease=3.0)).start()
    desk.script.append("hangs")
    desk.pass_time(3)
    assert desk.calls == ["get", "acquire"]
    desk.store.put(a_record("qux"), Epoch(1, "qux", "of-qux"))
    desk.watch()
    desk.pass_time(2)
    assert desk.calls == ["get", "acquire", "get"], "its own write may still arrive; the lease of ten seconds is not waited for"


def test_an_acquisition_that_was_refused_by_what_is_there_now_is_tried_again_at_once_where_it_is_free() -> None:
    desk = Desk(held_by("bing", lease=3.0)).start().pass_time(2.9)
    desk.store.put(LeaderRecord("", lease_ms=1000), Epoch(0, ""))
    desk.pass_time(0.1)
    assert desk.leads and desk.calls == ["get", "acquire", "acquire"] and desk.transitions == 1


@pytest.mark.parametrize("how", ["lost", "failed"])
def test_why_the_lease_cannot_be_taken_is_told_once_in_each_time_as_a_follower(how: str) -> None:
    desk = Desk()
    desk.script.extend(["answer", *["failed", "answer"] * 3])
    desk.start().pass_time(15)
    assert desk.leads and desk.texts == ["baz cannot take the lead: failed", "baz became leader"]
    desk.store.put(a_record("bing", 1.0), Epoch(1, "bing", "of-bing"))
    desk.watch()
    desk.script.append(how)
    desk.pass_time(20)
    assert desk.leads and desk.texts[2:] == ["baz stopped leading", f"baz cannot take the lead: {how}", "baz became leader"]


def test_an_acquisition_that_was_answered_too_late_says_why_it_is_not_led() -> None:
    desk = Desk(config=a_config(retry_period=4.0))
    desk.script.extend(["answer", "hangs committed"])
    desk.start().sleep(6.5)
    desk.do(ev.Answered(hung(desk).number, ev.Written(revision_of_epoch(desk))))
    told = "baz cannot take the lead: no answer of the store to a write for 6.5 s, and belief lasts 6 s"
    assert desk.texts == [told, "baz became leader"] and desk.of(fx.SlowPath)


@pytest.mark.parametrize(("seconds", "proved"), [(5.999, False), (6.0, True)])
def test_an_acquisition_is_led_as_long_as_the_belief_in_it_would_last(seconds: float, proved: bool) -> None:
    desk = Desk(config=a_config(retry_period=4.0))
    desk.script.extend(["answer", "hangs committed"])
    desk.start().sleep(seconds)
    desk.do(ev.Answered(hung(desk).number, ev.Written(revision_of_epoch(desk))))
    assert desk.order(fx.Renew, fx.StartLeading)[:2] == ([fx.Renew, fx.StartLeading] if proved else [fx.StartLeading, fx.Renew])


def test_a_proof_that_was_answered_too_late_counts_as_a_renewal_without_an_answer() -> None:
    desk = Desk()
    desk.script.extend(["answer", "lost", "answer", "hangs committed"])
    desk.start().pass_time(0.1)
    assert desk.calls == ["get", "acquire", "get", "renew"]
    record = desk.store.record
    assert record is not None
    desk.sleep(6.4)
    desk.do(ev.Answered(hung(desk).number, ev.Written(record.mod_revision)))
    assert [missed.since_ns for missed in desk.of(fx.NotRenewed)] == [6_500_000_000]
    assert not desk.of(fx.StartLeading) or desk.requests[-1].number > 4


def test_whoever_is_stopping_does_not_say_why_it_cannot_take_the_lead() -> None:
    desk = Desk()
    desk.script.extend(["answer", "hangs"])
    desk.start().do(ev.StopRequested(), ev.Answered(2, ev.Unknown("gone")))
    assert desk.texts == [] and desk.pass_time(10).of(fx.Ended)


def test_a_timer_that_is_set_already_is_not_set_again() -> None:
    for desk in (leading(), Desk(held_by("bing")).start()):
        assert desk.due is not None
        effects = len(desk.effects)
        desk.do(ev.Tick(), ev.Tick(), ev.ProgressReported(round(desk.now * 1e9)))
        assert desk.effects[effects:] == []


# ---------------------------------------------------------------------------------------------------------------- renewals


def test_a_record_that_vanished_is_seen_again_by_the_answer_to_its_renewal() -> None:
    desk = leading().pass_time(1)
    desk.store.delete_record()
    desk.watch()
    assert desk.leads and desk.leaders == ["baz", "", "baz"]


def test_renewals_tell_how_long_they_took() -> None:
    desk = leading()
    desk.script.append("hangs committed")
    desk.pass_time(2).sleep(0.25)
    record = desk.store.record
    assert record is not None
    desk.do(ev.Answered(hung(desk).number, ev.Written(record.mod_revision)))
    assert [renewed.round_trip_ns for renewed in desk.of(fx.Renewed)] == [250_000_000]


def test_a_renewal_that_is_never_answered_is_told_of_once_when_no_answer_to_it_would_be_heard_any_more() -> None:
    desk = leading()
    desk.script.append("hangs")
    desk.pass_time(9.9)
    assert desk.leads and not desk.of(fx.NotRenewed)
    desk.pass_time(20)
    (missed,) = desk.of(fx.NotRenewed)
    assert desk.leads and desk.config.lease_duration_ns <= missed.since_ns <= desk.config.lease_duration_ns + 2_000_000_000


def test_who_learns_that_its_new_term_was_committed_proves_it_at_once() -> None:
    desk = leading()
    desk.script.extend(["hangs committed", "answer", "answer"])
    desk.do(ev.NewTermRequested()).pass_time(2.05)
    assert desk.calls[-3:] == ["begin term", "begin term", "renew"] and desk.times[-1] == desk.times[-2] == 1002
    assert desk.leads and [begun.epoch for begun in desk.of(fx.TermBegun)] == [revision_of_epoch(desk)]


def test_belief_that_would_be_over_is_not_published_again() -> None:
    desk = leading(config=a_config(renew_deadline=6.0, retry_period=2.0))
    desk.script.append("hangs committed")
    desk.pass_time(2).sleep(6.0)
    effects = len(desk.effects)
    record = desk.store.record
    assert record is not None
    desk.script.extend(["hangs"] * 5)
    desk.do(ev.Answered(hung(desk).number, ev.Written(record.mod_revision)))
    assert not [effect for effect in desk.effects[effects:] if isinstance(effect, fx.PublishBelief)]
    assert desk.state == "suspended"


def test_a_suspended_leader_stops_at_the_end_of_the_lease_since_its_last_answer_and_not_before() -> None:
    desk = leading(config=a_config(rejoin=False))
    desk.script.extend(["failed"] * 100)
    desk.pass_time(9.999)
    assert desk.state == "suspended"
    desk.pass_time(0.001)
    assert desk.state in ("stopping", "releasing", "stopped")
    assert [text for text in desk.texts if "stopped" in text] == ["baz stopped leading"]


# --------------------------------------------------------------------------------------------------------------------- ends


@pytest.mark.parametrize(("release", "released"), [(True, True), (False, False)])
def test_a_stop_of_a_suspended_leader_releases_where_that_is_asked_for(release: bool, released: bool) -> None:
    desk = leading()
    desk.script.extend(["failed"] * 3)
    desk.pass_time(6.2)
    assert desk.state == "suspended"
    desk.script.clear()
    desk.do(ev.StopRequested(release=release)).pass_time(1)
    assert ("release" in desk.calls) is released and desk.of(fx.Ended)
    assert len(desk.of(fx.StopLeading)) == 1


def test_a_release_that_has_no_answer_is_tried_for_the_time_of_a_belief_and_then_given_up() -> None:
    desk = leading(config=a_config(rejoin=False))
    desk.script.extend(["failed"] * 100)
    desk.do(ev.ResignRequested("asked to"))
    desk.pass_time(5.999)
    assert desk.state == "releasing" and not desk.of(fx.Ended)
    desk.pass_time(0.001)
    assert desk.of(fx.Ended) and desk.calls.count("release") >= 2


def test_what_is_under_way_when_a_release_is_given_up_is_not_heard_any_more() -> None:
    desk = leading()
    desk.script.extend(["hangs"] * 100)
    desk.do(ev.ResignRequested("asked to")).pass_time(6)
    assert desk.state == "follower"
    desk.script.clear()
    releases = [request for request in desk.requests if isinstance(request, fx.Release)]
    effects = len(desk.effects)
    for request in releases:
        desk.do(ev.Answered(request.number, ev.Written(99)))
    assert not [effect for effect in desk.effects[effects:] if isinstance(effect, fx.NewLeader | fx.Ended)]


def test_a_resigned_leader_waits_for_a_retry_period_or_more_though_nobody_else_is_there() -> None:
    for uniform, seconds in ((0.0, 2.0), (0.5, 3.2)):
        desk = leading(uniform=uniform).do(ev.ResignRequested("asked to"))
        assert desk.holder == "" and not desk.leads
        desk.pass_time(seconds - 0.01)
        assert not desk.leads
        assert desk.pass_time(0.02).leads


def test_a_sign_of_life_from_before_the_stop_is_none_of_work_that_hung() -> None:
    desk = leading(config=a_config(progress_limit=3.0))
    desk.do(ev.ProgressReported(round(desk.now * 1e9)))
    while desk.leads:
        desk.pass_time(0.5)
    told_to_stop = desk.now
    desk.pass_time(10)
    for seconds, starts in ((-3.5, 1), (0.0, 1), (0.001, 2)):
        desk.do(ev.ProgressReported(round((told_to_stop + seconds) * 1e9))).pass_time(0.1)
        assert len(desk.of(fx.StartLeading)) == starts
    assert desk.leads and desk.now < told_to_stop + 50


def test_the_holder_is_told_once_while_it_renews_and_also_where_nobody_holds() -> None:
    store = ModelStore()
    desk = Desk(store, a_config(identity="qux"), instance="other")
    store.put(a_record("bing"), Epoch(0, "bing", "of-bing"))
    desk.start()
    for _ in range(3):
        store.put(a_record("bing"))
        desk.pass_time(1).watch()
    assert desk.leaders == ["bing"]
    found: list[Any] = desk.of(fx.NewLeader)
    assert found[0].record == a_record("bing")
    store.put(LeaderRecord("", lease_ms=3_600_000), Epoch(0, ""))
    desk.watch()
    assert desk.leaders == ["bing", "", "qux"]
