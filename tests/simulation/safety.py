"""What must hold at each step, checked over the history of the store as it grows. Shares no code with the scheduler.

The auditor, which judges real clusters too, does most of it:

* S1: a pod has one node in its life; a binding finds the node there and the pod pending.
* S2: no binding fills a node beyond what it offers.
* S4: a leader's write carries the epoch in force, and was decided on a state that is not older.
* S5: epochs rise, transitions count up by one with each holder, and a release touches nobody's term but the own.
* S8: what constrains the node holds at the binding, what constrains other pods at some moment since the decision.
* S9: a victim has a preemptor of higher priority.
* S12: what was deleted does not come back, and what is being deleted stays so.

Beside it:

* S2: what a leader has bound and its watch has not shown yet takes up room in its own snapshot (in `scheduling.py`): nothing is
  taken for failed that happened.
* S3: what was acknowledged is in the store until its owner asked to delete it, and each object has the record of its submission.
* S6: what a watch delivers is what happened: no gap, nothing twice, nothing else; a list is the store at its revision.
* E1: beliefs of two candidates do not overlap, where clocks keep within the tolerated ratio and nobody wiped the record.
* N1, N2: nodes are called lost, and pods ended for it, only with reason (in `nodes.py`).
* N5: preemption keeps hard budgets (in `budgets.py`).
* E2: who was shown another's epoch, or that its record is gone, does not believe in an older one (in `candidate.py`).
* E3: a term is ended early on evidence against its very holder (in `peers.py`).

S6 is checked at each delivery, E1 at each belief, E2 at each event of an elector, the others at each revision of the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from leader.etcd_shim import kv
from rayched.audit.auditor import Auditor, KeyChange
from rayched.audit.findings import INVARIANTS
from rayched.store.entries import Deleted
from rayched.store.list_watch_effects import Changed, Delivery, ListedAll
from tests.simulation.nodes import Nodes
from tests.simulation.users import Record
from tests.simulation.world import SECOND, Violation, World

ROOT: Final = "/sim"
_CLUSTER: Final = f"{ROOT}/cluster/".encode()
_SUBMISSIONS: Final = f"{ROOT}/submissions/".encode()


class Safety:
    """Judges everything; raises Violation at once."""

    def __init__(self, world: World, record: Record) -> None:
        self._world, self._record = world, record
        self.auditor = Auditor(ROOT)
        self._judged = 0
        """Entries of the history that were judged."""
        self._delivered: dict[str, int] = {}
        """The last revision that each scheduler's watch delivered."""
        self.lenient_until = 0
        """Until then beliefs may overlap: the record was wiped."""
        self.rates_tolerated = True
        self.nodes: Nodes | None = None
        """Judges what is done about nodes, and pods on them."""
        self.overlaps = 0

    # ------------------------------------------------------------------------------------------------------------- history

    def committed(self) -> None:
        history = self._world.etcd.history
        while self._judged < len(history):
            change = history[self._judged]
            self._judged += 1
            self._judge(change.number, [event for event in change.events if event.kv.key.startswith(_CLUSTER)])

    def _judge(self, revision: int, events: list[Any]) -> None:
        changes = [KeyChange(event.kv.key, None if event.type == kv.Event.DELETE else event.kv.value) for event in events]
        if not changes:
            return
        if self.nodes is not None:
            self.nodes.judge(revision, events, self.auditor, self._record.deletions_asked)
        before = set(self.auditor.pods)
        self.auditor.replay(revision, changes, self._world.now / SECOND)
        self._judge_findings()
        gone = before.difference(self.auditor.pods) - self._record.deletions_asked
        if lost := self.auditor.lost(self._spared(gone)):
            raise Violation("S3", f"revision {revision}: {', '.join(lost)} is gone, and nobody asked for that")

    def _spared(self, uids: Iterable[str]) -> Iterable[str]:
        """Those that did not end with their nodes."""
        return uids if self.nodes is None else sorted(self.nodes.spared(uids))

    def _judge_findings(self) -> None:
        for kind, words in self.auditor.findings.first.items():
            raise Violation(INVARIANTS[kind], words)

    def bound_since(self, revision: int, epoch: int) -> list[str]:
        """Uids of pods that were bound under this epoch after a revision, and are there."""
        found: list[str] = []
        for binding in reversed(self.auditor.bindings):
            if binding.revision <= revision:
                break
            if binding.epoch == epoch and binding.uid in self.auditor.pods:
                found.append(binding.uid)
        return found

    # ------------------------------------------------------------------------------------------------------------- watches

    def delivered(self, who: str, delivery: Delivery) -> None:
        """What this scheduler got from its watch."""
        match delivery:
            case ListedAll(entries, revision):
                found = [(entry.key, entry.mod_revision, entry.value) for entry in entries]
                if found != _state_at(self._world, revision):
                    raise Violation("S6", f"{who}: the list of revision {revision} is not what was there")
            case Changed(changes, revision):
                before = self._delivered[who]
                told = [(c.key, c.mod_revision, None if isinstance(c, Deleted) else c.value) for c in changes]
                if told != _events_between(self._world, before, revision):
                    raise Violation("S6", f"{who}: a gap, a repetition or an invention from {before} to {revision}")
            case _:
                return
        self._delivered[who] = revision

    # -------------------------------------------------------------------------------------------------------------- belief

    def believers(self, names: list[str]) -> None:
        """Who believes to lead right now."""
        if len(names) < 2:
            return
        self.overlaps += 1
        if self.rates_tolerated and self._world.now > self.lenient_until:
            raise Violation("E1", f"{' and '.join(names)} believe to lead at once")

    # ------------------------------------------------------------------------------------------------------------- the end

    def ended(self) -> None:
        """Nothing more will come."""
        record, auditor = self._record, self.auditor
        auditor.settle()
        self._judge_findings()
        if lost := auditor.lost(self._spared(record.acknowledged), record.deletions_asked):
            raise Violation("S3", f"acknowledged and not there: {', '.join(lost)}")
        if never := [uid for uid in record.acknowledged if uid not in auditor.pods and uid not in auditor.deleted]:
            raise Violation("S3", f"acknowledged, and never there: {', '.join(never)}")
        if undeleted := auditor.undeleted(record.deletions_acknowledged):
            raise Violation("S12", f"deleted and there: {', '.join(undeleted)}")
        records = {pair.key[len(_SUBMISSIONS) :].decode() for pair in self._world.etcd.under(_SUBMISSIONS)}
        if unrecorded := auditor.pods.keys() - records:
            raise Violation("S3", f"without a record of its submission: {', '.join(sorted(unrecorded))}")


def _state_at(world: World, revision: int) -> list[tuple[bytes, int, bytes]]:
    there: dict[bytes, tuple[int, bytes]] = {}
    for change in world.etcd.history[: revision - 1]:
        for event in change.events:
            if event.type == kv.Event.DELETE:
                there.pop(event.kv.key, None)
            else:
                there[event.kv.key] = (change.number, event.kv.value)
    return [(key, *there[key]) for key in sorted(there) if key.startswith(_CLUSTER)]


def _events_between(world: World, after: int, through: int) -> list[tuple[bytes, int, bytes | None]]:
    return [
        (event.kv.key, change.number, None if event.type == kv.Event.DELETE else event.kv.value)
        for change in world.etcd.history[after - 1 : through - 1]
        for event in change.events
        if event.kv.key.startswith(_CLUSTER)
    ]
