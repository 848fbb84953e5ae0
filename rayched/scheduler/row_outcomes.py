"""What becomes of rows when pods make room there for a preemptor, kept for the next preemptor that asks the same.

Whether a row is a candidate, and with which victims, depends on the row alone as long as no counter, no budget and no domain
changes. So of many preemptors whose filters and priority are the same each tries only the rows where something happened since the
one before: where a pod came, went or was told to end, where one was nominated, where the node changed. Of candidates that were
tried together only the rank is kept; who has to go is found out again for the row that is chosen.

Invariants: an outcome that is kept is the one that a dry run would give now. The preemptor's own nomination does not stand in its
way, so the row that it is nominated to is tried for it alone, and forgotten.

Owner: an Evaluator. Memory: 41 bytes for each row and each kind of preemptor among the last ones, ROWS_KEPT_MAX rows in all where
there are more than KINDS_MIN kinds; and of each kind BY_ROW_MAX outcomes that are told in full.
Cost: a few calls of numpy for rows that are known; else their part of a dry run, and 1 µs a pod that could go.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Hashable, Sequence
from typing import Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from rayched.engine.dry_run import DryRun
from rayched.engine.engine import Engine
from rayched.engine.nominations import Nomination
from rayched.framework.plugin_args import DefaultPreemptionArgs
from rayched.framework.status import Status, error, unresolvable
from rayched.scheduler.candidates import PRIORITIES_BELOW_ZERO, RANKS, PreemptionCandidate, Ranks, Victim, candidate, lowest
from rayched.scheduler.nominations import Nominations
from rayched.scheduler.potential_victims import PotentialVictims
from rayched.scheduler.preemption_budgets import parted, within_hard_limits
from rayched.snapshot.change_log import FEW, ChangeLog
from rayched.snapshot.columns import Log, RowIndex
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate

KINDS_MIN: Final = 8
ROWS_KEPT_MAX: Final = 1 << 20
"""Kinds of preemptors whose outcomes are kept: so many at least, and as many more as come to so many rows together."""
BY_ROW_MAX: Final = 8_192
"""Of a kind; more are forgotten before the next preemptor asks."""
PODS_AT_ONCE: Final = 4_096
"""Pods that may have to go, of rows that are tried at a stretch: some 20 ms where each has labels of its own."""
NO_VICTIMS: Final = unresolvable("No preemption victims found for incoming pod")

Sides: TypeAlias = tuple[list[Victim], list[Victim]]
"""Pods that may have to go: those that would violate a budget, and the others."""

Outcome: TypeAlias = PreemptionCandidate | Status | None
"""Room can be made; it cannot and why; it cannot, and why was not examined."""


UNKNOWN: Final = 0
CLEAN: Final = 1
"""A candidate whose victims violate no budget."""
VIOLATING: Final = 2
"""A candidate with a victim that violates one."""
NO_CANDIDATE: Final = 3

Kinds = NDArray[np.uint8]
"""Of rows: what became of them, in short."""


class _Kept:
    """Outcomes by row, and how far the logs were read when they were right."""

    __slots__ = ("borrowed", "by_row", "kinds", "positions", "ranks", "revisions")

    def __init__(self, n_rows: int) -> None:
        self.by_row: dict[int, Outcome] = {}
        """Those that were told in full."""
        self.kinds: Kinds = np.zeros(n_rows, np.uint8)
        """The same in short, of all. Shape (n_rows,)."""
        self.ranks: Ranks = np.zeros((n_rows, RANKS))
        self.positions: list[int] = []
        self.revisions: tuple[int, ...] = ()
        self.borrowed: int | None = None
        """A row whose outcome is right for one preemptor alone."""

    def keep(self, row: int, outcome: Outcome) -> None:
        self.by_row[row] = outcome
        if type(outcome) is PreemptionCandidate:
            self.kinds[row] = VIOLATING if outcome.n_violating else CLEAN
            self.ranks[row] = outcome.rank
        else:
            self.kinds[row] = NO_CANDIDATE

    def forget(self, row: int) -> None:
        self.by_row.pop(row, None)
        self.kinds[row] = UNKNOWN

    def clear(self, n_rows: int) -> None:
        self.by_row.clear()
        self.kinds, self.ranks = np.zeros(n_rows, np.uint8), np.zeros((n_rows, RANKS))

    def grow(self, n_rows: int) -> None:
        more = n_rows - len(self.kinds)
        if more > 0:
            self.kinds = np.concatenate((self.kinds, np.zeros(more, np.uint8)))
            self.ranks = np.concatenate((self.ranks, np.zeros((more, RANKS))))


class RowOutcomes:
    """Outcomes for the preemptors of one profile."""

    def __init__(self, snapshot: Snapshot, engine: Engine, nominations: Nominations, potential: PotentialVictims) -> None:
        self._snapshot = snapshot
        self._engine = engine
        self._potential = potential
        others = (snapshot.facts_log, nominations.log)
        self._logs: tuple[tuple[Log, ChangeLog], ...] = (*snapshot.logs.items(), *((Log(0), log) for log in others))
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def of(
        self,
        template: PodTemplate,
        nominated: Sequence[Nomination],
        own_row: int | None,
        args: DefaultPreemptionArgs,
        now_unix: float,
    ) -> Trials:
        """For one preemptor, while nothing changes. `own_row` is the one that it is nominated to."""
        self._potential.refresh()
        dry_run = self._engine.dry_run(template, nominated)
        # With a minimum runtime an outcome changes by itself.
        if args.min_runtime_seconds:
            known = _Kept(self._snapshot.n_rows)
        else:
            known = self._up_to_date((dry_run.asks, template.priority), dry_run.reads_of_all_rows)
            if own_row is not None:
                known.forget(own_row)
            known.borrowed = own_row
        return Trials(self._snapshot, dry_run, self._potential, known, template, args, now_unix)

    def _up_to_date(self, kind: Hashable, reads_of_all_rows: Log) -> _Kept:
        snapshot = self._snapshot
        kept = self._kept.get(kind)
        if kept is None:
            kept = self._kept[kind] = _Kept(snapshot.n_rows)
            while len(self._kept) > max(KINDS_MIN, ROWS_KEPT_MAX // (snapshot.n_rows + 1)):
                self._kept.popitem(last=False)
        self._kept.move_to_end(kind)
        if kept.borrowed is not None and kept.borrowed < len(kept.kinds):
            kept.forget(kept.borrowed)
        if len(kept.by_row) > BY_ROW_MAX:
            kept.by_row.clear()
        revisions = snapshot.pod_counts.revision, snapshot.budgets.revision, snapshot.generation
        changed: list[int] | None = []
        if revisions != kept.revisions:
            changed = None
        else:
            for (aspect, log), position in zip(self._logs, kept.positions, strict=True):
                if log.end != position:
                    rows = None if aspect & reads_of_all_rows else log.since(position)
                    changed = None if rows is None or changed is None else changed + rows
        if changed is None:
            kept.clear(snapshot.n_rows)
        else:
            kept.grow(snapshot.n_rows)
            for row in changed:
                kept.by_row.pop(row, None)
            kept.kinds[changed] = UNKNOWN
        kept.positions, kept.revisions = [log.end for _, log in self._logs], revisions
        return kept


class Trials:
    """Outcomes for one preemptor; void after any change."""

    def __init__(
        self,
        snapshot: Snapshot,
        dry_run: DryRun,
        potential: PotentialVictims,
        known: _Kept,
        template: PodTemplate,
        args: DefaultPreemptionArgs,
        now_unix: float,
    ) -> None:
        self._snapshot = snapshot
        self._dry_run = dry_run
        self._potential = potential
        self._known = known
        self._priority = template.priority
        self._min_runtime_seconds = args.min_runtime_seconds
        self._started_max = now_unix - args.min_runtime_seconds
        self._may_try_together = dry_run.has_together and not args.min_runtime_seconds and not snapshot.budgets

    def kinds(self, rows: RowIndex) -> Kinds:
        """CLEAN, VIOLATING or NO_CANDIDATE, in their order; those that are not known are tried. Raises PluginError."""
        kinds: Kinds = self._known.kinds[rows]
        unknown = rows[kinds == UNKNOWN]
        if len(unknown):
            if len(unknown) > FEW and self._may_try_together:
                self._try_together(unknown)
            else:
                self._try(unknown.tolist(), why=False)
            kinds = self._known.kinds[rows]
        return kinds

    def best(self, rows: RowIndex) -> RowIndex:
        """Of rows that are known to be candidates those that no criterion tells apart, in their order."""
        found: RowIndex = rows[lowest(self._known.ranks[rows])]
        return found

    def candidates(self, rows: Sequence[int]) -> list[PreemptionCandidate]:
        """Of rows that are known to be candidates, in full. Raises PluginError."""
        by_row = self._known.by_row
        untold = [row for row in rows if row not in by_row]
        if untold:
            self._try(untold, why=False)
        return cast(list[PreemptionCandidate], [by_row[row] for row in rows])

    def refused(self, rows: Sequence[int]) -> dict[int, Status]:
        """Why no room can be made on rows where that is so. Raises PluginError."""
        known = self._known.by_row
        untold = [row for row in rows if known.get(row) is None]
        if untold:
            self._try(untold, why=True)
        return {row: found for row in rows if isinstance(found := known[row], Status)}

    # ---------------------------------------------------------------------------------------------------------- private

    def _try(self, rows: Sequence[int], *, why: bool) -> None:
        """PODS_AT_ONCE at a time."""
        budgets, work = self._snapshot.budgets, self._snapshot.work
        some: list[int] = []
        sides: list[Sides] = []
        n_pods = 0
        for row in rows:
            some.append(row)
            sides.append(parted(self._potential_victims(row), budgets))
            n_pods += len(sides[-1][0]) + len(sides[-1][1])
            if n_pods >= PODS_AT_ONCE:
                self._try_some(some, sides, why=why)
                some, sides, n_pods = [], [], 0
                work.spend()
        if some:
            self._try_some(some, sides, why=why)

    def _try_some(self, rows: Sequence[int], sides: Sequence[Sides], *, why: bool) -> None:
        known = self._known
        orders = [violating + others if violating else others for violating, others in sides]
        tried = [place for place, order in enumerate(orders) if order]
        for row, order in zip(rows, orders, strict=True):
            if not order:
                known.keep(row, NO_VICTIMS)
        if not tried:
            return
        found = self._dry_run.run(
            [rows[place] for place in tried], [[victim.pod.template for victim in orders[place]] for place in tried]
        )
        for place, stay in zip(tried, found.stay, strict=True):
            row = rows[place]
            known.keep(row, None if stay is None else self._outcome(row, orders[place], stay, len(sides[place][0])))
        if why:
            for place, status in found.refusals().items():
                known.keep(rows[tried[place]], status)

    def _try_together(self, index: RowIndex) -> None:
        """Kinds and ranks of many rows, where no budget and no minimum runtime has a say; nothing is told in full."""
        known, rows = self._known, index.tolist()
        pods, priorities, started = self._potential.below_together(rows, self._priority)
        found = self._dry_run.together(rows, pods)
        count = np.count_nonzero(found.gone, axis=1)
        places = count.nonzero()[0]
        known.kinds[index] = NO_CANDIDATE
        if len(places):
            gone, at = found.gone[places], index[places]
            # The most important victim is the first one that is gone.
            first = gone.argmax(axis=1)
            ranks = np.zeros((len(places), RANKS))
            ranks[:, 1] = priorities[places, first]
            ranks[:, 2] = (priorities[places] * gone).sum(axis=1) + PRIORITIES_BELOW_ZERO * count[places]
            ranks[:, 3] = count[places]
            ranks[:, 4] = -started[places, first]
            known.kinds[at], known.ranks[at] = CLEAN, ranks
        odd = (found.fits & (count == 0) & pods.there.any(axis=1)).nonzero()[0]
        if len(odd):
            self._try(index[odd].tolist(), why=False)

    def _outcome(self, row: int, order: Sequence[Victim], stay: Sequence[bool], n_first: int) -> PreemptionCandidate | Status:
        """`n_first` of the pods would violate a budget; they stand first."""
        victims = [victim for victim, stays in zip(order, stay, strict=True) if not stays]
        if not victims:
            return error(f'expected at least one victim pod on node "{self._snapshot.name_of(row)}"')
        if n_first:
            victims.sort(key=lambda victim: victim.importance)
        return candidate(row, victims, stay[:n_first].count(False))

    def _potential_victims(self, row: int) -> list[Victim]:
        """Pods on the row that may have to go, the most important first."""
        victims = self._potential.below(row, self._priority)
        if self._min_runtime_seconds:
            victims = [victim for victim in victims if victim.pod.facts.started <= self._started_max]
        budgets = self._snapshot.budgets
        return within_hard_limits(victims, budgets) if budgets.any_hard else victims


def counted(statuses: Collection[Status]) -> Counter[str]:
    """Each reason with the number of rows; most rows share a few statuses."""
    by_identity = Counter(map(id, statuses))
    found: Counter[str] = Counter()
    for status in {id(status): status for status in statuses}.values():
        for reason in status.reasons:
            found[reason] += by_identity[id(status)]
    return found
