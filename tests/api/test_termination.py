"""Graceful deletion as a rule on pods alone."""

from __future__ import annotations

import pytest

from rayched.api.termination import (
    DELETION_BY_TAINT_MANAGER,
    DISRUPTION_TARGET,
    JOB_TRACKING,
    Ending,
    ask_to_end,
    end_object,
    mark_disrupted,
)
from rayched.v1.core_pb2 import Pod

NOW = 1_000


def a_pod(node: str = "node-1", phase: str = "Running", grace: int = 30) -> Pod:
    pod = Pod()
    pod.spec.node_name, pod.status.phase = node, phase
    pod.spec.termination_grace_period_seconds = grace
    return pod


def of_a_job(pod: Pod, kind: str = "Job", controller: bool = True) -> Pod:
    pod.metadata.finalizers.append(JOB_TRACKING)
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    pod.metadata.owner_references.add(api_version=api_version, kind=kind, name="count", uid="u", controller=controller)
    return pod


@pytest.mark.parametrize(
    ("pod", "grace", "ending", "gone_by"),
    [
        (a_pod(), None, Ending.STOPPING, NOW + 30),
        (a_pod(grace=5), None, Ending.STOPPING, NOW + 5),
        (a_pod(), 600, Ending.STOPPING, NOW + 600),
        (a_pod(), 0, Ending.REMOVE, None),
        (a_pod(grace=0), None, Ending.REMOVE, None),
        (a_pod(node=""), None, Ending.REMOVE, None),
        (a_pod(phase="Succeeded"), None, Ending.REMOVE, None),
        (a_pod(phase="Failed"), 600, Ending.REMOVE, None),
    ],
)
@pytest.mark.row("K9.9")
def test_only_what_runs_on_a_node_is_given_time(pod: Pod, grace: int | None, ending: Ending, gone_by: int | None) -> None:
    before = pod.SerializeToString()
    assert ask_to_end(pod, grace, NOW) is ending
    if gone_by is None:
        assert pod.SerializeToString() == before
    else:
        assert pod.metadata.deletion_timestamp.seconds == gone_by
        assert pod.metadata.deletion_grace_period_seconds == gone_by - NOW


@pytest.mark.parametrize(
    ("again", "ending", "gone_by"),
    [
        (10, Ending.STOPPING, NOW + 10),
        (30, Ending.UNCHANGED, NOW + 30),
        (60, Ending.UNCHANGED, NOW + 30),
        (0, Ending.REMOVE, NOW + 30),
    ],
)
def test_asked_again_the_grace_can_only_shrink_and_counts_from_the_first_time(again: int, ending: Ending, gone_by: int) -> None:
    pod = a_pod()
    ask_to_end(pod, None, NOW)
    assert ask_to_end(pod, again, NOW + 20) is ending
    assert pod.metadata.deletion_timestamp.seconds == gone_by


def test_a_pod_that_is_disrupted_twice_keeps_the_time_of_the_first() -> None:
    pod = a_pod()
    mark_disrupted(pod, DELETION_BY_TAINT_MANAGER, "first", NOW)
    mark_disrupted(pod, "Other", "second", NOW + 5)
    (condition,) = pod.status.conditions
    assert (condition.type, condition.status) == (DISRUPTION_TARGET, "True")
    assert (condition.reason, condition.message) == ("Other", "second")
    assert condition.last_transition_time.seconds == NOW


@pytest.mark.parametrize(
    ("pod", "phase"),
    [
        (a_pod(node=""), "Failed"),
        (a_pod(phase="Succeeded"), "Succeeded"),
        (a_pod(phase="Failed"), "Failed"),
    ],
)
@pytest.mark.row("W11")
def test_a_pod_that_its_job_has_not_counted_ends_and_stays(pod: Pod, phase: str) -> None:
    of_a_job(pod)
    assert ask_to_end(pod, None, NOW) is Ending.STOPPING
    assert (pod.status.phase, pod.metadata.deletion_timestamp.seconds, pod.metadata.deletion_grace_period_seconds) == (
        phase,
        NOW,
        0,
    )
    assert ask_to_end(pod, None, NOW + 5) is Ending.UNCHANGED
    assert end_object(pod, NOW + 5) is Ending.UNCHANGED
    pod.metadata.finalizers[0] = "example.com/mine"
    assert ask_to_end(pod, None, NOW) is Ending.REMOVE


def test_a_pod_that_its_job_has_not_counted_is_given_its_time() -> None:
    pod = of_a_job(a_pod())
    assert ask_to_end(pod, None, NOW) is Ending.STOPPING
    assert (pod.status.phase, pod.metadata.deletion_timestamp.seconds) == ("Running", NOW + 30)
    # Its agent has stopped it.
    assert end_object(pod, NOW + 3) is Ending.STOPPING
    assert (pod.status.phase, pod.metadata.deletion_timestamp.seconds) == ("Failed", NOW + 3)


@pytest.mark.parametrize("before", [None, 30])
@pytest.mark.row("W11")
def test_a_pod_of_a_job_that_is_asked_to_end_at_once_has_not_ended_before_its_agent_says_so(before: int | None) -> None:
    pod = of_a_job(a_pod())
    if before is not None:
        ask_to_end(pod, before, NOW - 5)
    assert ask_to_end(pod, 0, NOW) is Ending.STOPPING
    # Its process runs, and takes its node's room.
    assert pod.status.phase == "Running"
    assert (pod.metadata.deletion_timestamp.seconds, pod.metadata.deletion_grace_period_seconds) == (NOW, 0)
    assert ask_to_end(pod, 0, NOW + 5) is Ending.UNCHANGED
    assert end_object(pod, NOW + 6) is Ending.STOPPING
    assert pod.status.phase == "Failed"
    assert end_object(pod, NOW + 7) is Ending.UNCHANGED


@pytest.mark.parametrize(("kind", "controller"), [("ReplicaSet", True), ("Job", False)])
def test_the_finalizer_of_a_job_holds_nothing_that_no_job_controls(kind: str, controller: bool) -> None:
    for pod in (a_pod(node=""), a_pod(phase="Failed")):
        assert ask_to_end(of_a_job(pod, kind, controller), None, NOW) is Ending.REMOVE
    assert ask_to_end(of_a_job(a_pod(), kind, controller), 0, NOW) is Ending.REMOVE


def test_a_grace_beyond_all_times_is_a_long_one() -> None:
    pod = a_pod(grace=2**63 - 1)
    assert ask_to_end(pod, None, NOW) is Ending.STOPPING
    assert pod.metadata.deletion_timestamp.seconds == NOW + 2**31 - 1
    assert ask_to_end(pod, 2**63 - 1, NOW) is Ending.UNCHANGED
