"""Who could have to go on a row: its pods in the order of their importance, kept from one preemption to the next.

Rows whose pods changed are looked at again; logs of the snapshot tell which. So a preemption costs nothing for pods of rows where
nothing happened since the last one.

Owner: the Scheduler's evaluators. Memory: an entry for each row that was looked at, 180 bytes a pod of it.
Cost: 0.3 µs a row; 2 µs a pod of a row that changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rayched.engine.resource_trials import PodsOfRows
from rayched.scheduler.candidates import Victim
from rayched.snapshot.change_log import ChangeLog
from rayched.snapshot.snapshot import Snapshot


class _PodsOfRow(NamedTuple):
    by_importance: list[Victim]
    falling: list[int]
    """Their priorities with the sign turned, so that they rise."""


_Columns: TypeAlias = NDArray[np.float64]
"""Of a row's pods by importance: number of the template, priority, start. Shape (3, pods)."""


class Below(NamedTuple):
    """Pods of lower priority of some rows, the most important first. All of shape (rows, slots)."""

    pods: PodsOfRows
    priorities: NDArray[np.float64]
    started: NDArray[np.float64]


class PotentialVictims:
    """Pods of each row, the most important first."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._logs: tuple[ChangeLog, ...] = (snapshot.usage_log, snapshot.facts_log)
        self._positions = [log.end for log in self._logs]
        self._rows: dict[int, _PodsOfRow] = {}
        self._columns: dict[int, _Columns] = {}
        self._numbered = 0
        """The generation of the numbers in these."""

    def refresh(self) -> None:
        """Forget rows that changed. To be called before `below` after any change of the snapshot."""
        for place, log in enumerate(self._logs):
            position = self._positions[place]
            if position == log.end:
                continue
            changed = log.since(position)
            if changed is None:
                self._rows.clear()
                self._columns.clear()
            else:
                for row in changed:
                    self._rows.pop(row, None)
                    self._columns.pop(row, None)
            self._positions[place] = log.end

    def below_together(self, rows: Sequence[int], priority: int) -> Below:
        """`below` for many rows in one go."""
        table, columns = self._snapshot.template_amounts, self._columns
        table.make_room()
        if table.generation != self._numbered:
            columns.clear()
            self._numbered = table.generation
        of_rows = [columns[row] if row in columns else self._column(row) for row in rows]
        number, priorities, started = np.concatenate(of_rows, axis=1)
        lower = priorities < priority
        at = np.repeat(np.arange(len(rows)), [each.shape[1] for each in of_rows])
        counts = np.bincount(at[lower], minlength=len(rows))
        there = np.arange(int(counts.max(initial=0))) < counts[:, None]
        numbers = np.zeros(there.shape, np.intp)
        numbers[there] = number[lower]
        found = np.zeros((2, *there.shape))
        found[:, there] = priorities[lower], started[lower]
        return Below(PodsOfRows(there, numbers), found[0], found[1])

    def below(self, row: int, priority: int) -> list[Victim]:
        """Pods on the row of lower priority, the most important first. Not to be changed."""
        pods = self._pods(row)
        first = bisect_left(pods.falling, 1 - priority)
        return pods.by_importance[first:] if first else pods.by_importance

    def _pods(self, row: int) -> _PodsOfRow:
        pods = self._rows.get(row)
        if pods is None:
            self._snapshot.work.spend()
            pods = self._rows[row] = self._look(row)
        return pods

    def _column(self, row: int) -> _Columns:
        victims = [victim.pod for victim in self._pods(row).by_importance]
        numbers = self._snapshot.template_amounts.numbers([pod.template for pod in victims])
        found = np.array(
            (numbers, [pod.template.priority for pod in victims], [pod.facts.started for pod in victims]), np.float64
        )
        self._columns[row] = found
        return found

    def _look(self, row: int) -> _PodsOfRow:
        snapshot = self._snapshot
        # By importance, and in their order where that is equal; as plain tuples, as this is most of what a new row takes.
        there = []
        for place, uid in enumerate(snapshot.pods_on(snapshot.name_of(row))):
            pod = snapshot.known(uid)
            there.append((-pod.template.priority, pod.facts.started, place, Victim(uid, pod)))
        there.sort()
        return _PodsOfRow([victim for _, _, _, victim in there], [falling for falling, _, _, _ in there])
