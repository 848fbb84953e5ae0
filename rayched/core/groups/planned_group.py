"""A group that is bound by a recorded plan, as the leader follows it to its end.

Pure. Owner: `RecordedPlans`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rayched.core.groups.group_writes import DecidedGroup
from rayched.core.groups.membership import GroupState
from rayched.core.writes.bindings import LostRace
from rayched.scheduler.attempt import Attempt
from rayched.v1.storage_pb2 import GroupPlan


@dataclass(slots=True, eq=False)
class PlannedGroup:
    """From the decision until the plan is gone again."""

    state: GroupState
    uid: str
    """Of the PodGroup."""
    key: bytes
    """Of the plan."""
    plan: GroupPlan
    """As it lies in the store, or is to be written first."""
    written: GroupPlan | None = None
    """What is to replace it, once that was sent."""
    decided: DecidedGroup | None = None
    """What the first write of the plan relies on; None: an earlier leader wrote it."""
    revision: int = 0
    """Of the plan in the store; 0: it is not there yet."""
    attempts: dict[str, Attempt] = field(default_factory=dict)
    """Of members that are to be bound, by uid. Each holds room where the plan has it."""
    checked: dict[str, int] = field(default_factory=dict)
    """The revision at which each one's place was looked at last."""
    refusals: Counter[str] = field(default_factory=Counter)
    """How often a plugin or the store turned a member's binding down."""
    refused: set[str] = field(default_factory=set)
    """Members that found no other place: the next plan is without them."""
    waits: dict[str, LostRace] = field(default_factory=dict)
    """Of members: what the cache has to show before they are sent again."""
    sent: set[str] = field(default_factory=set)
    """Members whose binding is under way."""
    unseen: set[str] = field(default_factory=set)
    """Members whose binding is committed and not seen yet."""
    writing: str = ""
    """Which write of the plan's own key is under way: "plan", "end"; "": none."""
    wait: LostRace | None = None
    """What the cache has to show before that key is written again."""
    is_lost: bool = False
    """Its first write lost a race: nobody holds room any more."""
    is_changed: bool = False
    """Members have other places than the plan in the store says."""

    @property
    def is_committed(self) -> bool:
        return self.revision > 0

    def leave(self, uid: str) -> Attempt | None:
        """The member is bound, has gone, or loses its place."""
        self.waits.pop(uid, None)
        self.checked.pop(uid, None)
        return self.attempts.pop(uid, None)

    def take(self, attempt: Attempt, checked: int) -> None:
        """The member has room where the attempt says, as of this revision."""
        self.attempts[attempt.uid] = attempt
        self.checked[attempt.uid] = checked

    def planned_on(self) -> dict[str, str]:
        """The nodes of all members, by uid, as the plan in the store has it."""
        return {one.uid: one.node for one in self.plan.members}

    def changed_plan(self, made_at_ms: int) -> GroupPlan:
        """The plan with the places that members have by now: those without one are in it no more."""
        plan = GroupPlan(group_uid=self.uid, group_revision=self.plan.group_revision, min_count=self.plan.min_count)
        plan.made_at_ms = made_at_ms
        for one in self.plan.members:
            attempt = self.attempts.get(one.uid)
            if attempt is not None:
                plan.members.add(uid=one.uid, name=one.name, node=attempt.node_name)
            elif one.uid not in self.refused:
                plan.members.append(one)
        return plan


def plan_of(uid: str, group_revision: int, min_count: int, attempts: Iterable[Attempt], made_at_ms: int) -> GroupPlan:
    """The first plan of a placement."""
    plan = GroupPlan(group_uid=uid, group_revision=group_revision, min_count=min_count, made_at_ms=made_at_ms)
    for attempt in attempts:
        plan.members.add(uid=attempt.uid, name=attempt.name.partition("/")[2], node=attempt.node_name)
    return plan
