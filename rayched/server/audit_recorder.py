"""What the audit log has of calls: an entry for each one that is decided, made from what was settled about it.

    begin ──▶ caller known ──▶ judged: `started`, of streams ──▶ answered: `complete`, or `refused` before

Whoever floods a replica with calls that are refused shall not turn the log over: of one caller so many refusals in a row have a
line of their own, the others are counted, and a line each FOLD_SECONDS says how many there were.

A reason is told of a refusal alone, and none that a request's content could be part of: of an object that may not be so, the
fields.

Owner: the event loop. Cost: some 10 us a call.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from rayched.access.audit_levels import level_of, may_be_renewal, request_shown
from rayched.access.audit_line import TEXT_MAX, AuditEntry, AuditLevel, AuditStage
from rayched.access.policy import NO_KIND
from rayched.access.requests import Facts, RequestFacts
from rayched.access.token_buckets import TokenBuckets
from rayched.api import kinds
from rayched.pki.callers import Peer
from rayched.pki.certificates import serial_text
from rayched.server.admission.write_gate import CALLS
from rayched.server.audit_writer import AuditWriter, time_text
from rayched.server.edge.caller import Caller, address_of
from rayched.server.errors import ApiFailure, Code, not_now
from rayched.server.peers import peer_of

REFUSALS_A_SECOND: Final = 5.0
REFUSALS_AT_ONCE: Final = 100.0
"""Of one caller, with lines of their own."""
FOLD_SECONDS: Final = 10.0
RENEWAL_SECONDS: Final = 300.0
"""In which a watch that begins anew is the one that was told of."""
WATCHES_KEPT: Final = 4_096
OBJECTS_A_LINE: Final = 50
REASON_MAX: Final = 500
NAME_MAX: Final = 253
"""Characters, the second one of one of many objects."""
_STRICT_RETRY_SECONDS: Final = 1.0
_FOLDED_MAX: Final = 1_024
"""Callers of whom refusals are counted; all others are one."""

_REFUSALS: Final = frozenset({Code.PERMISSION_DENIED, Code.UNAUTHENTICATED, Code.RESOURCE_EXHAUSTED})
_IN_BRACKETS: Final = re.compile(r"\[[^]]*\]?")
_WRITES: Final = frozenset({*CALLS, "Scheduling.Bind"})
"""Calls that change what etcd has. A binding passes no gate, and changes something all the same."""
_ACTS: Final = frozenset({"Exec.Stream", "PortForward.Stream"})
"""Calls that change something where the store does not see it."""


class AuditedObject(NamedTuple):
    """One of those that a call was about, and what came of it."""

    facts: RequestFacts
    code: str = "OK"
    revision: int = 0
    """That the call wrote."""

    def shown(self) -> Mapping[str, Any]:
        kind, namespace, name = self.facts
        names = {"kind": kind, "namespace": namespace[:NAME_MAX], "name": name[:NAME_MAX]}
        return {**names, "code": self.code, "revision": self.revision}


class CallRecord:
    """Of one call: what becomes known of it."""

    __slots__ = (
        "_began", "_context", "_id", "_is_told", "_recorder", "_request", "_uid", "bytes", "call", "caller", "level", "objects"
    )  # fmt: skip

    def __init__(self, recorder: AuditRecorder, id: str, call: str, context: Any) -> None:
        self._recorder, self._id, self._context = recorder, id, context
        self._began = time.perf_counter()
        self._is_told = False
        self._request: Any = None
        self._uid = ""
        self.call = call
        self.caller: Caller | None = None
        """None: it is not known who calls."""
        self.level = level_of(call)
        self.bytes = 0
        """Of its request."""
        self.objects: list[AuditedObject] = []
        """Those that it says are the ones it was about; else they are those of its request."""

    @property
    def peer(self) -> str:
        """As gRPC names it."""
        return str(self._context.peer())

    def judged(self, request: Any, *, lasts: bool) -> None:
        """Its request may be made. `lasts`: it is a stream, whose begin is told."""
        if may_be_renewal(request) and self._recorder.is_known_watch(self):
            self.level = AuditLevel.NONE
        self._request = request
        if lasts and self.level is not AuditLevel.NONE:
            self._recorder.put(self, AuditStage.STARTED, "", "")

    def concerns(self, facts: RequestFacts, *, code: str = "OK", revision: int = 0, uid: str = "") -> None:
        """It was about this, whatever its request says."""
        self.objects.append(AuditedObject(facts, code, revision))
        self._uid = uid

    def answered(self, response: Message | None = None) -> int:
        """It ends well, with this message; the number of its entry."""
        self._is_told = True
        if self.level is AuditLevel.NONE:
            return 0
        revision = 0
        if response is not None and self.call in _WRITES:
            revision, uid = written_by(response)
            self._uid = self._uid or uid
        return self._recorder.put(self, AuditStage.COMPLETE, "OK", "", revision)

    def failed(self, failure: ApiFailure) -> int:
        """It ends with this; the number of its entry."""
        self._is_told = True
        code = failure.code.name
        if failure.code not in _REFUSALS:
            return 0 if self.level is AuditLevel.NONE else self._recorder.put(self, AuditStage.COMPLETE, code, "")
        if self._recorder.has_own_line(self, code):
            return self._recorder.put(self, AuditStage.REFUSED, code, self._reason(failure))
        return 0

    def over(self) -> None:
        """If its end was not told, its caller has left, or its time had passed."""
        if not self._is_told and self.level is not AuditLevel.NONE:
            self._is_told = True
            self._recorder.put(self, AuditStage.COMPLETE, "CANCELLED", "")

    def _reason(self, failure: ApiFailure) -> str:
        if failure.violations:
            fields = sorted({_IN_BRACKETS.sub("[]", one.field) for one in failure.violations})
            return f"may not say this of {', '.join(fields)}"[:REASON_MAX]
        is_read = self._request is not None or self.bytes
        if failure.code is Code.RESOURCE_EXHAUSTED and is_read:
            return ""
        return failure.message[:REASON_MAX]

    def entries(self, stage: AuditStage, code: str, reason: str, revision: int, at: str, replica: str) -> list[AuditEntry]:
        """More than one where it was about many."""
        caller = self.caller
        peer = None if caller is not None and caller.proves_nothing else _peer_of(self._context)
        common: dict[str, Any] = {
            "time": at,
            "id": self._id,
            "stage": stage,
            "replica": replica,
            "peer": self.peer,
            "credential": _credential(caller, peer),
            "call": self.call,
            "code": code,
            "reason": reason,
            "bytes": self.bytes,
            "dry_run": bool(getattr(self._request, "dry_run", False)),
            "ms": 0.0 if stage is AuditStage.STARTED else round((time.perf_counter() - self._began) * 1e3, 3),
        }
        if caller is not None:
            asked_for = caller.identity.uri if caller.passed_on_by else ""
            common["uri"] = caller.passed_on_by if asked_for else caller.identity.uri
            common["on_behalf_of"], common["claimed"] = asked_for, caller.claimed
            common["roles"], common["binding"] = ",".join(sorted(caller.roles)), ",".join(sorted(caller.bindings))
        elif peer is not None:
            # Whose certificate does not count.
            common["uri"] = peer.identity.uri
        if self._request is not None and self.level is AuditLevel.REQUEST:
            common["request"] = request_shown(self.call, self._request)
        if len(self.objects) <= 1:
            return [AuditEntry(**common, **self._only_object(revision))]
        # Those that were written have lines of their own: no name of another one keeps theirs out.
        parts = [one for one in self.objects if one.revision], [one for one in self.objects if not one.revision]
        chunks = [part[at : at + OBJECTS_A_LINE] for part in parts for at in range(0, len(part), OBJECTS_A_LINE)]
        return [AuditEntry(**common, objects=[one.shown() for one in chunk]) for chunk in chunks]

    def _only_object(self, revision: int) -> dict[str, Any]:
        facts: Sequence[RequestFacts] = () if self.caller is None else self.caller.facts
        if self.objects:
            one = self.objects[0]
            facts, revision = (one.facts,), one.revision or revision
        if getattr(self._request, "dry_run", False):
            revision = 0
        if not facts:
            return {}
        first = facts[0]
        # A watch of all kinds has the same namespace for each.
        kind = first.kind if len(facts) == 1 and first.kind != NO_KIND else ""
        names = {"kind": kind, "namespace": first.namespace[:TEXT_MAX], "name": first.name[:TEXT_MAX]}
        return {**names, "uid": self._uid[:TEXT_MAX], "revision": revision}


class AuditRecorder:
    """Of one server."""

    def __init__(self, writer: AuditWriter, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: for how often a caller is refused."""
        self.writer: Final = writer
        self._clock = clock
        self._numbers = itertools.count(1)
        self._buckets = TokenBuckets()
        self._folded: Counter[tuple[str, str, str]] = Counter()
        """Refusals without lines, by caller, call and code."""
        self._watches: dict[tuple[str, str, Facts], float] = {}
        """When they were told of; those that were begun last come last."""
        # Two replicas, or two lives of one, number their calls alike.
        self._prefix = f"{int(writer.clock() * 1e3):x}"

    def begin(self, call: str, context: Any) -> CallRecord:
        return CallRecord(self, f"{self._prefix}-{next(self._numbers)}", call, context)

    def check(self, call: str) -> None:
        """Raises UNAVAILABLE for a call that changes something, where it could not be told of and has to be: another replica
        may have room."""
        writer = self.writer
        if not writer.strict or not writer.is_behind or (call not in _WRITES and call not in _ACTS):
            return
        if level_of(call) is not AuditLevel.NONE:
            raise not_now("this replica cannot write its audit log, nothing of this call was done", _STRICT_RETRY_SECONDS)

    def put(self, record: CallRecord, stage: AuditStage, code: str, reason: str, revision: int = 0) -> int:
        """The number of the last entry; 0: it is lost."""
        at, number = time_text(self.writer.clock()), 0
        for entry in record.entries(stage, code, reason, revision, at, self.writer.replica):
            number = self.writer.put(entry)
        return number

    def has_own_line(self, record: CallRecord, code: str) -> bool:
        """Whether its refusal is told by itself, and not as one of many."""
        caller = record.caller
        key = address_of(str(record.peer)) if caller is None else caller.key
        if not self._buckets.take(key, REFUSALS_A_SECOND, REFUSALS_AT_ONCE, self._clock()):
            return True
        if len(self._folded) >= _FOLDED_MAX and (key, record.call, code) not in self._folded:
            key = "others"
        self._folded[key, record.call, code] += 1
        return False

    def is_known_watch(self, record: CallRecord) -> bool:
        """Whether a watch of the same by the same caller was told of not long ago; it is from now on."""
        caller = record.caller
        assert caller is not None
        if any(len(one.namespace) > NAME_MAX or len(one.name) > NAME_MAX for one in caller.facts):
            # Nothing has such a name, and many of them would fill the memory.
            return False
        key, now = (caller.identity.uri, record.call, caller.facts), self._clock()
        told_at = self._watches.pop(key, None)
        is_known = told_at is not None and now - told_at < RENEWAL_SECONDS
        self._watches[key] = told_at if told_at is not None and is_known else now
        if len(self._watches) > WATCHES_KEPT:
            del self._watches[next(iter(self._watches))]
        return is_known

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(FOLD_SECONDS)
            self.tell_folded()

    def tell_folded(self) -> None:
        """Of refusals that have no lines of their own."""
        folded, self._folded = self._folded, Counter()
        for (key, call, code), times in folded.items():
            entry = AuditEntry(
                time=time_text(self.writer.clock()),
                id=f"{self._prefix}-{next(self._numbers)}",
                stage=AuditStage.REFUSED,
                replica=self.writer.replica,
                peer="" if "://" in key else key,
                uri=key if "://" in key else "",
                call=call,
                code=code,
                times=times,
            )
            self.writer.put(entry)


def written_by(response: Any) -> tuple[int, str]:
    """The revision of etcd that a call wrote, and the object's uid, by its answer; 0: it wrote nothing."""
    fields = response.DESCRIPTOR.fields_by_name
    name = next((name for name in ("object", "node", "pod") if name in fields and response.HasField(name)), "")
    message: Any = getattr(response, name) if name else None
    if name == "object":
        message = kinds.unwrap(message)
    uid = str(response.uid if "uid" in fields else "" if message is None else message.metadata.uid)
    if ("changed" in fields and not response.changed) or ("action" in fields and response.action == response.UNCHANGED):
        return 0, uid
    if "revision" in fields:
        return int(response.revision), uid
    return (0 if message is None else int(message.metadata.resource_version or 0)), uid


def _credential(caller: Caller | None, peer: Peer | None) -> str:
    if caller is not None and caller.token is not None:
        return caller.token.id
    return "" if peer is None else serial_text(peer.certificate.serial)


def _peer_of(context: Any) -> Peer | None:
    try:
        return peer_of(context)
    except ApiFailure:
        return None
