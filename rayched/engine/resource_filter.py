"""All filters of a template where they come down to room: verdicts on single rows without asking any filter.

Filters that read node objects alone are columns that hold from pod to pod. Counting filters mostly have nothing to say. What is
left is one filter that compares amounts (`FreeResources`). So a row that changed and a row with pods nominated to it are judged
in plain integers.

`ResourceDiagnosis` keeps why no node is feasible, and of the next equal pod looks only at rows where a pod came or went, or where
another one is nominated than before.

Invariant: what is said is what the filters say, to the reason. Where that cannot be known `holds` says so, and filters are asked.

Owner: the Engine; one for a plan. Cost: 2 µs a row that is looked at, 1 µs for `holds`; 25 µs for a diagnosis.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.engine.cached_columns import BuildColumns, FilterColumn, LogCursor, refresh_each
from rayched.engine.diagnosing import diagnose_rows
from rayched.engine.domain_state import DomainRejection
from rayched.engine.free_resources import FreeResources
from rayched.engine.nominations import Nomination
from rayched.engine.planner import Plan
from rayched.engine.prepared import PreparedPlugin
from rayched.engine.resource_trials import PodsOfRows, Together, tried_together
from rayched.framework.diagnosis import Diagnosis
from rayched.framework.resource_needs import ResourceNeeds
from rayched.framework.status import SUCCESS, Code
from rayched.snapshot.change_log import FEW
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, RowIndex
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import PodTemplate

ROWS_SHARE: Final = 128
"""A pass over all rows takes as long as FEW single ones and one in so many of all."""
KEPT_FREE_MAX: Final = 64
"""Of so many nominated pods those rows are known that they keep free; with more all rows are judged at once."""


class ResourceFilter:
    """The filters of one plan. `holds` comes first, after any change."""

    def __init__(
        self,
        table: NodeTable,
        plan: Plan,
        room: PreparedPlugin,
        needs: ResourceNeeds,
        codes: Sequence[FilterColumn | DomainRejection],
    ) -> None:
        """`room` is the plan's filter whose needs these are; `codes` are those of each filter."""
        self.table = table
        self.plan = plan
        self.place = plan.filters.index(room)
        self.room = FreeResources(table, needs)
        self._counted = [one for one in codes if isinstance(one, DomainRejection)]
        self.lasting: list[FilterColumn | None] = [
            one if isinstance(one, FilterColumn) and place != self.place else None for place, one in enumerate(codes)
        ]
        """Those that read node objects alone, at their places among the filters."""
        self._columns = [one for one in self.lasting if one is not None]
        reads = Log.LABELS
        for one in self._columns:
            reads |= one.questions[0].asked.plugin.reads
        self._follower = LogCursor(table, reads)
        self.passing: BoolColumn = np.zeros(0, np.bool_)
        """Rows that are nodes, and that none of the lasting filters rejects. Shape (n_rows,)."""
        self._asks: Hashable = None
        self._diagnosis: ResourceDiagnosis | None = None
        self._kept_free: tuple[dict[int, list[PodTemplate]], int, frozenset[int]] = {}, -1, frozenset()
        """The nominated pods by row of which `kept_free` was asked last, the position in the log of usage, and what it said."""

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
            self.passing, self._diagnosis, self._asks = passing, None, None
            self._kept_free = {}, -1, frozenset()
            self._follower.catch_up()
        return True

    @property
    def asks(self) -> Hashable:
        """The same as of another one: rows that pods could make room on are judged alike, to the reason."""
        if self._asks is None:
            columns = [one.column[: self.table.n_rows] for one in self._columns if one.column is not None]
            if any(np.count_nonzero(column == Code.UNSCHEDULABLE) for column in columns):
                self._asks = tuple(self.plan.filters)
            else:
                # Where a lasting filter has a word pods cannot make room.
                self._asks = self.plan.filters[self.place].plugin.name, self.room.needs
        return self._asks

    def fits(self, row: int, nominated: Sequence[Nomination]) -> bool:
        """Whether the row is feasible with and without the pods that are nominated to it."""
        return self._fits(row, [template for template, at in nominated if at == row])

    def _fits(self, row: int, pods: Sequence[PodTemplate]) -> bool:
        """Whether the row is feasible with and without these pods."""
        return bool(self.passing.item(row)) and self.room.fits(row, pods)

    def rejected(self, nominated: Sequence[Nomination], among: RowIndex) -> RowIndex | None:
        """Those of some rows that are not feasible with the pods that are nominated to them, ascending; None as in `diagnose`."""
        known = self._diagnosis
        if len(among) <= (FEW if known is None else min(FEW, known.n_behind)):
            rows = sorted(set(among.tolist()))
            return np.array([row for row in rows if not self.fits(row, nominated)], np.intp)
        found = self._diagnosed(nominated)
        return None if found is None else np.unique(among[found.rejected[among]])

    def kept_free(self, nominated: Sequence[Nomination]) -> frozenset[int] | None:
        """Rows with nominated pods that are not feasible with them; the same object while it is the same. None: too many pods."""
        if len(nominated) > KEPT_FREE_MAX:
            return None
        before, position, kept = self._kept_free
        log = self.table.usage_log
        changed = log.since(position) if position >= 0 else None
        by_row: dict[int, list[PodTemplate]] = {}
        for template, row in nominated:
            by_row.setdefault(row, []).append(template)
        again = (
            by_row.keys()
            if changed is None
            else by_row.keys() & {*changed, *(row for row, pods in by_row.items() if before.get(row) != pods)}
        )
        if again or len(by_row) < len(before):
            keeping = {row for row in again if not self._fits(row, by_row[row])}
            found = frozenset((kept & by_row.keys()) - again | keeping)
            kept = kept if found == kept else found
        self._kept_free = by_row, log.end, kept
        return kept

    def stay(self, row: int, pods: Sequence[PodTemplate], nominated: Sequence[PodTemplate]) -> tuple[bool, ...] | None:
        """As `FreeResources.stay`; None also where a lasting filter rejects the row."""
        return self.room.stay(row, pods, nominated) if self.passing.item(row) else None

    def tried_together(self, rows: Sequence[int], pods: PodsOfRows, nominated: Mapping[int, Sequence[PodTemplate]]) -> Together:
        """`stay` for many rows at once; `nominated` by row."""
        found = tried_together(self.room, rows, pods, nominated)
        passing = self.passing[np.array(rows, np.intp)]
        return found._replace(fits=found.fits & passing, gone=found.gone & passing[:, None])

    def diagnose(self, nominated: Sequence[Nomination]) -> Diagnosis | None:
        """Why rows are not feasible; None: a filter that comes later has a say, so ask the filters."""
        found = self._diagnosed(nominated)
        return None if found is None else found.told()

    def _diagnosed(self, nominated: Sequence[Nomination]) -> ResourceDiagnosis | None:
        found = self._diagnosis
        if found is None:
            found = self._diagnosis = ResourceDiagnosis(self)
        if not found.is_possible:
            return None
        found.refresh(nominated)
        return found


class ResourceDiagnosis:
    """Why rows are not feasible, followed from pod to pod, for as long as the lasting filters say the same."""

    def __init__(self, of: ResourceFilter) -> None:
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
        self._given: tuple[Nomination, ...] = ()
        """As they were given last."""
        self._coming: _Coming | None = None
        """The same by row; None: nobody has asked yet."""
        self._last: Diagnosis | None = None

    @property
    def rejected(self) -> BoolColumn:
        """Rows that are not feasible with and without the pods that are nominated to them. Shape (n_rows,)."""
        rejected: BoolColumn = self._codes != Code.SUCCESS
        return rejected

    @property
    def n_behind(self) -> int:
        """Changes of usage that came since it was asked for last."""
        return self._table.usage_log.end - self._position

    def told(self) -> Diagnosis:
        if self._last is None:
            self._last = self._made()
        return self._last

    def refresh(self, nominated: Sequence[Nomination]) -> None:
        """Look at rows that changed, and at those where others are nominated now."""
        log = self._table.usage_log
        rows = log.since(self._position) if self._position >= 0 else None
        self._position = log.end
        before, self._given = self._given, tuple(nominated)
        if rows is None:
            self._coming = None
            self._look_at_all()
            return
        if self._coming is None:
            self._coming = _Coming(before)
        changed = self._coming.become(before, self._given)
        changed.update(rows)
        if len(changed) > FEW + self._table.n_rows // ROWS_SHARE:
            self._look_at_all()
        elif changed:
            self._last = None
            for row in changed:
                self._look_at(row)

    def _look_at_all(self) -> None:
        table, of, n_rows = self._table, self._of, self._table.n_rows
        table.template_amounts.make_room()
        short = np.zeros(n_rows, np.int64)
        for bit, left in enumerate(of.room.left_of(slice(0, n_rows), self._given)):
            short |= (left < 0) * np.int64(1 << bit)
        short[~of.passing] = 0
        rejected = short != 0
        self._codes, self._failing = self._base.codes.copy(), self._base.failing.copy()
        self._codes[rejected] = Code.UNSCHEDULABLE
        self._codes[rejected & of.room.final_of(slice(0, n_rows))] = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        self._failing[rejected] = of.place
        self._short = short
        self._counts = [int(np.count_nonzero(short & np.int64(1 << bit))) for bit in range(len(self._counts))]
        self._n_short = int(np.count_nonzero(rejected))
        self._last = None

    def _look_at(self, row: int) -> None:
        of = self._of
        if not of.passing.item(row):
            return
        there = () if self._coming is None else self._coming.on(row)
        short, code = of.room.short(row, there)
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


class _Coming:
    """Nominated pods by row, followed from one attempt to the next."""

    __slots__ = ("_by_row", "_known")

    def __init__(self, nominated: Sequence[Nomination]) -> None:
        self._known = {id(one): one for one in nominated}
        """By identity: a nomination is made once, for one pod on one row."""
        self._by_row: dict[int, dict[int, PodTemplate]] = {}
        for one in nominated:
            self._by_row.setdefault(one[1], {})[id(one)] = one[0]

    def on(self, row: int) -> Iterable[PodTemplate]:
        there = self._by_row.get(row)
        return there.values() if there else ()

    def become(self, before: tuple[Nomination, ...], now: tuple[Nomination, ...]) -> set[int]:
        """Rows that other pods are nominated to now than `before`, as it was made or has become last."""
        known, by_row, n_before = self._known, self._by_row, len(before)
        if n_before <= len(now) and now[:n_before] == before:
            # The others are as they were, which is so of most: nobody has come but at the end.
            gone, come = [], list(now[n_before:])
        else:
            left = {id(one): one for one in now}
            gone = [known[one] for one in known.keys() - left.keys()]
            come = [left[one] for one in left.keys() - known.keys()]
        for one in gone:
            del known[id(one)]
            there = by_row[one[1]]
            del there[id(one)]
            if not there:
                del by_row[one[1]]
        for one in come:
            known[id(one)] = one
            by_row.setdefault(one[1], {})[id(one)] = one[0]
        return {row for _, row in gone}.union(row for _, row in come)
