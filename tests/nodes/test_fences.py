"""Pods that their node stops when it is cut off: arithmetic of clocks, the pod's life, and a real shim without an agent."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.api.disconnection import (
    CLOCK_ERROR,
    MARGIN_SECONDS,
    STOP_AFTER_ANNOTATION,
    grace_before_stop,
    has_stopped_after,
    stop_after_fault,
    stop_after_seconds,
)
from rayched.api.validation import validate, validate_update
from rayched.nodes.agent.fences import Fences
from rayched.nodes.agent.pod_life import DISCONNECTED, PodFence, PodLife
from rayched.nodes.agent.pod_runner import PodRunner
from rayched.nodes.agent.shim.boot_timer import boottime
from rayched.nodes.agent.shim.fence import ShimFence
from rayched.nodes.agent.shim_link import Answer, ShimLink, start_shim
from rayched.v1.core_pb2 import Pod
from tests.planted_bugs import planted
from tests.server.objects import a_pod

rates = st.floats(1 - CLOCK_ERROR, 1 + CLOCK_ERROR)


@pytest.mark.row("N75")
@given(
    seconds=st.floats(30, 7 * 86_400),
    node_rate=rates,
    leader_rate=rates,
    sent=st.floats(0, 1000),
    seen_later=st.floats(0, 3600),
    look=st.floats(0, 10),
)
def test_the_leader_removes_only_what_has_been_stopped(
    seconds: float, node_rate: float, leader_rate: float, sent: float, seen_later: float, look: float
) -> None:
    """True times; a clock of rate r counts r seconds in one. The leader sees a heartbeat when it was sent at the earliest."""
    stopped = sent + seconds / node_rate
    removed = sent + seen_later + (has_stopped_after(seconds) + look) / leader_rate
    assert removed - stopped >= MARGIN_SECONDS / (1 + CLOCK_ERROR) - 1e-6


@pytest.mark.row("N75")
def test_without_the_margin_for_clocks_a_pod_would_be_removed_while_it_runs() -> None:
    stopped = 3600 / (1 - CLOCK_ERROR)
    assert has_stopped_after(3600) / (1 + CLOCK_ERROR) > stopped
    with planted("fences have no margin"):
        assert has_stopped_after(3600) / (1 + CLOCK_ERROR) < stopped


def annotated(text: str, node: str = "") -> Pod:
    pod = a_pod("web", namespace="default", node=node)
    pod.metadata.annotations[STOP_AFTER_ANNOTATION] = text
    return pod


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("60s", 60), ("1m30s", 90), ("2h", 7200), ("168h", 604_800)])
def test_durations_that_are_taken(text: str, seconds: float) -> None:
    assert stop_after_seconds(annotated(text)) == seconds and stop_after_fault(text) == ""


@pytest.mark.parametrize("text", ["", "29s", "169h", "60", "1.5m", "-30s", "s", "30s1m"])
def test_durations_that_are_refused_name_what_is_allowed(text: str) -> None:
    faults = [str(error) for error in validate(annotated(text)) if STOP_AFTER_ANNOTATION in error.path]
    assert len(faults) == 1 and "want a duration such as 60s or 1m30s, from 30s to 168h" in faults[0]


def test_what_a_node_believes_stays_true() -> None:
    assert not validate_update(annotated("60s"), annotated("90s")), "it has no node yet"
    for changed in (annotated("90s", "worker"), a_pod("web", namespace="default", node="worker")):
        errors = validate_update(annotated("60s", "worker"), changed)
        assert any("cannot be changed once the pod has a node" in str(error) for error in errors)


def test_a_fence_ends_a_pod_in_time_unless_it_is_put_off() -> None:
    life = PodLife(a_pod("web"), 0.0)
    life.fence = PodFence(100.0, 10.0, 60.0)
    life.advance(89.0)
    assert life.ending is None and life.wakes_at(89.0) == 90.0
    life.fence = PodFence(130.0, 10.0, 60.0)
    life.advance(95.0)
    assert life.ending is None
    life.advance(120.0)
    assert life.ending is not None and (life.ending.by, life.ending.reason) == (130.0, DISCONNECTED) and life.phase == "Failed"


def test_a_fence_shortens_an_ending_that_would_outlive_it() -> None:
    life = PodLife(a_pod("web"), 0.0)
    life.fence = PodFence(100.0, 10.0, 60.0)
    life.advance(90.0)
    life.fence = PodFence(200.0, 10.0, 60.0)
    life.advance(91.0)
    assert life.ending is not None and life.ending.by == 100.0, "what has begun is not put off"


def test_a_pod_has_half_of_the_time_to_itself() -> None:
    assert grace_before_stop(60.0, 5.0) == 5.0 and grace_before_stop(30.0, 30.0) == 15.0


def test_a_fence_that_has_come_is_over_for_good() -> None:
    fence = ShimFence()
    assert not fence.check(1e9)
    fence.put(100.0, 10.0)
    assert fence.seconds_left(50.0) == 40.0 and not fence.check(89.0)
    fence.put(120.0, 10.0)
    assert not fence.check(95.0) and fence.check(110.0) and not fence.check(111.0), "it comes once"
    fence.put(1e9, 10.0)
    assert fence.is_over and fence.grace_left(115.0) == 5.0


class _Fenced:
    """What Fences needs of a runner, and what it was told."""

    def __init__(self, pod: Pod) -> None:
        self.life = PodLife(pod, 0.0)
        self.told: list[float] = []
        self.is_told = 0

    def tell_fence(self) -> None:
        self.is_told += 1

    def fence(self, at: float, seconds: float) -> None:
        assert seconds == 60
        self.told.append(at)


def test_a_sign_of_life_counts_from_when_it_was_sent() -> None:
    fenced, free = _Fenced(annotated("60s")), _Fenced(a_pod("free"))
    runners = cast(list[PodRunner], [fenced, free])
    fences = Fences()
    fences.set_for(runners[0])
    assert fenced.told == [] and fences.silent_seconds(1.0) is None, "nothing was acknowledged yet"
    fences.acknowledged(100.0, 109.0, runners)
    fences.acknowledged(95.0, 110.0, runners)
    assert fenced.told == [160.0, 160.0] and free.told == [], "an older one puts nothing off, and nothing forward"
    with planted("a fence counts from the answer"):
        fences.acknowledged(120.0, 129.0, runners)
    assert fenced.told[-1] != 180.0, "the cluster may have seen it at 120"
    assert fences.silent_seconds(139.0) == 10.0
    assert fenced.is_told == 0
    fences.unanswered(runners)
    assert fenced.is_told == 1 and len(fenced.told) == 3, "it stays as it is, and the shim has to know it"


def asked(link: ShimLink, verb: str, **fields: object) -> Answer:
    found: list[Answer] = []
    link.ask(verb, found.append, **fields)
    while not found:
        link.wait(10.0)
    return found[0]


def test_a_shim_whose_agent_is_gone_ends_its_containers_and_starts_none(tmp_path: Path) -> None:
    """One heeds the signal, one does not; the agent hangs up at once."""
    notes = tmp_path / "notes"
    for number, (name, script) in enumerate(
        [
            ("heeds", f"trap 'echo asked >> {notes}; exit 0' TERM; while :; do sleep 0.1; done"),
            ("stays", f"trap 'echo stays >> {notes}' TERM; while :; do sleep 0.1; done"),
        ]
    ):
        directory = tmp_path / "containers" / name / "0"
        directory.mkdir(parents=True)
        spec = {
            "argv": ["sh", "-c", script],
            "env": {"PATH": "/usr/bin:/bin", "RAYCHED_CONTAINER": name, "RAYCHED_ATTEMPT": "0"},
            "cwd": str(tmp_path),
            "user": None,
            "group": None,
            "groups": [],
            "log": str(tmp_path / f"{number}.log"),
        }
        (directory / "spec.json").write_text(json.dumps(spec))
    (tmp_path / "shim").mkdir()
    start_shim(tmp_path)
    link = ShimLink(tmp_path, lambda _: None, lambda: None)
    for name in ("heeds", "stays"):
        assert asked(link, "start", container=name, attempt=0)["ok"]
    at = boottime() + 3.0
    assert asked(link, "fence", at=at, grace=1.5)["ok"]
    link.close()
    for _ in itertools.count():
        states = json.loads((tmp_path / "shim" / "state.json").read_text())["containers"]
        if all(one["exit"] for one in states):
            break
        assert boottime() < at + 5.0, states
        time.sleep(0.05)
    ends = {one["container"]: one["exit"] for one in states}
    assert ends["heeds"]["code"] == 0 and ends["stays"]["signal"] == 9
    assert sorted(notes.read_text().split()) == ["asked", "stays"]
    again = ShimLink(tmp_path, lambda _: None, lambda: None)
    assert asked(again, "hello")["fenced"]
    refused = asked(again, "start", container="heeds", attempt=1)
    assert not refused["ok"] and refused["kind"] == "fenced"
    again.tell("quit")
    while not again.is_closed:
        again.wait(10.0)
