"""Nominations: which pending pod hopes for which node, because preemption makes room for it there.

A pod has at most one nomination. It comes from the pod's status, or from the scheduler before the status is written; an update of
the pod that knows nothing of it does not undo it, one that removes or changes it in the status does. A nomination to a node that
is not there holds nobody back, and counts again should the node return; a new term starts without such nominations.

Nominated pods of equal or higher priority are taken into account wherever a pod is to go, see `engine.nominations`.

Owner: the Scheduler. Source: nominator of kube-scheduler 1.34.
Cost: O(1) for each change; for a decision 30 ns for each nominated pod, nothing while there is none.
"""

from __future__ import annotations

from collections.abc import Iterable

from rayched.engine.nominations import Nomination
from rayched.snapshot.change_log import ChangeLog
from rayched.snapshot.columns import Log
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import PodTemplate


class Nominations:
    """Pods and the nodes they are nominated to."""

    __slots__ = ("_on", "_rows", "_rows_position", "_table", "log", "of")

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.of: dict[str, tuple[PodTemplate, str]] = {}
        """Template and node, by uid. Not to be changed by others."""
        self._on: dict[str, dict[str, PodTemplate]] = {}
        """The same by node: thousands may be nominated while few are to one."""
        self._rows: dict[str, Nomination] = {}
        """What `beside` chooses from, as of the nodes that there were at `_rows_position`."""
        self._rows_position = -1
        self.log = ChangeLog()
        """Rows that pods were nominated to, or are no longer."""

    # ---------------------------------------------------------------------------------------------------------- reading

    def node_of(self, uid: str) -> str:
        """The node a pod is nominated to, "" for none."""
        found = self.of.get(uid)
        return "" if found is None else found[1]

    def beside(self, uid: str, priority: int) -> tuple[Nomination, ...]:
        """Nominations of other pods of at least this priority, to nodes that are there."""
        if not self.of:
            return ()
        placed = self._with_rows().items()
        return tuple([nomination for other, nomination in placed if nomination[0].priority >= priority and other != uid])

    def below(self, priority: int, node_name: str) -> tuple[str, ...]:
        """uids of pods of lower priority that are nominated to the node, first one first."""
        return tuple([uid for uid, template in self._on.get(node_name, {}).items() if template.priority < priority])

    def _with_rows(self) -> dict[str, Nomination]:
        # Labels tell of nodes that come and go.
        position = self._table.log(Log.LABELS).end
        if self._rows_position != position:
            self._rows_position = position
            self._rows.clear()
            for uid, (template, node_name) in self.of.items():
                self._place(uid, template, node_name)
        return self._rows

    def _place(self, uid: str, template: PodTemplate, node_name: str) -> None:
        row = self._table.row_of(node_name)
        if row is not None:
            self._rows[uid] = template, row
            self.log.append(row)

    # ---------------------------------------------------------------------------------------------------------- writing

    def nominate(self, uid: str, template: PodTemplate, node_name: str) -> None:
        """The pod is nominated to this node and no other; "" to none."""
        known = self.of.get(uid)
        if known is not None and known[1] == node_name and known[0] is template:
            return
        self.forget(uid)
        if node_name:
            self.of[uid] = template, node_name
            self._on.setdefault(node_name, {})[uid] = template
            self._place(uid, template, node_name)

    def status_seen(self, uid: str, template: PodTemplate, before: str, now: str) -> None:
        """The pending pod came or changed: what its status says counts, unless it said nothing before and says nothing now."""
        if before or now:
            self.nominate(uid, template, now)
        elif uid in self.of:
            self.nominate(uid, template, self.node_of(uid))

    def forget(self, uid: str) -> None:
        """The pod has a node, or is not pending any more. Idempotent."""
        known = self.of.pop(uid, None)
        if known is not None:
            there = self._on[known[1]]
            del there[uid]
            if not there:
                del self._on[known[1]]
        placed = self._rows.pop(uid, None)
        if placed is not None:
            self.log.append(placed[1])

    def restart(self, pending: Iterable[tuple[str, PodTemplate, str]]) -> None:
        """A new term: what statuses of pending pods say, as far as the nodes are there."""
        self.of.clear()
        self._on.clear()
        self._rows.clear()
        self.log.cut()
        for uid, template, node_name in pending:
            if self._table.row_of(node_name) is not None:
                self.nominate(uid, template, node_name)
