"""The last decisions as they were, for whoever asks later why a pod is where it is, or is nowhere.

A decision is noted down with what only its own moment knew: the revision, the chosen node, how many nodes tied, and the best five
with their totals. Which plugin keeps how many nodes away is known of a failed attempt; of one that chose a node nobody had to
know, so it is counted in idle moments for the templates that were decided about last, and says of which revision it is.

Bounded: DECISIONS_MAX decisions of some 500 bytes, and as many counts as templates are in COUNTS_MAX.

The best five are taken at the moment of the decision, as the totals change with the next one. Where five tie they are at hand;
the others too where pods of one template follow each other; else each one that lacks is a search for the highest total.

Owner: the Scheduler; one thread. Cost: 1 µs a decision, and half of one for each search. Measured by benchmarks/decisions.py.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from rayched.framework.diagnosis import Diagnosis
from rayched.framework.evaluation import Evaluation
from rayched.framework.ranking import ROW_MASK, total_of
from rayched.scheduler.attempt import Attempt, Failure
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
    name: str
    """namespace/name."""
    revision: int
    """Everything up to it had been considered."""
    began: float
    ended: float
    """Seconds of the scheduler's clock: from the begin of the cycle to the choice."""
    template: int
    """Its id."""
    node_name: str
    """"" where no node was feasible."""
    ties: int
    """Nodes with the highest total; 0: the pod was nominated to its node, and nobody was asked for scores."""
    best: tuple[tuple[str, int], ...] = ()
    """The first BEST nodes by falling total, those that tie in the order of their rows. Of one alone the total means nothing."""
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


_Head = tuple[int, str, str, int, float, float, int]
"""The fields of a Decision from `number` to `template`."""
_Chosen = tuple[int, str, str, int, float, float, int, str, int, int, Sequence[str], Sequence[int]]
"""Of a decision for a node: head, node, ties, highest total, the best nodes, and the ranks of those of them that do not tie."""


class Rejections(NamedTuple):
    """How many nodes each plugin keeps a template off."""

    revision: int
    number: int
    """Of the decision after which it was counted."""
    by_plugin: Mapping[str, int]


class Decisions:
    """The last decisions of a scheduler."""

    def __init__(self, snapshot: Snapshot, stopwatch: Callable[[], float]) -> None:
        self.revision = 0
        """What the snapshot has seen; whoever feeds it says so."""
        self.keeps = True
        """Off only to measure what keeping costs."""
        self._snapshot = snapshot
        self.stopwatch = stopwatch
        """Seconds of the scheduler's clock."""
        self._nodes = snapshot.logs[Log.UNSCHEDULABLE]
        """Grows when a row becomes another node's, as every log does, and hardly ever else."""
        self._nodes_seen = -1
        self._first: Sequence[int] = ()
        """The first rows that tied last, as of `_nodes_seen`. Where many tie they stay the same for long, and so does the list of
        their names, which many decisions share."""
        self._first_names: list[str] = []
        self._ring: deque[Decision | _Chosen] = deque(maxlen=DECISIONS_MAX)
        self._keep = self._ring.append
        self._counts: OrderedDict[int, Rejections] = OrderedDict()
        self._uncounted: OrderedDict[int, PodTemplate] = OrderedDict()
        self._newest: PodTemplate | None = None
        """The template that was decided about last, as long as it is uncounted."""
        self._count_at = 0.0

    def __len__(self) -> int:
        return len(self._ring)

    # ------------------------------------------------------------------------------------------------------------ noting

    def chose(self, attempt: Attempt, row: int, evaluation: Evaluation, best_rows: RowIndex | Sequence[int]) -> None:
        """The attempt takes `row`, one of those that tie; the evaluation still holds."""
        if not self.keeps:
            return
        names, template, ties = self._snapshot.names, attempt.template, len(best_rows)
        others: Sequence[int] = ()
        if ties >= BEST:
            first = best_rows[:BEST]
            if isinstance(first, np.ndarray):
                first = first.tolist()
            if first != self._first or self._nodes.end != self._nodes_seen:
                self._first, self._nodes_seen, self._first_names = first, self._nodes.end, [names[one] for one in first]
            best = self._first_names
        else:
            others = evaluation.runners_up(best_rows, BEST - ties)
            best = [names[one] for one in best_rows]
            best += [names[rank & ROW_MASK] for rank in others]
        # A plain tuple, made into a Decision by who asks: that takes less than a fourth of the time.
        self._keep(
            (
                attempt.number,
                attempt.uid,
                attempt.name,
                self.revision,
                attempt.started,
                self.stopwatch(),
                template.id,
                names[row],
                ties,
                evaluation.best,
                best,
                others,
            )
        )
        if template is not self._newest:
            self._counts_wanted(template)

    def kept(self, attempt: Attempt, row: int) -> None:
        """The attempt takes the node that the pod was nominated to."""
        if self.keeps:
            self._keep(Decision(*self._head(attempt), self._snapshot.names[row], 0))
            self._counts_wanted(attempt.template)

    def failed(self, attempt: Attempt, diagnosis: Diagnosis, failure: Failure) -> None:
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
        return attempt.number, attempt.uid, attempt.name, self.revision, attempt.started, now, attempt.template.id

    def _counts_wanted(self, template: PodTemplate) -> None:
        self._newest = self._uncounted[template.id] = template
        self._uncounted.move_to_end(template.id)
        if len(self._uncounted) > UNCOUNTED_MAX:
            self._uncounted.popitem(last=False)

    # ----------------------------------------------------------------------------------------------------------- asking

    def of(self, uid: str) -> Decision | None:
        """The pod's last one, if it is kept still. Cost: 1 ms at worst."""
        for one in reversed(self._ring):
            if one[1] == uid:
                return one if isinstance(one, Decision) else _decision(one)
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
            self._counts[template.id] = Rejections(self.revision, number, rejections_of(template))
        finally:
            if len(self._counts) > COUNTS_MAX:
                self._counts.popitem(last=False)
            ended = self.stopwatch()
            self._count_at = ended + max(PAUSE_SECONDS, PAUSE_FACTOR * (ended - now))
        return True


def _decision(chosen: _Chosen) -> Decision:
    number, uid, name, revision, began, ended, template, node_name, ties, highest, best, others = chosen
    totals = [highest] * (len(best) - len(others)) + [total_of(rank) for rank in others]
    ranked = tuple(zip(best, totals, strict=True))
    return Decision(number, uid, name, revision, began, ended, template, node_name, ties, ranked)
