"""What becomes of rows when pods make room there for a preemptor, kept for the next preemptor of the same template.

Whether a row is a candidate, and with which victims, depends on the row alone as long as no counter, no budget and no domain
changes. So of many equal preemptors each tries only the rows where something happened since the one before: where a pod came,
went or was told to end, where one was nominated, where the node changed.

Invariants: an outcome that is kept is the one that a dry run would give now. The preemptor's own nomination does not stand in its
way, so the row that it is nominated to is tried for it alone.

Owner: an Evaluator. Memory: an entry for each row and each of the last TEMPLATES_MAX preemptors' templates.
Cost: a few calls of numpy for rows that are known; else their part of a dry run, and 1 µs a pod that could go.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from rayched.framework.dry_run import DryRun
from rayched.framework.engine import Engine
from rayched.framework.nominations import Nomination
from rayched.framework.plugin_args import DefaultPreemptionArgs
from rayched.framework.status import Status, error, unresolvable
from rayched.scheduler.candidates import Candidate, Victim, candidate
from rayched.scheduler.nominations import Nominations
from rayched.scheduler.potential_victims import PotentialVictims
from rayched.scheduler.preemption_budgets import parted, within_hard_limits
from rayched.snapshot.change_log import ChangeLog
from rayched.snapshot.columns import Log, RowIndex
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate

TEMPLATES_MAX: Final = 32
NO_VICTIMS: Final = unresolvable("No preemption victims found for incoming pod")

Outcome: TypeAlias = Candidate | Status | None
"""Room can be made; it cannot and why; it cannot, and nobody asked why."""


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

    __slots__ = ("by_row", "kinds", "positions", "revisions")

    def __init__(self, n_rows: int) -> None:
        self.by_row: dict[int, Outcome] = {}
        self.kinds: Kinds = np.zeros(n_rows, np.uint8)
        """The same in short. Shape (n_rows,)."""
        self.positions: list[int] = []
        self.revisions: tuple[int, ...] = ()

    def without(self, row: int) -> _Kept:
        """A copy that knows nothing of one row."""
        copy = _Kept(0)
        copy.by_row, copy.kinds = dict(self.by_row), self.kinds.copy()
        copy.forget(row)
        return copy

    def keep(self, row: int, outcome: Outcome) -> None:
        self.by_row[row] = outcome
        if type(outcome) is Candidate:
            self.kinds[row] = VIOLATING if outcome.n_violating else CLEAN
        else:
            self.kinds[row] = NO_CANDIDATE

    def forget(self, row: int) -> None:
        if self.by_row.pop(row, self) is not self:
            self.kinds[row] = UNKNOWN

    def clear(self, n_rows: int) -> None:
        self.by_row.clear()
        self.kinds = np.zeros(n_rows, np.uint8)


class RowOutcomes:
    """Outcomes for the preemptors of one profile."""

    def __init__(self, snapshot: Snapshot, engine: Engine, nominations: Nominations, potential: PotentialVictims) -> None:
        self._snapshot = snapshot
        self._engine = engine
        self._potential = potential
        others = (snapshot.facts_log, nominations.log)
        self._logs: tuple[tuple[Log, ChangeLog], ...] = (*snapshot.logs.items(), *((Log(0), log) for log in others))
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

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
            known = self._up_to_date(template, dry_run.reads_of_all_rows)
            if own_row is not None:
                known = known.without(own_row)
        return Trials(self._snapshot, dry_run, self._potential, known, template, args, now_unix)

    def _up_to_date(self, template: PodTemplate, reads_of_all_rows: Log) -> _Kept:
        snapshot = self._snapshot
        kept = self._kept.get(template.id)
        if kept is None:
            kept = self._kept[template.id] = _Kept(snapshot.n_rows)
            if len(self._kept) > TEMPLATES_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(template.id)
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
            for row in changed:
                kept.forget(row)
            if len(kept.kinds) < snapshot.n_rows:
                kept.kinds = np.concatenate((kept.kinds, np.zeros(snapshot.n_rows - len(kept.kinds), np.uint8)))
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

    def kinds(self, rows: RowIndex) -> Kinds:
        """CLEAN, VIOLATING or NO_CANDIDATE, in their order; those that are not known are tried. Raises PluginError."""
        kinds: Kinds = self._known.kinds[rows]
        unknown = rows[kinds == UNKNOWN]
        if len(unknown):
            self._try(unknown.tolist(), why=False)
            kinds = self._known.kinds[rows]
        return kinds

    def candidates(self, rows: RowIndex) -> list[Candidate]:
        """Of rows that are known to be candidates."""
        by_row = self._known.by_row
        return cast(list[Candidate], [by_row[row] for row in rows.tolist()])

    def refused(self, rows: Sequence[int]) -> dict[int, Status]:
        """Why no room can be made on rows where that is so. Raises PluginError."""
        known = self._known.by_row
        untold = [row for row in rows if known.get(row) is None]
        if untold:
            self._try(untold, why=True)
        return {row: found for row in rows if isinstance(found := known[row], Status)}

    # ---------------------------------------------------------------------------------------------------------- private

    def _try(self, rows: Sequence[int], *, why: bool) -> None:
        known, budgets = self._known, self._snapshot.budgets
        sides = [parted(self._potential_victims(row), budgets) for row in rows]
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

    def _outcome(self, row: int, order: Sequence[Victim], stay: Sequence[bool], n_first: int) -> Candidate | Status:
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


def counted(statuses: Sequence[Status]) -> Counter[str]:
    """Each reason with the number of rows; most rows share a few statuses."""
    by_identity = Counter(map(id, statuses))
    found: Counter[str] = Counter()
    for status in {id(status): status for status in statuses}.values():
        for reason in status.reasons:
            found[reason] += by_identity[id(status)]
    return found
