"""The parts of an election, each alone, in tables: what was seen, is written, is under way, and whether work has ended."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from leader import effects as fx
from leader import events as ev
from leader.channel import channel_options
from leader.clock import Instant
from leader.config import FAST, KUBE, ElectionConfig, check_config
from leader.drain import Drain
from leader.flight import Flight
from leader.leading_ends import LeadingEnds
from leader.observation import Observation, Vacated
from leader.record import RELEASED_LEASE_MS, Epoch, LeaderRecord, StoredEpoch, StoredRecord, View
from leader.term import Candidate
from tests.leader.model import a_config, a_record, leading


def at(boot_ns: int, wall_us: int = 0) -> Instant:
    return Instant(boot_ns, wall_us)


def stored(holder: str, revision: int, **fields: Any) -> StoredRecord:
    return StoredRecord(a_record(holder, **fields), revision)


def an_epoch(holder: str, revision: int, transitions: int = 0) -> StoredEpoch:
    return StoredEpoch(Epoch(transitions, holder, f"of-{holder}"), revision)


# ---------------------------------------------------------------------------------------------------------------- observing


def test_before_anything_is_seen_nothing_is_known() -> None:
    seen = Observation()
    assert (seen.complete, seen.record_revision, seen.epoch_revision, seen.holder) == (False, 0, 0, "")
    assert (seen.record_since_ns, seen.vacated, seen.held_until_ns()) == (0, None, 0)


def test_both_keys_have_to_be_seen_also_where_they_are_not_there() -> None:
    seen = Observation()
    assert seen.see_record(None, 5, at(10)) is True
    assert not seen.complete
    assert seen.see_epoch(None, 5) is True
    assert seen.complete
    other = Observation()
    assert other.see_epoch(None, 5) is True and not other.complete
    other.see_record(None, 5, at(10))
    other.forget()
    assert not other.complete


@pytest.mark.parametrize("there", [True, False])
def test_what_is_older_or_the_same_is_no_change(there: bool) -> None:
    seen = Observation()
    record = stored("a", 7) if there else None
    epoch = an_epoch("a", 7) if there else None
    assert seen.see(View(record, epoch, 8), at(10)) is True
    assert seen.see(View(record, epoch, 9), at(20)) is False
    assert seen.record_since_ns == 10, "it stands still since then"
    assert seen.see_record(stored("b", 6), 6, at(30)) is False and seen.see_epoch(an_epoch("b", 6), 6) is False
    assert (seen.record, seen.epoch) == (record, epoch)
    assert seen.see_record(stored("b", 8), 8, at(30)) is False, "a later reading has shown what is there"


@pytest.mark.parametrize(("changed", "is_change"), [("record", True), ("epoch", True), ("", False)])
def test_a_change_of_either_key_is_a_change(changed: str, is_change: bool) -> None:
    seen = Observation()
    seen.see(View(stored("a", 7), an_epoch("a", 7), 7), at(10))
    record = stored("b", 9) if changed == "record" else stored("a", 7)
    epoch = an_epoch("b", 9) if changed == "epoch" else an_epoch("a", 7)
    assert seen.see(View(record, epoch, 9), at(20)) is is_change
    assert (seen.record, seen.epoch) == (record, epoch)
    assert seen.record_since_ns == (20 if changed == "record" else 10)
    assert (seen.record_revision, seen.epoch_revision) == (record.mod_revision, epoch.mod_revision)


def test_after_the_store_went_back_all_that_is_seen_is_new() -> None:
    seen = Observation()
    seen.see(View(stored("a", 7), an_epoch("a", 7), 7), at(10))
    seen.forget()
    assert seen.see(View(stored("a", 3), an_epoch("a", 3), 3), at(20)) is True
    assert (seen.record_revision, seen.record_since_ns, seen.complete) == (3, 20, True)


@pytest.mark.parametrize(
    ("first", "second", "vacated"),
    [
        (stored("a", 7), None, Vacated(False, 10)),
        (stored("a", 7), stored("", 8), Vacated(True, 20)),
        (stored("a", 7), stored("b", 8), Vacated(False, 10)),
        (stored("a", 7), stored("a", 8), None),
        (None, stored("a", 8), None),
        (None, None, None),
        (stored("", 7), stored("a", 8), None),
        (stored("", 7), None, None),
    ],
)
def test_the_end_of_a_holder_is_seen(first: StoredRecord | None, second: StoredRecord | None, vacated: Vacated | None) -> None:
    seen = Observation()
    seen.see_record(first, 7, at(10))
    assert seen.vacated is None
    seen.see_record(second, 8, at(20))
    assert seen.vacated == vacated


@pytest.mark.parametrize(("record", "until_ns"), [(None, 0), (stored("", 7), 0), (stored("a", 7, lease=2.5), 2_500_000_010)])
def test_a_holder_is_waited_for_as_long_as_its_record_says_from_when_it_was_seen(
    record: StoredRecord | None, until_ns: int
) -> None:
    seen = Observation()
    seen.see_record(record, 7, at(10))
    assert seen.held_until_ns() == until_ns


@pytest.mark.parametrize("broken", [False, True])
def test_where_the_rule_of_seeing_is_broken_the_records_own_time_counts(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Observation, "RULE_TIMES_ARE_THOSE_OF_SEEING", not broken)
    seen = Observation()
    seen.see_record(stored("a", 7, renew_us=400), 7, at(1_000_000, wall_us=500))
    assert seen.record_since_ns == (900_000 if broken else 1_000_000)
    seen.see_record(None, 8, at(2_000_000, wall_us=600))
    assert seen.record_since_ns == 2_000_000


# ----------------------------------------------------------------------------------------------------------------- writing

CANDIDATE = Candidate(a_config(address="here:1", version="v7"), "this")


def having(record: StoredRecord | None, epoch: StoredEpoch | None) -> Observation:
    seen = Observation()
    seen.see(View(record, epoch, 20), at(10))
    return seen


@pytest.mark.parametrize(
    ("record", "epoch", "holds"),
    [
        (stored("baz", 7, instance="this"), StoredEpoch(Epoch(0, "baz", "this"), 6), True),
        (stored("baz", 7, instance="this"), StoredEpoch(Epoch(0, "baz", "other"), 6), False),
        (stored("baz", 7, instance="other"), StoredEpoch(Epoch(0, "baz", "this"), 6), False),
        (stored("baz", 7, instance="other"), StoredEpoch(Epoch(0, "baz", "other"), 6), False),
        (None, StoredEpoch(Epoch(0, "baz", "this"), 6), False),
        (stored("baz", 7, instance="this"), None, False),
        (None, None, False),
    ],
)
def test_who_wrote_both_keys_last_holds(record: StoredRecord | None, epoch: StoredEpoch | None, holds: bool) -> None:
    assert CANDIDATE.holds(having(record, epoch)) is holds


@pytest.mark.parametrize("led_before", [False, True])
@pytest.mark.parametrize(
    ("record", "at_once"),
    [
        (None, (True, True)),
        (stored("", 7), (True, True)),
        (stored("bing", 7), (False, False)),
        (stored("bing", 7, instance="this"), (False, False)),
        (stored("baz", 7, instance="this"), (True, True)),
        (stored("baz", 7, instance="an earlier life"), (True, False)),
    ],
)
def test_a_record_may_be_taken_at_once_that_nobody_holds_or_an_earlier_life_of_the_same(
    record: StoredRecord | None, at_once: tuple[bool, bool], led_before: bool
) -> None:
    until_ns = CANDIDATE.may_take_ns(having(record, None), led_before=led_before)
    assert until_ns == (0 if at_once[led_before] else 10_000_000_010)


@pytest.mark.parametrize(
    ("record", "epoch", "transitions", "acquired_us"),
    [
        (None, None, 0, 500),
        (stored("bing", 7, acquire_us=3), an_epoch("bing", 6, 4), 5, 500),
        (stored("bing", 7, acquire_us=3), None, 1, 500),
        (stored("", 7), an_epoch("", 6, 4), 5, 500),
        (None, an_epoch("bing", 6, 4), 5, 500),
        (None, an_epoch("baz", 6, 4), 4, 500),
        (stored("baz", 7, acquire_us=3), an_epoch("baz", 6, 4), 4, 3),
        (stored("baz", 7, acquire_us=3), None, 0, 3),
        (stored("baz", 7, acquire_us=3), an_epoch("bing", 6, 4), 4, 3),
    ],
)
def test_an_acquisition_takes_what_was_seen_and_counts_changes_of_holder(
    record: StoredRecord | None, epoch: StoredEpoch | None, transitions: int, acquired_us: int
) -> None:
    acquire = CANDIDATE.acquire(9, at(10, wall_us=500), having(record, epoch))
    assert (acquire.number, acquire.timeout_ns) == (9, CANDIDATE.config.call_timeout_ns)
    assert (acquire.record_revision, acquire.epoch_revision) == (7 if record else 0, 6 if epoch else 0)
    assert acquire.epoch == Epoch(transitions, "baz", "this")
    assert acquire.record == LeaderRecord("baz", "this", 10_000, acquired_us, 500, "v7", "here:1")


@pytest.mark.parametrize(
    ("record", "acquired_us"),
    [(stored("baz", 7, instance="this", acquire_us=3), 3), (stored("baz", 7, instance="other", acquire_us=3), 500), (None, 500)],
)
def test_a_renewal_and_a_new_term_keep_the_time_of_acquisition_where_the_record_is_the_own(
    record: StoredRecord | None, acquired_us: int
) -> None:
    seen = having(record, an_epoch("baz", 6, 4))
    renew, begin = CANDIDATE.renew(9, at(10, wall_us=500), 6, seen), CANDIDATE.begin_term(9, at(10, wall_us=500), 6, seen)
    for write in (renew, begin):
        assert (write.number, write.guard, write.timeout_ns) == (9, 6, CANDIDATE.config.renewal_timeout_ns)
        assert (write.record.acquire_us, write.record.renew_us) == (acquired_us, 500)
    assert begin.epoch == Epoch(5, "baz", "this")
    assert CANDIDATE.begin_term(9, at(10), 6, having(record, None)).epoch.transitions == 1


def test_a_release_leaves_the_transitions_and_the_labels() -> None:
    labels = (("mine", "old"), ("theirs", "x"))
    candidate = Candidate(a_config(labels=(("mine", "new"),)), "this")
    seen = having(stored("baz", 7, labels=labels), an_epoch("baz", 6, 4))
    release = candidate.release(9, at(10, wall_us=500), 6, seen)
    assert (release.number, release.guard, release.timeout_ns) == (9, 6, candidate.config.call_timeout_ns)
    assert release.epoch == Epoch(4, "")
    merged = (("mine", "new"), ("theirs", "x"))
    assert release.record == LeaderRecord("", "", RELEASED_LEASE_MS, 500, 500, labels=merged)
    assert candidate.release(9, at(10), 6, having(None, None)).epoch == Epoch(0, "")
    assert candidate.renew(9, at(10), 6, seen).record.labels == merged
    for record in (None, stored("bing", 7)):
        assert candidate.renew(9, at(10), 6, having(record, None)).record.labels == (("mine", "new"),)


# ---------------------------------------------------------------------------------------------------------------- under way


def a_renewal(number: int, timeout_ns: int = 100) -> fx.Renew:
    return fx.Renew(number, timeout_ns, 6, a_record("baz"))


def test_one_request_is_under_way_and_is_landed_once() -> None:
    flight = Flight()
    assert (flight.next_number, flight.sent, flight.land(0), flight.land(1)) == (1, None, None, None)
    assert flight.time_out(10**9) is None and flight.give_up() == []
    flight.launch(a_renewal(1), 10, 5)
    assert flight.next_number == 2 and flight.carries(fx.Renew) and not flight.carries(fx.Get)
    assert flight.land(2) is None
    landed = flight.land(1)
    assert landed is not None and (landed.request.number, landed.sent_ns, landed.deadline_ns) == (1, 10, 15)
    assert flight.land(1) is None and not flight.carries(fx.Renew)


@pytest.mark.parametrize(
    ("request_made", "is_heard"),
    [
        (a_renewal(1), True),
        (fx.BeginTerm(1, 100, 6, a_record("baz"), Epoch(1, "baz")), True),
        (fx.Get(1, 100), False),
        (fx.Acquire(1, 100, 0, 0, a_record("baz"), Epoch(1, "baz")), False),
        (fx.Release(1, 100, 6, a_record(""), Epoch(1, "")), False),
    ],
)
def test_what_has_no_answer_in_time_is_heard_late_where_its_guard_was_compared(request_made: fx.Request, is_heard: bool) -> None:
    flight = Flight()
    flight.launch(request_made, 10, 5)
    assert flight.time_out(14) is None and flight.sent is not None
    timed_out = flight.time_out(15)
    assert timed_out is not None and timed_out.request is request_made and flight.sent is None
    assert flight.land(1) is None
    late = flight.land_late(1)
    assert (late is timed_out) is is_heard and (late is None) is not is_heard
    assert flight.land_late(1) is None, "once"


def test_a_late_answer_is_heard_until_the_requests_own_time_is_over() -> None:
    flight = Flight()
    for number, sent_ns in ((1, 10), (2, 20), (3, 30)):
        flight.launch(a_renewal(number), sent_ns, 5)
        flight.time_out(sent_ns + 5)
    assert flight.expire(109) == []
    assert [sent.request.number for sent in flight.expire(110)] == [1]
    assert flight.land_late(1) is None and flight.expire(110) == []
    assert [sent.request.number for sent in flight.expire(130)] == [2, 3]


def test_what_is_given_up_is_heard_no_more() -> None:
    flight = Flight()
    flight.launch(a_renewal(1), 10, 5)
    flight.time_out(15)
    flight.launch(a_renewal(2), 15, 5)
    assert [sent.request.number for sent in flight.give_up()] == [1, 2]
    assert (flight.sent, flight.land(2), flight.land_late(1), flight.give_up()) == (None, None, None, [])
    assert flight.next_number == 3


def test_work_that_has_drained_in_time_and_cleanly_may_be_released() -> None:
    drain = Drain()
    assert (drain.done, drain.may_release, drain.overdue_ns, drain.since_ns) == (True, False, None, 0)
    assert not drain.become_overdue(10**18)
    for may, clean, released in ((True, True, True), (True, False, False), (False, True, False)):
        drain.begin(10, 5, may)
        assert (drain.done, drain.since_ns, drain.overdue_ns) == (False, 10, 15)
        assert not drain.become_overdue(14)
        drain.end(clean)
        assert (drain.done, drain.may_release, drain.overdue_ns) == (True, released, None)
        assert not drain.become_overdue(10**18)
    drain.begin(10, 5, True)
    assert [drain.become_overdue(15), drain.become_overdue(16)] == [True, False]
    drain.end(True)
    assert drain.done and not drain.may_release


# -------------------------------------------------------------------------------------------------------------- durations


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (ElectionConfig.of(KUBE, identity="a"), (15_000, 5.0, 10.0, 10 / 3, 1.0, 15.0)),
        (ElectionConfig.of(FAST, identity="a"), (2_000, 0.7, 1.3, 1.1, 0.13, 2.0)),
        (a_config(retry_period=4.0, progress_limit=3.5), (10_000, 4.0, 3.5, 4.0, 0.6, 10.0)),
        (
            ElectionConfig(identity="a", lease_duration=0.9004, renew_deadline=0.6, retry_period=0.04, store_ttl_seconds=1),
            (901, 0.3004, 0.6, 0.6, 0.04, 0.9004),
        ),
    ],
)
def test_what_follows_from_the_durations(config: ElectionConfig, expected: tuple[float, ...]) -> None:
    lease_ms, *seconds = expected
    assert config.lease_ms == lease_ms
    found = (
        config.grace_ns,
        config.progress_limit_ns,
        config.call_timeout_ns,
        config.renewal_patience_ns,
        config.renewal_timeout_ns,
    )
    assert found == tuple(int(one * 1e9 + 0.5) for one in seconds)


def test_durations_of_nanoseconds_and_of_a_day_are_the_ends_of_what_is_taken() -> None:
    smallest = ElectionConfig(identity="a", lease_duration=1e-8, renew_deadline=5e-9, retry_period=1e-9)
    longest = ElectionConfig(identity="a", lease_duration=86_400.0, store_ttl_seconds=86_400)
    for config in (smallest, longest):
        check_config(config, on_started_leading=print, on_stopped_leading=print, lock=object())


def test_a_channel_reconnects_quickly_notices_who_hangs_and_takes_messages_of_any_size() -> None:
    """As the module says; etcd refuses clients that ping more often than every five seconds."""
    options = dict(channel_options())
    assert options["grpc.initial_reconnect_backoff_ms"] == 50 and options["grpc.max_reconnect_backoff_ms"] == 1000
    assert options["grpc.min_reconnect_backoff_ms"] == 2000, "gRPC takes it for how long an attempt may take"
    assert options["grpc.keepalive_time_ms"] == 6000 and options["grpc.keepalive_timeout_ms"] == 2000
    assert options["grpc.http2.ping_timeout_ms"] == 2000
    assert options["grpc.max_receive_message_length"] == options["grpc.max_send_message_length"] == -1
    assert options["grpc.use_local_subchannel_pool"] == 1
    for forbidden in (
        "grpc.keepalive_permit_without_calls",
        "grpc.http2.max_pings_without_data",
        "grpc.enable_http_proxy",
    ):
        assert options[forbidden] == 0


# -------------------------------------------------------------------------------------------------------------- the whole


def test_where_the_rule_of_another_holder_is_broken_leading_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for broken in (False, True):
        monkeypatch.setattr(LeadingEnds, "RULE_ANOTHER_HOLDER_ENDS_LEADING", not broken)
        desk = leading().pass_time(1)
        desk.store.put(a_record("bing"), Epoch(1, "bing", "of-bing"))
        desk.watch()
        assert desk.leads is broken and bool(desk.of(fx.StopLeading)) is not broken


def test_what_is_told_for_the_log_says_what_happened() -> None:
    def notes(desk: Any) -> list[str]:
        return [note.text for note in desk.of(fx.Note)]

    lost = leading()
    lost.store.put(a_record("bing"), Epoch(1, "bing", "of-bing"))
    lost.watch()
    assert notes(lost)[0] == "lost the lease: the record shows bing"
    passed = leading()
    passed.store.put(a_record("bing"), Epoch(1, "bing", "of-bing"))
    passed.do(ev.EpochChanged(passed.store.epoch, passed.store.revision))
    assert notes(passed)[0] == "lost the lease: the epoch passed to bing"
    refused = leading()
    refused.store.epoch = None
    refused.pass_time(2)
    assert "lost the lease: the epoch passed to nobody" in notes(refused)
    resigned = leading().do(ev.ResignRequested("asked to"))
    assert notes(resigned)[0] == "resigns: asked to"
    for suspend, told in ((True, "not renewed for the lease duration"), (False, "not renewed until the renew deadline")):
        away = leading(config=a_config(suspend=suspend, rejoin=False))
        away.script.extend(["failed"] * 100)
        assert f"lost the lease: {told}" in notes(away.pass_time(20))
    hung = leading(config=dataclasses.replace(a_config(), progress_limit=1.0))
    hung.do(ev.ProgressReported(None)).pass_time(5)
    assert "renewal withheld: the work shows no progress" in notes(hung)
