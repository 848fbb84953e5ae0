"""How a leader keeps the lease and how it loses it: renewals, deadlines, suspension, and what the store shows."""

from __future__ import annotations

import pytest

from leader import effects as fx
from leader import events as ev
from leader.clock import Instant
from leader.record import Epoch
from tests.leader.model import a_config, a_record, leading


@pytest.mark.row("LE-18")
def test_a_leader_renews_each_retry_period_with_one_call() -> None:
    desk = leading().pass_time(4)
    assert desk.calls == ["get", "acquire", "renew", "renew"]
    assert desk.times == [1000, 1000, 1002, 1004]
    desk.do(ev.StopRequested())
    assert desk.calls == ["get", "acquire", "renew", "renew", "release"]


@pytest.mark.row("LE-19", "L20")
@pytest.mark.parametrize("how", ["failed", "lost"])
def test_a_single_failed_renewal_loses_nothing(how: str) -> None:
    desk = leading(config=a_config(rejoin=False))
    desk.script.extend(["answer", how, "answer", "answer"])
    desk.pass_time(8.5)
    assert desk.calls == ["get", "acquire", "renew", "renew", "renew", "renew"]
    assert desk.leads and desk.transitions == 0 and desk.texts == ["baz became leader"]


@pytest.mark.row("LE-47")
@pytest.mark.parametrize("how", ["lost", "hangs committed"])
def test_a_renewal_that_was_committed_without_an_answer_is_followed_by_one_under_the_same_epoch(how: str) -> None:
    desk = leading()
    desk.script.append(how)
    epoch = desk.store.epoch
    desk.pass_time(4.5)
    assert desk.leads and desk.store.epoch == epoch and desk.transitions == 0


def test_belief_counts_from_the_sending_of_the_last_successful_renewal() -> None:
    desk = leading()
    desk.script.append("hangs committed")
    desk.pass_time(2).sleep(1.5)
    renew = desk.requests[-1]
    record = desk.store.record
    assert desk.belief == (2, 1006) and record is not None
    desk.do(ev.Answered(renew.number, ev.Written(record.mod_revision)))
    assert desk.belief == (2, 1008), "not from the answer, which came 1.5 s later"


@pytest.mark.row("L4", "LE-43", "L21")
@pytest.mark.parametrize("how", ["failed", "hangs"])
def test_leading_ends_at_the_renew_deadline_whether_calls_fail_or_never_return(how: str) -> None:
    desk = leading()
    desk.script.extend([how] * 50)
    desk.pass_time(5.999)
    assert desk.leads and not desk.of(fx.StopLeading)
    desk.pass_time(0.001)
    assert not desk.leads and desk.belief is None
    assert len(desk.of(fx.StopLeading)) == 1


@pytest.mark.row("L22")
def test_at_the_deadline_the_right_to_write_goes_first_and_then_the_work() -> None:
    desk = leading()
    desk.effects.clear()
    desk.script.extend(["hangs"] * 50)
    desk.pass_time(6)
    assert desk.order(fx.WithdrawBelief, fx.StopLeading) == [fx.WithdrawBelief, fx.StopLeading]


@pytest.mark.row("LE-42")
@pytest.mark.parametrize("suspend", [True, False])
def test_a_release_after_lost_renewals_comes_after_the_work_has_stopped(suspend: bool) -> None:
    desk = leading(config=a_config(suspend=suspend, rejoin=False), drains=False)
    desk.script.extend(["failed"] * 50)
    desk.pass_time(9)
    assert desk.of(fx.StopLeading) and not desk.leads
    assert "release" not in desk.calls, "nothing is released that has not drained"
    desk.do(ev.Drained()).pass_time(1)  # the lease duration is over: even a suspended leader gives up
    desk.script.clear()
    desk.pass_time(2.5)
    assert desk.order(fx.WithdrawBelief, fx.StopLeading, fx.Release)[:3] == (
        [fx.WithdrawBelief, fx.StopLeading, fx.WithdrawBelief if suspend else fx.Release]
    )
    assert "release" in desk.calls and desk.leaders == ["baz", ""]


@pytest.mark.row("LE-41")
@pytest.mark.parametrize("seen_by", ["epoch watch", "record watch", "renewal"])
def test_leading_ends_at_once_when_another_holder_is_seen(seen_by: str) -> None:
    desk = leading().pass_time(1)
    desk.store.put(a_record("bing"), Epoch(1, "bing", "of-bing"))
    revision = desk.store.revision
    match seen_by:
        case "epoch watch":
            desk.do(ev.EpochChanged(desk.store.epoch, revision))
        case "record watch":
            desk.do(ev.RecordChanged(desk.store.record, revision))
        case _:
            desk.pass_time(1)
    assert not desk.leads and desk.order(fx.StopLeading) == [fx.StopLeading]
    assert desk.now - 1000 <= 2
    desk.pass_time(5)
    assert "release" not in desk.calls and desk.holder == "bing"


def test_a_record_of_a_stranger_under_the_own_epoch_ends_leading_too() -> None:
    desk = leading().pass_time(1)
    desk.store.put(a_record("somebody with etcdctl"))
    desk.watch()
    assert not desk.leads


def test_an_own_record_that_vanished_is_written_again_at_once() -> None:
    desk = leading().pass_time(1)
    desk.store.delete_record()
    desk.watch()
    assert desk.leads and desk.calls[-1] == "renew" and desk.holder == "baz"


def test_work_that_was_alive_when_it_was_suspended_may_resume_after_a_silence_that_was_asked_for() -> None:
    desk = leading(config=a_config(progress_limit=1.0))
    desk.script.extend(["failed"] * 4)
    for _ in range(12):
        desk.do(ev.ProgressReported(round(desk.now * 1e9))).pass_time(0.5)
    assert desk.state == "suspended"
    desk.pass_time(1.5)
    desk.script.clear()
    assert desk.pass_time(2).leads


def test_late_watch_events_of_earlier_revisions_change_nothing() -> None:
    desk = leading()
    desk.pass_time(4)
    old = desk.store.record
    desk.pass_time(2)
    assert old is not None
    desk.do(ev.RecordChanged(old, old.mod_revision))
    assert desk.election.record == (desk.store.record.record if desk.store.record else None)
    before = len(desk.of(fx.StopLeading))
    desk.do(ev.EpochChanged(None, 1), ev.RecordChanged(None, 1))
    assert desk.leads and len(desk.of(fx.StopLeading)) == before


def test_a_store_that_went_back_ends_a_term_that_it_no_longer_knows() -> None:
    desk = leading(watches=True).pass_time(4)
    desk.store.revision, desk.store.record, desk.store.epoch = 1, None, None
    desk.do(ev.Listed(desk.store.view(), went_back=True))
    assert desk.of(fx.StopLeading)
    desk.pass_time(3)
    assert desk.leads and desk.belief is not None
    assert desk.belief[0] == desk.store.epoch.mod_revision


@pytest.mark.row("LE-52")
def test_a_renewal_under_the_same_epoch_ends_the_suspension_without_a_transition() -> None:
    desk = leading()
    epoch = desk.store.epoch
    desk.script.extend(["failed"] * 4)
    desk.pass_time(6.5)
    assert desk.state == "suspended" and not desk.leads
    desk.script.clear()
    desk.pass_time(2)
    assert desk.state == "leading" and desk.leads and desk.store.epoch == epoch
    assert [start.epoch for start in desk.of(fx.StartLeading)] == [2, 2], "the same epoch tells that nothing went stale"
    assert desk.texts == ["baz became leader", "baz suspended leading", "baz resumed leading"]


@pytest.mark.row("LE-52")
def test_a_suspended_leader_whose_epoch_passed_does_not_come_back_under_it() -> None:
    desk = leading()
    desk.script.extend(["failed"] * 4)
    desk.pass_time(6.5)
    desk.store.put(a_record("bing"), Epoch(1, "bing", "of-bing"))
    desk.script.clear()
    desk.pass_time(2)
    assert desk.state == "follower" and desk.texts[-1] == "baz stopped leading"
    assert "release" not in desk.calls and desk.holder == "bing"
    assert len(desk.of(fx.StopLeading)) == 1, "the work was told to stop when leading was suspended"


def test_a_suspended_leader_does_not_resume_before_its_work_has_drained() -> None:
    desk = leading(drains=False)
    desk.script.extend(["failed"] * 3)
    desk.pass_time(6.5)
    assert desk.state == "suspended"
    desk.script.clear()
    desk.pass_time(2)
    assert desk.calls[-1] == "renew" and not desk.leads
    desk.do(ev.Drained())
    assert desk.leads


@pytest.mark.row("L27")
@pytest.mark.parametrize("rejoin", [True, False])
def test_a_lost_lease_ends_the_term_and_the_run_only_where_that_is_asked_for(rejoin: bool) -> None:
    desk = leading(config=a_config(rejoin=rejoin))
    desk.store.put(a_record("bing", 3.0), Epoch(1, "bing", "of-bing"))
    desk.watch().pass_time(0.1)
    assert bool(desk.of(fx.Ended)) is not rejoin
    if rejoin:
        assert desk.pass_time(3).leads and desk.transitions == 2


@pytest.mark.row("LE-51")
def test_renewals_stop_when_the_work_shows_no_progress() -> None:
    desk = leading(config=a_config(progress_limit=3.0), drains=False)
    for _ in range(10):
        desk.do(ev.ProgressReported(round(desk.now * 1e9))).pass_time(1)
    hung_since = desk.now
    while desk.leads and desk.now < hung_since + 30:
        desk.pass_time(0.1)
    assert desk.now - hung_since <= 3.0 + 6.0 + 0.2
    last_renewal = max(t for t, call in zip(desk.times, desk.calls, strict=True) if call == "renew")
    assert last_renewal - hung_since <= 3.0, "so another leads at most progress limit + lease after the work hung"
    desk.pass_time(20)
    assert desk.of(fx.Overdue) and "release" not in desk.calls


def test_work_that_hung_leads_again_only_when_it_shows_life() -> None:
    desk = leading(config=a_config(progress_limit=3.0))
    last_sign = round(desk.now * 1e9)
    desk.do(ev.ProgressReported(last_sign))
    desk.pass_time(15)
    assert desk.state == "follower" and desk.holder == "", "released, and left to others"
    desk.do(ev.ProgressReported(last_sign)).pass_time(5)
    assert desk.state == "follower", "the same sign again is no new one"
    desk.do(ev.ProgressReported(round(desk.now * 1e9)))
    assert desk.leads


def test_lone_work_that_hung_is_given_another_chance_after_five_leases() -> None:
    desk = leading(config=a_config(progress_limit=3.0))
    desk.do(ev.ProgressReported(None))
    desk.pass_time(15)
    starts = len(desk.of(fx.StartLeading))
    assert starts == 1
    desk.pass_time(50)
    assert len(desk.of(fx.StartLeading)) == 2


def test_work_that_never_reports_has_the_whole_limit_for_its_first_sign() -> None:
    desk = leading()
    desk.do(ev.ProgressReported(None)).pass_time(5.9)
    assert desk.leads and desk.calls.count("renew") == 2
    desk.pass_time(0.2)
    assert desk.calls.count("renew") == 3 and desk.leads
    desk.pass_time(6)
    assert not desk.leads


@pytest.mark.row("LE-49")
def test_a_leader_that_slept_does_not_lead_when_it_wakes() -> None:
    desk = leading().sleep(60)
    assert not desk.leads, "whoever reads the belief sees by the clock that it is over"
    desk.script.append("hangs")
    desk.do(ev.Tick())
    assert desk.state == "stopping" or desk.of(fx.StopLeading)


@pytest.mark.row("LE-48")
@pytest.mark.parametrize("step_us", [3_600_000_000, -3_600_000_000])
def test_steps_of_the_wall_clock_change_nothing(step_us: int) -> None:
    desk = leading()
    for number in range(200):
        desk.now += 0.1
        wall_us = round(desk.now * 1e6) + (step_us if number > 20 else 0)
        for effect in desk.election.step(Instant(round(desk.now * 1e9), wall_us), ev.Tick()):
            desk.do(*desk._perform(effect))
    assert desk.leads and desk.transitions == 0 and not desk.of(fx.StopLeading)


def test_a_resigned_leader_releases_and_lets_others_go_first() -> None:
    desk = leading(uniform=0.5)
    desk.do(ev.ResignRequested("asked to"))
    assert desk.holder == "" and desk.state == "follower"
    for _ in range(31):
        desk.do(ev.ProgressReported(round(desk.now * 1e9))).pass_time(0.1)
    assert not desk.leads
    assert desk.pass_time(0.2).leads


def test_who_gave_up_without_a_release_may_take_its_own_record_again_at_once() -> None:
    desk = leading(config=a_config(release_on_cancel=False))
    desk.do(ev.ResignRequested("asked to"))
    assert not desk.leads and desk.holder == "baz"
    desk.pass_time(desk.config.retry_period)
    assert desk.leads and desk.transitions == 0, "a lease of ten seconds is not waited for"


def test_a_leader_whose_record_vanished_believes_again_when_it_is_written_and_not_before() -> None:
    """Somebody has evidence that this leader is gone, and others may be on their way."""
    desk = leading()
    desk.script.append("hangs")
    desk.store.delete_record()
    desk.watch()
    assert not desk.leads and desk.state == "leading" and desk.of(fx.StopLeading) == []
    desk.pass_time(desk.config.retry_period)
    assert desk.leads and desk.holder == "baz"
    assert len(desk.of(fx.StartLeading)) == 1, "the work was never told to stop"


def test_a_renewal_of_before_the_record_vanished_restores_no_belief() -> None:
    desk = leading()
    desk.script.append("hangs committed")
    desk.pass_time(desk.config.retry_period)
    number, written = desk.requests[-1].number, desk.store.revision
    desk.store.delete_record()
    desk.script.append("hangs")
    desk.watch()
    desk.do(ev.Answered(number, ev.Written(written)))
    assert not desk.leads


def test_a_suspended_leader_does_not_resume_without_its_record() -> None:
    desk = leading(drains=False)
    desk.script.extend(["hangs committed"] + ["hangs"] * 20)
    desk.pass_time(desk.config.retry_period)
    number, written = desk.requests[-1].number, desk.store.revision
    desk.pass_time(desk.config.renew_deadline - desk.config.retry_period)
    assert desk.state == "suspended"
    desk.store.delete_record()
    desk.watch()
    desk.do(ev.Drained(), ev.Answered(number, ev.Written(written)))
    assert desk.state == "suspended" and not desk.leads
