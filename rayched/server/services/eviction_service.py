"""The service rayched.v1.Eviction: pods deleted as far as their disruption budgets allow it. Any replica serves it.

| pod | answer |
|---|---|
| not started, ended, or being deleted already | OK; budgets have no say |
| no budget selects it | OK |
| several do | FAILED_PRECONDITION |
| not ready, and its budget lets unhealthy pods go | OK; nothing is taken from the budget |
| its budget has a disruption left | OK; one is taken |
| its budget has none, or no status for its present spec yet | RESOURCE_EXHAUSTED, and when to try again |

What was decided on is a condition of the write: the pod's revision, and the budget's. One transaction lowers disruptionsAllowed,
enters the pod in disruptedPods, and marks the pod (deletion_timestamp, condition DisruptionTarget) or removes it. So however many
replicas evict at once, a disruption is granted once; whoever comes second reads again what the first one left.

Source: the eviction subresource of Kubernetes 1.34, whose two writes are one here. Cost: two reads and a write of etcd.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from rayched.api.disruption import DisruptionRefusal, counts_against_budgets, goes_for_free, selector_of, take
from rayched.api.kinds import POD, POD_DISRUPTION_BUDGET, unwrap
from rayched.api.termination import EVICTION_BY_EVICTION_API, Ending, ask_to_end, mark_disrupted
from rayched.server.admission.deletion import Deleter, check_grace, expected
from rayched.server.errors import ApiFailure, conflict, forbidden_by_state, refused_by_budget
from rayched.server.objects import CallTarget, Objects, Read, read_entry, timestamp_now
from rayched.server.rpc import Call
from rayched.store.codec import encode
from rayched.store.transactions import Committed, Conflict, GuardedPut, Write
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import BudgetRefusal, EvictRequest, EvictResponse
from rayched.v1.workloads_pb2 import PodDisruptionBudget, PodDisruptionBudgetStatus

ATTEMPTS_MAX: Final = 20
"""At one replica evictions under one budget wait for each other once they clashed, so that only those of other replicas and the
leader's statuses can overtake one again."""
_RETRY_SECONDS: Final = {DisruptionRefusal.NOT_OBSERVED: 0.5, DisruptionRefusal.USED_UP: 1.0, DisruptionRefusal.TOO_MANY: 5.0}
"""A status follows in milliseconds; a pod that takes another one's place, in a second or so."""
_MESSAGE: Final = "Eviction API: evicting"


@dataclass(frozen=True, slots=True)
class _Overtaken:
    """Somebody else changed what was read; `contended` is the key they changed, or the likelier one of two."""

    contended: bytes


class EvictionService:
    """Evicts. Owned by the event loop."""

    def __init__(self, objects: Objects, deleter: Deleter) -> None:
        self._objects = objects
        self._deleter = deleter
        self._turns: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        """Taken by evictions that were overtaken before they try again; by contended key."""

    async def evict(self, request: EvictRequest, _: Call) -> EvictResponse:
        grace = request.grace_period_seconds if request.HasField("grace_period_seconds") else None
        check_grace(grace)
        target = self._objects.target_of(POD, request.namespace, request.name)
        answer = await self._attempt(request, target, grace)
        for _again in range(ATTEMPTS_MAX):
            if isinstance(answer, EvictResponse):
                return answer
            async with self._turns.setdefault(answer.contended, asyncio.Lock()):
                answer = await self._attempt(request, target, grace)
        raise conflict(f"{target}: others keep changing it or its budget; try again")

    async def _attempt(self, request: EvictRequest, target: CallTarget, grace: int | None) -> EvictResponse | _Overtaken:
        """One round of reading, judging and writing."""
        read = expected(target, await self._objects.store.get(target.store_key), request.uid)
        if request.resource_version and request.resource_version != str(read.entry.mod_revision):
            found = request.resource_version[:20]
            raise conflict(f"{target}: resource_version {found} is not the present {read.entry.mod_revision}; read again")
        budget = await self._budget_of(target, _as_pod(read))
        write = await self._write(target, read, grace, budget)
        name = _as_budget(budget).metadata.name if budget else ""
        answer = EvictResponse(revision=read.entry.mod_revision, pod=_as_pod(read), budget=name)
        if write is None or request.dry_run:
            return answer
        outcome = await self._objects.send(write, target)
        match outcome:
            case Committed(revision):
                answer.revision = revision
                if isinstance(write, GuardedPut):
                    answer.pod.metadata.resource_version = str(revision)
                return answer
            case Conflict():
                return _Overtaken(budget.entry.key if budget else target.store_key)

    async def _budget_of(self, target: CallTarget, pod: Pod) -> Read | None:
        """The budget that has a say; None: there is none. Raises where it has more than one."""
        if not counts_against_budgets(pod):
            return None
        page = await self._objects.store.list_all(self._objects.keys.prefix(POD_DISRUPTION_BUDGET, pod.metadata.namespace))
        reads = [read_entry(entry) for entry in page.entries]
        found = [read for read in reads if selector_of(_as_budget(read)).matches(pod.metadata.labels)]
        if len(found) > 1:
            names = ", ".join(_as_budget(read).metadata.name for read in found)
            raise forbidden_by_state(f"{target}: has more than one PodDisruptionBudget ({names}); eviction needs one at most")
        return found[0] if found else None

    async def _write(self, target: CallTarget, read: Read, grace: int | None, budget: Read | None) -> Write | None:
        """What evicts the pod, its budget's part included. Both are changed in place. None: it is ending already."""
        pod, now = _as_pod(read), timestamp_now().seconds
        spent = False
        if budget is not None:
            found = _as_budget(budget)
            if not goes_for_free(found, pod):
                refusal = take(found, pod.metadata.name, now)
                if refusal is not None:
                    raise _refused(target, found, refusal)
                spent = True
        ending = ask_to_end(pod, grace, now)
        if ending is Ending.UNCHANGED:
            return None
        if ending is Ending.STOPPING:
            mark_disrupted(pod, EVICTION_BY_EVICTION_API, _MESSAGE, now)
            value = encode(read.stored.object, read.leader_write)
            write: Write = GuardedPut(target.store_key, read.entry.mod_revision, value)
        else:
            write = await self._deleter.removal(target, read)
        if budget is None:
            return write
        write = write._replace(also=(*write.also, (budget.entry.key, budget.entry.mod_revision)))
        if spent:
            put = budget.entry.key, encode(budget.stored.object, budget.leader_write)
            write = write._replace(with_puts=(*write.with_puts, put))
        return write


def _refused(target: CallTarget, budget: PodDisruptionBudget, refusal: DisruptionRefusal) -> ApiFailure:
    status = budget.status
    name = f"PodDisruptionBudget {budget.metadata.name}"
    why = f"{name} {_why_used_up(status)}" if refusal is DisruptionRefusal.USED_UP else f"{name}: {refusal.value}"
    detail = BudgetRefusal(
        budget=budget.metadata.name,
        disruptions_allowed=status.disruptions_allowed,
        current_healthy=status.current_healthy,
        desired_healthy=status.desired_healthy,
        expected_pods=status.expected_pods,
    )
    message = f"{target}: cannot be evicted now, it would violate its disruption budget: {why}"
    return refused_by_budget(message, detail, _RETRY_SECONDS[refusal])


def _why_used_up(status: PodDisruptionBudgetStatus) -> str:
    failed = next((condition.message for condition in status.conditions if condition.message), "")
    if failed:
        return f"cannot be kept: {failed}"
    if not status.expected_pods:
        return "expects no pods: what it selects has no controller that says how many there should be"
    # What was evicted a moment ago is still in currentHealthy.
    healthy = min(status.current_healthy, status.desired_healthy)
    return f"needs {status.desired_healthy} healthy pods and has {healthy} currently"


def _as_pod(read: Read) -> Pod:
    message = read.message
    assert isinstance(message, Pod)
    return message


def _as_budget(read: Read) -> PodDisruptionBudget:
    message = unwrap(read.stored.object)
    assert isinstance(message, PodDisruptionBudget)
    return message
