"""What crosses between the SchedulerActor and the QueueActor: one call, `exchange`, and its answer.

```
  SchedulerActor                                          QueueActor
     │  exchange(session, templates, log, now, want)          │
     │───────────────────────────────────────────────────────▶│  applies the log in order, then hands out up to `want` pods
     │◀───────────────────────────────────────────────────────│
     │  pods, when something falls due, what became gated      │
```

* The log holds cluster events and outcomes of attempts in the order in which the SchedulerActor applied them. Its entries are
  numbered through the session; `first` is the number of the first one in this call. An outcome names the number at which its
  cycle began, and the queue replays to it only what came later.
* A session begins with an empty queue. Its number is higher than any before; whoever gets a message of an older one drops it.
* There is one caller, and one call at a time. It never blocks. A queue that needs long answers in between, how far it is behind.
* A pod crosses once, as uid, name, template, priority and time; a template crosses once, as content. The way back is the uid.

Times are seconds of the one clock that both actors' host has (CLOCK_BOOTTIME).

What crosses for each pod is a named tuple: it is made in a fifth of the time that a frozen dataclass takes, and pickled in half.
All cross as bytes that were pickled here.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from rayched.framework.cluster_event import ClusterEvent

ENTRIES_MAX: Final = 4_096
"""Log entries in one call. What is left goes with the next ones, and no pod is handed out before it has all crossed."""
PODS_MAX: Final = 1_024
"""Pods in one answer, and pods that a scheduler has in its hand."""
TEMPLATES_MAX: Final = 16_384
"""Templates that a session remembers as crossed."""
TEMPLATES_BYTES_MAX: Final = 128 << 20
"""That these consist of."""
CALL_BYTES_MAX: Final = 8 << 20
"""Of new templates, beyond which no further entry goes with one call: to read so many takes the queue 25 ms and more."""


class PendingPodSeen(NamedTuple):
    """A pod that has no node came, or something changed that the queue goes by."""

    uid: str
    name: str
    """namespace/name."""
    template: int
    priority: int
    timestamp: float
    nominated_node_name: str = ""
    is_new: bool = True
    members: int = 1
    """Of a pod group: those that wait."""


class PendingPodGone(NamedTuple):
    """The pod was deleted, got a node, or is over."""

    uid: str
    name: str


class AssignedPod(NamedTuple):
    """A pod on a node, or one that was nominated to a node and is treated as if it were there, as an event is about it."""

    template: int
    node_name: str
    nominated_node_name: str = ""


class SentObject(NamedTuple):
    """An object of another kind, serialised."""

    kind: str
    content: bytes


class ClusterChange(NamedTuple):
    """Something happened that may help pods: the event, and the object before and after."""

    event: ClusterEvent
    old: AssignedPod | SentObject | None = None
    new: AssignedPod | SentObject | None = None
    priority_max: int | None = None
    """Only pods of this priority or a lower one are woken."""
    except_uid: str = ""
    """A pod that is not woken."""


GROUP_MARK: Final = "/podgroup:"
"""In the name of an entry that is a pod group; no pod has a colon in its own."""


@dataclass(frozen=True)
class AssignedPods:
    """Pods got their nodes, one after the other: an event for each. Told together, as mostly nobody waits for them."""

    event: ClusterEvent
    templates: list[int]
    node_names: list[str]
    """Of each pod. Both may grow until they cross."""


@dataclass(frozen=True)
class AttemptsEnded:
    """These pods have their nodes, or nobody will try them again."""

    uids: list[str]
    """May grow until it crosses."""


class AttemptFailed(NamedTuple):
    """Rejected by these plugins; by an error where there are none."""

    uid: str
    began: int
    unschedulable_plugins: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    nominated_node_name: str | None = None


class GivenBack(NamedTuple):
    """Pods that were handed out but not tried, or whose attempt lost a race: as if they had not been handed out."""

    uids: tuple[str, ...]


class PutOff(NamedTuple):
    """A pod that was handed out is not to be tried before others, however long that takes."""

    uid: str


class TakenUp(NamedTuple):
    """The attempt of a pod that was put off begins."""

    uid: str


@dataclass(frozen=True)
class Activated:
    """Pods to be tried at once, by name."""

    names: tuple[str, ...]


Stated = tuple[str, str, str]
"""What the scheduler knows of a pod when the whole log has crossed: uid, name, value of `queue.audit.Standing`."""

LogEntry: TypeAlias = (
    PendingPodSeen
    | PendingPodGone
    | ClusterChange
    | AssignedPods
    | AttemptsEnded
    | AttemptFailed
    | GivenBack
    | PutOff
    | TakenUp
    | Activated
)


@dataclass(frozen=True)
class ExchangeRequest:
    session: int
    first: int
    """Position of the first entry."""
    entries: tuple[LogEntry, ...]
    now: float
    want: int
    templates: Mapping[int, bytes] = field(default_factory=dict)
    """Contents of templates that the entries name and that have not crossed in this session."""
    forget: tuple[int, ...] = ()
    """Templates that will not be named again without crossing anew."""
    roll: tuple[Stated, ...] = ()
    """Pods to hold the queue against; only where `entries` are the end of the log."""
    suggest: int = 0
    """How many pods of its own the queue is to suggest for the next roll."""
    spent: tuple[tuple[str, float], ...] = ()
    """Seconds of attempts since the last call, by namespace; only where namespaces have turns."""


@dataclass(frozen=True)
class ExchangeAnswer:
    session: int
    uids: tuple[str, ...] = ()
    """Pods handed out, in the order in which they are to be tried."""
    more: bool = False
    """More pods could have been handed out."""
    next_due: float | None = None
    """When the queue has something to do without being told anything; None: never."""
    gated: tuple[str, ...] = ()
    """Uids of pods that PreEnqueue refused."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Pods in each place: active, backoff, unschedulable, gated, in_flight."""
    awaits_bindings: bool = False
    """A waiting pod may be woken by pods that get their nodes."""
    suggested: tuple[tuple[str, str], ...] = ()
    """Uid and name of pods that the queue holds, to be stated in a roll."""
    problems: tuple[str, ...] = ()
    """What the audit found, a line each."""
    lost: tuple[str, ...] = ()
    """Uids of pods that ought to be queued and are not: to be told anew."""
    behind: int = 0
    """Entries that the queue has not applied yet: it goes on with the next call, and hands out nobody before."""
    namespaces: tuple[str, ...] = ()
    """Of each pod in `uids`, where namespaces have turns; else none."""


def packed(message: ExchangeRequest | ExchangeAnswer) -> bytes:
    """Ready to cross."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def unpacked_request(content: bytes) -> ExchangeRequest:
    """What the SchedulerActor packed. Both actors are one program on one host; nobody else's bytes come here."""
    request: ExchangeRequest = pickle.loads(content)  # noqa: S301
    return request


def unpacked_answer(content: bytes) -> ExchangeAnswer:
    """What the QueueActor packed."""
    answer: ExchangeAnswer = pickle.loads(content)  # noqa: S301
    return answer
