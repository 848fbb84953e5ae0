"""The last decisions as they were, to explain later why a pod is on its node, or on none.

A decision is noted down with what only its own moment knew: the revision, the chosen node, how many nodes tied, and the best five
with their totals. Which plugin keeps how many nodes away is known of a failed attempt; of one that chose a node nobody had to
know, so it is counted in idle moments for the templates that were decided about last, and says of which revision it is.

Bounded: DECISIONS_MAX decisions of some 300 bytes, and as many counts as templates are in COUNTS_MAX.

The best five are taken at the moment of the decision, as the totals change with the next one. Where five tie they are at hand;
else each one that lacks is a search for the highest total.

All that can be found out later is found out by who asks: nodes are noted as rows, whose names at that time are known from what
rows were called before each change; a decision ended when the next one of its batch began, or its batch ended. What is noted is
references to what is there anyway, as few as possible: what is kept is memory that others do not find in the processor's caches.

Owner: the Scheduler; one thread. Cost: half a microsecond a decision, and as much for each search. Measured by
benchmarks/decisions.py.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from rayched.engine.evaluation import Evaluation
from rayched.framework.diagnosis import Diagnosis
from rayched.scheduler.attempt import Attempt, AttemptFailure
from rayched.snapshot.columns import Log, RowIndex
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate

DECISIONS_MAX: Final = 10_000
BEST: Final = 5
"""Nodes that are kept of a decision."""
COUNTS_MAX: Final = 1_000
"""Templates whose counts are kept."""
UNCOUNTED_MAX: Final = 64
"""Templates that wait to be counted; older ones are left out."""
PAUSE_SECONDS: Final = 0.05
PAUSE_FACTOR: Final = 100
"""After a count the next one waits so long, or so many times what this one took: at most 1 % of the time goes there."""


class Decision(NamedTuple):
    """One attempt to find a node, as it was."""

    number: int
    """With the seed it gives the draw between nodes that tie."""
    uid: str
    revision: int
    """Everything up to it had been considered."""
    began: float
    ended: float
    """Seconds of the scheduler's clock: from the begin of the cycle to its end, when the next one begins or the batch is done.
    Equal where nobody told of that."""
    template: int
    """Its id."""
    node_name: str
    """"" where no node was feasible."""
    ties: int
    """Nodes with the highest total; 0: the pod was nominated to its node, and no plugin scored."""
    best: tuple[tuple[str, int], ...] = ()
    """The first BEST nodes by falling total, those that tie in the order of their rows. Where more than BEST tie the chosen one
    is the last in the place of another. Of one alone the total means nothing."""
    rejections: Mapping[str, int] | None = None
    """Nodes by the first plugin that rejects them, of an attempt without a node."""
    n_nodes: int = 0
    """Nodes at that time, of an attempt without a node."""
    message: str = ""
    """Why no node was found."""
    victims: tuple[str, ...] = ()
    """uids of pods that have to leave the nominated node."""
    nominated: str = ""
    """The node that preemption makes room on."""


_Head = tuple[int, str, int, float, float, int]
"""The fields of a Decision from `number` to `template`."""


class _Names:
    """What rows are called, until some are called otherwise."""

    __slots__ = ("changed", "next")

    def __init__(self) -> None:
        self.changed: Mapping[int, str] = {}
        """Rows that were called so, and are no longer from `next` on."""
        self.next: _Names | None = None


class _DecisionBatch:
    """What the decisions of a batch have in common."""

    __slots__ = ("ended", "names", "revision")

    def __init__(self, revision: int, names: _Names) -> None:
        self.revision = revision
        self.names = names
        self.ended = inf
        """Seconds of the scheduler's clock."""


class _Chosen(NamedTuple):
    """A decision for one of the nodes that tie, as it is noted: as a plain tuple, which takes a third of the time."""

    number: int
    uid: str
    batch: _DecisionBatch
    began: float
    template: int
    row: int
    ties: int
    highest: int
    best: Sequence[int]
    """The first BEST of the rows that tie."""
    after: Sequence[tuple[int, int]]
    """As many others, with their totals, as these lack."""


_ChosenFields = tuple[int, str, _DecisionBatch, float, int, int, int, int, Sequence[int], Sequence[tuple[int, int]]]


class Rejections(NamedTuple):
    """How many nodes each plugin keeps a template off."""

    revision: int
    number: int
    """Of the decision after which it was counted."""
    by_plugin: Mapping[str, int]


class Decisions:
    """The last decisions of a scheduler."""

    def __init__(self, snapshot: Snapshot, stopwatch: Callable[[], float]) -> None:
        self.keeps = True
        """Off only to measure what keeping costs."""
        self.stopwatch = stopwatch
        """Seconds of the scheduler's clock."""
        self._names = snapshot.names
        """By row; grows and changes in place."""
        self._nodes = snapshot.logs[Log.UNSCHEDULABLE]
        """Grows when a row becomes another node's, as every log does, and hardly ever else."""
        self._nodes_seen = self._nodes.end
        self._names_seen = list(snapshot.names)
        """As of `_nodes_seen`."""
        self._batch = _DecisionBatch(0, _Names())
        self._best: Sequence[int] = ()
        """Those noted last. Where many tie they stay the same for long, and many decisions share them."""
        self._ring: deque[Decision | _ChosenFields] = deque(maxlen=DECISIONS_MAX)
        self._keep = self._ring.append
        self._counts: OrderedDict[int, Rejections] = OrderedDict()
        self._uncounted: OrderedDict[int, PodTemplate] = OrderedDict()
        self._newest: PodTemplate | None = None
        """The template that was decided about last, as long as it is uncounted."""
        self._count_at = 0.0

    def __len__(self) -> int:
        return len(self._ring)

    # ------------------------------------------------------------------------------------------------------------ noting

    def begin(self, revision: int) -> None:
        """A batch begins; the snapshot has seen everything up to `revision`."""
        if self.keeps:
            self._batch = _DecisionBatch(revision, self._batch.names)

    def end(self, now: float) -> None:
        """The batch is done."""
        if self.keeps:
            self._batch.ended = now

    def chose(self, attempt: Attempt, row: int, evaluation: Evaluation, best_rows: RowIndex | list[int]) -> None:
        """The attempt takes `row`, one of those that tie; the evaluation still holds."""
        if not self.keeps:
            return
        if self._nodes.end != self._nodes_seen:
            self._nodes_changed()
        template, ties, best = attempt.template, len(best_rows), best_rows[:BEST]
        if not isinstance(best, list):
            best = best.tolist()
        after = evaluation.runners_up(best_rows, BEST - ties) if ties < BEST else ()
        if best != self._best:
            self._best = best
        self._keep(
            (
                attempt.number,
                attempt.uid,
                self._batch,
                attempt.started,
                template.id,
                row,
                ties,
                evaluation.best,
                self._best,
                after,
            )
        )
        if template is not self._newest:
            self._counts_wanted(template)

    def kept(self, attempt: Attempt, row: int) -> None:
        """The attempt takes the node that the pod was nominated to."""
        if self.keeps:
            self._keep(Decision(*self._head(attempt), self._names[row], 0))
            self._counts_wanted(attempt.template)

    def failed(self, attempt: Attempt, diagnosis: Diagnosis, failure: AttemptFailure) -> None:
        """The attempt found no node."""
        if self.keeps:
            preemption, nominated = failure.preemption, failure.nominated_node_name or ""
            victims = () if preemption is None else preemption.victims
            found = Decision(*self._head(attempt), "", 0, (), diagnosis.rejections, diagnosis.n_nodes, failure.message)
            self._keep(found._replace(victims=victims, nominated=nominated))

    def broke(self, attempt: Attempt, message: str) -> None:
        """The attempt ended with an error before it had a node."""
        if self.keeps:
            self._keep(Decision(*self._head(attempt), "", 0, message=message))

    def _head(self, attempt: Attempt) -> _Head:
        now = self.stopwatch()
        return attempt.number, attempt.uid, self._batch.revision, attempt.started, now, attempt.template.id

    def _counts_wanted(self, template: PodTemplate) -> None:
        self._newest = self._uncounted[template.id] = template
        self._uncounted.move_to_end(template.id)
        if len(self._uncounted) > UNCOUNTED_MAX:
            self._uncounted.popitem(last=False)

    def _nodes_changed(self) -> None:
        """Names of rows may be others than those of the decisions that are kept."""
        names, seen = self._names, self._names_seen
        rows = self._nodes.since(self._nodes_seen)
        self._nodes_seen = self._nodes.end
        changed = {
            row: seen[row] for row in (range(len(seen)) if rows is None else rows) if row < len(seen) and seen[row] != names[row]
        }
        for row in changed:
            seen[row] = names[row]
        seen += names[len(seen) :]
        if changed:
            then, now = self._batch.names, _Names()
            then.changed, then.next = changed, now
            self._batch = _DecisionBatch(self._batch.revision, now)

    # ----------------------------------------------------------------------------------------------------------- asking

    def of(self, uid: str) -> Decision | None:
        """The pod's last one, if it is kept still. Cost: 1 ms at worst."""
        began_next = inf
        for one in reversed(self._ring):
            if isinstance(one, Decision):
                if one.uid == uid:
                    return one
                began_next = one.began
            else:
                if one[1] == uid:
                    return self._decision(_Chosen(*one), began_next)
                began_next = one[3]
        return None

    def rejections(self, template: int) -> Rejections | None:
        """The last count for a template, by its id; None: there is none."""
        return self._counts.get(template)

    # --------------------------------------------------------------------------------------------------------- counting

    def count(self, rejections_of: Callable[[PodTemplate], Mapping[str, int]], number: int) -> bool:
        """In an idle moment: who keeps how many nodes away from one template that was decided about. False: nothing to count.

        `number` is that of the last decision. Raises what `rejections_of` raises; then that template is not counted.
        """
        if not self._uncounted:
            return False
        now = self.stopwatch()
        if now < self._count_at:
            return False
        _, template = self._uncounted.popitem()
        self._newest = None
        self._counts.pop(template.id, None)
        try:
            self._counts[template.id] = Rejections(self._batch.revision, number, rejections_of(template))
        finally:
            if len(self._counts) > COUNTS_MAX:
                self._counts.popitem(last=False)
            ended = self.stopwatch()
            self._count_at = ended + max(PAUSE_SECONDS, PAUSE_FACTOR * (ended - now))
        return True

    # ---------------------------------------------------------------------------------------------------------- private

    def _decision(self, chosen: _Chosen, began_next: float) -> Decision:
        batch, began = chosen.batch, chosen.began
        ended = min(began_next, batch.ended)
        best = chosen.best
        if chosen.row not in best:
            # It ties with all of them, and comes after them.
            best = [*best[:-1], chosen.row]
        ranked = [*((row, chosen.highest) for row in best), *chosen.after]
        return Decision(
            chosen.number,
            chosen.uid,
            batch.revision,
            began,
            began if ended == inf else ended,
            chosen.template,
            self._name_then(chosen.row, batch.names),
            chosen.ties,
            tuple((self._name_then(row, batch.names), total) for row, total in ranked),
        )

    def _name_then(self, row: int, names: _Names) -> str:
        """The row's name at that time."""
        while names.next is not None:
            if row in names.changed:
                return names.changed[row]
            names = names.next
        return self._names_seen[row]
