"""Where the members of a group with a plan are to be, as nodes and members change: each keeps its room, or gets another one.

Owner: `RecordedPlans`. Cost: about 1 µs a member that waits, a scheduling cycle for each that moves. With a
topology it stays in the domain of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rayched.api.stages import Stage
from rayched.core.cache.records import PodRecord, RecordedPlan
from rayched.core.groups.group_cycle import settled
from rayched.core.groups.planned_group import PlannedGroup
from rayched.core.groups.topology import Domains
from rayched.core.parts import CoreParts
from rayched.core.writes.bindings import is_as_decided
from rayched.framework.plugin_error import PluginError
from rayched.scheduler.attempt import Attempt
from rayched.scheduler.scheduler import PodToSchedule
from rayched.snapshot.pod_facts import PodFacts

REFUSALS_MAX: Final = 3
"""Of one member's binding, by plugins."""


class PlannedPlaces:
    """Holds room for members in the snapshot."""

    def __init__(self, parts: CoreParts) -> None:
        self._cache, self._scheduler, self._snapshot = parts.cache, parts.scheduler, parts.snapshot
        self._statuses, self._domains = parts.statuses, Domains(parts.snapshot)

    def take_over(self, planned: PlannedGroup, recorded: RecordedPlan, began: int, now: float) -> None:
        """The room of an earlier leader's plan: that of members without nodes."""
        for one in planned.plan.members:
            record = self._cache.pod(one.uid)
            if (
                one.uid in planned.refused
                or record is None
                or record.kept is None
                or self._scheduler.occupancy.on(one.uid) is not None
            ):
                continue
            self._statuses.drop(one.uid)
            pod = PodToSchedule(record.uid, record.name, record.template, record.kept)
            result = settled(self._scheduler, self._scheduler.schedule(pod, began, now, node_name=one.node))
            if isinstance(result, Attempt):
                planned.take(result, recorded.decided_at)
            else:
                planned.refused.add(one.uid)
                planned.is_changed = True

    def look_at(self, planned: PlannedGroup, now: float, now_unix: float) -> None:
        """Members that are bound or gone leave; those whose place is no good any more get another one."""
        planned.unseen = {uid for uid in planned.unseen if self._is_pending(uid)}
        for uid, attempt in list(planned.attempts.items()):
            if self._scheduler.attempt(uid) is not attempt:
                planned.leave(uid)
                planned.sent.discard(uid)
                continue
            wait = planned.waits.get(uid)
            if uid in planned.sent or (wait is not None and not wait.is_shown(self._cache)):
                continue
            planned.waits.pop(uid, None)
            record = self._cache.pod(uid)
            if record is None or record.kept is None:
                self._scheduler.roll_back(attempt)
                planned.leave(uid)
            elif not is_as_decided(record, attempt) or not self._still_fits(planned, attempt):
                self.move(planned, record, attempt, now, now_unix)

    def _is_pending(self, uid: str) -> bool:
        record = self._cache.pod(uid)
        return record is not None and record.stage is Stage.PENDING

    def _still_fits(self, planned: PlannedGroup, attempt: Attempt) -> bool:
        """Whether the node would take the member still, where the node or what is on it may have changed."""
        uid, node_name, checked = attempt.uid, attempt.node_name, planned.checked[attempt.uid]
        revision = self._cache.node_guard(node_name)[1]
        if 0 < revision <= checked and not self._cache.is_taken_since(node_name, checked):
            return True
        occupancy, row = self._scheduler.occupancy, self._snapshot.row_of(node_name)
        occupancy.forget(uid)
        try:
            bounds = self._bounds(planned, uid)
            is_within = any(beyond is None or row not in beyond for beyond in bounds)
            engine = self._scheduler.engine(attempt.template.scheduler_name)
            fits = row is not None and is_within and engine.fits(attempt.template, row)
        except PluginError:
            # Another node is looked for, and that attempt tells.
            fits = False
        finally:
            occupancy.assume(uid, attempt.template, node_name, PodFacts(attempt.name))
        planned.checked[uid] = self._cache.revision
        return fits

    def move(self, planned: PlannedGroup, record: PodRecord, attempt: Attempt, now: float, now_unix: float) -> None:
        """Another place for a member; without one the next plan is without it."""
        assert record.kept is not None
        self._scheduler.roll_back(attempt)
        planned.leave(attempt.uid)
        if planned.refusals[record.uid] < REFUSALS_MAX:
            pod = PodToSchedule(record.uid, record.name, record.template, record.kept)
            for beyond in self._bounds(planned, record.uid):
                with self._scheduler.profiles.bounds.set(beyond):
                    result = settled(self._scheduler, self._scheduler.schedule(pod, attempt.began, now, now_unix))
                if isinstance(result, Attempt):
                    planned.take(result, self._cache.revision)
                    planned.is_changed |= planned.planned_on().get(record.uid) != result.node_name
                    return
        planned.refused.add(record.uid)
        planned.is_changed = True

    def _bounds(self, planned: PlannedGroup, uid: str) -> Iterator[frozenset[int] | None]:
        """Rows that are out of the question, for each domain that the member may go to: with a topology that of the others."""
        state = planned.state
        if not state.topology:
            yield None
            return
        others = (self._scheduler.occupancy.on(other) for other in (*state.bound, *state.waiting) if other != uid)
        for domain in self._domains.candidates(state.topology, (on.node_name for on in others if on)):
            yield domain.beyond
