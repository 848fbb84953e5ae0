"""The service rayched.v1.Nodes: what agents on nodes call.

A node's object is written only when something in it changed besides heartbeat times, because bindings are conditional on its
revision. Signs of life are keys of their own, outside the watched prefix: one for each node, written in transactions of 100, and
only for nodes that exist. A report on a node's status is a sign of life too.

An agent that runs pods has an incarnation (incarnations.py); its writes are refused, and its watch ends, once another has
registered the node.

A pod's status is taken from agents only for pods that have a node, and only for the pod of the uid reported on. Batches are read
and written in transactions of 100; entries that somebody else changed meanwhile are judged again. Every entry may be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from leader.etcd_shim import rpc
from rayched.access.requests import RequestFacts
from rayched.api.agents import INCARNATION_ANNOTATION
from rayched.api.defaulting import default
from rayched.api.errors import FieldError
from rayched.api.identity import node_identity, node_of
from rayched.api.kinds import NODE, POD, AnyObject, wrap
from rayched.api.node_size import SIZE_ANNOTATION
from rayched.api.validation import validate
from rayched.server.admission.first_size import note_first_size, size_fault
from rayched.server.errors import (
    CODE_NAMES,
    ApiFailure,
    Code,
    conflict,
    denied,
    failure_of,
    invalid_fields,
    over_limit,
)
from rayched.server.objects import ATTEMPTS_MAX, CallTarget, Objects, milliseconds_now, read_entry, timestamp_now
from rayched.server.reports import register, report_node
from rayched.server.rpc import Call
from rayched.server.services.incarnations import (
    AGENT_LIVES_SECONDS,
    NO_INCARNATIONS,
    Condition,
    Incarnation,
    Incarnations,
    ReportingAgent,
    refuse_negative,
)
from rayched.server.services.node_events import NodeEvents
from rayched.server.services.pod_status_updates import StatusUpdate, settle, without_repetition, write_for
from rayched.server.services.watch_fence import NodeWatchFence
from rayched.server.services.watch_service import WatchService
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.errors import RequestTooLarge
from rayched.store.keys import KeyTextError
from rayched.store.transactions import Committed, Conflict, GuardedPut
from rayched.v1 import services_pb2
from rayched.v1.core_pb2 import Node
from rayched.v1.meta_pb2 import Quantity
from rayched.v1.services_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterNodeRequest,
    RegisterNodeResponse,
    ReportEventsRequest,
    ReportEventsResponse,
    UpdateNodeStatusRequest,
    UpdateNodeStatusResponse,
    UpdatePodStatusRequest,
    UpdatePodStatusResponse,
    WatchNodeRequest,
)
from rayched.v1.storage_pb2 import Heartbeat

HEARTBEATS_A_CALL: Final = 10_000
UPDATES_A_CALL: Final = 1_000
_A_TRANSACTION: Final = 100
_ROUNDS_MAX: Final = 4


class NodeService:
    """Any replica serves it."""

    def __init__(self, objects: Objects, watches: WatchService) -> None:
        self._objects = objects
        self._watches = watches
        self._events = NodeEvents(objects)
        self._incarnations = Incarnations(objects)

    async def register(self, request: RegisterNodeRequest, call: Call) -> RegisterNodeResponse:
        node = request.node
        if SIZE_ANNOTATION in node.metadata.annotations:
            del node.metadata.annotations[SIZE_ANNOTATION]
        target = self._objects.target_of(NODE, "", node.metadata.name)
        default(node)
        errors = validate(node)
        if errors:
            raise invalid_fields(str(target), errors)
        is_agent = node_of(call.identity) is not None
        if is_agent:
            await self._refuse_larger(target, node)
        begun = await self._incarnations.begin(target, request)
        if begun.revision:
            node.metadata.annotations[INCARNATION_ANNOTATION] = str(begun.revision)

        def edit(stored: AnyObject) -> list[FieldError]:
            reported = _without_known_conditions(node, _as_node(stored)) if begun.revision else node
            return _registered(stored, reported, is_agent)

        # Another agent may begin meanwhile, and then the node is to be as that one says.
        only_while = self._incarnations.condition(target.key.name, begun.revision)
        for _attempt in range(ATTEMPTS_MAX):
            try:
                rewritten = await self._objects.rewrite(target, edit, goes_on=True, only_while=only_while)
            except ApiFailure as failure:
                if failure.superseded_incarnation is not None:
                    raise _overtaken(target) from None
                if failure.code is not Code.NOT_FOUND:
                    raise
            else:
                # It may have been deleted meanwhile, and then nothing of it is to be left.
                await self._heartbeats([target.key.name], {target.key.name: begun.revision})
                return _registration(_as_node(rewritten.message), rewritten.revision, begun)
            if is_agent:
                note_first_size(node, node.status.allocatable)
            revision = await self._create(target, node, only_while)
            if revision:
                return _registration(node, revision, begun)
        raise conflict(f"{target}: others keep creating and deleting it; try again")

    async def heartbeat(self, request: HeartbeatRequest, _: Call) -> HeartbeatResponse:
        names = list(dict.fromkeys(request.nodes))
        if len(names) > HEARTBEATS_A_CALL:
            raise over_limit(f"nodes: {len(names)} in one call, at most {HEARTBEATS_A_CALL} are allowed")
        parts = [names[start : start + _A_TRANSACTION] for start in range(0, len(names), _A_TRANSACTION)]
        unheard = await asyncio.gather(*(self._heartbeats(part, request.incarnations) for part in parts))
        response = HeartbeatResponse()
        for name, is_there in (pair for part in unheard for pair in part.items()):
            (response.superseded if is_there else response.unknown).append(name)
        return response

    async def update_node_status(self, request: UpdateNodeStatusRequest, call: Call) -> UpdateNodeStatusResponse:
        target = self._objects.target_of(NODE, "", request.name)
        refuse_negative(request.incarnation)
        is_agent = node_of(call.identity) is not None

        def edit(stored: AnyObject) -> list[FieldError]:
            if is_agent:
                refuse_larger(_as_node(stored), request.status.allocatable)
            report_node(_as_node(stored), request.status, timestamp_now())
            # Of what others have written there the agent is not told; the path "" is the node's size.
            return [error for error in validate(stored) if not error.path or error.path.startswith("status")]

        # Before the report: whoever reads Ready shall not find behind it a heartbeat that is too old.
        await self._heartbeats([request.name], {request.name: request.incarnation})
        only_while = self._incarnations.condition(request.name, request.incarnation)
        rewritten = await self._objects.rewrite(target, edit, goes_on=True, only_while=only_while)
        return UpdateNodeStatusResponse(node=_as_node(rewritten.message), revision=rewritten.revision)

    async def update_pod_status(self, request: UpdatePodStatusRequest, call: Call) -> UpdatePodStatusResponse:
        if len(request.updates) > UPDATES_A_CALL:
            raise over_limit(f"updates: {len(request.updates)} in one call, at most {UPDATES_A_CALL} are allowed")
        agent = self._incarnations.reporting(request.node, request.incarnation)
        outcomes: list[services_pb2.Outcome | None] = [None] * len(request.updates)
        updates: dict[int, StatusUpdate] = {}
        for index, report in enumerate(request.updates):
            try:
                updates[index] = StatusUpdate(report, self._objects.target_of(POD, report.namespace, report.name))
            except Exception as error:
                # One bad report fails alone; what nobody expected is logged by failure_of.
                outcomes[index] = failure_of(error, "Nodes.UpdatePodStatus").outcome()
        for batch in without_repetition(list(updates.values())):
            await self._update_pods(batch, agent)
        for index, update in updates.items():
            outcomes[index] = update.result
            key, code = update.target.key, update.result.code if update.result is not None else 0
            facts = RequestFacts(key.kind, key.namespace, key.name)
            call.concerns(facts, code=CODE_NAMES[code], revision=update.revision)
        return UpdatePodStatusResponse(outcomes=[outcome or services_pb2.Outcome() for outcome in outcomes])

    async def watch_node(self, request: WatchNodeRequest, call: Call) -> None:
        target = self._objects.target_of(NODE, "", request.name)
        fence = NodeWatchFence(self._incarnations, target, request.incarnation)
        await fence.at_the_start()
        await self._watches.watch_node(request, target.key.name, call, fence.check)

    async def report_events(self, request: ReportEventsRequest, _: Call) -> ReportEventsResponse:
        node = self._objects.target_of(NODE, "", request.node).key.name
        agent = self._incarnations.reporting(node, request.incarnation)
        return ReportEventsResponse(outcomes=await self._events.report(request, agent))

    # ---- nodes

    async def _refuse_larger(self, target: CallTarget, node: Node) -> None:
        """Before an incarnation begins that would end the one before it for nothing."""
        entry = await self._objects.store.get(target.store_key)
        if entry is not None:
            refuse_larger(_as_node(read_entry(entry).message), node.status.allocatable)

    async def _create(self, target: CallTarget, node: Node, only_while: Condition) -> int:
        """The revision of the creation, the node completed; 0 when it exists by now."""
        metadata = node.metadata
        for name in ("resource_version", "deletion_timestamp", "deletion_grace_period_seconds"):
            metadata.ClearField(name)
        metadata.uid = str(uuid.uuid4())
        metadata.generation = 1
        metadata.creation_timestamp.CopyFrom(timestamp_now())
        sign = (self._objects.keys.heartbeat(target.key.name), _sign())
        self._objects.refuse_what_is_new(target, node.ByteSize())
        write = GuardedPut(target.store_key, 0, encode(wrap(node)), also=only_while, with_puts=(sign,))
        outcome = await self._objects.send(write, target)
        match outcome:
            case Committed(revision):
                metadata.resource_version = str(revision)
                return revision
            case Conflict() if outcome.is_against(only_while):
                raise _overtaken(target)
            case Conflict():
                return 0

    async def _heartbeats(self, names: Sequence[str], incarnations: Mapping[str, int] = NO_INCARNATIONS) -> dict[str, bool]:
        """Those of the names whose sign was not taken, and whether there is such a node: then it has another agent."""
        keys = self._objects.keys
        request, known, unheard = rpc.TxnRequest(), [], dict[str, bool]()
        sign = _sign()
        for name in names:
            try:
                node_key, key = keys.object_key(NODE, "", name), keys.heartbeat(name)
            except ValueError:
                unheard[name] = False
                continue
            known.append(name)
            nested = request.success.add().request_txn
            nested.compare.add(key=node_key, target=rpc.Compare.VERSION, result=rpc.Compare.GREATER, version=0)
            for other, revision in self._incarnations.condition(name, incarnations.get(name, 0)):
                nested.compare.add(key=other, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=revision)
            nested.failure.add().request_range.CopyFrom(rpc.RangeRequest(key=node_key, count_only=True))
            put = nested.success.add().request_put
            put.key, put.value = key, sign
        if known:
            try:
                answer = await self._objects.store.txn(request)
            except RequestTooLarge:
                if len(names) < 2:
                    raise
                middle = len(names) // 2
                first, last = names[:middle], names[middle:]
                return await self._heartbeats(first, incarnations) | await self._heartbeats(last, incarnations)
            for name, response in zip(known, answer.responses, strict=True):
                if not response.response_txn.succeeded:
                    unheard[name] = response.response_txn.responses[0].response_range.count > 0
        return unheard

    # ---- pods

    async def _update_pods(self, updates: list[StatusUpdate], agent: ReportingAgent) -> None:
        reading = await self._objects.store.get_many([update.target.store_key for update in updates])
        for update, entry in zip(updates, reading.entries, strict=True):
            update.entry = entry
        for _ in range(_ROUNDS_MAX):
            pending = [update for update in updates if update.result is None]
            if not pending:
                return
            await self._write_pods(pending, agent)
        for update in updates:
            if update.result is None:
                update.result = conflict(f"{update.target}: others keep changing it; try again").outcome()

    async def _write_pods(self, pending: list[StatusUpdate], agent: ReportingAgent) -> None:
        records = await self._records_of_removed(pending)
        for update in pending:
            try:
                update.write = write_for(update, records, agent)
                if update.write is None:
                    update.result = services_pb2.Outcome()
            except Exception as error:
                # As above: the other reports are written.
                update.write = None
                update.result = failure_of(error, "Nodes.UpdatePodStatus").outcome()
        written = [(update, update.write) for update in pending if update.write is not None]
        outcomes = await self._objects.store.commit(None, [write for _, write in written])
        for (update, _), outcome in zip(written, outcomes, strict=True):
            settle(update, outcome)

    async def _records_of_removed(self, pending: list[StatusUpdate]) -> dict[str, Entry]:
        """The records of submissions that expire with the pods to be removed, by uid."""
        keys: dict[str, bytes] = {}
        for uid in (update.report.uid for update in pending if update.report.remove):
            # A text that is no part of a key is no pod's uid; its own update says so.
            with contextlib.suppress(KeyTextError):
                keys[uid] = self._objects.keys.submission(uid)
        if not keys:
            return {}
        reading = await self._objects.store.get_many(list(keys.values()))
        return {uid: entry for uid, entry in zip(keys, reading.entries, strict=True) if entry is not None}


def refuse_larger(stored: Node, allocatable: Mapping[str, Quantity]) -> None:
    """Raises PERMISSION_DENIED where an agent offers more than it may."""
    fault = size_fault(stored, allocatable)
    if fault:
        raise denied(node_identity(stored.metadata.name), "offer more", fault)


def _overtaken(target: CallTarget) -> ApiFailure:
    """Another registration began meanwhile, maybe one more of the same agent, whose first answer was lost: so it has to ask
    again, and is not told that its node is another's."""
    return conflict(f"{target}: is registered by another call meanwhile; try again")


def _registered(stored: AnyObject, reported: Node, is_agent: bool) -> list[FieldError]:
    node = _as_node(stored)
    if is_agent:
        refuse_larger(node, reported.status.allocatable)
        note_first_size(node, reported.status.allocatable)
    register(node, reported, timestamp_now())
    return validate(stored)


def _without_known_conditions(node: Node, stored: Node) -> Node:
    """An agent tells of conditions once it is registered, and looks first: what holds is not taken away until then."""
    found, known = Node(), {one.type for one in stored.status.conditions}
    found.CopyFrom(node)
    kept = [one for one in node.status.conditions if one.type not in known]
    del found.status.conditions[:]
    found.status.conditions.extend(kept)
    return found


def _registration(node: Node, revision: int, begun: Incarnation) -> RegisterNodeResponse:
    return RegisterNodeResponse(
        node=node,
        revision=revision,
        incarnation=begun.revision,
        replaced_before=begun.replaced_before,
        node_monitor_grace_seconds=AGENT_LIVES_SECONDS,
    )


def _as_node(message: AnyObject) -> Node:
    assert isinstance(message, Node)
    return message


def _sign() -> bytes:
    return Heartbeat(renewed_at_ms=milliseconds_now()).SerializeToString()
