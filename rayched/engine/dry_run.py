"""Dry runs of preemption: what becomes of rows when pods are taken off them, and which of these pods could stay after all.

For each row, on its own: take off all the pods named; if the incoming pod does not fit then, nothing helps there. Else put them
back one after the other, in the order given, and keep those with which the incoming pod still fits. Who cannot be kept is a
victim. "Fits" means with and without nominated pods, as everywhere.

Where filters come down to room rows are tried one by one, in plain integers, or many in one go (`together`). Else all rows do
their steps together: a step is one call of each filter over the rows, whatever the number of rows; filters that do not read what
is bound are asked once.

Pure. Source: SelectVictimsOnNode of DefaultPreemption, kube-scheduler 1.34.
Cost: 3 µs a row and 1 µs a pod of it; else about 0.1 ms a step for up to 500 rows, as many steps as the row with most pods has.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, cast

import numpy as np

from rayched.engine.domain_state import DomainState
from rayched.engine.nominations import Nomination
from rayched.engine.plugin_calls import call_reasons
from rayched.engine.prepared import PreparedPlugin
from rayched.engine.resource_filter import ResourceFilter
from rayched.engine.resource_trials import PodsOfRows, Together
from rayched.engine.row_evaluation import Filtered, filter_rows
from rayched.engine.trial_rows import Numbers, TrialRows, numbers_of
from rayched.framework.plugin import FilterPlugin
from rayched.framework.status import Code, Status
from rayched.snapshot.columns import BoolColumn, Log, RowIndex
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import PodTemplate

_BOUND: Final = Log.USAGE | Log.PORTS
"""Aspects that pods change."""
_NOBODY: Final[Sequence[int]] = ()


class Tried:
    """What a dry run found."""

    def __init__(
        self, trial: Callable[[], _Trial], filters: Sequence[PreparedPlugin], stay: Sequence[tuple[bool, ...] | None]
    ) -> None:
        """`trial` gives the rows without the pods."""
        self.stay = stay
        """For each row: for each of its pods whether it can stay; None: without all of them the incoming one does not fit."""
        self._trial = trial
        self._filters = filters

    def refusals(self) -> dict[int, Status]:
        """Why it does not fit, by place. Nobody needs to know as long as there are other rows. Raises PluginError."""
        return self._trial().refusals(self._filters)


class DryRun:
    """Dry runs for one incoming pod over the table as it is."""

    def __init__(
        self,
        table: NodeTable,
        filters: Sequence[PreparedPlugin],
        nominated: Sequence[Nomination],
        room: ResourceFilter | None = None,
    ) -> None:
        """`nominated`: other pods of equal or higher priority that wait for a node; `room`: what the filters come down to."""
        self._table = table
        self._filters = filters
        self._nominated = nominated
        self._room = room
        self.reads_of_all_rows = Log(0)
        """Aspects of a node whose change may matter for every row, as domains are made of them."""
        for asked in filters:
            if isinstance(asked, DomainState):
                self.reads_of_all_rows |= asked.plugin.reads | Log.LABELS

    def run(self, rows: Sequence[int], pods: Sequence[Sequence[PodTemplate]]) -> Tried:
        """For each row, given with pods that are bound to it. Raises PluginError."""
        nominated = self._nominated_to(rows)
        room = self._room
        if room is not None:
            one_by_one = [room.stay(row, there, nominated.get(row, ())) for row, there in zip(rows, pods, strict=True)]
            return Tried(lambda: self._without(rows, pods, nominated)[0], self._filters, one_by_one)
        trial, off = self._without(rows, pods, nominated)
        fitting = trial.fits(self._filters).nonzero()[0].tolist()
        stay: list[tuple[bool, ...] | None] = [None] * len(rows)
        if fitting:
            for place, found in zip(fitting, self._put_back(trial.only(fitting), [off[place] for place in fitting]), strict=True):
                stay[place] = tuple(found)
        return Tried(lambda: trial, self._filters, stay)

    @property
    def has_together(self) -> bool:
        """Whether many rows can be tried in one go."""
        return self._room is not None

    def together(self, rows: Sequence[int], pods: PodsOfRows) -> Together:
        """`run` for many rows in one go, where that can be done."""
        assert self._room is not None
        return self._room.tried_together(rows, pods, self._nominated_to(rows))

    @property
    def asks(self) -> Hashable:
        """Two dry runs that ask the same, over the same table and beside the same pods, find the same on each row where a filter
        says that pods could make room."""
        return tuple(self._filters) if self._room is None else self._room.asks

    def _nominated_to(self, rows: Sequence[int]) -> Mapping[int, Sequence[PodTemplate]]:
        """Those of the nominated pods that matter, by row."""
        found: dict[int, list[PodTemplate]] = {}
        if self._nominated:
            asked = frozenset(rows)
            for template, row in self._nominated:
                if row in asked:
                    found.setdefault(row, []).append(template)
        return found

    def _without(
        self, rows: Sequence[int], pods: Sequence[Sequence[PodTemplate]], nominated: Mapping[int, Sequence[PodTemplate]]
    ) -> tuple[_Trial, list[list[int]]]:
        """The rows without the pods, and for each row the numbers of the templates of its pods."""
        numbers: dict[PodTemplate, int] = {}
        number_of = numbers.setdefault
        off = [[number_of(template, len(numbers)) for template in there] for there in pods]
        coming = [
            [number_of(template, len(numbers)) for template in nominated[row]] if row in nominated else _NOBODY for row in rows
        ]
        trial = _Trial(TrialRows.begin(self._table, numbers_of(rows), tuple(numbers)), coming)
        trial.rows.put(_places(off), numbers_of([number for there in off for number in there]), -1)
        return trial, off

    def _put_back(self, trial: _Trial, off: Sequence[Sequence[int]]) -> list[list[bool]]:
        moved_by_pods = [one for one in self._filters if isinstance(one, DomainState) or one.plugin.reads & _BOUND]
        stay: list[list[bool]] = [[] for _ in off]
        for step in range(max(map(len, off))):
            self._table.work.spend()
            places = numbers_of([place for place, there in enumerate(off) if len(there) > step])
            numbers = numbers_of([there[step] for there in off if len(there) > step])
            trial.rows.put(places, numbers, 1)
            fits = trial.fits(moved_by_pods)[places]
            trial.rows.put(places[~fits], numbers[~fits], -1)
            for place, stays in zip(places.tolist(), fits.tolist(), strict=True):
                stay[place].append(stays)
        return stay


class _Trial:
    """Rows on trial, and the pods that are nominated to some of them."""

    def __init__(self, rows: TrialRows, coming: Sequence[Sequence[int]]) -> None:
        """`coming`: for each row the numbers of templates of nominated pods."""
        self.rows = rows
        self._coming = coming
        self._awaiting = numbers_of([place for place, there in enumerate(coming) if there])
        """Places with nominated pods."""
        self._numbers = numbers_of([number for there in coming for number in there])
        self._among_awaiting = _places([there for there in coming if there])

    def only(self, places: Sequence[int]) -> _Trial:
        return _Trial(self.rows.only(numbers_of(places)), [self._coming[place] for place in places])

    def fits(self, filters: Sequence[PreparedPlugin]) -> BoolColumn:
        """Shape (rows,)."""
        fits: BoolColumn = filter_rows(filters, self.rows).codes == Code.SUCCESS
        if len(self._awaiting):
            fits[self._awaiting] &= filter_rows(filters, self._beside_nominated()).codes == Code.SUCCESS
        return fits

    def refusals(self, filters: Sequence[PreparedPlugin]) -> dict[int, Status]:
        """Places where the incoming pod does not fit, and why; beside nominated pods first, as that is asked first."""
        found: dict[int, Status] = {}
        if len(self._awaiting):
            rows = self._beside_nominated()
            for place, status in _refusals(filters, rows, filter_rows(filters, rows)).items():
                found[int(self._awaiting[place])] = status
        return _refusals(filters, self.rows, filter_rows(filters, self.rows)) | found

    def _beside_nominated(self) -> TrialRows:
        rows = self.rows.only(self._awaiting)
        rows.put(self._among_awaiting, self._numbers, 1)
        return rows


def _refusals(filters: Sequence[PreparedPlugin], rows: Rows, filtered: Filtered) -> dict[int, Status]:
    """The first failing filter's word on each row that fails, by place."""
    found: dict[int, Status] = {}
    statuses: dict[tuple[int, tuple[str, ...]], Status] = {}
    for number, asked in enumerate(filters):
        places: RowIndex = (filtered.failing == number).nonzero()[0]
        if not len(places):
            continue
        codes = filtered.codes[places]
        told = call_reasons(cast(FilterPlugin, asked.plugin), asked.state, rows.only(places), codes)
        statuses.clear()
        # Rows with the same code and reasons share one status.
        columns = np.array([codes, *(where for _, where in told)], np.uint8).T.tolist()
        for place, (code, *holds) in zip(places.tolist(), columns, strict=True):
            reasons = tuple(reason for (reason, _), there in zip(told, holds, strict=True) if there)
            status = statuses.get((code, reasons))
            if status is None:
                status = statuses[code, reasons] = Status(Code(code), reasons, asked.plugin.name)
            found[place] = status
    return found


def _places(lists: Sequence[Sequence[int]]) -> Numbers:
    """For each entry of each list the place of its list."""
    return np.repeat(np.arange(len(lists), dtype=np.intp), numbers_of([len(entries) for entries in lists]))
