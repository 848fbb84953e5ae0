"""How much room etcd has left: states, refusals and what is said about them, in tables."""

from __future__ import annotations

import pytest

from rayched.store.calls import MemberStatus
from rayched.store.space import Space, SpaceGate, SpaceState, judge

MIB = 1 << 20
QUOTA = 100 * MIB


def a_status(file: int, in_use: int, *alarms: str) -> MemberStatus:
    return MemberStatus(1, "3.5.1", file * MIB, 1, 7, in_use * MIB, 0, alarms)


@pytest.mark.parametrize(
    ("file", "in_use", "alarms", "before", "state"),
    [
        (10, 10, (), SpaceState.AMPLE, SpaceState.AMPLE),
        (49, 49, (), SpaceState.AMPLE, SpaceState.AMPLE),
        (50, 50, (), SpaceState.AMPLE, SpaceState.FILLING),
        (69, 40, (), SpaceState.AMPLE, SpaceState.AMPLE),
        (70, 40, (), SpaceState.AMPLE, SpaceState.FILLING),
        (90, 10, (), SpaceState.AMPLE, SpaceState.AMPLE),
        (79, 79, (), SpaceState.FILLING, SpaceState.FILLING),
        (80, 80, (), SpaceState.FILLING, SpaceState.TIGHT),
        (80, 76, (), SpaceState.TIGHT, SpaceState.TIGHT),
        (80, 74, (), SpaceState.TIGHT, SpaceState.FILLING),
        (94, 10, (), SpaceState.AMPLE, SpaceState.AMPLE),
        (95, 10, (), SpaceState.AMPLE, SpaceState.TIGHT),
        (94, 10, (), SpaceState.TIGHT, SpaceState.TIGHT),
        (93, 10, (), SpaceState.TIGHT, SpaceState.AMPLE),
        (20, 10, ("NOSPACE",), SpaceState.AMPLE, SpaceState.FULL),
        (20, 10, ("CORRUPT",), SpaceState.AMPLE, SpaceState.AMPLE),
    ],
)
def test_the_state_follows_what_is_in_use_the_file_and_the_alarm(
    file: int, in_use: int, alarms: tuple[str, ...], before: SpaceState, state: SpaceState
) -> None:
    assert judge([a_status(file, in_use, *alarms)], QUOTA, before).state is state


def test_the_fullest_member_counts_and_each_ones_alarm() -> None:
    space = judge([a_status(10, 5), a_status(90, 85, "NOSPACE"), a_status(30, 30)], QUOTA, SpaceState.AMPLE)
    assert (space.file_bytes, space.in_use_bytes, space.members) == (90 * MIB, 85 * MIB, 3)
    assert space.state is SpaceState.FULL


def test_an_alarm_that_is_not_about_space_is_told_by_its_name_and_no_alarm_is_no_problem() -> None:
    assert judge([a_status(10, 5)], QUOTA, SpaceState.AMPLE).problem() is None
    assert "the alarm CORRUPT" in (judge([a_status(10, 5, "CORRUPT")], QUOTA, SpaceState.AMPLE).problem() or "")


def test_without_a_known_quota_the_alarm_alone_tells() -> None:
    assert judge([a_status(4000, 4000)], 0, SpaceState.AMPLE).state is SpaceState.AMPLE
    assert judge([a_status(4000, 4000, "NOSPACE")], 0, SpaceState.AMPLE).state is SpaceState.FULL


@pytest.mark.parametrize(
    ("file", "in_use", "alarms", "wanted"),
    [
        (89, 10, (), False),
        (90, 10, (), True),
        (99, 95, (), False),
        (30, 10, ("NOSPACE",), True),
    ],
)
def test_a_defragmentation_is_wanted_where_the_file_is_in_the_way_and_much_of_it_is_free(
    file: int, in_use: int, alarms: tuple[str, ...], wanted: bool
) -> None:
    assert judge([a_status(file, in_use, *alarms)], QUOTA, SpaceState.AMPLE).wants_defragmentation is wanted


@pytest.mark.parametrize(("file", "alarms", "may"), [(94, ("NOSPACE",), True), (95, ("NOSPACE",), False), (94, (), False)])
def test_the_alarm_is_disarmed_only_where_there_is_room(file: int, alarms: tuple[str, ...], may: bool) -> None:
    assert judge([a_status(file, 10, *alarms)], QUOTA, SpaceState.AMPLE).may_disarm is may


def test_a_full_etcd_is_told_with_the_commands_that_help_and_those_of_several_members_say_so() -> None:
    alone = judge([a_status(100, 99, "NOSPACE")], QUOTA, SpaceState.AMPLE).problem()
    several = judge([a_status(100, 20, "NOSPACE")] * 3, QUOTA, SpaceState.AMPLE).problem()
    assert alone is not None and several is not None
    assert "99 % of etcd's quota of 100 MiB are in use" in alone
    assert "delete what is not needed, then `etcdctl compact REVISION`, `etcdctl defrag`, `etcdctl alarm disarm`" in alone
    assert "`etcdctl compact REVISION`, `etcdctl defrag --cluster`, `etcdctl alarm disarm`" in several


def test_history_is_kept_for_less_the_fuller_etcd_is() -> None:
    kept = [Space(state).kept_seconds for state in SpaceState]
    assert kept == sorted(kept, reverse=True)
    assert (kept[0], kept[-1]) == (600.0, 0.0)


def test_the_gate_expects_what_it_takes_to_be_written_twice_more() -> None:
    gate = SpaceGate()
    gate.found(judge([a_status(50, 50)], QUOTA, SpaceState.AMPLE))
    assert gate.refusal() is None
    gate.wrote(9 * MIB)
    assert gate.refusal() is None
    gate.wrote(1 * MIB)
    refusal = gate.refusal()
    assert refusal is not None and "more is on the way" in refusal.why and refusal.retry_seconds == 1.0
    gate.found(judge([a_status(50, 50)], QUOTA, SpaceState.AMPLE))
    assert gate.refusal() is None


def test_the_gate_expects_what_others_have_written_lately_to_be_written_twice_more() -> None:
    gate = SpaceGate()
    for in_use, is_refused in ((45, False), (56, False), (57, True), (57, True)):
        gate.found(judge([a_status(in_use, in_use)], QUOTA, SpaceState.AMPLE))
        assert (gate.refusal() is not None) is is_refused
    # What was written some time ago has been bound since, or waits.
    for _ in range(20):
        gate.found(judge([a_status(57, 57)], QUOTA, SpaceState.AMPLE))
    assert gate.refusal() is None


def test_the_fuller_a_tight_etcd_is_the_less_history_it_keeps() -> None:
    kept = [judge([a_status(share, share)], QUOTA, SpaceState.AMPLE).kept_seconds for share in (79, 80, 87, 88, 99)]
    assert kept == [60.0, 5.0, 5.0, 1.0, 1.0]


def test_the_sizes_are_told_in_parts_of_the_quota() -> None:
    space = judge([a_status(60, 30)], QUOTA, SpaceState.AMPLE)
    assert space.words.startswith("30 % of etcd's quota of ") and space.words.endswith(" are in use, its file takes 60 %")
    assert "quota is not known" in judge([a_status(60, 30)], 0, SpaceState.AMPLE).words


@pytest.mark.parametrize(
    ("file", "in_use", "before", "state"),
    [
        (80, 75, SpaceState.TIGHT, SpaceState.TIGHT),
        (80, 76, SpaceState.FULL, SpaceState.TIGHT),
        (80, 40, SpaceState.AMPLE, SpaceState.FILLING),
        (80, 39, SpaceState.AMPLE, SpaceState.AMPLE),
        (94, 10, SpaceState.AMPLE, SpaceState.AMPLE),
        (69, 69, SpaceState.AMPLE, SpaceState.FILLING),
    ],
)
def test_the_shares_count_from_their_very_values_on(file: int, in_use: int, before: SpaceState, state: SpaceState) -> None:
    assert judge([a_status(file, in_use)], QUOTA, before).state is state


@pytest.mark.parametrize(("in_use", "wanted"), [(90, True), (91, False)])
def test_a_twentieth_of_the_quota_is_worth_a_defragmentation(in_use: int, wanted: bool) -> None:
    assert judge([a_status(95, in_use)], QUOTA, SpaceState.AMPLE).wants_defragmentation is wanted
    assert not judge([a_status(95, 10)], 0, SpaceState.AMPLE).wants_defragmentation


def test_a_tight_etcd_is_told_with_what_helps() -> None:
    by_use = judge([a_status(85, 84)], QUOTA, SpaceState.AMPLE)
    told = "etcd's space is nearly used up: 84 % of etcd's quota of 100 MiB are in use, its file takes 85 %. Nothing new is taken"
    told += "; "
    assert by_use.problem() == told + "delete what is not needed, or raise the quota"
    by_file = [judge([a_status(97, 10)] * members, QUOTA, SpaceState.AMPLE) for members in (1, 2)]
    told = told.replace("84 %", "10 %").replace("85 %", "97 %")
    assert [one.problem() for one in by_file] == [
        told + "it wants `etcdctl compact REVISION`, `etcdctl defrag`",
        told + "it wants `etcdctl compact REVISION`, `etcdctl defrag --cluster`",
    ]
    gate = SpaceGate()
    gate.found(by_use)
    refusal = gate.refusal()
    assert refusal is not None and (refusal.why, refusal.retry_seconds) == (by_use.problem(), 30.0)


@pytest.mark.parametrize(
    ("quota", "told"),
    [(1023 * MIB, "1023 MiB"), (1024 * MIB, "1.0 GiB"), (1536 * MIB, "1.5 GiB"), (8 << 30, "8.0 GiB"), (2 * MIB, "2 MiB")],
)
def test_sizes_are_told_in_the_unit_that_is_read_at_a_glance(quota: int, told: str) -> None:
    space = judge([MemberStatus(1, "3.5.1", quota * 4 // 5, 1, 7, quota * 4 // 5, 0, ())], quota, SpaceState.AMPLE)
    assert space.words == f"80 % of etcd's quota of {told} are in use, its file takes 80 %"


def test_the_gate_refuses_from_the_byte_on_with_which_it_would_be_tight() -> None:
    gate = SpaceGate()
    gate.wrote(5)
    assert gate.refusal() is None and gate.space.state is SpaceState.AMPLE
    for looks in (1, 2):
        gate.found(judge([a_status(50, 50)], QUOTA, SpaceState.AMPLE))
        gate.wrote(10 * MIB - 1)
        assert gate.refusal() is None, looks
    gate.wrote(1)
    assert gate.refusal() is not None
    gate.found(judge([a_status(4000, 4000)], 0, SpaceState.AMPLE))
    gate.wrote(1 << 40)
    assert gate.refusal() is None, "of a quota that nobody knows no share is known"


@pytest.mark.parametrize(
    ("file", "in_use", "quota", "given_up", "refused"),
    [
        (69, 69, QUOTA, False, False),
        (70, 70, QUOTA, True, False),
        (92, 10, QUOTA, False, False),
        (93, 10, QUOTA, True, False),
        (80, 80, QUOTA, True, True),
        (4000, 4000, 0, False, False),
    ],
)
def test_events_are_given_up_before_anything_else_is_refused(
    file: int, in_use: int, quota: int, given_up: bool, refused: bool
) -> None:
    gate = SpaceGate()
    assert gate.events_refusal() is None
    gate.found(judge([a_status(file, in_use)], quota, SpaceState.AMPLE))
    events, others = gate.events_refusal(), gate.refusal()
    assert (events is not None, others is not None) == (given_up, refused)
    if events is not None and others is None:
        assert events.why == f"etcd's space is kept for what matters more: {gate.space.words}. No Events are taken"
        assert events.retry_seconds == 30.0
    elif events is not None:
        assert events == others


def test_events_are_given_up_for_what_is_on_its_way_too() -> None:
    gate = SpaceGate()
    gate.found(judge([a_status(61, 61)], QUOTA, SpaceState.AMPLE))
    gate.wrote(3 * MIB - 1)
    assert gate.events_refusal() is None
    gate.wrote(1)
    assert gate.events_refusal() is not None and gate.refusal() is None
