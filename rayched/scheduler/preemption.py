"""Preemption: which node a pod without a feasible one should get, and who has to go there for it.

    eligible? ──▶ rows that pods could make room on ──▶ dry runs, until there are candidates enough ──▶ the best one

* Potential rows are those that a filter found UNSCHEDULABLE; UNSCHEDULABLE_AND_UNRESOLVABLE ones no removal of pods can help.
* Dry runs begin at a drawn row and go round. They end when a share of the potential rows are candidates (the arguments say how
  many) and one of them violates no budget.
* Rows are tried many at a time, see `engine.dry_run`; nothing is copied but a few numbers of each row. What was found out for
  one preemptor is kept for the next equal one, see `row_outcomes`.

It decides and changes nothing. Owner: the Scheduler. Source: preemption.Evaluator and DefaultPreemption of kube-scheduler 1.34.
Cost: see benchmarks/one_thread.py; for each row tried about 1 µs a pod that could go, and the dry run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rayched.engine.engine import Engine
from rayched.engine.nominations import Nomination
from rayched.framework.diagnosis import Diagnosis, none_available
from rayched.framework.plugin import PostFilterResult
from rayched.framework.plugin_args import DefaultPreemptionArgs
from rayched.framework.status import SUCCESS, Code, Status, unschedulable
from rayched.scheduler.candidates import PreemptionCandidate
from rayched.scheduler.nominations import Nominations
from rayched.scheduler.potential_victims import PotentialVictims
from rayched.scheduler.row_outcomes import CLEAN, NO_CANDIDATE, NO_VICTIMS, RowOutcomes, Trials, counted
from rayched.scheduler.selection import TieBreaker
from rayched.snapshot.columns import RowIndex
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate

PREEMPT_NEVER: Final = "Never"
ROWS_AT_ONCE_MIN: Final = 64
ROWS_AT_ONCE_MAX: Final = 1024
"""Rows of one dry run: at first as many as candidates are wanted."""

NEVER: Final = "not eligible due to preemptionPolicy=Never."
STILL_ENDING: Final = "not eligible due to a terminating pod on the nominated node."
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"


@dataclass(frozen=True, slots=True)
class Preemptor:
    """An attempt that found no node. A `framework.preemption.FailedAttempt`."""

    uid: str
    template: PodTemplate
    diagnosis: Diagnosis
    number: int
    """Of the decision; draws depend on it."""
    nominated: Sequence[Nomination]
    """Other pods of equal or higher priority that wait for a node."""
    now_unix: float
    evaluator: Evaluator

    def preempt(self, args: DefaultPreemptionArgs) -> tuple[PostFilterResult | None, Status]:
        return self.evaluator.preempt(self, args)


class Evaluator:
    """Looks for victims with one profile's engine."""

    def __init__(
        self, snapshot: Snapshot, engine: Engine, nominations: Nominations, chance: TieBreaker, potential: PotentialVictims
    ) -> None:
        self._snapshot = snapshot
        self._nominations = nominations
        self._chance = chance
        self._outcomes = RowOutcomes(snapshot, engine, nominations, potential)

    def preempt(self, preemptor: Preemptor, args: DefaultPreemptionArgs) -> tuple[PostFilterResult | None, Status]:
        """As `FailedAttempt.preempt`."""
        why_not = self.why_not_eligible(preemptor)
        if why_not:
            return None, unschedulable(why_not)
        rows = self._potential_rows(preemptor)
        if not len(rows) or not self._snapshot.has_pods_below(preemptor.template.priority):
            return PostFilterResult(""), self._nowhere(
                preemptor, Counter(dict.fromkeys(NO_VICTIMS.reasons, len(rows))), len(rows)
            )
        trials = self._trials(preemptor, args)
        candidates = _search(rows, trials, args)
        if not len(candidates):
            refused = trials.refused(rows.tolist()).values()
            broken = next((status for status in refused if status.code is Code.ERROR), None)
            if broken is not None:
                return None, broken
            return PostFilterResult(""), self._nowhere(preemptor, counted(refused), len(rows))
        [chosen] = trials.candidates([self._chance.among(trials.best(candidates), preemptor.number)])
        victims = tuple(victim.uid for victim in chosen.victims)
        return PostFilterResult(self._snapshot.name_of(chosen.row), victims), SUCCESS

    def _nowhere(self, preemptor: Preemptor, reasons: Counter[str], n_potential: int) -> Status:
        """`reasons` with the number of nodes; those that were not tried have one in common."""
        n_nodes = preemptor.diagnosis.n_nodes
        if n_nodes != n_potential:
            reasons[NOT_HELPFUL] += n_nodes - n_potential
        return unschedulable(none_available(n_nodes, +reasons))

    # ------------------------------------------------------------------------------------------------------ eligibility

    def why_not_eligible(self, preemptor: Preemptor) -> str:
        """Why the pod may not preempt; "" where it may."""
        template = preemptor.template
        if template.preemption_policy == PREEMPT_NEVER:
            return NEVER
        row = self._nominated_row(preemptor)
        if row is None or preemptor.diagnosis.codes[row] == Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return ""
        for uid, other in self._snapshot.pods_on(self._snapshot.name_of(row)).items():
            bound = self._snapshot.bound(uid)
            if other.priority < template.priority and bound is not None and bound.terminating and bound.facts.preempted:
                return STILL_ENDING
        return ""

    # ------------------------------------------------------------------------------------------------------- candidates

    def candidates(self, preemptor: Preemptor, args: DefaultPreemptionArgs) -> tuple[list[PreemptionCandidate], list[Status]]:
        """Where room can be made, as far as was looked; where there is no such row, what is in the way on each."""
        rows, trials = self._potential_rows(preemptor), self._trials(preemptor, args)
        found = _search(rows, trials, args)
        return trials.candidates(found.tolist()), [] if len(found) else list(trials.refused(rows.tolist()).values())

    def refusals(self, preemptor: Preemptor, args: DefaultPreemptionArgs) -> dict[int, Status]:
        """What is in the way on each row where room cannot be made, though that could help. Raises PluginError."""
        return self._trials(preemptor, args).refused(self._potential_rows(preemptor).tolist())

    def _trials(self, preemptor: Preemptor, args: DefaultPreemptionArgs) -> Trials:
        own_row = self._nominated_row(preemptor)
        return self._outcomes.of(preemptor.template, preemptor.nominated, own_row, args, preemptor.now_unix)

    def _potential_rows(self, preemptor: Preemptor) -> RowIndex:
        """In the order in which they are tried."""
        alive = self._snapshot.alive
        rows: RowIndex = (alive & (preemptor.diagnosis.codes[: len(alive)] == Code.UNSCHEDULABLE)).nonzero()[0]
        return np.roll(rows, -self._chance.offset(len(rows), preemptor.number)) if len(rows) else rows

    def _nominated_row(self, preemptor: Preemptor) -> int | None:
        return self._snapshot.row_of(self._nominations.node_of(preemptor.uid))


def _search(rows: RowIndex, trials: Trials, args: DefaultPreemptionArgs) -> RowIndex:
    """Of rows, in their order, those where room can be made, as far as has to be looked."""
    found: RowIndex = rows[:0]
    has_clean = False
    enough = _n_candidates(len(rows), args)
    begin, size = 0, max(ROWS_AT_ONCE_MIN, enough)
    while begin < len(rows):
        part = rows[begin : begin + size]
        kinds = trials.kinds(part)
        there = (kinds < NO_CANDIDATE).nonzero()[0]
        clean = (kinds[there] == CLEAN).nonzero()[0]
        is_enough = len(found) + len(there) >= enough and (has_clean or len(clean) > 0)
        if is_enough:
            # Up to the first row with which both is so.
            there = there[: max(enough - len(found), 0 if has_clean else clean.item(0) + 1)]
        found = np.concatenate((found, part[there]))
        if is_enough:
            break
        has_clean = has_clean or len(clean) > 0
        begin += size
        # As many as will do if it goes on like this, and some more.
        missing = max(enough - len(found), 1)
        size = missing * begin // len(found) * 5 // 4 if len(found) else 2 * size
        size = min(max(size, ROWS_AT_ONCE_MIN), ROWS_AT_ONCE_MAX)
    return found


def _n_candidates(n_rows: int, args: DefaultPreemptionArgs) -> int:
    """How many candidates are enough among so many potential rows."""
    share = n_rows * args.min_candidate_nodes_percentage // 100
    return min(n_rows, max(share, args.min_candidate_nodes_absolute))
