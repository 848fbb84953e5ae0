"""Who belongs to which pod group, as the cache tells it, and whether the group may be tried.

A group is known by namespace and name: its members may come before its object, which may go and come again as another one.
Members are counted by where they stand:

| standing | who | counts |
|---|---|---|
| waiting | has no node | as present |
| bound | has a node, has not ended and is not being deleted | as present, and toward the minimum |
| done | succeeded | as present, and toward the minimum |
| other | failed, or being deleted, on a node or not | not |

Pure. Cost: about 30 µs a change of a member; nothing for pods that name no group.

Source: PodGroup of Kubernetes 1.37. Different here: members that succeeded count, so that a group whose first ones have ended can
be filled up again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar, Final, NamedTuple

from rayched.api.defaulting import PREEMPT_LOWER_PRIORITY
from rayched.api.stages import Stage
from rayched.api.termination import GROUP_INCOMPLETE, is_disrupted
from rayched.core.cache.records import NodeChanged, ObjectChanged, PodChanged, PodRecord
from rayched.core.exchange.messages import GROUP_MARK
from rayched.core.writes.pod_patches import REASON_ERROR, REASON_UNSCHEDULABLE, NotScheduled
from rayched.store.codec import decode_stored
from rayched.v1.workloads_pb2 import PodGroup, PodGroupSpec

SUCCEEDED: Final = "Succeeded"


class MemberTerms(NamedTuple):
    """What all members of a group have in common."""

    scheduler_name: str
    priority: int
    preemption_policy: str


class GroupState:
    """One group, with its members, and what the queue has been told of it."""

    RULE_A_GROUP_IS_WHOLE: ClassVar[bool] = True
    RULE_FAILED_MEMBERS_DO_NOT_COUNT: ClassVar[bool] = True
    """Broken by tests alone."""

    __slots__ = (
        "_group",
        "_mixed",
        "bound",
        "done",
        "ends_whole",
        "gated",
        "grown",
        "has_failed",
        "in_flight",
        "is_ending",
        "is_gang",
        "is_held",
        "is_told",
        "leaving",
        "min_count",
        "name",
        "plan_problem",
        "released",
        "since",
        "size",
        "template",
        "terms",
        "topology",
        "uid",
        "waiting",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        """namespace/name."""
        self.group = None
        self.waiting: dict[str, PodRecord] = {}
        self.bound: dict[str, MemberTerms] = {}
        self.done: set[str] = set()
        self.leaving: set[str] = set()
        """Told to end, and still on their nodes."""
        self.gated: set[str] = set()
        """Of those that wait."""
        self.terms: Counter[MemberTerms] = Counter()
        """Of members that wait or are bound."""
        self.uid = ""
        """Of the object under which the queue knows the group, or will."""
        self.is_told = False
        """The queue has the group."""
        self.in_flight = False
        """An attempt for it is under way, or its outcome is."""
        self.grown = False
        """Members came meanwhile."""
        self.has_failed = False
        """Nothing has woken it since its last attempt."""
        self.since: float | None = None
        """When it entered the queue, for members that are left over."""
        self.size = 1
        """How many members wait, as the queue was told."""
        self.template = -1
        """The template that stands for the group in the queue."""
        self.released: set[str] = set()
        """Members that were told to end because the group was incomplete."""
        self.plan_problem = ""
        """Why its plan cannot be read, where it has such a one."""
        self.is_held = False
        """Something was in the way when it was last looked at."""

    @property
    def entry_name(self) -> str:
        """Its name in the queue; no pod has a colon in its own."""
        namespace, _, name = self.name.partition("/")
        return f"{namespace}{GROUP_MARK}{name}"

    @property
    def group(self) -> PodGroup | None:
        """Not to be changed."""
        return self._group

    @group.setter
    def group(self, group: PodGroup | None) -> None:
        # Each change of a member asks for what the object says, so it is read once.
        self._group = group
        self._mixed: str | None = None
        """As `_how_mixed` found it; None: it is to be found out."""
        spec = PodGroupSpec() if group is None else group.spec
        self.is_gang = spec.scheduling_policy.HasField("gang")
        self.min_count = spec.scheduling_policy.gang.min_count if self.is_gang else 1
        self.ends_whole = spec.disruption_mode.HasField("all")
        """All its members end together, where one is to make room."""
        topology = spec.scheduling_constraints.topology
        self.topology = topology[0].key if topology else ""
        """The label in one value of which all members go; "": they go anywhere."""
        self.is_ending = group is not None and group.metadata.HasField("deletion_timestamp")

    @property
    def satisfied(self) -> int:
        """Members that count toward the minimum already."""
        return len(self.bound) + len(self.done)

    @property
    def n_present(self) -> int:
        return self.satisfied + len(self.waiting)

    @property
    def is_empty(self) -> bool:
        return self.group is None and not (self.waiting or self.bound or self.done or self.leaving or self.plan_problem)

    def forget(self, uid: str) -> None:
        """The member is not there any more, or is about to be taken anew."""
        before = self.waiting.pop(uid, None)
        terms = self.bound.pop(uid, None) if before is None else _terms_of(before)
        if terms is not None:
            self.terms[terms] -= 1
            if not self.terms[terms]:
                del self.terms[terms]
                self._mixed = None
        for members in (self.done, self.leaving, self.released, self.gated):
            members.discard(uid)

    def take(self, record: PodRecord) -> None:
        """A member as it stands now, of which nothing is known."""
        if record.stage is Stage.PENDING:
            self.waiting[record.uid] = record
            self._count(_terms_of(record))
            if record.template.pod.spec.scheduling_gates:
                self.gated.add(record.uid)
            return
        if record.stage is Stage.BOUND and not record.is_ending:
            self.bound[record.uid] = terms = _terms_of(record)
            self._count(terms)
            return
        pod = decode_stored(record.value, record.mod_revision).object.pod
        if pod.metadata.HasField("deletion_timestamp"):
            if record.stage is Stage.BOUND:
                self.leaving.add(record.uid)
            if is_disrupted(pod, GROUP_INCOMPLETE):
                self.released.add(record.uid)
        elif pod.status.phase == SUCCEEDED or not GroupState.RULE_FAILED_MEMBERS_DO_NOT_COUNT:
            self.done.add(record.uid)

    def _count(self, terms: MemberTerms) -> None:
        count = self.terms[terms]
        self.terms[terms] = count + 1
        if not count:
            self._mixed = None

    def hold(self) -> NotScheduled | None:
        """Why the group is not to be tried now, as its members are told; None: nothing is in the way."""
        if self.group is None:
            return NotScheduled(REASON_UNSCHEDULABLE, f"waiting for pod group {self.name}: it does not exist")
        if self._mixed is None:
            self._mixed = self._how_mixed()
        if self._mixed:
            return NotScheduled(REASON_ERROR, self._mixed)
        if self.plan_problem:
            return NotScheduled(REASON_ERROR, f"waiting for pod group {self.name}: {self.plan_problem}")
        if self.gated:
            return NotScheduled(REASON_UNSCHEDULABLE, f"waiting for pod group {self.name}: a member has scheduling gates")
        if self.n_present < self.min_count:
            needed = f"it needs {self.min_count} members that run or wait"
            return NotScheduled(REASON_UNSCHEDULABLE, f"waiting for pod group {self.name}: {needed}")
        return None

    def _how_mixed(self) -> str:
        """How members differ among themselves, or from their group, in what they must have in common; "": they do not."""
        if self.group is None:
            return ""
        schedulers = sorted({terms.scheduler_name for terms in self.terms})
        if len(schedulers) > 1:
            return f"pods of group {self.name} have different schedulerNames: {schedulers[0]} and {schedulers[1]}"
        spec = self.group.spec
        policy = spec.preemption_policy or PREEMPT_LOWER_PRIORITY
        for terms in self.terms:
            if terms.priority != spec.priority:
                return f"a pod of group {self.name} has priority {terms.priority}, its group {spec.priority}"
            if terms.preemption_policy != policy:
                return f"a pod of group {self.name} has preemptionPolicy {terms.preemption_policy}, its group {policy}"
        return ""


class GroupMembership:
    """All groups."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupState] = {}
        self._by_uid: dict[str, GroupState] = {}
        self._with_topology: dict[str, GroupState] = {}
        """By name."""

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[GroupState]:
        return iter(list(self._groups.values()))

    def pending(self) -> Counter[str]:
        """Members that wait for a node, by the queue that their group is in: `incomplete` where it is held back."""
        found: Counter[str] = Counter()
        for state in self._groups.values():
            if state.waiting and not state.in_flight:
                queue = ("unschedulable" if state.has_failed else "active") if state.is_told else "incomplete"
                found[queue] += len(state.waiting)
        return found

    def by_name(self, name: str) -> GroupState | None:
        """The group of this namespace/name."""
        return self._groups.get(name)

    def by_uid(self, uid: str) -> GroupState | None:
        """The group whose object has this uid."""
        return self._by_uid.get(uid)

    def failed_in_other_domain(self, change: NodeChanged) -> list[GroupState]:
        """Groups with a topology that failed, where the node is in another domain now: no plugin of a member knows of that."""
        old, new = change.old, change.new
        if new is None:
            return []
        now, before = new.metadata.labels, {} if old is None else old.metadata.labels
        found = [state for state in self._with_topology.values() if state.has_failed]
        return [state for state in found if now.get(state.topology, "") != before.get(state.topology, "")]

    def member_changed(self, change: PodChanged) -> GroupState | None:
        """The group of the pod, with the pod where it stands now. None: nothing is left of the group."""
        record = change.new or change.old
        assert record is not None
        uid, template = record.uid, record.template
        state = self.state_of(f"{template.namespace}/{template.pod_group}")
        if change.old is not None:
            state.forget(uid)
        if change.new is not None:
            state.take(change.new)
        return self._kept(state)

    def object_changed(self, change: ObjectChanged) -> tuple[GroupState, PodGroup | None] | None:
        """The group of the object, and the object as it was."""
        old, new = change.old, change.new
        message = new or old
        assert isinstance(message, PodGroup)
        state = self.state_of(f"{message.metadata.namespace}/{message.metadata.name}")
        if isinstance(old, PodGroup):
            self._by_uid.pop(old.metadata.uid, None)
        state.group = new if isinstance(new, PodGroup) else None
        if state.group is not None:
            self._by_uid[state.group.metadata.uid] = state
        if state.topology:
            self._with_topology[state.name] = state
        else:
            self._with_topology.pop(state.name, None)
        return (state, old if isinstance(old, PodGroup) else None) if self._kept(state) is not None else None

    def state_of(self, name: str) -> GroupState:
        """The group of this name, from now on known if it was not."""
        state = self._groups.get(name)
        if state is None:
            state = self._groups[name] = GroupState(name)
        return state

    def prune(self, state: GroupState) -> None:
        """A group of which nothing is left is forgotten."""
        if state.is_empty and not state.is_told and not state.in_flight:
            self._groups.pop(state.name, None)

    def _kept(self, state: GroupState) -> GroupState | None:
        if not state.is_empty:
            return state
        self.prune(state)
        return self._groups.get(state.name)


def _terms_of(record: PodRecord) -> MemberTerms:
    template = record.template
    return MemberTerms(template.scheduler_name, template.priority, template.preemption_policy or PREEMPT_LOWER_PRIORITY)
