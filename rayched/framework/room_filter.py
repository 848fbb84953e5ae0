"""All filters of a template where they come down to room: verdicts on single rows without asking any filter.

Filters that read node objects alone are columns that hold from pod to pod. Counting filters mostly have nothing to say. What is
left is one filter that compares amounts (`Room`). So a row that changed, a row with pods nominated to it, and a row without some
of its pods are judged in plain integers.

`RoomDiagnosis` keeps why no node is feasible, and of the next equal pod looks only at rows where a pod came or went, or where
another one is nominated than before.

Invariant: what is said is what the filters say, to the reason. Where that cannot be known `holds` says so, and filters are asked.

Owner: the Engine; one for a plan. Cost: 2 µs a row that is looked at, 1 µs for `holds`; 25 µs for a diagnosis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.framework.counting import CountedRejection
from rayched.framework.diagnosis import Diagnosis, diagnose_rows
from rayched.framework.kept_columns import BuildColumns, FilterColumn, Follower, refresh_each
from rayched.framework.nominations import Nomination
from rayched.framework.plan import Plan
from rayched.framework.plugin import RoomNeed
from rayched.framework.questions import Asked
from rayched.framework.room import Room
from rayched.framework.status import SUCCESS, Code
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, RowIndex
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import PodTemplate

ROWS_MIN: Final = 16
ROWS_SHARE: Final = 128
"""A pass over all rows takes as long as so many single ones and one in so many of all."""


class RoomFilter:
    """The filters of one plan. `holds` comes first, after any change."""

    def __init__(
        self,
        table: NodeTable,
        plan: Plan,
        room: Asked,
        needs: Sequence[RoomNeed],
        codes: Sequence[FilterColumn | CountedRejection],
    ) -> None:
        """`room` is the plan's filter whose needs these are; `codes` are those of each filter."""
        self.table = table
        self.plan = plan
        self.place = plan.filters.index(room)
        self.room = Room(table, needs)
        self._counted = [one for one in codes if isinstance(one, CountedRejection)]
        self.lasting: list[FilterColumn | None] = [
            one if isinstance(one, FilterColumn) and place != self.place else None for place, one in enumerate(codes)
        ]
        """Those that read node objects alone, at their places among the filters."""
        self._columns = [one for one in self.lasting if one is not None]
        reads = Log.LABELS
        for one in self._columns:
            reads |= one.questions[0].asked.plugin.reads
        self._follower = Follower(table, reads)
        self.passing: BoolColumn = np.zeros(0, np.bool_)
        """Rows that are nodes, and that none of the lasting filters rejects. Shape (n_rows,)."""
        self._diagnosis: RoomDiagnosis | None = None

    def holds(self, build: BuildColumns) -> bool:
        """Bring it up to date; whether it says all that the filters say. Raises PluginError."""
        for counted in self._counted:
            if counted.codes is not None:
                return False
        if self._follower.is_behind():
            refresh_each(self._columns, build)
            n_rows = self.table.n_rows
            passing = self.table.alive.copy()
            for one in self._columns:
                if one.column is not None:
                    passing &= one.column[:n_rows] == Code.SUCCESS
            self.passing, self._diagnosis = passing, None
            self._follower.catch_up()
        return True

    def fits(self, row: int, nominated: Sequence[Nomination]) -> bool:
        """Whether the row is feasible with and without the pods that are nominated to it."""
        return bool(self.passing.item(row)) and self.room.fits(row, [template for template, at in nominated if at == row])

    def rejected(self, nominated: Sequence[Nomination], among: RowIndex) -> RowIndex | None:
        """Those of some rows that are not feasible with the pods that are nominated to them, ascending; None as in `diagnose`."""
        found = self._diagnosed(nominated)
        return None if found is None else np.unique(among[found.rejected[among]])

    def stay(self, row: int, pods: Sequence[PodTemplate], nominated: Sequence[PodTemplate]) -> tuple[bool, ...] | None:
        """As `Room.stay`; None also where a lasting filter rejects the row."""
        return self.room.stay(row, pods, nominated) if self.passing.item(row) else None

    def diagnose(self, nominated: Sequence[Nomination]) -> Diagnosis | None:
        """Why rows are not feasible; None: a filter that comes later has a say, so ask the filters."""
        found = self._diagnosed(nominated)
        return None if found is None else found.told()

    def _diagnosed(self, nominated: Sequence[Nomination]) -> RoomDiagnosis | None:
        found = self._diagnosis
        if found is None:
            found = self._diagnosis = RoomDiagnosis(self)
        if not found.is_possible:
            return None
        found.refresh(nominated)
        return found


class RoomDiagnosis:
    """Why rows are not feasible, followed from pod to pod, for as long as the lasting filters say the same."""

    def __init__(self, of: RoomFilter) -> None:
        self._of = of
        self._table = table = of.table
        columns = [None if one is None else one.column for one in of.lasting]
        self._base = diagnose_rows(Rows(table, table.alive.nonzero()[0]), of.plan.filters, columns, ())
        """What the lasting filters reject."""
        self.is_possible = not bool((self._base.failing > of.place).any())
        """Else a row without room is rejected by another filter once it has room."""
        self._codes: CodeColumn = self._base.codes
        self._failing: NDArray[np.int16] = self._base.failing
        self._short: NDArray[np.int64] = np.zeros(table.n_rows, np.int64)
        """Bits of the needs that are not met. Shape (n_rows,)."""
        self._counts = [0] * len(of.room.needs)
        """Rows for each need."""
        self._n_short = 0
        self._position = -1
        self._given: list[Nomination] = []
        """As they were given last."""
        self._nominated: dict[int, Nomination] = {}
        """By identity: a nomination is made once, for one pod on one row."""
        self._coming: dict[int, dict[int, PodTemplate]] = {}
        """The same by row."""
        self._last: Diagnosis | None = None

    @property
    def rejected(self) -> BoolColumn:
        """Rows that are not feasible with and without the pods that are nominated to them. Shape (n_rows,)."""
        rejected: BoolColumn = self._codes != Code.SUCCESS
        return rejected

    def told(self) -> Diagnosis:
        if self._last is None:
            self._last = self._made()
        return self._last

    def refresh(self, nominated: Sequence[Nomination]) -> None:
        """Look at rows that changed, and at those where others are nominated now."""
        log = self._table.usage_log
        rows = log.since(self._position) if self._position >= 0 else None
        changed = None if rows is None else set(rows)
        differing = self._compare(nominated)
        if changed is None or len(changed) > ROWS_MIN + self._table.n_rows // ROWS_SHARE + len(self._coming):
            self._look_at_all()
            changed = set(self._coming)
        else:
            changed |= differing
        self._position = log.end
        if changed:
            self._last = None
            for row in changed:
                self._look_at(row)

    def _compare(self, nominated: Sequence[Nomination]) -> set[int]:
        """Rows that other pods are nominated to than before."""
        n_given, known = len(self._given), self._nominated
        if n_given <= len(nominated) and nominated[:n_given] == self._given:
            # The others are as they were, which is so of most: nobody has come but at the end.
            come = nominated[n_given:]
            for nomination in come:
                known[id(nomination)] = nomination
                self._coming.setdefault(nomination[1], {})[id(nomination)] = nomination[0]
            self._given.extend(come)
            return {row for _, row in come}
        self._given = list(nominated)
        now = {id(one): one for one in nominated}
        rows = set()
        for one in known.keys() - now.keys():
            row = known[one][1]
            there = self._coming[row]
            del there[one]
            if not there:
                del self._coming[row]
            rows.add(row)
        for one in now.keys() - known.keys():
            template, row = now[one]
            self._coming.setdefault(row, {})[one] = template
            rows.add(row)
        self._nominated = now
        return rows

    def _look_at_all(self) -> None:
        """As if nobody were nominated."""
        table, of, n_rows = self._table, self._of, self._table.n_rows
        short = np.zeros(n_rows, np.int64)
        final = np.zeros(n_rows, np.bool_)
        nothing = np.zeros(n_rows, np.int64)
        for bit, (name, amount, _, is_final) in enumerate(of.room.needs):
            place = table.resources.get(name)
            allocatable = nothing if place is None else table.allocatable[place, :n_rows]
            requested = nothing if place is None else table.requested[place, :n_rows]
            short |= (amount > allocatable - requested) * np.int64(1 << bit)
            if is_final:
                final |= amount > allocatable
        short[~of.passing] = 0
        rejected = short != 0
        self._codes, self._failing = self._base.codes.copy(), self._base.failing.copy()
        self._codes[rejected] = Code.UNSCHEDULABLE
        self._codes[rejected & final] = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        self._failing[rejected] = of.place
        self._short = short
        self._counts = [int(np.count_nonzero(short & np.int64(1 << bit))) for bit in range(len(self._counts))]
        self._n_short = int(np.count_nonzero(rejected))
        self._last = None

    def _look_at(self, row: int) -> None:
        of = self._of
        if not of.passing.item(row):
            return
        there = self._coming.get(row)
        short, code = of.room.short(row, there.values() if there else ())
        before = self._short.item(row)
        if short != before:
            self._short[row] = short
            self._n_short += bool(short) - bool(before)
            counts, differing = self._counts, short ^ before
            for bit in range(len(counts)):
                if differing >> bit & 1:
                    counts[bit] += 1 if short >> bit & 1 else -1
            self._failing[row] = of.place if short else -1
        self._codes[row] = code

    def _made(self) -> Diagnosis:
        base, of = self._base, self._of
        reasons, plugins, rejections = dict(base.reasons), base.unschedulable_plugins, dict(base.rejections)
        if self._n_short:
            name = of.plan.filters[of.place].plugin.name
            plugins |= {name}
            rejections[name] = self._n_short
            for need, count in zip(of.room.needs, self._counts, strict=True):
                if count:
                    reasons[need.reason] = reasons.get(need.reason, 0) + count
        return Diagnosis(
            n_nodes=base.n_nodes,
            pre_filter=SUCCESS,
            reasons=reasons,
            unschedulable_plugins=plugins,
            pending_plugins=base.pending_plugins,
            codes=self._codes.copy(),
            failing=self._failing.copy(),
            filters=base.filters,
            rejections=rejections,
        )
