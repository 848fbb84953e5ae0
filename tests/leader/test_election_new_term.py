"""A leader that takes over from itself, because the process that wrote under its epoch was replaced."""

from __future__ import annotations

import pytest

from leader import effects as fx
from leader import events as ev
from leader.record import Epoch
from tests.leader.model import Desk, a_record, held_by, leading


@pytest.mark.parametrize("watches", [False, True])
def test_a_new_term_has_a_new_epoch_and_counts_a_transition(watches: bool) -> None:
    desk = leading(watches=watches).pass_time(1)
    old = desk.belief
    desk.effects.clear()
    desk.do(ev.NewTermRequested())
    assert desk.belief is not None and old is not None and desk.belief[0] > old[0]
    assert desk.belief[0] == desk.store.epoch.mod_revision and desk.transitions == 1
    assert [begun.epoch for begun in desk.of(fx.TermBegun)] == [desk.belief[0]]
    assert desk.order(fx.WithdrawBelief, fx.BeginTerm, fx.PublishBelief, fx.TermBegun) == [
        fx.WithdrawBelief,
        fx.BeginTerm,
        fx.PublishBelief,
        fx.TermBegun,
    ]
    assert not desk.of(fx.StopLeading) and not desk.of(fx.StartLeading) and desk.holder == "baz"
    assert desk.pass_time(20).leads


def test_the_old_epoch_is_void_at_once_even_if_the_new_one_takes_long() -> None:
    desk = leading()
    desk.script.append("hangs")
    desk.do(ev.NewTermRequested())
    assert desk.belief is None
    desk.pass_time(1.9)
    assert desk.belief is None
    desk.pass_time(0.2)
    assert desk.leads and desk.transitions == 1


def test_a_renewal_in_flight_does_not_bring_the_old_epoch_back() -> None:
    desk = leading()
    desk.script.extend(["hangs", "hangs"])
    desk.pass_time(2)
    renewal = desk.requests[-1]
    desk.do(ev.NewTermRequested())
    desk.do(ev.Answered(renewal.number, ev.Written(desk.store.revision)))
    assert desk.belief is None


@pytest.mark.parametrize("watches", [False, True])
@pytest.mark.parametrize("how", ["lost", "hangs committed"])
def test_a_new_term_whose_answer_is_lost_is_recognised_and_proved(how: str, watches: bool) -> None:
    desk = leading(watches=watches)
    desk.script.append(how)
    desk.do(ev.NewTermRequested()).pass_time(2.1)
    assert desk.leads and desk.transitions == 1 and desk.belief is not None
    assert desk.belief[0] == desk.store.epoch.mod_revision
    assert len(desk.of(fx.TermBegun)) == 1
    assert desk.requests[-1].guard == desk.belief[0] and desk.calls[-1] == "renew"


def test_requests_for_a_new_term_while_one_is_under_way_share_it() -> None:
    desk = leading()
    desk.script.append("hangs")
    desk.do(ev.NewTermRequested(), ev.NewTermRequested()).pass_time(3)
    assert desk.transitions == 1 and desk.leads


def test_a_new_term_fails_where_the_lease_is_lost_or_not_held() -> None:
    desk = leading()
    desk.store.put(a_record("bing"), Epoch(1, "bing", "of-bing"))
    desk.do(ev.NewTermRequested())
    assert desk.of(fx.TermFailed) and desk.of(fx.StopLeading) and desk.holder == "bing"
    follower = Desk(held_by("bing")).start().do(ev.NewTermRequested())
    assert [failed.reason for failed in follower.of(fx.TermFailed)] == ["baz does not lead"]
    follower.pass_time(15)
    assert follower.leads and not follower.of(fx.TermBegun), "a term that was refused is not begun later"
    assert follower.transitions == 1


def test_a_suspension_during_a_new_term_ends_under_the_new_epoch_only() -> None:
    desk = leading()
    desk.script.extend(["failed"] * 4)
    desk.do(ev.NewTermRequested()).pass_time(6.5)
    assert desk.state == "suspended"
    desk.script.clear()
    desk.pass_time(2)
    assert desk.leads and desk.belief is not None and desk.belief[0] > 2
    assert [start.epoch for start in desk.of(fx.StartLeading)] == [2, desk.belief[0]]
    assert [begun.epoch for begun in desk.of(fx.TermBegun)] == [desk.belief[0]]


def test_a_replaced_process_has_the_whole_limit_for_its_first_sign_of_progress() -> None:
    desk = leading()
    desk.do(ev.ProgressReported(round(desk.now * 1e9))).pass_time(5.5)
    desk.do(ev.NewTermRequested()).pass_time(5.9)
    assert desk.leads


@pytest.mark.parametrize("how", ["answer", "lost"])
def test_a_stop_right_after_a_new_term_releases_the_new_epoch(how: str) -> None:
    desk = leading()
    desk.script.append(how)
    desk.do(ev.NewTermRequested(), ev.StopRequested()).pass_time(10)
    assert desk.of(fx.Ended)
    assert desk.holder == "" and desk.transitions == 1
