"""How a run ends: the work first, then a guarded release, whatever was in flight."""

from __future__ import annotations

import pytest

from leader import effects as fx
from leader import events as ev
from leader.record import Epoch
from tests.leader.model import Desk, a_config, a_record, held_by, leading


@pytest.mark.row("LE-12", "L26")
def test_a_release_empties_the_holder_and_keeps_the_transitions() -> None:
    desk = Desk(held_by("baz", transitions=3, instance="an earlier life")).start()
    desk.do(ev.StopRequested())
    assert desk.calls == ["get", "acquire", "release"]
    assert desk.holder == "" and desk.transitions == 3
    assert desk.leaders == ["baz", ""]
    record = desk.store.record
    assert record is not None
    assert record.record.lease_ms == 1000 and record.record.acquire_us == record.record.renew_us == round(desk.now * 1e6)
    assert desk.order(fx.Ended) == [fx.Ended]


@pytest.mark.row("LE-13")
def test_a_release_does_not_depend_on_having_seen_the_last_renewal() -> None:
    desk = leading()
    desk.script.append("lost")  # committed: the record is newer than what the leader knows
    desk.pass_time(2)
    desk.do(ev.StopRequested())
    assert desk.holder == "", "its guard, the epoch, is compared in the very transaction that writes"


@pytest.mark.row("LE-14")
@pytest.mark.parametrize("how", ["hangs", "hangs committed", "lost", "failed"])
def test_a_stop_while_a_renewal_is_in_flight_releases(how: str) -> None:
    desk = leading(config=a_config(lease_duration=15.0, renew_deadline=2.0, retry_period=1.0, store_ttl_seconds=15))
    desk.script.append(how)
    desk.pass_time(1)
    in_flight = desk.requests[-1]
    desk.do(ev.StopRequested())
    desk.do(ev.Answered(in_flight.number, ev.Unknown("Canceled")))
    assert desk.holder == "" and desk.calls[-1] == "release"
    assert desk.texts == ["baz became leader", "baz stopped leading"]


@pytest.mark.row("LE-15")
@pytest.mark.parametrize("stop_while", ["acquire", "get"])
def test_a_stop_while_it_is_not_known_whether_the_lease_was_acquired_leaves_it_free(stop_while: str) -> None:
    desk = Desk(held_by("bing", lease=3.0)).start()
    desk.script.extend(["hangs committed"] if stop_while == "acquire" else ["lost", "hangs"])
    desk.pass_time(3)
    in_flight = desk.requests[-1]
    epoch = desk.store.epoch
    assert epoch is not None and desk.holder == "baz"
    desk.do(ev.StopRequested())
    answer = ev.Written(epoch.mod_revision) if stop_while == "acquire" else ev.Found(desk.store.view())
    desk.do(ev.Answered(in_flight.number, answer))
    assert desk.holder == "" and desk.transitions == 1 and desk.of(fx.Ended)
    assert not desk.of(fx.StartLeading), "it never led"
    assert all("cannot take the lead" in text for text in desk.texts)


def test_a_stop_while_an_acquisition_never_answers_reads_back_once_and_ends() -> None:
    for committed in (True, False):
        desk = Desk()
        desk.script.extend(["answer", "hangs committed" if committed else "hangs"])
        desk.start().do(ev.StopRequested()).pass_time(10)
        assert desk.of(fx.Ended)
        if committed:
            assert desk.holder == ""
        else:
            assert desk.store.record is None


def test_whether_a_lease_was_acquired_is_not_asked_where_it_would_not_be_released() -> None:
    desk = Desk()
    desk.script.extend(["answer", "hangs committed"])
    desk.start().do(ev.StopRequested(release=False)).pass_time(10)
    assert desk.of(fx.Ended) and desk.calls == ["get", "acquire"] and desk.holder == "baz"


@pytest.mark.parametrize("how", ["hangs", "failed"])
def test_a_stop_that_cannot_read_back_ends_all_the_same(how: str) -> None:
    desk = Desk()
    desk.script.extend(["answer", "lost", *[how] * 20])
    desk.start().do(ev.StopRequested()).pass_time(5)
    assert desk.of(fx.Ended) and len(desk.calls) <= 4


def test_a_stop_without_a_store_ends_within_the_renew_deadline_after_draining() -> None:
    for behaviour in ("hangs", "failed"):
        desk = leading()
        desk.script.extend([behaviour] * 50)
        desk.do(ev.StopRequested()).pass_time(6)
        assert desk.of(fx.Ended) and desk.calls.count("release") >= 3


@pytest.mark.row("LE-40")
def test_a_release_after_another_began_to_lead_touches_nothing() -> None:
    desk = leading()
    desk.store.put(a_record("bing"), Epoch(1, "bing", "of-bing"))
    record, epoch = desk.store.record, desk.store.epoch
    desk.do(ev.StopRequested())  # the watch was cut: it does not know
    assert desk.calls[-1] == "release"
    assert (desk.store.record, desk.store.epoch) == (record, epoch)
    assert desk.of(fx.Ended)


def test_a_release_whose_answer_is_lost_is_not_repeated_over_a_successor() -> None:
    desk = leading()
    desk.script.append("lost")
    desk.do(ev.StopRequested())
    desk.store.put(a_record("bing"), Epoch(1, "bing", "of-bing"))
    desk.pass_time(6)
    assert desk.holder == "bing" and desk.of(fx.Ended)


@pytest.mark.row("L26")
def test_nothing_is_released_where_that_is_not_asked_for() -> None:
    for desk, event in (
        (leading(config=a_config(release_on_cancel=False)), ev.StopRequested()),
        (leading(), ev.StopRequested(release=False)),
    ):
        desk.do(event)
        assert desk.holder == "baz" and desk.of(fx.Ended) and "release" not in desk.calls
    asked = leading(config=a_config(release_on_cancel=False))
    assert asked.do(ev.StopRequested(release=True)).holder == ""


@pytest.mark.row("L24", "L22")
def test_the_work_is_told_to_stop_exactly_once_at_the_end_of_a_run_even_if_it_never_led() -> None:
    followers = [Desk(held_by("bing")).start(), Desk()]
    for desk in [*followers, leading(), leading(config=a_config(suspend=False))]:
        desk.do(ev.StopRequested(), ev.StopRequested()).pass_time(30)
        assert len(desk.of(fx.StopLeading)) == 1 and len(desk.of(fx.Ended)) == 1


@pytest.mark.row("LE-45")
def test_work_that_does_not_stop_in_the_grace_is_overdue_and_is_not_released() -> None:
    desk = leading(drains=False)
    desk.do(ev.StopRequested()).pass_time(3.999)
    assert not desk.of(fx.Overdue)
    desk.pass_time(0.001)
    assert len(desk.of(fx.Overdue)) == 1
    desk.pass_time(60)
    assert len(desk.of(fx.Overdue)) == 1 and not desk.of(fx.Ended)
    desk.do(ev.Drained())
    assert desk.of(fx.Ended) and "release" not in desk.calls


def test_work_that_did_not_stop_cleanly_is_not_released() -> None:
    desk = leading(drains=False)
    desk.do(ev.StopRequested(), ev.Drained(clean=False))
    assert desk.of(fx.Ended) and "release" not in desk.calls


def test_after_its_end_an_election_does_nothing() -> None:
    desk = leading().do(ev.StopRequested())
    before = len(desk.effects)
    desk.do(ev.Tick(), ev.Started(), ev.StopRequested(), ev.NewTermRequested())
    assert len(desk.effects) == before and desk.due is None


def test_a_stop_before_the_start_ends_the_run() -> None:
    desk = Desk().do(ev.StopRequested())
    assert desk.of(fx.Ended) and desk.calls == []


def test_a_stop_while_leading_ends_may_take_the_release_back_and_not_allow_it() -> None:
    for first, second, released in ((True, False, False), (False, True, False), (True, True, True)):
        desk = leading(drains=False)
        desk.do(ev.StopRequested(release=first), ev.StopRequested(release=second), ev.Drained())
        assert ("release" in desk.calls) is released and desk.of(fx.Ended)
