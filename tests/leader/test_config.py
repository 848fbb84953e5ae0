"""The checks of a configuration, in client-go's order and with its texts."""

from __future__ import annotations

from typing import Any

import pytest

from leader.config import FAST, KUBE, PROFILES, ElectionConfig, ElectionConfigError, check_config, check_lock_kind
from leader.identity import new_instance, unique_identity


def check(given: dict[str, Any]) -> None:
    parts = {"on_started_leading": print, "on_stopped_leading": print, "lock": object()}
    fields: dict[str, Any] = {"identity": "baz", "lease_duration": 15.0, "renew_deadline": 2.0, "retry_period": 1.0}
    for name, value in given.items():
        (parts if name in parts else fields)[name] = value
    check_config(ElectionConfig(**fields), **parts)


@pytest.mark.row("LE-16")
def test_a_valid_configuration_passes() -> None:
    check({})


@pytest.mark.row("LE-17", "L11")
@pytest.mark.parametrize(
    ("given", "text"),
    [
        pytest.param({"renew_deadline": 15.0}, "leaseDuration must be greater than renewDeadline", id="1"),
        pytest.param({"retry_period": 2.0 / 1.2}, "renewDeadline must be greater than retryPeriod*JitterFactor", id="2"),
        pytest.param(
            {"lease_duration": 0.0, "renew_deadline": -2.0, "retry_period": -3.0},
            "leaseDuration must be greater than zero",
            id="3",
        ),
        pytest.param({"renew_deadline": -1.0, "retry_period": -2.0}, "renewDeadline must be greater than zero", id="4"),
        pytest.param({"retry_period": 0.0}, "retryPeriod must be greater than zero", id="5"),
        pytest.param({"on_started_leading": None}, "OnStartedLeading callback must not be nil", id="6"),
        pytest.param({"on_stopped_leading": None}, "OnStoppedLeading callback must not be nil", id="7"),
        pytest.param({"lock": None}, "Lock must not be nil.", id="8"),
        pytest.param({"identity": ""}, "Lock identity is empty", id="9"),
    ],
)
def test_each_of_the_nine_checks_has_its_text(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ElectionConfigError) as refusal:
        check(given)
    assert str(refusal.value) == text


@pytest.mark.row("L8", "L9", "L10")
def test_the_first_fault_in_order_is_the_one_that_is_told() -> None:
    faults: list[tuple[dict[str, Any], str]] = [
        ({"identity": ""}, "Lock identity is empty"),
        ({"lock": None}, "Lock must not be nil."),
        ({"on_stopped_leading": None}, "OnStoppedLeading callback must not be nil"),
        ({"on_started_leading": None}, "OnStartedLeading callback must not be nil"),
        ({"retry_period": 0.0}, "retryPeriod must be greater than zero"),
        ({"retry_period": 1.9}, "renewDeadline must be greater than retryPeriod*JitterFactor"),
        ({"lease_duration": 2.0}, "leaseDuration must be greater than renewDeadline"),
    ]
    together: dict[str, Any] = {}
    for fault, text in faults:
        together.update(fault)
        with pytest.raises(ElectionConfigError) as refusal:
            check(together)
        assert str(refusal.value) == text


@pytest.mark.parametrize("limit", [0.001, 4.5, 86400.0])
def test_a_limit_of_progress_may_be_anything_up_to_a_day(limit: float) -> None:
    check({"progress_limit": limit})


@pytest.mark.row("LE-44")
def test_durations_below_a_second_are_accepted_and_kept_in_milliseconds() -> None:
    config = ElectionConfig(identity="a", lease_duration=0.9, renew_deadline=0.6, retry_period=0.2)
    check_config(config, on_started_leading=print, on_stopped_leading=print, lock=object())
    assert config.lease_ms == 900 and config.renew_deadline_ns == 600_000_000


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"lease_duration": float("nan")}, "leaseDuration must be greater than renewDeadline"),
        ({"renew_deadline": float("nan")}, "leaseDuration must be greater than renewDeadline"),
        ({"retry_period": float("nan")}, "renewDeadline must be greater than retryPeriod*JitterFactor"),
        ({"lease_duration": float("inf")}, "leaseDuration inf s: at most 86400 s"),
        ({"store_ttl_seconds": 14}, "store_ttl_seconds 14 must not be less than leaseDuration 15.0 s"),
        ({"progress_limit": 0.0}, "progress_limit 0.0 s: must be greater than zero, at most 86400 s"),
        ({"progress_limit": 86400.5}, "progress_limit 86400.5 s: must be greater than zero, at most 86400 s"),
    ],
)
def test_what_would_elect_nobody_safely_is_refused_too(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ElectionConfigError) as refusal:
        check(given)
    assert str(refusal.value) == text


@pytest.mark.row("L6")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("endpoints", "lock-type endpoints is no longer supported, use leases"),
        ("configmaps", "lock-type configmaps is no longer supported, use leases"),
        ("sheep", "Invalid lock-type sheep"),
        ("", "Invalid lock-type "),
    ],
)
def test_there_is_one_kind_of_lock(kind: str, text: str) -> None:
    check_lock_kind("leases")
    with pytest.raises(ElectionConfigError) as refusal:
        check({"lock_kind": kind})
    assert str(refusal.value) == text


@pytest.mark.row("L3", "L4", "L5")
def test_the_profiles_pass_the_checks_and_kube_has_the_defaults_of_kube_scheduler() -> None:
    for profile in PROFILES.values():
        check_config(ElectionConfig.of(profile, identity="a"), on_started_leading=print, on_stopped_leading=print, lock=object())
    assert (KUBE.lease_duration, KUBE.renew_deadline, KUBE.retry_period, KUBE.store_ttl_seconds) == (15, 10, 2, 15)
    assert (FAST.lease_duration, FAST.renew_deadline, FAST.retry_period, FAST.store_ttl_seconds) == (2.0, 1.3, 0.4, 3)
    assert ElectionConfig(identity="a") == ElectionConfig.of(KUBE, identity="a")


@pytest.mark.row("L7")
def test_two_processes_of_one_host_have_two_identities() -> None:
    assert unique_identity() != unique_identity()
    assert new_instance() != new_instance()
