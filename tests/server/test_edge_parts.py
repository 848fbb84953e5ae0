"""The parts of the edge by themselves: what it knows of methods, rates, bytes, addresses."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayched.access.identity import Identity, IdentityKind
from rayched.access.token_buckets import TokenBuckets
from rayched.api.services import DESCRIPTORS
from rayched.server.admission.write_gate import CALLS, Precedence
from rayched.server.call_guard import INSECURE_ADMIN
from rayched.server.edge.byte_budget import ByteBudget, NoRoom
from rayched.server.edge.caller import INSECURE_DOMAIN, Caller, address_of
from rayched.server.edge.fairness import PriorityLevel
from rayched.server.edge.limits import LOOPBACK, CallerLimits, RateLimits
from rayched.server.edge.method_traits import (
    _METHODS,
    REPORT_BYTES_MAX,
    REQUEST_BYTES_MAX,
    SMALL_REQUEST_BYTES_MAX,
    RateKind,
    traits_of,
)
from rayched.server.edge.store_flow import StoreFlow

LEVELS = {
    Precedence.NODES: PriorityLevel.NODE,
    Precedence.USERS: PriorityLevel.WRITE,
    Precedence.EVENTS: PriorityLevel.CATCH_ALL,
}
METHODS = [f"{service.name}.{method.name}" for service in DESCRIPTORS.values() for method in service.methods]


def test_every_method_of_the_api_has_a_row_and_no_row_is_left_over() -> None:
    of_grpc = {"Health.Check", "Health.List", "Health.Watch", "ServerReflection.ServerReflectionInfo"}
    assert set(METHODS) | of_grpc == set(_METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_what_passes_the_gate_of_writes_counts_as_a_write(method: str) -> None:
    traits = traits_of(method)
    if method == "Scheduling.Bind":
        # The leader's scheduler writes it in a window of its own.
        assert (traits.level, traits.rate) == (PriorityLevel.WRITE, RateKind.WRITES)
    elif method in CALLS:
        assert traits.level is (LEVELS[CALLS[method]])
        assert traits.rate in (RateKind.WRITES, RateKind.HEARTBEATS)
    else:
        assert traits.level is not PriorityLevel.WRITE and traits.rate is not RateKind.WRITES
    assert (traits.level is PriorityLevel.EXEMPT) == (method == "Access.WhoAmI")
    assert traits.request_bytes_max == (
        SMALL_REQUEST_BYTES_MAX
        if method == "Access.WhoAmI"
        else REPORT_BYTES_MAX
        if CALLS.get(method) in (Precedence.NODES, Precedence.EVENTS)
        else REQUEST_BYTES_MAX
    )


def test_an_unknown_method_takes_nothing_from_known_ones() -> None:
    assert traits_of("Service.Unknown").level is PriorityLevel.CATCH_ALL


def test_the_limits_are_those_of_the_specification_and_loopback_has_no_rates() -> None:
    rates = CallerLimits().rates
    found = [rates.of(kind) for kind in RateKind]
    assert found == [math.inf, 200.0, 100.0, 10.0, 50.0, 1.0, 5.0]
    assert all(LOOPBACK.rates.of(kind) == math.inf for kind in RateKind)


# ------------------------------------------------------------------------------------------------------------------- rates


def test_a_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    buckets = TokenBuckets()
    assert [buckets.take("a", 10.0, 20.0, 0.0) for _ in range(20)] == [0.0] * 20
    assert buckets.take("a", 10.0, 20.0, 0.0) == pytest.approx(0.1)
    assert buckets.take("b", 10.0, 20.0, 0.0) == 0.0
    assert buckets.take("a", 10.0, 20.0, 0.1) == 0.0
    assert buckets.take("a", 10.0, 20.0, 0.1) == pytest.approx(0.1)
    assert [buckets.take("a", 10.0, 20.0, 1_000.0) for _ in range(21)].count(0.0) == 20


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 30)), min_size=1, max_size=40))
def test_nobody_gets_more_than_its_rate_and_whoever_waits_as_told_gets_in(steps: list[tuple[float, int]]) -> None:
    rate, burst = 5.0, 10.0
    buckets, now, taken = TokenBuckets(), 0.0, 0.0
    for pause, charge in steps:
        now += pause
        wait = buckets.take("a", rate, burst, now)
        if wait:
            now += wait + 1e-6
            assert buckets.take("a", rate, burst, now) == 0.0
        taken += 1.0
        if charge > 10:
            buckets.charge("a", rate, burst, charge, now)
            taken += charge
        assert taken <= burst + rate * now + max(charge, 1) + 1e-3


def test_a_debt_is_paid_with_time_and_the_oldest_bucket_goes_first() -> None:
    buckets = TokenBuckets(buckets_max=2)
    buckets.charge("a", 10.0, 20.0, 30.0, 0.0)
    assert buckets.take("a", 10.0, 20.0, 0.0) == pytest.approx(1.1)
    for name in ("b", "c"):
        buckets.take(name, 10.0, 20.0, 0.0)
    assert len(buckets) == 2
    assert buckets.take("a", 10.0, 20.0, 0.0) == 0.0
    buckets.charge("free", math.inf, math.inf, 1e9, 0.0)
    assert buckets.take("free", math.inf, math.inf, 0.0) == 0.0


def test_rates_can_be_given() -> None:
    assert RateLimits(writes=3.0).of(RateKind.WRITES) == 3.0


# ------------------------------------------------------------------------------------------------------------------- bytes


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_who_has_no_room_waits_for_its_own_and_holds_up_nobody_else() -> None:
    async def play() -> None:
        budget = ByteBudget(100)
        await budget.hold("a", 40, 50, 1.0)
        waiting = [asyncio.create_task(budget.hold("a", 20, 50, 5.0)) for _ in range(2)]
        await _turns()
        await budget.hold("b", 40, 50, 0.0)
        assert budget.held == 80 and not any(one.done() for one in waiting)
        budget.give_back("a", 40)
        await _turns()
        assert all(one.done() for one in waiting) and budget.of("a") == 40

    asyncio.run(play())


def test_who_has_no_room_in_all_is_not_overtaken() -> None:
    async def play() -> None:
        budget = ByteBudget(100)
        await budget.hold("a", 60, 100, 1.0)
        large = asyncio.create_task(budget.hold("b", 80, 100, 5.0))
        await _turns()
        small = asyncio.create_task(budget.hold("c", 10, 100, 5.0))
        await _turns()
        assert not large.done() and not small.done()
        budget.give_back("a", 60)
        await _turns()
        assert large.done() and small.done() and budget.held == 90

    asyncio.run(play())


def test_who_gives_up_leaves_nothing_behind() -> None:
    async def play() -> None:
        budget = ByteBudget(100)
        await budget.hold("a", 60, 100, 1.0)
        for give_up in ("too late", "cancelled", "just when there is room"):
            asking = asyncio.create_task(budget.hold("b", 80, 100, 0.01 if give_up == "too late" else 5.0))
            await _turns()
            behind = asyncio.create_task(budget.hold("c", 30, 100, 5.0))
            await _turns()
            assert not behind.done()
            if give_up == "too late":
                with pytest.raises(NoRoom):
                    await asking
            else:
                if give_up == "just when there is room":
                    budget.give_back("a", 60)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
            await behind
            budget.give_back("c", 30)
            if give_up == "just when there is room":
                assert budget.held == 0
            else:
                assert (budget.held, budget.of("b")) == (60, 0)

    asyncio.run(play())


def test_whoever_holds_nothing_may_hold_more_than_there_is() -> None:
    async def play() -> None:
        budget = ByteBudget(100)
        await budget.hold("a", 500, 50, 0.0)
        with pytest.raises(NoRoom):
            await budget.hold("b", 1, 50, 0.0)
        budget.give_back("a", 500)
        await budget.hold("b", 1, 50, 0.0)

    asyncio.run(play())


# ------------------------------------------------------------------------------------------------------------------ callers


@pytest.mark.parametrize(
    ("peer", "address", "is_local"),
    [
        ("ipv4:127.0.0.1:40000", "127.0.0.1", True),
        ("ipv4:10.1.2.3:40000", "10.1.2.3", False),
        ("ipv6:%5B::1%5D:40000", "::1", True),
        ("ipv6:[::ffff:127.0.0.1]:40000", "127.0.0.1", True),
        ("ipv6:%5B2001:db8:0::1%5D:40000", "2001:db8::1", False),
        ("ipv6:%5Bfe80::1%25eth0%5D:40000", "fe80::1", False),
        ("unix:", "unix", True),
        ("unknown", "unknown", False),
    ],
)
def test_a_caller_without_an_identity_goes_by_its_address(peer: str, address: str, is_local: bool) -> None:
    assert address_of(peer) == address
    for nobody in (
        Caller(INSECURE_ADMIN, peer, address),
        Caller(Identity(INSECURE_DOMAIN, IdentityKind.NODE, "a"), peer, address),
    ):
        assert (nobody.key, nobody.is_local) == (address, is_local)
    somebody = Caller(Identity("x", IdentityKind.USER, "a"), peer, address)
    assert (somebody.key, somebody.is_local) == ("spiffe://x/user/a", False)


def test_bytes_of_a_namespace_and_of_all_are_bounded_and_time_brings_more() -> None:
    flow = StoreFlow()

    assert flow.take("a", 3_000, 1_000.0, 3_000.0, 0.0) == 0.0, "more than the burst of two seconds, which is paid later"
    assert flow.take("a", 1, 1_000.0, 3_000.0, 0.0) == pytest.approx(1.001), "the debt, and one byte"
    assert flow.take("b", 2_500, 1_000.0, 3_000.0, 0.0) == 0.0
    assert flow.take("c", 1_000, 1_000.0, 3_000.0, 0.0) == 0.0
    assert flow.take("d", 1, 1_000.0, 3_000.0, 0.0) > 0.0, "all of them together have had their burst"
    assert flow.take("d", 10**9, math.inf, 3_000.0, 0.0) == 0.0, "who has no limit"
    assert flow.take("a", 1, 1_000.0, 3_000.0, 1.002) == 0.0


def test_what_is_refused_takes_nothing() -> None:
    flow = StoreFlow()
    flow.take("a", 2_000, 1_000.0, 10_000.0, 0.0)
    for _ in range(100):
        assert flow.take("a", 1_000, 1_000.0, 10_000.0, 0.0) > 0.0

    assert flow.take("a", 1, 1_000.0, 10_000.0, 0.1) == 0.0
    assert flow.take("b", 1_000, 1_000.0, 10_000.0, 0.1) == 0.0
