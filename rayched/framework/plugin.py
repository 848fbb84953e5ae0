"""The contract between plugins and the framework: one Protocol for each extension point.

A plugin is a stateless object with a `name`; it takes part in the extension points whose methods it has (`contract` proves it).
Beside the simple form, which `simple_plugin` lifts to columns, there are three families:

* **Column plugins** filter and score nodes, and work on columns. `key(pod)` is what the plugin reads
  of the pod, `reads` what it reads of the cluster; whatever it has not declared it may not read. From these the engine knows when
  a column may be kept, which rows to evaluate again and which cluster events can help a pod that the plugin rejected.
  A column plugin evaluates any set of rows: the whole table, a shard, three rows that changed, rows as they would be.
* **Counting plugins** are column plugins whose value of a row depends on pods bound to other rows too. They count nothing
  themselves: the snapshot keeps counters, `count` adds them up over domains once a cycle, and rows are evaluated against that.
  What a column plugin may say once more, faster, is in `accelerated`.
* **Per-pod plugins** are called once for each pod that reaches them; after Filter with the CycleState of its attempt.

Order of an attempt: PreEnqueue and QueueSort in the queue; then PreFilter, Filter, (PostFilter where no node is feasible),
PreScore, Score, NormalizeScore, Reserve, Permit in the scheduling cycle; then PreBind, Bind, PostBind in the binding cycle.

Source: fwk interfaces of kube-scheduler 1.34.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rayched.framework.cycle_state import CycleState
from rayched.framework.queueing_hints import Registration
from rayched.framework.status import Status
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.core_pb2 import Pod

MAX_NODE_SCORE = 100
"""A normalised score lies in 0..MAX_NODE_SCORE."""


@runtime_checkable
class Plugin(Protocol):
    @property
    def name(self) -> str: ...


@runtime_checkable
class RegisteringPlugin(Plugin, Protocol):
    """A plugin that states its events itself; without this they follow from its kind and from what it `reads`."""

    def registrations(self) -> Sequence[Registration]:
        """The events after which a pod that this plugin rejected may be worth another attempt."""


# ---------------------------------------------------------------------------------------------------- column plugins


@runtime_checkable
class ColumnPlugin(Plugin, Protocol):
    """What Filter and Score plugins have in common."""

    @property
    def reads(self) -> Log:
        """The aspects of a node whose change makes this plugin's value of that row stale."""

    def key(self, pod: Pod) -> Hashable | None:
        """What is read of the pod. Equal keys give equal columns on any cluster.

        None skips the plugin for this pod: it rejects nothing and adds nothing (PreFilter's and PreScore's Skip in one).
        """

    def prepare(self, pod: Pod) -> Any:
        """The frozen state that `filter`, `score` and `narrow` work on; computed once for each key."""


class PodPart(enum.Flag):
    """Parts of a pod of which a plugin reads no more than it has to."""

    LABELS_BY_SELECTOR = enum.auto()
    """Labels through selectors alone, be they its own or others', or not at all.

    It is given the pod without the labels that no selector mentions, and with "*" in place of values that none mentions, see
    `ReferencedLabels`.
    """
    TOLERATIONS_OF_TAINTS = enum.auto()
    """Tolerations to see which taints of nodes they cover, and for nothing else, or not at all.

    It is given the pod without the tolerations that cover no taint of any node, see `PresentTaints`.
    """
    NO_POD_GROUP = enum.auto()
    """Nothing of the group that the pod belongs to. It is given the pod without `spec.scheduling_group`."""
    LEAST = LABELS_BY_SELECTOR | TOLERATIONS_OF_TAINTS | NO_POD_GROUP
    """All of these."""


@runtime_checkable
class PodReadingPlugin(ColumnPlugin, Protocol):
    """A plugin that says how it reads the pod; another one is given all of it. Pods that are alike to all plugins cost less."""

    @property
    def reads_pod(self) -> PodPart:
        """What `key` and `prepare` make do with. It holds for subclasses, too: one that reads more says so."""


@runtime_checkable
class NarrowingPlugin(ColumnPlugin, Protocol):
    """PreFilter: reduces the nodes before any is looked at, or rejects the pod outright."""

    def narrow(self, state: Any) -> frozenset[str] | Status | None:
        """Names of the only nodes worth looking at; or a rejection; None: all nodes."""


@runtime_checkable
class FilterPlugin(ColumnPlugin, Protocol):
    def filter(self, state: Any, rows: Rows) -> CodeColumn | None:
        """A Code for each row: SUCCESS, UNSCHEDULABLE or UNSCHEDULABLE_AND_UNRESOLVABLE.

        Shape (rows,), uint8. None, whatever the rows: nothing is rejected (PreFilter's Skip).
        """

    def reasons(self, state: Any, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:
        """Why rows are rejected: each reason once, with the rows it applies to.

        `codes` is this plugin's own answer for the same rows. A rejected row has at least one reason; a row that passes has none.
        """


@runtime_checkable
class ScorePlugin(ColumnPlugin, Protocol):
    def score(self, state: Any, rows: Rows) -> ScoreColumn | None:
        """The raw score of each row. Shape (rows,), int64. None, whatever the rows: the plugin adds nothing (PreScore's Skip)."""


@runtime_checkable
class PreScorePlugin(ScorePlugin, Protocol):
    """One that can end an attempt before nodes are scored: also where it is enabled at PreScore and not at Score.

    It does so by raising when it is asked for scores; what it answers then counts nothing.
    """

    ends_attempts_at_pre_score: bool


@runtime_checkable
class NormalizingPlugin(ScorePlugin, Protocol):
    """A Score plugin whose raw scores are not yet 0..100."""

    def normalize(self, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:
        """Raw scores turned into 0..100, monotone; `low` and `high` are the bounds of raw over the feasible rows.

        Shape (rows,), int64. Depends on nothing else. A raw value outside the bounds belongs to a row that is not feasible;
        its result is not used.
        """


@runtime_checkable
class CountingPlugin(ColumnPlugin, Protocol):
    """A column plugin that reads counters, and so depends on more than the rows it is asked about.

    `filter`, `reasons` and `score` get what `count` gave instead of what `prepare` gave. They may be asked about any rows, also
    about rows as they would be (`Rows.changes`): then as if these pods came to that row alone. `score` is asked about exactly the
    feasible rows as they are, and may depend on which these are.
    """

    def count(self, state: Any, cluster: Snapshot, last: Any) -> Any:
        """What the counters say now, for pods with this key: tables by domain, extremes, whatever rows are compared with.

        Depends on the state, on `cluster.pod_counts` and `cluster.surroundings`, and on the aspects of nodes named by `reads`,
        of all nodes. Valid until one of these changes. `last` is the answer to the call before for the same state and cluster,
        None at first; it may be brought up to date and given again. Its properties:

            n_bytes        what it takes up, roughly
            revision       equal to the one before only if it says the same as before about every row
            verdict        hashable; equal to the one before only if `filter` says the same about every row as it is
            adds_nothing   whether `score`, where the plugin has it, answers None now
        """


@runtime_checkable
class CountingScorePlugin(CountingPlugin, ScorePlugin, Protocol):
    """A counting plugin that scores."""

    def normalize_rows(self, state: Any, rows: Rows, raw: ScoreColumn) -> ScoreColumn:
        """The raw scores of all feasible rows turned into 0..100. Shape (rows,), int64."""


# --------------------------------------------------------------------------------------------------- per-pod plugins


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    def pre_enqueue(self, pod: Pod) -> Status:
        """Anything but SUCCESS keeps the pod out of activeQ (gated) until an event of interest."""


class QueuedPod(Protocol):
    """What QueueSort may order by."""

    @property
    def priority(self) -> int: ...

    @property
    def timestamp(self) -> float:
        """When the pod entered the queue this time. Seconds."""

    @property
    def key(self) -> str:
        """namespace/name."""


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    def sort_key(self, pod: QueuedPod) -> Any:
        """Lowest first. Keys of one plugin are comparable with each other."""


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """What a PostFilter plugin achieved: the node that the pod may hope for; "" clears an earlier nomination."""

    nominated_node_name: str
    victims: tuple[str, ...] = ()
    """uids of pods on that node that have to end for it, the most important first."""


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    def post_filter(self, state: CycleState, pod: Pod) -> tuple[PostFilterResult | None, Status]:
        """Called where no node is feasible, in order, until one answers SUCCESS or ERROR."""


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status: ...

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Undoes `reserve`, last plugin first, after any later failure. Idempotent; also where `reserve` was not called."""


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        """SUCCESS, a rejection, or WAIT with a timeout in seconds."""


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status: ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """SUCCESS hands the binding to the store; SKIP leaves it to the next plugin; anything else rolls the attempt back."""


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None: ...
