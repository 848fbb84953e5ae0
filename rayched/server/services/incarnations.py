"""Which agent a node has: each registration of an agent that runs pods is an incarnation, and ends the one before.

The key `<root>/agents/<node>` says whose the node is; its mod_revision is the incarnation. Every write of such an agent compares
it in its own transaction, so an agent that was replaced, or cut off and replaced, writes nothing any more, whatever it believes.
Its watch of the node ends then too (watch_fence.py).
Hollow agents have no incarnation: their writes compare that there is no such key, so nobody passes by saying nothing. A node that
was of an agent that runs pods is theirs only after it was deleted.

A second agent of a name is refused while the first one's last sign of life is younger than the time after which a node counts as
unreachable, unless it says that it takes the node over. The same agent may register again at any time.

Where the machine is another one than that of the agent before, its pods may still run there; so it has to be said that the node
is taken over, or the node is deleted first. The record keeps the revision at which that happened, and agents on the new machine
start none of the pods that were on the node by then.

The id of a machine may be blank, and images that are copied share one. So it tells machines apart, and never shows that two
agents are on the same one: that they are if they are the same agent, with the same directory, or the host has not been started
anew in between. An agent whose directory is lost, on a host that was started anew, counts as on another machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rayched.controllers.node_settings import NodeSettings
from rayched.server.errors import ApiFailure, Code, conflict, forbidden_by_state, invalid, superseded
from rayched.server.objects import ATTEMPTS_MAX, CallTarget, Objects, milliseconds_now
from rayched.store.transactions import Committed, Conflict, GuardedDelete, GuardedPut
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import RegisterNodeRequest
from rayched.v1.storage_pb2 import AgentRecord, Heartbeat

AGENT_LIVES_SECONDS: Final = NodeSettings().node_monitor_grace_period
NO_INCARNATIONS: Final[Mapping[str, int]] = MappingProxyType({})

_NO_MACHINE: Final = ("", "uninitialized")
"""What /etc/machine-id holds where it says nothing: systemd writes the word into images."""

Condition = tuple[tuple[bytes, int], ...]
"""Keys and their revisions, as a guarded write compares them."""

RULE_INCARNATION_GUARD: bool = True
"""Broken by tests alone."""


@dataclass(frozen=True, slots=True)
class ReportingAgent:
    """Who reports on pods. Without a node: a hollow agent, which stands for many."""

    node: str
    incarnation: int
    incarnations: Incarnations

    def condition(self, pod: Pod | None = None) -> Condition:
        """What its writes compare, those about a pod that of the pod's node."""
        node = pod.spec.node_name if pod is not None and not self.node else self.node
        return self.incarnations.condition(node, self.incarnation)

    def check(self, subject: str, pod: Pod) -> None:
        """Raises where the pod is another node's."""
        if self.node and pod.spec.node_name != self.node:
            raise forbidden_by_state(f"{subject}: is on node {pod.spec.node_name}, and the agent of {self.node} reports on it")


@dataclass(frozen=True, slots=True)
class Incarnation:
    """`revision` 0: an agent that has none. `replaced_before`: pods that were on the node then may run on another machine."""

    revision: int
    replaced_before: int


def refuse_negative(incarnation: int) -> None:
    """An incarnation is a revision of etcd, and a write cannot even be built that compares a key with less than none."""
    if incarnation < 0:
        raise invalid(f"incarnation: found {incarnation}, want 0 or the revision that a registration answered with")


class Incarnations:
    """Any replica serves them."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def condition(self, node: str, incarnation: int) -> Condition:
        """What a write of the agent compares; incarnation 0: that the node has no agent that runs pods."""
        return ((self._objects.keys.agent(node), incarnation),) if RULE_INCARNATION_GUARD else ()

    def reporting(self, node: str, incarnation: int) -> ReportingAgent:
        """Raises ApiFailure."""
        refuse_negative(incarnation)
        if incarnation and not node:
            raise invalid(f"node: is required with incarnation {incarnation}")
        return ReportingAgent(node, incarnation, self)

    async def refuse_superseded(self, target: CallTarget, incarnation: int) -> None:
        """For what only reads: raises where the node's incarnation is another one now."""
        entry = await self._objects.store.get(self._objects.keys.agent(target.key.name))
        if RULE_INCARNATION_GUARD and (entry.mod_revision if entry is not None else 0) != incarnation:
            raise superseded(str(target), incarnation)

    async def begin(self, target: CallTarget, request: RegisterNodeRequest) -> Incarnation:
        """A new incarnation. Raises FAILED_PRECONDITION while another agent lives."""
        if not request.agent_id:
            await self._make_way(target)
            return Incarnation(0, 0)
        node = target.key.name
        key = self._objects.keys.agent(node)
        record = AgentRecord(
            agent_id=request.agent_id,
            machine_id=request.machine_id,
            boot_id=request.boot_id,
            agent_version=request.agent_version,
            address=request.address,
            registered_at_ms=milliseconds_now(),
        )
        entry = await self._objects.store.get(key)
        for _ in range(ATTEMPTS_MAX):
            present = AgentRecord.FromString(entry.value) if entry is not None else None
            is_another = present is not None and present.agent_id != request.agent_id
            # Before all else: it has to stop its pods, as the other one starts them. An older record is of a restored store.
            if is_another and entry is not None and 0 < request.last_incarnation < entry.mod_revision:
                raise superseded(str(target), request.last_incarnation)
            if present is not None and not request.take_over:
                await self._refuse_machine(target, present, record)
                await self._refuse_second(target, present, request.agent_id)
            _note_machine(record, present, entry.mod_revision if entry is not None else 0)
            write = GuardedPut(key, entry.mod_revision if entry is not None else 0, record.SerializeToString())
            outcome = await self._objects.send(write, target)
            match outcome:
                case Committed(revision):
                    return Incarnation(revision, revision if record.replaces_machine else record.replaced_before)
                case Conflict(current=current):
                    entry = current
        raise conflict(f"{target}: others keep registering it; try again")

    async def _make_way(self, target: CallTarget) -> None:
        """For an agent that has no incarnations. Raises FAILED_PRECONDITION where the node is another's, who runs pods."""
        key = self._objects.keys.agent(target.key.name)
        entry = await self._objects.store.get(key)
        if entry is None or not RULE_INCARNATION_GUARD:
            return
        if await self._objects.store.get(target.store_key) is not None:
            raise forbidden_by_state(f"{target}: has an agent that runs pods; one without an id has it once the node is deleted")
        removal = GuardedDelete(key, entry.mod_revision, also=((target.store_key, 0),))
        outcome = await self._objects.send(removal, target)
        match outcome:
            case Committed():
                return
            case Conflict():
                raise conflict(f"{target}: others register it; try again")

    async def _refuse_second(self, target: CallTarget, present: AgentRecord, agent_id: str) -> None:
        if present.agent_id == agent_id:
            return
        entry = await self._objects.store.get(self._objects.keys.heartbeat(target.key.name))
        if entry is None:
            return
        age = (milliseconds_now() - Heartbeat.FromString(entry.value).renewed_at_ms) / 1000
        if age < AGENT_LIVES_SECONDS:
            # Its id proves that a node is its own (node_streams.py), so nobody else is told.
            whose = f"an agent at {present.address or 'an unknown address'}"
            hint = f"wait until it is silent for {AGENT_LIVES_SECONDS:g} s, or take the node over (--take-over)"
            raise forbidden_by_state(f"{target}: {whose} was heard of {max(age, 0.0):.0f} s ago; {hint}")

    async def _refuse_machine(self, target: CallTarget, present: AgentRecord, record: AgentRecord) -> None:
        """What ran on the other machine may run there still, and only somebody can say that it does not: so, or by deleting the
        node."""
        if not _is_another_machine(present, record) or await self._objects.store.get(target.store_key) is None:
            return
        named = present.machine_id if _are_different(present.machine_id, record.machine_id) else ""
        which = f"machine {named}" if named else "another machine, for all that is known"
        whose = f"it is on {which}, whose pods may run there still"
        hint = "once that machine is off, take the node over (--take-over)"
        # Not as one that has been superseded: what runs where the agent asks from goes on.
        raise ApiFailure(Code.PERMISSION_DENIED, f"{target}: {whose}; {hint}")


def _is_another_machine(one: AgentRecord, other: AgentRecord) -> bool:
    """Whether there is nothing that shows that both are on the same one."""
    if _are_different(one.machine_id, other.machine_id):
        return True
    return one.agent_id != other.agent_id and (not one.boot_id or one.boot_id != other.boot_id)


def _are_different(machine: str, other: str) -> bool:
    return machine not in _NO_MACHINE and other not in _NO_MACHINE and machine != other


def _note_machine(record: AgentRecord, before: AgentRecord | None, before_revision: int) -> None:
    """Whether the record is of another machine than the one before it."""
    if before is None:
        return
    record.replaces_machine = _is_another_machine(before, record)
    record.replaced_before = before_revision if before.replaces_machine else before.replaced_before
    if record.machine_id in _NO_MACHINE and not record.replaces_machine:
        record.machine_id = before.machine_id
