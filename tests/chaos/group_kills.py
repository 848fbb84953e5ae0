"""Gangs whose leader is killed when it matters, on real replicas: none is bound in part, the next leader finishes each.

Three replicas, and an etcd that takes 128 operations in a transaction, so that 200 members take a recorded plan. Each round
has a gang of its own and a moment: a request of the leader that never reaches etcd, or of which it never has the answer. Then
the leader is killed with all its processes. What the next one makes of the gang is timed; whether that was right is for the
auditor, which reads all of the history.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Final

from rayched.replica.etcd.etcd_binary import find_etcd
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodGroup
from tests.chaos.demands import Demands
from tests.chaos.etcd_members import OPERATIONS_BY_DEFAULT
from tests.chaos.gangs import BIND_WRITE, PLAN_WRITE, group_for
from tests.chaos.planted_scene import a_pod
from tests.chaos.stage import StageFailed
from tests.chaos.trap_stage import TrapStage
from tests.chaos.traps import Trap, TrapLink

SMALL: Final = range(2, 61)
"""Members that one transaction takes."""
LARGE: Final = (200, 1_000)
"""Members that take a plan."""
FINISHED_SECONDS_MAX: Final = 3.0
"""From the kill to the last binding and the plan's end."""
_STRUCK_SECONDS_MAX: Final = 20.0
_PATIENCE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.01
_SAID: Final = b"PodGroupInitiallyScheduled"
"""In a write of a PodGroup."""
_REPLICAS: Final = 3


@dataclass(frozen=True, slots=True)
class _Moment:
    """When the leader dies."""

    what: str
    catch: Callable[[TrapLink, bytes, bool], Trap]
    """The link, the group's name, and whether the request reaches etcd."""
    is_large: bool
    passes: bool

    def __str__(self) -> str:
        return f"{self.what}, its {'answer' if self.passes else 'request'} lost"


def _together(link: TrapLink, name: bytes, passes: bool) -> Trap:
    return link.catch(name, BIND_WRITE, passes=passes)


def _plan(link: TrapLink, name: bytes, passes: bool) -> Trap:
    return link.catch(name, PLAN_WRITE, passes=passes)


def _bindings(link: TrapLink, name: bytes, passes: bool) -> Trap:
    # Before it takes a plan the gang is tried in one transaction, which writes the group, too.
    return link.catch(b"groupplans/default/" + name, BIND_WRITE, without=_SAID, passes=passes)


def _end(link: TrapLink, name: bytes, passes: bool) -> Trap:
    return link.catch(b"groupplans/default/" + name, _SAID, without=BIND_WRITE, passes=passes)


MOMENTS: Final = tuple(
    _Moment(what, catch, is_large, passes)
    for what, catch, is_large in (
        ("one transaction", _together, False),
        ("the plan", _plan, True),
        ("bindings by it", _bindings, True),
        ("its end", _end, True),
    )
    for passes in (False, True)
)


def play_kills(given: argparse.Namespace, demands: Demands) -> None:
    """`given.kills` rounds: each moment in turn, sizes as drawn."""
    draw = random.Random(f"{given.seed}/kills")
    seconds: dict[int, list[float]] = {size: [] for size in (0, *LARGE)}
    with (
        tempfile.TemporaryDirectory(prefix="group-kills-") as directory,
        TrapStage(Path(directory), find_etcd(), replicas=_REPLICAS, operations=OPERATIONS_BY_DEFAULT) as stage,
    ):
        for number, moment in enumerate(islice(cycle(MOMENTS), given.kills)):
            # Each moment has either size in turn.
            size = LARGE[number // len(MOMENTS) % len(LARGE)] if moment.is_large else draw.choice(SMALL)
            took = _round(stage, moment, size)
            print(f"kills: {number + 1}: {size} members, {moment}: whole after {took:.2f} s", flush=True)
            seconds[size if moment.is_large else 0].append(took)
        stage.ask(lambda auditor: auditor.groups.settle())
        found = stage.ask(lambda auditor: dict(auditor.findings.first))
    for size, each in seconds.items():
        if each:
            words = f"{size:,} members" if size else f"{SMALL[0]} to {SMALL[-1]} members"
            figures = f"median {median(each):.2f}, longest {max(each):.2f} s of {len(each)}"
            is_met = max(each) <= FINISHED_SECONDS_MAX
            demands.judge(f"{words}: whole after a kill", f"within {FINISHED_SECONDS_MAX:g} s", figures, is_met, seconds=True)
    demands.none("what the auditor found", [f"{kind}: {words}" for kind, words in found.items()])


def _round(stage: TrapStage, moment: _Moment, size: int) -> float:
    """Seconds from the kill until the gang is whole. Raises StageFailed where the moment does not come, or that does not."""
    stage.wait_until_standing(_REPLICAS)
    leader = stage.leader()
    group = group_for(f"gang-{uuid.uuid4().hex[:8]}", size)
    name = group.metadata.name
    with _gone_afterwards(stage, name, members := [_member(name) for _ in range(size)]):
        trap = moment.catch(stage.link(leader), name.encode(), moment.passes)
        _submitted(stage, group, members)
        _wait(trap.caught.is_set, f"{size} members: {moment}", _STRUCK_SECONDS_MAX)
        began = time.monotonic()
        stage.kill(leader, tree=True)
        uids = [pod.metadata.uid for pod in members]

        def is_whole() -> bool:
            return stage.ask(
                lambda auditor: (
                    all(auditor.pods[uid].spec.node_name for uid in uids) and auditor.groups.plans.of(f"default/{name}") is None
                )
            )

        _wait(is_whole, f"{size} members, {moment}: the gang is whole", _PATIENCE_SECONDS)
        return time.monotonic() - began


def _member(group: str) -> Pod:
    pod = a_pod(group)
    pod.spec.scheduling_group.pod_group_name = group
    return pod


def _submitted(stage: TrapStage, group: PodGroup, members: list[Pod]) -> None:
    """Raises StageFailed."""
    refused = [one.error for one in stage.client.submit_many([group, *members]) if one.error is not None]
    if refused:
        raise StageFailed(f"{len(refused)} of {len(members) + 1} objects were refused: {refused[0]}")


@contextmanager
def _gone_afterwards(stage: TrapStage, group: str, members: list[Pod]) -> Iterator[None]:
    try:
        yield
    finally:
        stage.heal()
        stage.delete(members)
        stage.client.delete("podgroups", group)
        uids = {pod.metadata.uid for pod in members}
        _wait(lambda: stage.ask(lambda auditor: uids.isdisjoint(auditor.pods)), f"{group} is gone", _PATIENCE_SECONDS)


def _wait(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Raises StageFailed."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise StageFailed(f"{what}: not within {seconds:.0f} s")
        time.sleep(_LOOK_SECONDS)
