"""One session for each planted bug of pod groups, on real replicas, as `planted_sessions` has them for all other bugs.

Etcd is left at its default of 128 operations a transaction, so a gang of MEMBERS takes a recorded plan. What comes within a
session goes with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Final, Self

from rayched.api.incomplete_groups import RELEASE_ANNOTATION
from rayched.replica.ray.processes import descendants
from rayched.v1.core_pb2 import Pod, PodStatus
from rayched.v1.services_pb2 import PodStatusUpdate
from rayched.v1.workloads_pb2 import PriorityClass
from tests.chaos.etcd_members import OPERATIONS_BY_DEFAULT
from tests.chaos.gangs import BIND_WRITE, PLAN_WRITE, group_for
from tests.chaos.planted_scene import Plant, Scene, Sessions, a_pod

OPERATIONS: Final = OPERATIONS_BY_DEFAULT
"""What a transaction of the stage's etcd may have."""
MEMBERS: Final = 120
_NEVER_PREEMPTS: Final = "first-in-the-queue"


class Gang:
    """A PodGroup and its members. A context manager: the session is healed at its end, and they go."""

    def __init__(
        self, scene: Scene, name: str, least: int, *, cpu: str = "10m", node: str = "", release_seconds: int | None = None
    ) -> None:
        self._scene, self._cpu, self._node = scene, cpu, node
        self.group = group_for(f"{name}-{uuid.uuid4().hex[:8]}", least)
        if release_seconds is not None:
            self.group.metadata.annotations[RELEASE_ANNOTATION] = str(release_seconds)
        self.members: list[Pod] = []
        self.others: list[Pod] = []
        """Pods that go with it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        stage = self._scene.stage
        stage.heal()
        pods = [*self.members, *self.others]
        stage.delete(pods)
        stage.client.delete("podgroups", self.group.metadata.name)
        gone = {pod.metadata.uid for pod in pods}
        self._scene.must(lambda: stage.ask(lambda auditor: gone.isdisjoint(auditor.pods)), "the gang is gone")

    def come(self, count: int) -> None:
        """So many members, and the group before the first of them."""
        if not self.members:
            self._scene.submit(self.group)
        new = [self._member() for _ in range(count)]
        self.members += new
        assert len(self._scene.submit(*new)) == count

    def _member(self) -> Pod:
        pod = a_pod(self.group.metadata.name, cpu=self._cpu, node=self._node)
        pod.spec.scheduling_group.pod_group_name = self.group.metadata.name
        return pod

    def needs(self, least: int) -> None:
        """Another minimum."""
        self.group.spec.scheduling_policy.gang.min_count = least
        self._scene.apply(self.group)

    def fail(self) -> None:
        """All that there are end in failure."""
        failed = PodStatus(phase="Failed", reason="Error")
        updates = [
            PodStatusUpdate(namespace="default", name=pod.metadata.name, uid=pod.metadata.uid, status=failed)
            for pod in self.members
        ]
        assert not any(self._scene.stage.client.update_pod_statuses(updates))

    def as_stored(self) -> list[Pod]:
        uids = [pod.metadata.uid for pod in self.members]
        return self._scene.stage.ask(lambda auditor: [auditor.pods[uid] for uid in uids if uid in auditor.pods])

    def is_bound(self) -> bool:
        return sum(pod.spec.node_name != "" for pod in self.as_stored()) == len(self.members)

    def has_plan(self) -> bool:
        name = f"default/{self.group.metadata.name}"
        return self._scene.stage.ask(lambda auditor: auditor.groups.plans.of(name)) is not None


def a_gang_that_does_not_fit(scene: Scene, plant: Plant) -> None:
    """Two of three members find room."""
    with Gang(scene, "large", 3, cpu="30", node="node-000") as gang, plant():
        gang.come(3)
        scene.until(lambda: scene.found("gang_partial"), scene.patience)


def a_gang_that_takes_a_plan(scene: Scene, plant: Plant) -> None:
    """More members than a transaction takes: they are bound by a plan, which then ends."""
    with Gang(scene, "many", MEMBERS) as gang, plant():
        gang.come(MEMBERS)
        scene.must(lambda: scene.has_found() or (gang.is_bound() and not gang.has_plan()), "all are bound")


def a_group_changes_before_its_plan(scene: Scene, plant: Plant) -> None:
    """The request that writes the plan gets lost, the group is changed, and the request is sent once more."""
    link = scene.link(scene.leader)
    with Gang(scene, "changed", MEMBERS) as gang, plant():
        plan = link.catch(PLAN_WRITE, passes=False)
        gang.come(MEMBERS)
        scene.must(plan.caught.is_set, "a plan is on its way")
        gang.needs(MEMBERS - 1)
        link.break_caught()
        scene.must(lambda: scene.has_found() or gang.is_bound(), "all are bound")


def a_leader_dies_behind_its_plan(scene: Scene, plant: Plant) -> None:
    """A plan is in the store, its leader stands still, and pods that come first would like to have the room."""
    first = PriorityClass(api_version="scheduling.k8s.io/v1", kind="PriorityClass", value=9, preemption_policy="Never")
    first.metadata.name = _NEVER_PREEMPTS
    scene.submit(first)
    with Gang(scene, "planned", MEMBERS, cpu="12") as gang, plant():
        plan = scene.link(scene.leader).catch(PLAN_WRITE, passes=True)
        gang.come(MEMBERS)
        scene.must(lambda: plan.caught.is_set() and gang.has_plan(), "the plan is in the store")
        scene.stage.pause([scene.leader.pid, *descendants(scene.leader.pid)])
        for _ in range(len(gang.members) // 5):
            rival = a_pod("rival", cpu="20")
            rival.spec.priority_class_name = _NEVER_PREEMPTS
            gang.others.append(rival)
        scene.submit(*gang.others)
        scene.await_later_epoch()
        scene.must(lambda: scene.has_found() or gang.is_bound(), "the successor goes on")


def a_former_leader_binds_by_its_plan(scene: Scene, plant: Plant) -> None:
    """Bindings by a plan get lost; their leader's replica hangs and its scheduler never ceases to believe, so that it sends them
    once more when there is a successor, which hears of nothing."""
    link = scene.link(scene.leader)
    # With it the leader learns what a transaction takes: the next gang is not tried in one.
    with Gang(scene, "early", MEMBERS) as early:
        early.come(MEMBERS)
        scene.must(early.is_bound, "all are bound")
    with Gang(scene, "late", MEMBERS) as gang, scene.stage.board.broken("beliefs never end"), plant():
        bindings = link.catch(gang.group.metadata.name.encode(), BIND_WRITE, passes=False)
        gang.come(MEMBERS)
        scene.must(bindings.caught.is_set, "bindings are on their way")
        scene.stage.pause([scene.leader.pid])
        scene.link(scene.standby).hold_streams = True
        scene.await_later_epoch()
        link.break_caught()
        scene.until(lambda: scene.found("stale"), scene.patience)


def all_members_fail(scene: Scene, plant: Plant) -> None:
    """A gang ran and failed; one member comes anew."""
    with Gang(scene, "failed", 3) as gang, plant():
        gang.come(3)
        scene.must(gang.is_bound, "all are bound")
        gang.fail()
        gang.come(1)
        scene.until(lambda: scene.found("gang_partial"), scene.patience)


def a_gang_loses_a_member(scene: Scene, plant: Plant) -> None:
    """The others are told to end a second later."""
    with Gang(scene, "left", 8, release_seconds=1) as gang, plant():
        gang.come(8)
        scene.must(gang.is_bound, "all are bound")
        lost = gang.members.pop()
        scene.stage.delete([lost])
        left = len(gang.members)
        scene.must(lambda: _going_on(gang.as_stored()) < left, "members are told to end")
        scene.settled()
        scene.stage.ask(lambda auditor: auditor.groups.settle())


def _going_on(pods: Sequence[Pod]) -> int:
    return sum(not pod.metadata.HasField("deletion_timestamp") for pod in pods)


SESSIONS: Final[Sessions] = MappingProxyType(
    {
        "a group binds what fits": a_gang_that_does_not_fit,
        "members are bound before the plan": a_gang_that_takes_a_plan,
        "a plan forgets the group's revision": a_group_changes_before_its_plan,
        "a new leader forgets plans": a_leader_dies_behind_its_plan,
        "planned bindings are not guarded": a_former_leader_binds_by_its_plan,
        "the condition comes first": a_gang_that_takes_a_plan,
        "failed members count": all_members_fail,
        "a release ends half a group": a_gang_loses_a_member,
    }
)
SHOWS_AS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a group binds what fits": "P1",
        "members are bound before the plan": "P2",
        "a plan forgets the group's revision": "P4",
        "a new leader forgets plans": "S2",
        "planned bindings are not guarded": "S4",
        "the condition comes first": "P9",
        "failed members count": "P1",
        "a release ends half a group": "P10",
    }
)
"""The invariant that is violated in each."""
