"""Preemption: which node a pod without a feasible one should get, and who has to go there for it.

    eligible? ──▶ rows that pods could make room on ──▶ dry runs, until there are candidates enough ──▶ the best one

* Potential rows are those that a filter found UNSCHEDULABLE; UNSCHEDULABLE_AND_UNRESOLVABLE ones no removal of pods can help.
* Dry runs begin at a drawn row and go round. They end when a share of the potential rows are candidates (the arguments say how
  many) and one of them violates no budget.
* Rows are tried many at a time, see `framework.dry_run`; nothing is copied but a few numbers of each row.

It decides and changes nothing. Owner: the Scheduler. Source: preemption.Evaluator and DefaultPreemption of kube-scheduler 1.34.
Cost: see benchmarks/preemption.py; for each row tried about 1 µs a pod that could go, and the dry run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from rayched.framework.diagnosis import Diagnosis, none_available
from rayched.framework.dry_run import DryRun
from rayched.framework.engine import Engine
from rayched.framework.plugin import PostFilterResult
from rayched.framework.plugin_args import DefaultPreemptionArgs
from rayched.framework.status import SUCCESS, Code, Status, error, unresolvable, unschedulable
from rayched.scheduler.candidates import Candidate, Victim, best
from rayched.scheduler.nominations import Nominations
from rayched.scheduler.preemption_budgets import parted, within_hard_limits
from rayched.scheduler.selection import Chance
from rayched.snapshot.columns import RowIndex
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate

PREEMPT_NEVER: Final = "Never"
ROWS_AT_ONCE: Final = 512
"""Rows of one dry run: enough that numpy's own cost does not count, few enough to stop soon."""

NEVER: Final = "not eligible due to preemptionPolicy=Never."
STILL_ENDING: Final = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS: Final = unresolvable("No preemption victims found for incoming pod")
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"


@dataclass(frozen=True, slots=True)
class Preemptor:
    """An attempt that found no node. A `framework.preemption.FailedAttempt`."""

    uid: str
    template: PodTemplate
    diagnosis: Diagnosis
    number: int
    """Of the decision; draws depend on it."""
    now_unix: float
    evaluator: Evaluator

    def preempt(self, args: DefaultPreemptionArgs) -> tuple[PostFilterResult | None, Status]:
        return self.evaluator.preempt(self, args)


class Evaluator:
    """Looks for victims with one profile's engine."""

    def __init__(self, snapshot: Snapshot, engine: Engine, nominations: Nominations, chance: Chance) -> None:
        self._snapshot = snapshot
        self._engine = engine
        self._nominations = nominations
        self._chance = chance

    def preempt(self, preemptor: Preemptor, args: DefaultPreemptionArgs) -> tuple[PostFilterResult | None, Status]:
        """As `FailedAttempt.preempt`."""
        why_not = self.why_not_eligible(preemptor)
        if why_not:
            return None, unschedulable(why_not)
        refused: dict[int, Status] = {}
        candidates = self.candidates(preemptor, args, refused)
        if not candidates:
            broken = next((status for status in refused.values() if status.code is Code.ERROR), None)
            if broken is not None:
                return None, broken
            n_nodes = preemptor.diagnosis.n_nodes
            return PostFilterResult(""), unschedulable(none_available(n_nodes, _counted(refused.values(), n_nodes)))
        equal = {candidate.row: candidate for candidate in best(candidates)}
        chosen = equal[self._chance.among(np.array(list(equal), np.intp), preemptor.number)]
        victims = tuple(victim.uid for victim in chosen.victims)
        return PostFilterResult(self._snapshot.name_of(chosen.row), victims), SUCCESS

    # ------------------------------------------------------------------------------------------------------ eligibility

    def why_not_eligible(self, preemptor: Preemptor) -> str:
        """Why the pod may not preempt; "" where it may."""
        template = preemptor.template
        if template.pod.spec.preemption_policy == PREEMPT_NEVER:
            return NEVER
        row = self._snapshot.row_of(self._nominations.node_of(preemptor.uid))
        if row is None or preemptor.diagnosis.codes[row] == Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return ""
        for uid, other in self._snapshot.pods_on(self._snapshot.name_of(row)).items():
            bound = self._snapshot.bound(uid)
            if other.priority < template.priority and bound is not None and bound.terminating and bound.facts.preempted:
                return STILL_ENDING
        return ""

    # ------------------------------------------------------------------------------------------------------- candidates

    def candidates(self, preemptor: Preemptor, args: DefaultPreemptionArgs, refused: dict[int, Status]) -> list[Candidate]:
        """Where room can be made, as far as was looked; `refused` gets the statuses of the rows where it cannot."""
        rows = self._potential_rows(preemptor)
        enough = _n_candidates(len(rows), args)
        found: list[Candidate] = []
        clean = 0
        for row, outcome in self._outcomes(preemptor, rows, max(ROWS_AT_ONCE, enough), args):
            if isinstance(outcome, Status):
                refused[row] = outcome
                continue
            found.append(outcome)
            clean += not outcome.n_violating
            if clean and len(found) >= enough:
                break
        return found

    def _potential_rows(self, preemptor: Preemptor) -> RowIndex:
        """In the order in which they are tried."""
        alive = self._snapshot.alive
        rows: RowIndex = (alive & (preemptor.diagnosis.codes[: len(alive)] == Code.UNSCHEDULABLE)).nonzero()[0]
        return np.roll(rows, -self._chance.offset(len(rows), preemptor.number)) if len(rows) else rows

    def _outcomes(
        self, preemptor: Preemptor, rows: RowIndex, at_once: int, args: DefaultPreemptionArgs
    ) -> Iterator[tuple[int, Candidate | Status]]:
        nominated = self._nominations.beside(preemptor.uid, preemptor.template.priority)
        dry_run = self._engine.dry_run(preemptor.template, nominated)
        for begin in range(0, len(rows), at_once):
            yield from self._try(dry_run, preemptor, rows[begin : begin + at_once], args)

    def _try(
        self, dry_run: DryRun, preemptor: Preemptor, rows: RowIndex, args: DefaultPreemptionArgs
    ) -> Iterator[tuple[int, Candidate | Status]]:
        """What becomes of each row, in order."""
        sides = [parted(self._potential_victims(preemptor, row, args), self._snapshot.budgets) for row in rows.tolist()]
        orders = [violating + others for violating, others in sides]
        tried = [place for place, order in enumerate(orders) if order]
        pods = [[victim.pod.template for victim in orders[place]] for place in tried]
        outcomes = dict(zip(tried, dry_run.run(rows[tried], pods), strict=True)) if tried else {}
        for place, row in enumerate(rows.tolist()):
            outcome = outcomes.get(place, NO_VICTIMS)
            if isinstance(outcome, Status):
                yield row, outcome
                continue
            victims = [victim for victim, stays in zip(orders[place], outcome, strict=True) if not stays]
            if not victims:
                yield row, error(f'expected at least one victim pod on node "{self._snapshot.name_of(row)}"')
                continue
            n_violating = outcome[: len(sides[place][0])].count(False)
            yield row, Candidate(row, tuple(sorted(victims, key=lambda victim: victim.importance)), n_violating)

    def _potential_victims(self, preemptor: Preemptor, row: int, args: DefaultPreemptionArgs) -> list[Victim]:
        """Pods on the row that may have to go, the most important first."""
        priority, snapshot = preemptor.template.priority, self._snapshot
        victims: list[Victim] = []
        for uid, template in snapshot.pods_on(snapshot.name_of(row)).items():
            if template.priority < priority:
                bound = snapshot.bound(uid)
                assert bound is not None
                if not args.min_runtime_seconds or preemptor.now_unix - bound.facts.started >= args.min_runtime_seconds:
                    victims.append(Victim(uid, bound))
        victims.sort(key=lambda victim: victim.importance)
        return within_hard_limits(victims, snapshot.budgets) if snapshot.budgets.any_hard else victims


def _n_candidates(n_rows: int, args: DefaultPreemptionArgs) -> int:
    """How many candidates are enough among so many potential rows."""
    share = n_rows * args.min_candidate_nodes_percentage // 100
    return min(n_rows, max(share, args.min_candidate_nodes_absolute))


def _counted(refused: Collection[Status], n_nodes: int) -> Counter[str]:
    """Reasons with the number of nodes; those that were not tried have one in common."""
    counts = Counter(reason for status in refused for reason in status.reasons)
    if len(refused) < n_nodes:
        counts[NOT_HELPFUL] += n_nodes - len(refused)
    return counts
