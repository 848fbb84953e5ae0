"""How a candidate gets the lease: client-go's own cases for one try, on the record and the epoch."""

from __future__ import annotations

import pytest

from leader import effects as fx
from leader import events as ev
from leader.record import Epoch, LeaderRecord
from tests.leader.model import Desk, ModelStore, a_config, a_record, held_by


@pytest.mark.row("LE-01", "L14", "L23")
def test_an_empty_store_is_taken_with_two_calls() -> None:
    desk = Desk().start()
    assert desk.leads and desk.holder == "baz" and desk.transitions == 0
    assert desk.calls == ["get", "acquire"]
    assert desk.leaders == ["baz"]
    assert desk.texts == ["baz became leader"]
    assert [started.epoch for started in desk.of(fx.StartLeading)] == [2]


@pytest.mark.row("L14")
@pytest.mark.parametrize("how", ["failed", "lost"])
def test_after_an_error_the_record_is_asked_for_again_a_retry_period_later_and_then_created(how: str) -> None:
    desk = Desk()
    desk.script.append(how)
    desk.start()
    assert desk.calls == ["get"] and not desk.leads
    desk.pass_time(desk.config.retry_period * 0.99)
    assert desk.calls == ["get"], "nobody asks a failing store without a pause"
    desk.pass_time(desk.config.retry_period * 1.3)
    assert desk.leads and desk.holder == "baz" and desk.calls[:3] == ["get", "get", "acquire"]


@pytest.mark.row("LE-02")
def test_an_object_with_an_empty_spec_is_taken_and_counts_as_a_transition() -> None:
    store = ModelStore()
    store.put(LeaderRecord.from_json(b"{}"))
    desk = Desk(store).start()
    assert desk.leads and desk.transitions == 1 and desk.calls == ["get", "acquire"]


@pytest.mark.row("LE-03", "L3", "L16")
def test_the_duration_in_the_record_counts_and_not_the_own() -> None:
    desk = Desk(held_by("bing", lease=3.0)).start()
    assert not desk.leads and desk.calls == ["get"]
    desk.pass_time(2.999)
    assert not desk.leads
    desk.pass_time(0.001)
    assert desk.leads and desk.transitions == 1 and desk.holder == "baz"
    assert desk.calls == ["get", "acquire"]


@pytest.mark.row("LE-04")
def test_a_record_without_holder_is_free() -> None:
    store = ModelStore()
    store.put(LeaderRecord("", lease_ms=1000), Epoch(0, ""))
    desk = Desk(store).start()
    assert desk.leads and desk.transitions == 1


@pytest.mark.row("LE-05")
def test_a_record_that_was_seen_long_ago_and_stands_still_is_taken_at_once() -> None:
    store = held_by("bing")
    desk = Desk(store)
    desk.do(ev.Listed(store.view(), went_back=False)).sleep(3600).start()
    assert desk.leads and desk.transitions == 1 and desk.calls == ["acquire"]


@pytest.mark.row("LE-06")
def test_an_empty_holder_beats_the_time() -> None:
    store = ModelStore()
    store.put(LeaderRecord("", lease_ms=3_600_000), Epoch(0, ""))
    desk = Desk(store).start()
    assert desk.leads and desk.transitions == 1


@pytest.mark.row("LE-07", "L16", "L25")
def test_a_fresh_holder_is_left_alone_and_reported() -> None:
    desk = Desk(held_by("bing")).start()
    assert not desk.leads and desk.holder == "bing" and desk.transitions == 0
    assert desk.calls == ["get"] and desk.leaders == ["bing"]
    assert [note.text for note in desk.of(fx.Note)] == ["lock is held by bing and has not yet expired"]


@pytest.mark.row("LE-08", "L18")
def test_the_same_identity_after_a_restart_takes_over_at_once_without_a_transition() -> None:
    store = held_by("baz", transitions=0, instance="an earlier life")
    old_epoch = store.epoch
    desk = Desk(store).start()
    assert desk.leads and desk.transitions == 0 and desk.calls == ["get", "acquire"]
    assert desk.of(fx.SlowPath)
    assert store.epoch != old_epoch, "the earlier life must be fenced"


def test_a_record_of_the_same_identity_whose_epoch_is_gone_is_taken_without_a_transition() -> None:
    store = held_by("baz")
    store.epoch = None
    desk = Desk(store).start()
    assert desk.leads and desk.transitions == 0


@pytest.mark.row("L18", "L12")
def test_a_takeover_counts_a_transition_and_a_renewal_keeps_the_time_of_acquisition() -> None:
    desk = Desk(held_by("bing", lease=3.0, transitions=7)).start().pass_time(3)
    acquired = desk.store.record
    assert desk.transitions == 8 and acquired is not None
    desk.pass_time(4)
    renewed = desk.store.record
    assert renewed is not None and renewed.mod_revision > acquired.mod_revision
    assert renewed.record.acquire_us == acquired.record.acquire_us < renewed.record.renew_us
    assert desk.transitions == 8


@pytest.mark.row("L17", "L15")
def test_times_in_the_record_are_not_compared_with_any_clock() -> None:
    for renew_us in (0, 10**18):
        store = ModelStore()
        store.put(a_record("bing", renew_us=renew_us), Epoch(0, "bing"))
        desk = Desk(store).start().pass_time(9.999)
        assert not desk.leads, "a new candidate waits the whole lease, however old the record says it is"
        assert desk.pass_time(0.001).leads


@pytest.mark.row("L3", "L15", "LE-46")
def test_each_renewal_that_is_seen_starts_the_wait_anew_however_close_it_is_to_the_one_before() -> None:
    store = held_by("bing")
    desk = Desk(store).start().pass_time(9.5)
    same = store.record
    assert same is not None
    for _ in range(2):
        desk.pass_time(0.2)
        store.put(same.record)  # the same text within one second
        desk.watch()
    desk.pass_time(9.9)
    assert not desk.leads
    assert desk.pass_time(0.1).leads


@pytest.mark.row("L5", "L13")
def test_attempts_on_a_failing_store_are_spaced_by_one_to_two_point_two_retry_periods() -> None:
    for uniform, period in ((0.0, 2.0), (0.5, 3.2), (0.999, 4.3976)):
        desk = Desk(uniform=uniform)
        desk.script.extend(["failed"] * 20)
        desk.start().pass_time(20)
        gaps = [round(b - a, 4) for a, b in zip(desk.times, desk.times[1:], strict=False)]
        assert set(gaps) == {period} and set(desk.calls) == {"get"}


@pytest.mark.row("L19", "L14")
def test_of_two_who_take_the_same_record_one_wins_and_the_other_sees_it() -> None:
    store = held_by("bing", lease=3.0)
    first, second = Desk(store).start(), Desk(store, a_config(identity="qux"), instance="other").start()
    first.pass_time(3)
    second.pass_time(3)
    assert first.leads and not second.leads
    assert second.calls == ["get", "acquire"] and second.leaders == ["bing", "baz"]
    second.pass_time(9.9)
    assert second.calls == ["get", "acquire"], "the loser waits, it does not poll"


@pytest.mark.row("L26")
def test_a_release_is_seen_by_the_watch_and_taken_at_once() -> None:
    store = held_by("bing", transitions=4)
    desk = Desk(store).start().pass_time(1)
    store.put(LeaderRecord("", lease_ms=1000), Epoch(4, ""))
    desk.watch()
    assert desk.leads and desk.transitions == 5
    assert desk.leaders == ["bing", "", "baz"]
    assert len(desk.calls) <= 3


def test_a_record_that_vanished_with_its_etcd_lease_is_taken_at_once_and_counts() -> None:
    store = held_by("bing", transitions=4)
    desk = Desk(store).start().pass_time(1)
    store.delete_record()
    desk.watch()
    assert desk.leads and desk.transitions == 5


def test_an_unreadable_record_is_taken_over_when_it_stands_still() -> None:
    from leader.record import read_stored_record

    store = ModelStore()
    store.put(read_stored_record(b"\xff{", 0).record)
    desk = Desk(store).start()
    assert not desk.leads
    assert desk.pass_time(15).leads


def test_a_candidate_that_slept_takes_nothing_on_a_stale_view() -> None:
    store = held_by("bing")
    desk = Desk(store).start().sleep(60)
    record = store.record
    assert record is not None
    store.put(record.record)  # renewed while the candidate slept; its watch has not told yet
    desk.do(ev.Tick())
    assert not desk.leads and desk.holder == "bing" and desk.calls == ["get", "acquire"]
    assert not desk.pass_time(9.9).leads


@pytest.mark.row("LE-47")
@pytest.mark.parametrize("how", ["lost", "hangs committed"])
def test_an_acquisition_whose_answer_is_lost_is_found_and_proved_without_a_transition(how: str) -> None:
    desk = Desk(held_by("bing", lease=3.0)).start()
    desk.script.append(how)
    desk.pass_time(3 + 4)
    assert desk.leads and desk.transitions == 1
    assert desk.calls[:4] == ["get", "acquire", "get", "renew"]
    assert desk.belief is not None and desk.store.epoch is not None
    assert desk.belief[0] == desk.store.epoch.mod_revision
    assert len(desk.of(fx.StartLeading)) == 1


def test_an_acquisition_that_is_answered_after_its_belief_is_over_is_proved_first() -> None:
    desk = Desk(config=a_config(retry_period=4.0))  # its calls may take 4 s
    desk.script.extend(["answer", "hangs committed"])
    desk.start().sleep(6.5)
    written = desk.store.epoch
    assert written is not None
    desk.do(ev.Answered(desk.requests[-1].number, ev.Written(written.mod_revision)))
    assert desk.belief is not None and desk.belief[1] == desk.now + 6.0
    assert desk.belief[0] == written.mod_revision
    assert desk.order(fx.Renew, fx.StartLeading, fx.StopLeading) == [fx.Renew, fx.StartLeading]


def test_a_living_twin_with_the_same_identity_is_another_candidate() -> None:
    store = ModelStore()
    first = Desk(store).start()
    twin = Desk(store, instance="twin").start()
    assert twin.leads
    first.watch()
    assert not first.leads
    first.pass_time(9.9)
    assert store.record is not None and store.record.record.instance == "twin", "they must not take turns"


def test_one_call_is_in_flight_at_most_and_a_silent_store_is_asked_again_after_the_call_timeout() -> None:
    desk = Desk()
    desk.script.extend(["hangs"] * 10)
    desk.start().pass_time(10)
    gaps = {round(b - a, 3) for a, b in zip(desk.times, desk.times[1:], strict=False)}
    assert gaps == {4.0}  # 2 s for the call, then the retry period


def test_late_answers_to_abandoned_requests_change_nothing() -> None:
    desk = Desk()
    desk.script.append("hangs")
    desk.start().pass_time(3.5)
    before = len(desk.effects)
    desk.do(ev.Answered(desk.requests[0].number, ev.Found(desk.store.view())))
    assert len(desk.effects) == before
