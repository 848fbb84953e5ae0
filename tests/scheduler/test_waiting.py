"""The waiting list of Permit: allowed, rejected, timed out, dropped."""

from __future__ import annotations

import pytest

from rayched.framework.status import SUCCESS, Code
from rayched.scheduler.waiting import PermitDecision, WaitingPods


def waiting(**timeouts: float) -> WaitingPods:
    pods = WaitingPods()
    pods.add("uid-1", "default/web", "n1", timeouts, now=100.0)
    return pods


@pytest.mark.row("K6.6")
def test_a_pod_leaves_when_the_last_plugin_has_allowed_it() -> None:
    pods = waiting(gang=10.0, licence=20.0)
    assert pods.allow("uid-1", "gang")
    assert pods.take_decided(101.0) == [] and len(pods) == 1
    assert pods.allow("uid-1", "licence")
    assert pods.take_decided(102.0) == [PermitDecision("uid-1", SUCCESS)]
    assert len(pods) == 0 and not pods.allow("uid-1", "gang")


@pytest.mark.row("K6.6")
def test_the_earliest_timeout_denies() -> None:
    pods = waiting(gang=10.0, licence=5.0)
    assert pods.next_deadline() == 105.0
    assert pods.take_decided(104.9) == []
    (decided,) = pods.take_decided(105.0)
    assert decided.status.code is Code.UNSCHEDULABLE and decided.status.plugin == "licence"
    assert decided.status.message() == "rejected due to timeout after waiting 5s at plugin licence"
    assert pods.next_deadline() is None


def test_one_rejection_is_enough_and_its_text_is_kept() -> None:
    pods = waiting(gang=10.0, licence=5.0)
    assert pods.reject("uid-1", "gang", "the group was deleted")
    assert not pods.reject("uid-1", "licence", "too late")
    (decided,) = pods.take_decided(100.0)
    assert (decided.status.plugin, decided.status.message()) == ("gang", "the group was deleted")


def test_a_decision_not_yet_taken_wakes_at_once_and_dies_with_its_pod() -> None:
    pods = waiting(gang=10.0)
    pods.allow("uid-1", "gang")
    assert pods.next_deadline() == float("-inf")
    pods.remove("uid-1")
    assert pods.next_deadline() is None and pods.take_decided(200.0) == []


def test_the_list_shows_who_waits_for_whom() -> None:
    (pod,) = waiting(gang=10.0).waiting()
    assert (pod.key, pod.node_name, pod.since, dict(pod.pending)) == ("default/web", "n1", 100.0, {"gang": 110.0})
