"""Room that is made for groups: victims end in batches, members are nominated, and the group waits for the room.

```
  decided ──▶ batch sent ──▶ made ──(more have to go, and still have to)──▶ batch sent
                 │ conflict    │ all made, or the rest is spared
                 ▼             ▼
     lost: decided anew     waiting ──▶ placed, or past its deadline: nominations go, and those victims are not counted on again
```

* A batch is one transaction: the victims' deletion timestamps and condition DisruptionTarget, what hard budgets lose by it, the
  nominations of members on their nodes, the condition of a group that ends as a whole, and the group's own. It compares each of
  these as it is in the cache, and the epoch. A unit is in one batch, whatever its size.
* Before each further batch all is asked anew of the snapshot as it is by then: who is not needed any more is spared, and so are
  all that are left where the group would not fit in spite of them.
* The group is in flight meanwhile. Then it counts as failed, and waits for its victims; no more is preempted for it until they
  have gone, which wakes it, or their time is over: the longest grace among them, and a margin.
* A leader that comes later knows the wait by the members' nominations.

No I/O. Owner: PodGroups. Cost: about 20 µs for each pod that is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rayched.api.stages import Stage
from rayched.core.cache.records import PodRecord
from rayched.core.groups.clearings import Clearing, GroupWait
from rayched.core.groups.group_writes import GroupConditions, object_of
from rayched.core.groups.room_batch import RoomBatch, grace_of
from rayched.core.groups.victim_units import VictimUnit
from rayched.core.parts import CoreParts
from rayched.core.writes.pod_patches import REASON_UNSCHEDULABLE, NotScheduled
from rayched.scheduler.candidates import Victim
from rayched.store.transactions import Committed, GuardedPut, Outcome, TogetherPut

VICTIMS_AT_ONCE: Final = 32
"""Pods that end in one batch, but for a unit that is larger: with the members' nominations an etcd at its defaults takes them."""
LATE: Final = "pods that were to make room for its group have not ended in time"
MARGIN_SECONDS: Final = 30.0
"""Beyond their grace, until victims are not counted on any more."""


class GroupRooms:
    """Clearings that are under way, and groups that wait for their victims."""

    def __init__(self, parts: CoreParts, conditions: GroupConditions, incarnation: str) -> None:
        self._parts, self._conditions, self._incarnation = parts, conditions, incarnation
        self._number = 0
        self._clearings: dict[str, Clearing] = {}
        self._sent: dict[str, Clearing] = {}
        self._waits: dict[str, GroupWait] = {}
        self.overdue: set[str] = set()
        """Victims that were to be gone by now."""

    # ------------------------------------------------------------------------------------------------------ nominations

    def lift(self, members: Iterable[PodRecord]) -> dict[str, str]:
        """Members do not keep room from each other within their own attempt: their nominations, which are off from now on."""
        nominations = self._parts.scheduler.nominations
        nodes = {member.uid: nominations.node_of(member.uid) for member in members}
        for uid in nodes:
            nominations.forget(uid)
        return {uid: node for uid, node in nodes.items() if node}

    def nominate(self, nodes: dict[str, str]) -> None:
        for uid, node in nodes.items():
            record = self._parts.cache.pod(uid)
            if record is not None and record.stage is Stage.PENDING:
                self._parts.scheduler.nominations.nominate(uid, record.template, node)

    # ----------------------------------------------------------------------------------------------------------- waiting

    def waits_on(self, uid: str, nodes: dict[str, str], priority: int, now: float) -> GroupWait | None:
        """The wait of this group, if victims of it have yet to end. `nodes`: its members' nominations."""
        wait = self._waits.get(uid) or self._found(nodes, priority, now)
        if wait is None:
            return None
        bound = self._parts.snapshot.bound
        if wait.deadline <= now or not any((there := bound(victim)) is not None and there.terminating for victim in wait.victims):
            self._waits.pop(uid, None)
            if wait.deadline <= now:
                self.overdue.update(wait.victims)
            return None
        self._waits[uid] = wait
        return wait

    def end_wait(self, uid: str) -> None:
        """The group is placed, or is not to be tried any more."""
        self._waits.pop(uid, None)

    def over(self, now: float) -> list[str]:
        """Groups that wait no more. Past the deadline they count on those victims no more, and nothing is kept for them."""
        # No hint need wake these: the member that stands for the group in the queue may be one in whose way nobody was.
        for uid in (gone := [uid for uid, wait in self._waits.items() if not any(map(self._parts.snapshot.bound, wait.victims))]):
            del self._waits[uid]
        for uid in (late := [uid for uid, wait in self._waits.items() if wait.deadline <= now]):
            wait = self._waits.pop(uid)
            self.overdue.update(wait.victims)
            for member in wait.nodes:
                self._parts.scheduler.nominations.forget(member)
                self._parts.statuses.want(member, NotScheduled(REASON_UNSCHEDULABLE, LATE, ""), now)
        self.overdue = {uid for uid in self.overdue if self._parts.snapshot.bound(uid) is not None}
        return gone + late

    def next_due(self) -> float | None:
        return min((wait.deadline for wait in self._waits.values()), default=None)

    def _found(self, nodes: dict[str, str], priority: int, now: float) -> GroupWait | None:
        """What a leader before has begun, as far as the members' nominations tell."""
        snapshot, graces = self._parts.snapshot, dict[str, float]()
        for node in set(nodes.values()):
            for uid, template in snapshot.pods_on(node).items():
                there = snapshot.known(uid)
                if template.priority < priority and there.terminating and there.facts.preempted and uid not in self.overdue:
                    record = self._parts.cache.pod(uid)
                    graces[uid] = 0.0 if record is None else grace_of(record)
        if not graces:
            return None
        return GroupWait(nodes, frozenset(graces), now + max(graces.values()) + MARGIN_SECONDS)

    # ---------------------------------------------------------------------------------------------------------- clearing

    def __len__(self) -> int:
        """Clearings that are not waiting for an answer."""
        return len(self._clearings) - len(self._sent)

    def has(self, uid: str) -> bool:
        return uid in self._clearings

    def begin(self, clearing: Clearing) -> None:
        self._clearings[clearing.uid] = clearing
        self.nominate(clearing.room.nodes)

    def ready(self) -> Iterator[Clearing]:
        """Those that are not under way, and whose last batch the cache shows."""
        revision = self._parts.cache.revision
        yield from [one for one in self._clearings.values() if not one.attempt and one.seen_at <= revision]

    def end(self, clearing: Clearing, now: float) -> None:
        """Nothing more is sent for it; the group waits for those that were told to end, and for those that were ending."""
        del self._clearings[clearing.uid]
        graces = dict(clearing.victims)
        for victim in clearing.room.leaving:
            record = self._parts.cache.pod(victim.uid)
            if record is not None:
                graces[victim.uid] = grace_of(record)
        if graces:
            deadline = now + max(graces.values()) + MARGIN_SECONDS
            self._waits[clearing.uid] = GroupWait(clearing.room.nodes, frozenset(graces), deadline)

    def lacks_members(self, clearing: Clearing) -> bool:
        """Somebody for whom there was to be room waits no more."""
        records = map(self._parts.cache.pod, clearing.room.nodes)
        return any(record is None or record.stage is not Stage.PENDING for record in records)

    def give_up(self, clearing: Clearing) -> None:
        """The group is decided anew, or not any more."""
        del self._clearings[clearing.uid]
        for uid in clearing.room.nodes:
            self._parts.scheduler.nominations.forget(uid)

    def stop(self) -> None:
        """The term is over or interrupted: what was not sent is void."""
        self._clearings = {one.uid: one for one in self._sent.values()}
        for one in self._sent.values():
            one.left.clear()
        self._waits.clear()

    def forget_sent(self) -> None:
        """The epoch is over: answers still to come are ignored."""
        self._sent.clear()
        self._clearings.clear()
        self.overdue.clear()

    def is_mine(self, write: GuardedPut) -> bool:
        return write.attempt in self._sent

    def outcome(self, write: GuardedPut, outcome: Outcome) -> tuple[Clearing, list[PodRecord]]:
        """What became of a batch, with the victims that end by it."""
        clearing = self._sent.pop(write.attempt)
        clearing.attempt = ""
        if not isinstance(outcome, Committed):
            self._conditions.wrote(clearing.uid, write.key, 0)
            return clearing, []
        self._conditions.wrote(clearing.uid, write.key, outcome.revision)
        clearing.seen_at = outcome.revision
        ended = [victim.uid for unit in clearing.sent for victim in unit.victims]
        clearing.sent = ()
        return clearing, [record for record in map(self._parts.cache.pod, ended) if record is not None and record.value]

    # ----------------------------------------------------------------------------------------------------------- writing

    def write(self, clearing: Clearing, epoch: int, now_unix: float) -> TogetherPut | str | None:
        """The next batch, which counts as sent. None: not yet. A text: there is nothing to write, or it cannot be; "" tells the
        first."""
        cache, state = self._parts.cache, clearing.state
        found = object_of(cache, state)
        if found is None or found[2].metadata.uid != clearing.uid:
            return "the group has gone"
        units = self._next_units(clearing)
        if units is None:
            return None
        if not units:
            return ""
        members = self._to_nominate(clearing, [victim for unit in units for victim in unit.victims])
        statuses = self._parts.statuses
        if self._conditions.is_busy(clearing.uid) or any(statuses.is_busy(member.uid) for member in members):
            return None
        self._number += 1
        attempt = f"{self._incarnation}-group-preempt-{self._number}"
        batch = RoomBatch(self._parts, clearing, epoch, attempt, now_unix)
        batch.nominate(members)
        problem = batch.end_units(units)
        if problem:
            return problem
        write = batch.write(*found)
        if isinstance(write, str):
            return write
        for member in members:
            statuses.drop(member.uid)
        clearing.attempt, clearing.sent = attempt, tuple(units)
        clearing.victims.update(batch.graces)
        clearing.nominated.update({member.uid: clearing.room.nodes[member.uid] for member in members})
        clearing.left = [unit for unit in clearing.left if unit not in units]
        self._sent[attempt] = clearing
        self._conditions.wrote(clearing.uid, found[0], None)
        return write

    def _next_units(self, clearing: Clearing) -> list[VictimUnit] | None:
        """Units that have to be written, as many as a batch takes. None: a pod of them is not seen on its node yet."""
        units: list[VictimUnit] = []
        n_pods = 0
        for unit in list(clearing.left):
            if units and n_pods + len(unit.victims) > VICTIMS_AT_ONCE:
                break
            there = []
            for victim in unit.victims:
                bound, record = self._parts.snapshot.bound(victim.uid), self._parts.cache.pod(victim.uid)
                if bound is None or record is None or bound.terminating or bound.node_name != victim.pod.node_name:
                    continue
                if record.stage is Stage.PENDING:
                    if self._parts.scheduler.post_filter.ends_anyway(victim.uid):
                        continue
                    return None
                there.append(victim)
            if there:
                units.append(unit)
                n_pods += len(there)
            else:
                clearing.left.remove(unit)
        return units

    def _to_nominate(self, clearing: Clearing, victims: list[Victim]) -> list[PodRecord]:
        """Members that go to the victims' nodes; where none does, one of all, in whose name they end."""
        nodes, cache = {victim.pod.node_name for victim in victims}, self._parts.cache
        there: list[PodRecord] = []
        for uid, node in clearing.room.nodes.items():
            record = cache.pod(uid)
            if record is None or record.pod is None or record.stage is not Stage.PENDING or clearing.nominated.get(uid) == node:
                continue
            if node in nodes or (not there and not clearing.nominated):
                there.append(record)
        return there
