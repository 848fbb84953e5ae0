"""Several candidates in simulated time: figures, clocks, cuts and random trouble."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leader import effects as fx
from leader import events as ev
from leader.config import FAST, KUBE, ElectionConfig, TimingProfile
from tests.leader.arena import SECOND, Arena, Seat


def an_arena(candidates: int = 3, seed: int = 1, profile: TimingProfile = FAST, **arena: object) -> Arena:
    configs = [ElectionConfig.of(profile, identity=f"m{number}") for number in range(candidates)]
    return Arena(configs, seed, **arena).start()  # type: ignore[arg-type]


def settled(arena: Arena) -> Seat:
    arena.run_until(lambda: arena.leader() is not None, 5)
    arena.run(3)
    leader = arena.leader()
    assert leader is not None
    return leader


@pytest.mark.row("L1")
@pytest.mark.parametrize("seed", range(20))
def test_a_dead_leader_is_replaced_after_its_lease_and_never_before(seed: int) -> None:
    arena = an_arena(seed=seed)
    dead = settled(arena)
    dead.paused_until = 10**18
    took = arena.run_until(lambda: arena.leader() not in (None, dead), 5)
    assert 1.5 < took < 2.1 and arena.overlaps == 0


@pytest.mark.row("L26", "LE-50")
@pytest.mark.parametrize("seed", range(5))
def test_of_fifty_candidates_exactly_one_takes_a_released_lease_with_three_calls_each_at_most(seed: int) -> None:
    arena = an_arena(candidates=50, seed=seed)
    leader = settled(arena)
    calls = {seat.name: seat.calls for seat in arena.seats}
    arena.give(leader, ev.StopRequested())
    took = arena.run_until(lambda: arena.leader() not in (None, leader), 1)
    assert took < 0.1
    arena.run(0.3)
    followers = [seat for seat in arena.seats if seat not in (leader, arena.leader())]
    assert all(seat.calls - calls[seat.name] <= 3 for seat in followers)
    assert sum(seat.terms for seat in arena.seats) == 2


@pytest.mark.row("LE-44")
def test_sub_second_durations_elect_one_leader_at_a_time_over_ten_thousand_renewals() -> None:
    profile = TimingProfile(lease_duration=0.9, renew_deadline=0.6, retry_period=0.2, store_ttl_seconds=1)
    arena = an_arena(profile=profile)
    arena.run(2005)
    assert arena.overlaps == 0 and arena.store.revision > 10_000
    assert sum(seat.terms for seat in arena.seats) == 1


@pytest.mark.row("LE-48", "L29")
@pytest.mark.parametrize(("rate", "changes"), [(1.4, False), (1 / 1.4, False), (2.0, True), (0.5, True)])
def test_clocks_of_other_rates_are_borne_up_to_the_ratio_of_lease_and_deadline(rate: float, changes: bool) -> None:
    for profile in (FAST, KUBE):
        arena = an_arena(profile=profile, delay_ms=(0.2, 1.0))
        leader = settled(arena)
        for seat in arena.seats:
            if seat is not leader:
                seat.rate = rate
        arena.run(20 * profile.lease_duration)
        if not changes:
            assert arena.overlaps == 0 and arena.leader() is leader
        assert guarded(arena)


@pytest.mark.row("LE-43", "L21", "LE-40")
@pytest.mark.parametrize("cut", [("requests_pass",), ("answers_pass",), ("requests_pass", "watch_passes")])
def test_a_leader_that_is_cut_off_stops_before_another_leads_and_erases_nothing_when_it_is_back(cut: tuple[str, ...]) -> None:
    arena = an_arena()
    old = settled(arena)
    for name in cut:
        setattr(old, name, False)
    took = arena.run_until(lambda: arena.leader() not in (None, old), 6)
    assert took < 4.3 and arena.overlaps == 0
    new, term = arena.leader(), arena.epochs[-1]
    old.requests_pass = old.answers_pass = old.watch_passes = True
    arena.run(5)
    assert arena.leader() is new and arena.epochs[-1] == term


@pytest.mark.row("L20")
def test_a_lossy_network_changes_no_leader() -> None:
    arena = an_arena(loss=0.05)
    settled(arena)
    arena.run(60)
    assert sum(seat.terms for seat in arena.seats) <= 3 and arena.overlaps == 0


def guarded(arena: Arena) -> bool:
    """No write of an epoch was taken after a later epoch began."""
    epochs = [epoch for epoch, _ in arena.writes]
    return epochs == sorted(epochs)


troubles = st.lists(
    st.tuples(
        st.sampled_from(
            ["pause", "cut requests", "cut answers", "deaf", "lossy", "slow", "stop work slowly", "resign", "new term", "wipe"]
        ),
        st.integers(0, 2),
        st.floats(0.05, 6.0),
        st.floats(0.0, 3.0),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), rates=st.tuples(*[st.floats(0.85, 1.15)] * 3), plan=troubles)
def test_whatever_happens_beliefs_do_not_overlap_and_somebody_leads_in_the_end(
    seed: int, rates: tuple[float, ...], plan: list[tuple[str, int, float, float]]
) -> None:
    arena = Arena([ElectionConfig.of(FAST, identity=f"m{number}") for number in range(3)], seed)
    for seat, rate in zip(arena.seats, rates, strict=True):
        seat.rate = rate
    arena.start()
    for trouble, number, lasts, pause in plan:
        trouble_begins(arena, trouble, arena.seats[number], lasts)
        arena.run(pause)
    for seat in arena.seats:
        seat.requests_pass = seat.answers_pass = seat.watch_passes = True
        seat.drain_ns = 5_000_000
    arena.loss = 0.0
    arena.run(14)  # longer than any pause, a lease and the etcd lease
    leader = arena.leader()
    assert leader is not None and leader.working
    if not any(trouble == "wipe" for trouble, *_ in plan):
        assert arena.overlaps == 0  # a record that somebody deletes by hand frees the lease of a leader that still believes
    assert guarded(arena)
    arena.run(2)
    assert arena.writes[-1][1] > arena.now - SECOND, "and its writes are taken"
    for seat in arena.seats:
        starts_and_stops = [type(effect) for effect in seat.effects if isinstance(effect, fx.StartLeading | fx.StopLeading)]
        assert starts_and_stops == [fx.StartLeading, fx.StopLeading] * (len(starts_and_stops) // 2) + (
            [fx.StartLeading] if len(starts_and_stops) % 2 else []
        )


def trouble_begins(arena: Arena, trouble: str, seat: Seat, lasts: float) -> None:
    match trouble:
        case "pause":
            seat.paused_until = arena.now + round(lasts * SECOND)
        case "cut requests" | "cut answers" | "deaf":
            name = {"cut requests": "requests_pass", "cut answers": "answers_pass", "deaf": "watch_passes"}[trouble]
            setattr(seat, name, False)
            arena.after(round(lasts * SECOND), lambda: setattr(seat, name, True))
        case "lossy":
            arena.loss = 0.3
            arena.after(round(lasts * SECOND), lambda: setattr(arena, "loss", 0.0))
        case "slow":
            arena.delay_ms = (100.0, 600.0)
            arena.after(round(lasts * SECOND), lambda: setattr(arena, "delay_ms", (0.2, 5.0)))
        case "stop work slowly":
            seat.drain_ns = round(lasts * SECOND)
        case "resign":
            arena.give(seat, ev.ResignRequested("trouble"))
        case "new term":
            arena.give(seat, ev.NewTermRequested())
        case "wipe":
            arena.store.delete_record()
