"""What agents report as having happened to their node and its pods, written as Events.

An agent tells of its own node and of the pods on it, and of nothing else. What happens again to the same object for the same
reason is one Event that counts. Each lives for an hour after it was written last, under a lease that many share; etcd removes
what a lease holds at one stroke, so none holds more than EVENTS_A_LEASE. A report that is repeated because its answer was lost
may count twice.

Nothing decides by Events, so nothing waits for them: they have the last place at the gate (write_gate.py), each agent brings no
more than its bucket holds, and none is taken while etcd's space is kept for what matters more.

Source: core/v1 Event. Cost: two reads and a transaction for up to 100 Events.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter

from rayched.api.kinds import EVENT, NODE, POD, AnyObject, wrap
from rayched.api.occurrences import NORMAL, WARNING, EventOccurrence, Subject, event_of
from rayched.server.admission.event_buckets import EventBuckets
from rayched.server.admission.write_gate import RETRY_SECONDS
from rayched.server.errors import (
    conflict,
    failure_of,
    forbidden_by_state,
    invalid,
    no_room,
    not_found,
    over_limit,
    overloaded,
    superseded,
)
from rayched.server.objects import CallTarget, Objects, lost_write, milliseconds_now, read_entry
from rayched.server.services.incarnations import ReportingAgent
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.event_writes import EVENTS_A_LEASE, LEASE_SECONDS, LEASE_USED_SECONDS, event_in
from rayched.store.transactions import Committed, Conflict, GuardedPut
from rayched.v1 import services_pb2
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import NodeEvent, ReportEventsRequest

EVENTS_A_CALL: Final = 100
AGENT_COMPONENT: Final = "rayched-node"
_REASON_CHARACTERS_MAX: Final = 128
_AGE_SECONDS_MAX: Final = 7 * 86_400
"""What an agent that was cut off tells afterwards may have begun so long ago."""
_AHEAD_SECONDS_MAX: Final = 600
"""So far the clock of a node may be ahead."""
_ROUNDS_MAX: Final = 4
_GIVEN_UP: Final = Counter("rayched_api_events_given_up", "Events of agents that were refused for want of room in etcd.")


@dataclass(slots=True, eq=False)
class _ReportedEvent:
    """One event on its way; `result` None: open."""

    told: NodeEvent
    subject: CallTarget
    key: bytes
    entry: Entry | None = None
    result: services_pb2.Outcome | None = None
    write: GuardedPut | None = None


class NodeEvents:
    """Any replica has one."""

    def __init__(
        self, objects: Objects, clock: Callable[[], float] = time.monotonic, now_ms: Callable[[], int] = milliseconds_now
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._now_ms = now_ms
        self._lease = 0
        self._lease_until = float("-inf")
        self._lease_left = 0
        self._buckets = EventBuckets()

    async def report(self, request: ReportEventsRequest, agent: ReportingAgent) -> list[services_pb2.Outcome]:
        """One outcome each, in order."""
        if len(request.events) > EVENTS_A_CALL:
            raise over_limit(f"events: {len(request.events)} in one call, at most {EVENTS_A_CALL} are allowed")
        refusal = self._objects.gate.events_refusal()
        if refusal is not None:
            _GIVEN_UP.inc(len(request.events))
            raise no_room(f"Events of Node {agent.node}", refusal)
        now = self._clock()
        allowed = self._buckets.take(agent.node, len(request.events), now)
        wait = max(self._buckets.seconds_until(agent.node, len(request.events) - allowed, now), RETRY_SECONDS)
        found: list[_ReportedEvent | services_pb2.Outcome] = []
        for number, told in enumerate(request.events):
            if number >= allowed:
                found.append(overloaded(f"Node {agent.node} tells of more events than it may", wait).outcome())
                continue
            try:
                found.append(self._taken(told, request.node))
            except Exception as error:
                # One bad event fails alone; what nobody expected is logged by failure_of.
                found.append(failure_of(error, "Nodes.ReportEvents").outcome())
        # Of one Event only one write at a time; the others find what it left.
        pending = [one for one in found if isinstance(one, _ReportedEvent)]
        while pending:
            batch = {one.key: one for one in reversed(pending)}
            await self._write(list(batch.values()), agent)
            pending = [one for one in pending if one.result is None]
        return [(one.result or services_pb2.Outcome()) if isinstance(one, _ReportedEvent) else one for one in found]

    def _taken(self, told: NodeEvent, node: str) -> _ReportedEvent:
        kind = {POD.name: POD, NODE.name: NODE}.get(told.kind)
        if kind is None:
            raise invalid(f'events.kind: found "{told.kind[:80]}", an agent tells of {NODE.name} and {POD.name}')
        if told.type not in (NORMAL, WARNING):
            raise invalid(f'events.type: found "{told.type[:80]}", allowed are {NORMAL}, {WARNING}')
        if not 0 < len(told.reason) <= _REASON_CHARACTERS_MAX:
            raise invalid(f"events.reason: {len(told.reason)} characters, want 1 to {_REASON_CHARACTERS_MAX}")
        if kind is POD and not told.uid:
            raise invalid("events.uid: is required of a pod, as another one may have its name by now")
        _check_times(told, self._now_ms())
        target = self._objects.target_of(kind, told.namespace if kind is POD else "", told.name)
        if kind is NODE and told.name != node:
            raise forbidden_by_state(f"{target}: the agent of {node} tells of another node")
        event = event_of(_occurrence(told, target), 1, 0.0, 0.0)
        key = self._objects.keys.object_key(EVENT, event.metadata.namespace, event.metadata.name)
        return _ReportedEvent(told, target, key)

    async def _write(self, reports: list[_ReportedEvent], agent: ReportingAgent) -> None:
        keys = [key for one in reports for key in (one.key, one.subject.store_key)]
        entries = (await self._objects.store.get_many(keys)).entries
        for place, one in enumerate(reports):
            one.entry = entries[2 * place]
            try:
                _refuse_stranger(one, entries[2 * place + 1], agent)
            except Exception as error:
                # A subject that cannot be read is its own events' fault alone.
                one.result = failure_of(error, "Nodes.ReportEvents").outcome()
        for _ in range(_ROUNDS_MAX):
            pending = [one for one in reports if one.result is None]
            if not pending:
                return
            lease = await self._leased(len(pending))
            for one in pending:
                try:
                    one.write = self._put(one, agent, lease)
                except Exception as error:
                    # As above.
                    one.result = failure_of(error, "Nodes.ReportEvents").outcome()
            written = [(one, one.write) for one in pending if one.result is None and one.write is not None]
            outcomes = await self._objects.store.commit(None, [write for _, write in written])
            for (one, _), outcome in zip(written, outcomes, strict=True):
                match outcome:
                    case Committed():
                        one.result = services_pb2.Outcome()
                    case Conflict(current=current):
                        if outcome.is_against(agent.condition()):
                            one.result = superseded(str(one.subject), agent.incarnation).outcome()
                        one.entry = current
                    case _:
                        self._lease_until = float("-inf")
                        one.result = failure_of(lost_write(outcome, str(one.subject)), "Nodes.ReportEvents").outcome()
        for one in reports:
            one.result = one.result or conflict(f"{one.subject}: others keep writing its events; try again").outcome()

    async def _leased(self, count: int) -> int:
        """A lease that takes so many Events more."""
        if self._clock() >= self._lease_until or self._lease_left < count:
            lease = await self._objects.store.grant_lease(LEASE_SECONDS)
            self._lease, self._lease_left = lease.id, EVENTS_A_LEASE
            self._lease_until = self._clock() + LEASE_USED_SECONDS
        self._lease_left -= count
        return self._lease

    def _put(self, one: _ReportedEvent, agent: ReportingAgent, lease: int) -> GuardedPut:
        told, stored = one.told, event_in(one.entry)
        count = max(told.count, 1) + (stored.count if stored is not None else 0)
        first = stored.first_timestamp.seconds if stored is not None else told.first_at_ms / 1000
        event = event_of(_occurrence(told, one.subject), count, first, told.last_at_ms / 1000)
        event.source.host = agent.node
        revision = one.entry.mod_revision if one.entry is not None else 0
        put = GuardedPut(one.key, revision, encode(wrap(event)), also=agent.condition(), lease=lease)
        self._objects.gate.wrote(len(put.value))
        return put


def _check_times(told: NodeEvent, now_ms: int) -> None:
    """Raises where it would be shown as of a time in which it cannot have happened."""
    for field, at in (("first_at_ms", told.first_at_ms), ("last_at_ms", told.last_at_ms)):
        ahead = (at - now_ms) / 1000
        if not -_AGE_SECONDS_MAX <= ahead <= _AHEAD_SECONDS_MAX:
            window = f"from {_AGE_SECONDS_MAX} s before now to {_AHEAD_SECONDS_MAX} s after it"
            raise invalid(f"events.{field}: found {at}, which is {ahead:.0f} s from now; allowed is {window}")
    if told.first_at_ms > told.last_at_ms:
        raise invalid(f"events.first_at_ms: found {told.first_at_ms}, which is after last_at_ms, {told.last_at_ms}")


def _occurrence(told: NodeEvent, target: CallTarget) -> EventOccurrence:
    subject = Subject(target.key.kind, target.key.namespace, target.key.name, told.uid)
    return EventOccurrence(subject, told.type, told.reason, told.message, AGENT_COMPONENT)


def _refuse_stranger(one: _ReportedEvent, entry: Entry | None, agent: ReportingAgent) -> None:
    """Raises where the agent may not tell of it, or nobody can say."""
    found: AnyObject | None = None if entry is None else read_entry(entry).message
    if found is None or (one.told.uid and found.metadata.uid != one.told.uid):
        raise not_found(f"{one.subject} with uid {one.told.uid[:80]}")
    if isinstance(found, Pod) and found.spec.node_name != agent.node:
        raise forbidden_by_state(f"{one.subject}: is on node {found.spec.node_name}, and the agent of {agent.node} tells of it")
