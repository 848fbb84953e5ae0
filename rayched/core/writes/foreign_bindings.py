"""Bindings that another scheduler has decided, of pods that name it and no profile of this one.

They are judged and written by the leader's scheduler, which alone knows who takes room: what it has assumed and not written yet,
too. So one of them and a binding of its own never take the same room.

```
  ask ──▶ waits ──▶ judged, assumed and built in one go ──▶ sent ──▶ committed
                         │                                    │ conflict, refusal
                         ▼                                    ▼
                      refused                              refused: the room is given back
```

* The pod is there, pending, without gates, of no group, and of a scheduler that no profile has. The node is there, and has
  room for what the pod requests. What else a scheduler looks at, such as taints, is the other one's matter, as in Kubernetes.
* The write compares what a binding compares: epoch, pod, node, and what tells of pods that took room there unasked.
* Each asker is told once: what became of it, or that this scheduler does not lead. What waits longer than its asker is not
  written: that one may have bound the pod elsewhere by then. Who asks again for the very binding that is
  there already is told so as well, so that an answer that got lost costs nothing.

No I/O. Owner: the SchedulerCore. Cost: about 30 µs a binding.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from rayched.api.errors import quoted
from rayched.api.resources import is_scalar, pod_requests
from rayched.api.stages import Stage
from rayched.core.cache.cache import Cache
from rayched.core.cache.records import PodRecord
from rayched.core.writes.pod_patches import BindingValues
from rayched.core.writes.recognition import is_on
from rayched.core.writes.statuses import StatusWrites
from rayched.framework.lifecycle import Lifecycle
from rayched.framework.resource_needs import ResourceNeed, ResourceNeeds
from rayched.scheduler.attempt import Attempt
from rayched.scheduler.scheduler import Scheduler
from rayched.snapshot.pod_facts import PodFacts
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import BASIC_RESOURCES, PODS
from rayched.store.transactions import BYTES_MAX, WRITES_MAX, Committed, Conflict, GuardedPut, Outcome, TransactionRefused

WAITING_MAX: Final = 1_024
"""Askers at a time."""
_NO_PLUGINS: Final = Lifecycle()
_PODS: Final = BASIC_RESOURCES[PODS]


class BindingEnd(enum.Enum):
    """What became of what was asked for."""

    BOUND = "bound"
    NOT_FOUND = "not found"
    CONFLICT = "conflict"
    """The pod is another one, or was changed meanwhile: read it again."""
    REFUSED = "refused"
    NOT_LEADING = "not leading"
    """Or nobody knows whether it was written."""
    TOO_MANY = "too many"


@dataclass(frozen=True, slots=True)
class ForeignBinding:
    """What another scheduler wants. `name` is namespace/name; `uid` empty: whichever pod has the name."""

    name: str
    uid: str
    node_name: str


@dataclass(frozen=True, slots=True)
class ForeignBindingAnswer:
    end: BindingEnd
    message: str = ""
    uid: str = ""
    revision: int = 0
    """Of the binding; 0: it was there before."""


ToldBinding = Callable[[ForeignBindingAnswer], None]

_NOT_LEADING: Final = ForeignBindingAnswer(BindingEnd.NOT_LEADING)


class ForeignBindings:
    """Those of all other schedulers."""

    RULE_ROOM_IS_LOOKED_AT: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(self, cache: Cache, scheduler: Scheduler, snapshot: Snapshot, statuses: StatusWrites) -> None:
        self._cache = cache
        self._scheduler = scheduler
        self._snapshot = snapshot
        self._statuses = statuses
        self._waiting: deque[tuple[ForeignBinding, ToldBinding, float]] = deque()
        self._sent: dict[str, tuple[Attempt, ToldBinding]] = {}
        """By attempt id."""

    def __len__(self) -> int:
        """Those that are not sent."""
        return len(self._waiting)

    @property
    def n_under_way(self) -> int:
        return len(self._waiting) + len(self._sent)

    def ask(self, wanted: ForeignBinding, told: ToldBinding, until: float) -> None:
        """`told` is called once, on the owner's thread, maybe before this returns. The leader alone may be asked.

        `until`: by the core's clock; what has not been sent by then will not be.
        """
        if len(self._waiting) >= WAITING_MAX:
            told(ForeignBindingAnswer(BindingEnd.TOO_MANY, f"{WAITING_MAX} bindings of other schedulers wait already; try again"))
            return
        self._waiting.append((wanted, told, until))

    def stop(self) -> None:
        """The term is over or interrupted: what was not sent will not be."""
        while self._waiting:
            self._waiting.popleft()[1](_NOT_LEADING)

    def forget_sent(self) -> None:
        """The epoch is over: answers still to come are ignored."""
        for _, told in self._sent.values():
            told(_NOT_LEADING)
        self._sent.clear()

    # --------------------------------------------------------------------------------------------------------- writing

    def batch(self, epoch: int, now: float, now_unix: float, next_id: Callable[[], str]) -> list[GuardedPut]:
        """The next ones, as many as one transaction takes. They count as sent; those that are refused are told here."""
        writes: list[GuardedPut] = []
        size = 0
        values = BindingValues(epoch, now_unix)
        while self._waiting and len(writes) < WRITES_MAX and size < BYTES_MAX // 2:
            wanted, told, until = self._waiting.popleft()
            if now >= until:
                told(_NOT_LEADING)
                continue
            judged = self._judged(wanted)
            if isinstance(judged, ForeignBindingAnswer):
                told(judged)
                continue
            cache, node_name = self._cache, wanted.node_name
            self._scheduler.occupancy.assume(judged.uid, judged.template, node_name, PodFacts(judged.name))
            attempt = _attempt(judged, node_name, next_id())
            value = values.value(judged, node_name, attempt.id, cache.revision)
            guards = (cache.node_guard(node_name), cache.taken_guard(node_name))
            writes.append(GuardedPut(judged.key, judged.mod_revision, value, guards, (), attempt.id))
            self._sent[attempt.id] = attempt, told
            size += len(value)
        return writes

    def is_mine(self, write: GuardedPut) -> bool:
        return write.attempt in self._sent

    def outcome(self, write: GuardedPut, outcome: Outcome) -> None:
        """What became of a sent one. The room of one that is bound stays taken until the pod is seen there."""
        attempt, told = self._sent.pop(write.attempt)
        match outcome:
            case Committed(revision):
                answer = ForeignBindingAnswer(BindingEnd.BOUND, "", attempt.uid, revision)
            case Conflict() if is_on(outcome.current, attempt):
                # By an earlier sending of this very write.
                answer = ForeignBindingAnswer(BindingEnd.BOUND, "", attempt.uid)
            case Conflict():
                self._give_back(attempt)
                text = f"Pod {attempt.name}, node {attempt.node_name} or what is on it was changed meanwhile; read again"
                answer = ForeignBindingAnswer(BindingEnd.CONFLICT, text)
            case TransactionRefused(problem):
                self._give_back(attempt)
                answer = ForeignBindingAnswer(BindingEnd.REFUSED, f"Pod {attempt.name}: etcd refused the binding: {problem}")
            case _:
                # Fenced: the term is over, and so is this write.
                self._give_back(attempt)
                answer = _NOT_LEADING
        told(answer)

    def _give_back(self, attempt: Attempt) -> None:
        if self._scheduler.occupancy.forget(attempt.uid):
            # Others may wait for that room.
            self._scheduler.freed.append(attempt)

    # --------------------------------------------------------------------------------------------------------- judging

    def _judged(self, wanted: ForeignBinding) -> PodRecord | ForeignBindingAnswer:
        """The pod, if it may be bound so at this very moment."""
        namespace, _, name = wanted.name.partition("/")
        record = self._cache.find(namespace, name)
        if record is None:
            return ForeignBindingAnswer(BindingEnd.NOT_FOUND, f'pods "{wanted.name}" not found')
        if wanted.uid and record.uid != wanted.uid:
            text = f"Pod {wanted.name} has the uid {record.uid}, and {quoted(wanted.uid)} is meant"
            return ForeignBindingAnswer(BindingEnd.CONFLICT, text)
        on = record.node_name or self._scheduler.occupancy.assumed_on(record.uid) or ""
        if record.stage is Stage.BOUND and wanted.uid and on == wanted.node_name:
            return ForeignBindingAnswer(BindingEnd.BOUND, "", record.uid)
        if on:
            return ForeignBindingAnswer(BindingEnd.CONFLICT, f"Pod {wanted.name} is already assigned to node {quoted(on)}")
        if fault := self._fault(record):
            return ForeignBindingAnswer(BindingEnd.REFUSED, f"Pod {wanted.name} {fault}")
        row = self._snapshot.row_of(wanted.node_name)
        if row is None:
            return ForeignBindingAnswer(BindingEnd.NOT_FOUND, f'nodes "{wanted.node_name}" not found')
        if self.RULE_ROOM_IS_LOOKED_AT and (short := self._short(record, row)):
            text = f"Pod {wanted.name} does not fit on node {wanted.node_name}: {', '.join(short)}"
            return ForeignBindingAnswer(BindingEnd.REFUSED, text)
        return record

    def _fault(self, record: PodRecord) -> str:
        """Why nobody from outside binds this pod, whatever the node; empty: somebody may."""
        template = record.template
        if record.stage is not Stage.PENDING or record.kept is None:
            return "is over or being deleted"
        if self._scheduler.knows(template.scheduler_name):
            return f"is scheduled here: its spec.schedulerName {quoted(template.scheduler_name)} is a profile's"
        if template.pod_group:
            return "belongs to a pod group, which is bound as a whole"
        if record.kept.pod.spec.scheduling_gates:
            return "has scheduling gates"
        if self._statuses.is_busy(record.uid):
            return "is being written to; try again"
        return ""

    def _short(self, record: PodRecord, row: int) -> list[str]:
        """What the node has too little of."""
        amounts = {_PODS: 1}
        for name, amount in sorted(pod_requests(record.template.pod).items()):
            if amount > 0 and name != _PODS and (name in BASIC_RESOURCES or is_scalar(name)):
                amounts[name] = amount
        needs = ResourceNeeds([ResourceNeed(name, amount, f"Insufficient {name}", False) for name, amount in amounts.items()])
        left = needs.left(self._snapshot, row)
        return [need.reason for need, rest in zip(needs.needs, left, strict=True) if rest < 0]


def _attempt(record: PodRecord, node_name: str, attempt_id: str) -> Attempt:
    """What holds the room; no plugin takes part."""
    assert record.kept is not None
    return Attempt(record.uid, record.name, 0, 0, record.template, record.kept, _NO_PLUGINS, 0.0, node_name, attempt_id)
