"""What agents report of pods: the write that a report asks for, judged on the pod as it was read, and its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rayched.api.termination import Ending, end_object
from rayched.api.validation import validate
from rayched.server.admission.deletion import removal
from rayched.server.errors import failure_of, forbidden_by_state, invalid, invalid_fields, not_found, superseded
from rayched.server.objects import CallTarget, Read, lost_write, read_entry, timestamp_now
from rayched.server.reports import report_pod
from rayched.server.services.incarnations import Condition, ReportingAgent
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.transactions import Committed, Conflict, GuardedPut, Outcome, Write
from rayched.v1 import services_pb2
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import PodStatusUpdate


@dataclass(slots=True, eq=False)
class StatusUpdate:
    """One entry of UpdatePodStatus on its way; `result` None: open."""

    report: PodStatusUpdate
    target: CallTarget
    entry: Entry | None = None
    result: services_pb2.Outcome | None = None
    write: Write | None = None
    revision: int = 0
    """That was written."""
    condition: Condition = ()
    """That the agent has the node still; the last that the write compares."""


def write_for(update: StatusUpdate, records: dict[str, Entry], agent: ReportingAgent) -> Write | None:
    """The write that an update asks for; None: it is as reported already. Raises ApiFailure."""
    report, target = update.report, update.target
    read = read_entry(update.entry) if update.entry is not None else None
    if read is None or read.message.metadata.uid != report.uid:
        if not report.uid:
            raise invalid(f"{target}: the update names no uid")
        if report.remove:
            return None
        raise not_found(f"{target} with uid {report.uid[:80]}")
    pod = _as_pod(read)
    if not pod.spec.node_name:
        raise forbidden_by_state(f"{target}: is not bound to a node, so no agent can report on it")
    agent.check(str(target), pod)
    update.condition = agent.condition(pod)
    if report.remove:
        if not pod.metadata.HasField("deletion_timestamp"):
            raise forbidden_by_state(f"{target}: is not being deleted; an agent removes only what somebody deleted")
        ending = end_object(pod, timestamp_now().seconds)
        if ending is Ending.UNCHANGED:
            return None
        if ending is Ending.STOPPING:
            value = encode(read.stored.object, read.leader_write)
            return GuardedPut(target.store_key, read.entry.mod_revision, value, also=update.condition)
        deletion = removal(target, read, records.get(report.uid))
        return deletion._replace(also=(*deletion.also, *update.condition))
    before = pod.status.SerializeToString(deterministic=True)
    fault = report_pod(pod, report.status, timestamp_now())
    if fault is not None:
        raise forbidden_by_state(f"{target}: {fault}")
    if pod.status.SerializeToString(deterministic=True) == before:
        return None
    # The rest of the pod was judged when it was admitted; the path "" is its size.
    errors = [error for error in validate(pod) if not error.path or error.path.startswith("status")]
    if errors:
        raise invalid_fields(str(target), errors)
    value = encode(read.stored.object, read.leader_write)
    return GuardedPut(target.store_key, read.entry.mod_revision, value, also=update.condition)


def settle(update: StatusUpdate, outcome: Outcome) -> None:
    match outcome:
        case Committed(revision):
            update.result, update.revision = services_pb2.Outcome(), revision
        case Conflict(current=current):
            if outcome.is_against(update.condition):
                update.result = superseded(str(update.target), update.condition[-1][1]).outcome()
            update.entry = current
        case _:
            update.result = failure_of(lost_write(outcome, str(update.target)), "Nodes.UpdatePodStatus").outcome()


def without_repetition(updates: list[StatusUpdate]) -> Iterator[list[StatusUpdate]]:
    """Batches in order, none of which names a pod twice: the second report is judged on what the first one left."""
    batch: dict[bytes, StatusUpdate] = {}
    for update in updates:
        if update.target.store_key in batch:
            yield list(batch.values())
            batch = {}
        batch[update.target.store_key] = update
    if batch:
        yield list(batch.values())


def _as_pod(read: Read) -> Pod:
    message: Any = read.message
    assert isinstance(message, Pod)
    return message
