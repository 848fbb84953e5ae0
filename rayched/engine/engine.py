"""The engine: evaluates templates over a table of nodes and computes nothing again that has not changed.

It knows aspects, keys and bounds; it knows no plugin's arithmetic. For each template:

    feasible   no filter rejects the row
    total      sum of weight * normalised score, normalised by the bounds over the feasible rows

PreFilter may reject the pod, or name the only nodes worth looking at; these few are then evaluated directly, without columns to
keep, as each such template would need columns of its own. While at most one row is feasible nobody is asked for a score.

Invariants:

* What is cached never shows: totals are those of a full evaluation of every plugin, with or without workers, to the bit.
* A plugin that raises, or answers what its contract forbids, ends the evaluation with PluginError and leaves caches as they were.
* Columns and sums take up `bytes_max` at most (None: BYTES_MAX, or BYTES_A_ROW for each row where that is more), beyond those of
  the template at hand; the least recently used plans go first.

Owner: the scheduler; one thread. One engine for each profile.

Cost: see benchmarks/engine_depth.py. After one binding, the plugins that read usage look at one row, which is two thirds of it;
then come one addition and one maximum over the rows.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from rayched.engine.cached_columns import CachedColumn, refresh_each
from rayched.engine.column_store import CacheEntry, ColumnStore
from rayched.engine.diagnosing import diagnose_rows, rejected_outright, row_reasons
from rayched.engine.domain_state import DomainRejection
from rayched.engine.dry_run import DryRun
from rayched.engine.evaluation import NOT_FEASIBLE, Evaluation, Explanation, RowsEvaluation
from rayched.engine.evaluation_counts import PluginEvaluations
from rayched.engine.free_resources import FreeResources
from rayched.engine.nominations import Nomination, filter_nominated, rejected_with_nominated
from rayched.engine.planner import Plan, Planner
from rayched.engine.plans import Plans
from rayched.engine.plugin_calls import NORMALIZE_SCORE, SCORE
from rayched.engine.plugin_facts import VOLATILE
from rayched.engine.prefiltered_rows import PrefilteredRows
from rayched.engine.prepared import FILTER_HALF, PreparedPlugin
from rayched.engine.rejection_counts import first_rejections
from rayched.engine.resource_filter import ResourceFilter
from rayched.engine.row_evaluation import Filtered, evaluate_rows, filter_rows
from rayched.engine.scale import scale_for
from rayched.engine.score_caps import NO_ROWS, RowSet
from rayched.engine.score_sum import ScoreSum
from rayched.engine.shards import ColumnBuilder, ShardEvaluator
from rayched.engine.totals import KeptTotals
from rayched.framework.diagnosis import Diagnosis
from rayched.framework.plugin_error import GroupedScoreError, PluginError
from rayched.framework.profile import Profile
from rayched.framework.status import Code
from rayched.snapshot.columns import RowIndex
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import PodTemplate
from rayched.snapshot.work_budget import AttemptAwaits

__all__ = ["BYTES_MAX", "Engine", "PluginError"]

BYTES_MAX: Final = 128 << 20
"""Columns kept: at 5,000 nodes those of about 3,500 request shapes."""
BYTES_A_ROW: Final = 2_048
"""What columns may take for each row of a large table: from 65,536 rows on more than BYTES_MAX."""
ROOMS_MAX: Final = 128
"""Plans whose filters are kept in numbers, with their diagnoses."""
ROOMS_MIN: Final = 32
ROOMS_BYTES_MAX: Final = 32 << 20
"""What those beyond ROOMS_MIN may take."""
ROOM_BYTES_A_ROW: Final = 25

_SCORING: Final = frozenset((SCORE, NORMALIZE_SCORE))


class Engine:
    """Evaluates templates for one profile."""

    def __init__(
        self, snapshot: NodeTable, profile: Profile, shards: ShardEvaluator | None = None, *, bytes_max: int | None = None
    ) -> None:
        self._table = snapshot
        self._bytes_max = bytes_max
        self._store = ColumnStore()
        self._scale = scale_for([profile.weights[plugin.name] for plugin in profile.score])
        self._builder = ColumnBuilder(snapshot, shards)
        self._totals = KeptTotals(snapshot, self._builder.build)
        self._planner = Planner(snapshot, profile, self._store, self._totals, self._scale)
        self._generation = snapshot.generation
        self._capacity = snapshot.capacity
        self._rooms: OrderedDict[int, ResourceFilter | None] = OrderedDict()
        """Filters in numbers, by the plan's number, of those that were asked about so last."""
        self._evaluations = PluginEvaluations(profile)
        self._plans = Plans(snapshot, self._planner, self._evaluations)

    # ------------------------------------------------------------------------------------------------------- evaluating

    def evaluate(self, template: PodTemplate, without: RowSet | None = None, nominated: Sequence[Nomination] = ()) -> Evaluation:
        """The template over all rows; `without` names rows that are not feasible for reasons that no plugin knows.

        As an array they are those of this evaluation; what is kept of a set serves as long as the very same set is given.

        `nominated` are pods of equal or higher priority that wait for a node: a row must also do with those nominated to it.
        Raises PluginError.
        """
        plan = self._plan(template, nominated)
        plan.tally.count += 1
        try:
            return self._evaluate(plan, without, nominated) if nominated else self._evaluated(plan, without)
        except AttemptAwaits:
            # It will be asked for again.
            plan.tally.count -= 1
            raise

    def prefetch(self, template: PodTemplate) -> None:
        """Have workers evaluate what the template's first evaluation will ask for, where that pays. Nothing shows of it."""
        try:
            plan = self._plan(template)
            if not plan.status.ok or plan.narrowed is not None:
                return
            if plan.scoring is None:
                plan.scoring = self._planner.stage(plan, with_scores=True)
            if not plan.scoring.was_built():
                # Also again: workers that have much to do leave what is asked ahead.
                self._builder.give(plan.scoring.kept(), ahead=True)
        except PluginError:
            # The template's attempt will meet it.
            return

    def _evaluate(self, plan: Plan, without: RowSet | None, nominated: Sequence[Nomination]) -> Evaluation:
        if not plan.status.ok:
            return self._evaluated(plan, without)
        if plan.has_kept_free:
            room = self._room(plan)
            kept_free = None if room is None else room.kept_free(nominated)
            if kept_free is not None:
                plan.has_kept_free = bool(kept_free)
                return self._evaluated(plan, without, kept_free)
        try:
            evaluation = self._evaluated(plan, without)
        except PluginError:
            # The row that it is about may be one that nominated pods keep free.
            rejected = rejected_with_nominated(self._table, plan.filters, nominated)
            return self._evaluated(plan, without, frozenset(rejected.tolist()))
        # Most rows with nominated pods are full yet, so there is nothing to ask about them.
        if not evaluation.is_feasible:
            return evaluation
        rows: RowIndex = np.array([row for _, row in nominated], np.intp)
        is_open = evaluation.feasible[rows]
        if not is_open.any():
            return evaluation
        room = self._room(plan)
        known = None if room is None else room.rejected(nominated, rows[is_open])
        if known is None:
            open_to_all = [one for one, feasible in zip(nominated, is_open.tolist(), strict=True) if feasible]
            known = rejected_with_nominated(self._table, plan.filters, open_to_all)
        plan.has_kept_free = len(known) > 0
        if plan.has_kept_free and len(known) == evaluation.n_feasible:
            return evaluation.of_no_rows()
        return self._evaluated(plan, without, frozenset(known.tolist())) if plan.has_kept_free else evaluation

    def _evaluated(self, plan: Plan, without: RowSet | None, kept_free: frozenset[int] = NO_ROWS) -> Evaluation:
        """`kept_free`: rows that nominated pods keep free."""
        if without is not None and kept_free:
            without = np.union1d(np.array([*without], np.intp), np.fromiter(kept_free, np.intp, len(kept_free)))
        left_out: RowSet = kept_free if without is None else without
        if not plan.status.ok or plan.narrowed is not None:
            return self._narrowed(plan, left_out)
        if plan.scoring is None:
            plan.scoring = self._planner.stage(plan, with_scores=True)
        scoring = plan.scoring
        is_built = scoring.was_built()
        if not is_built and plan.filtering is None:
            # Scores too, or workers would be asked for them behind what was asked ahead meanwhile.
            self._builder.give(scoring.kept(), ahead=False)
        try:
            if is_built or (plan.filtering is None and (self._can_join(scoring) or self._are_many_feasible(scoring, left_out))):
                return self._added_up(plan, scoring, left_out)
            filtered = self._filtered(plan, left_out)
            if filtered.n_feasible > 1:
                filtered = self._added_up(plan, scoring, left_out)
                self._planner.drop_stage(plan.filtering)
                plan.filtering = None
            return filtered
        except PluginError as problem:
            if problem.point not in _SCORING:
                raise
            # Columns hold scores of all rows, but only a feasible row's score may end an attempt.
            filtered = self._filtered(plan, left_out)
            if filtered.n_feasible <= 1:
                return filtered
            if isinstance(problem, GroupedScoreError):
                # It is about feasible rows already.
                raise
            return self._direct(plan, filtered.feasible.nonzero()[0], plan.filters)

    def _added_up(self, plan: Plan, of: ScoreSum, left_out: RowSet) -> Evaluation:
        """By the sum, which has a total that is kept."""
        bounds = of.bounds
        found = self._totals.evaluate(of, left_out)
        if of.bounds is not bounds:
            # Columns were made for these.
            self._account([*of.entries, *plan.entries])
        return found

    def _filtered(self, plan: Plan, left_out: RowSet) -> Evaluation:
        """By filters alone, as nobody is asked for a score while one row at most is feasible."""
        if plan.filtering is None:
            plan.filtering = self._planner.stage(plan, with_scores=False)
        return self._added_up(plan, plan.filtering, left_out)

    @staticmethod
    def _can_join(scoring: ScoreSum) -> bool:
        """Whether all that is new about the sum is known of each state of a row."""
        return scoring.usage.bring_along() and scoring.was_built()

    def _are_many_feasible(self, scoring: ScoreSum, left_out: RowSet) -> bool:
        """Whether two rows or more are feasible, without sums of filters alone, of which most templates need none."""
        n_rows, static, build = self._table.n_rows, scoring.static, self._builder.build
        refresh_each(static.filters, build)
        feasible = static.passing_now(slice(0, n_rows)).copy()
        for codes in self._builder.ahead([question for question in scoring.usage.questions if question.part is FILTER_HALF]):
            if codes is not None and np.count_nonzero(codes):
                feasible &= codes[:n_rows] == 0
        for cap in scoring.caps:
            cap.refresh(build)
            if cap.column is not None:
                feasible &= cap.column[:n_rows] >= 0
        feasible[[*left_out]] = False
        return int(np.count_nonzero(feasible)) > 1

    def evaluate_rows(self, template: PodTemplate, rows: Rows | RowIndex) -> RowsEvaluation:
        """The template over these rows alone, plugin by plugin; PreFilter is not asked. Raises PluginError."""
        asked = self._rows(rows)
        plan = self._plan(template, asked.changes)
        return evaluate_rows(plan.filters, plan.scores, asked)

    def fits(self, template: PodTemplate, row: int, nominated: Sequence[Nomination] = ()) -> bool:
        """Whether the template is feasible on one row, with and without the pods nominated to it. Raises PluginError."""
        plan = self._plan(template, nominated)
        room = self._room(plan)
        if room is not None:
            return room.fits(row, nominated)
        index: RowIndex = np.array([row], np.intp)
        if not plan.status.ok or filter_rows(plan.filters, Rows(self._table, index)).codes[0] != Code.SUCCESS:
            return False
        here = [nomination for nomination in nominated if nomination[1] == row]
        return not here or not len(rejected_with_nominated(self._table, plan.filters, here))

    def filter_rows(self, template: PodTemplate, rows: Rows | RowIndex) -> Filtered:
        """Filters over these rows alone; PreFilter is not asked. Raises PluginError."""
        asked = self._rows(rows)
        return filter_rows(self._plan(template, asked.changes).filters, asked)

    def dry_run(self, template: PodTemplate, nominated: Sequence[Nomination] = ()) -> DryRun:
        """What the template would find if pods made room for it; `nominated` as for `evaluate`. Raises PluginError."""
        plan = self._plan(template, nominated)
        return DryRun(self._table, plan.filters, nominated, self._room(plan))

    # -------------------------------------------------------------------------------------------------------- answering

    def explain(self, template: PodTemplate, nominated: Sequence[Nomination] = ()) -> Explanation:
        """What every plugin says about every node that is looked at; `nominated` as for `evaluate`. Raises PluginError."""
        plan = self._plan(template, nominated)
        index = self._looked_at(plan) if plan.status.ok else np.zeros(0, np.intp)
        would_be = filter_nominated(self._table, plan.filters, nominated, index) if nominated else None
        rows = Rows(self._table, index)
        found = evaluate_rows(plan.filters, plan.scores, rows, explain=True, as_nominated=would_be)
        reasons = row_reasons(plan.filters, rows, found.filters)
        if would_be is not None:
            # Filters change their codes where nominated pods are added, so the reasons are told apart.
            reasons += row_reasons(plan.filters, would_be[0], would_be[1].columns, nominated=True)
        return Explanation(plan.status, plan.narrowed, tuple(plan.narrowing), found, tuple(reasons))

    def rejections(self, template: PodTemplate) -> dict[str, int]:
        """How many nodes each plugin is the first to keep the template off, of those that PreFilter leaves.

        Nothing is kept for it. Raises PluginError, AttemptOverBudget.
        """
        plan = self._plan(template)
        if not plan.status.ok:
            return {plan.status.plugin: self._table.n_nodes}
        return first_rejections(self._table, plan.filters, self._looked_at(plan), self._planner.kept_codes, self._builder.build)

    def diagnose(self, template: PodTemplate, nominated: Sequence[Nomination] = (), own_row: int | None = None) -> Diagnosis:
        """Why nodes are not feasible; `nominated` as for `evaluate`. Raises PluginError.

        `own_row`: the row that the pod itself is nominated to, which filters were asked about also where PreFilter left it out.
        """
        plan, table = self._plan(template, nominated), self._table
        if not plan.status.ok:
            return rejected_outright(table.n_nodes, table.n_rows, plan.status, plan.narrowing)
        room = self._room(plan)
        found = None if room is None else room.diagnose(nominated)
        if found is not None:
            self._account(plan.codes)
            return found
        index = self._looked_at(plan)
        if plan.narrowed is not None and own_row is not None:
            index = np.union1d(index, np.array([own_row], np.intp))
        rows = Rows(table, index)
        would_be = filter_nominated(table, plan.filters, nominated, rows.index) if nominated else None
        if plan.narrowed is not None:
            columns = []
            for answer in filter_rows(plan.filters, rows).columns:
                column = None
                if answer.codes is not None:
                    column = np.zeros(table.n_rows, np.uint8)
                    column[rows.index] = answer.codes
                columns.append(column)
            return diagnose_rows(rows, plan.filters, columns, plan.narrowing, would_be)
        codes = self._planner.codes(plan)
        refresh_each([kept for kept in codes if isinstance(kept, CachedColumn)], self._builder.build)
        columns = [kept.codes if isinstance(kept, DomainRejection) else kept.column for kept in codes]
        self._account(codes)
        return diagnose_rows(rows, plan.filters, columns, plan.narrowing, would_be)

    def evaluations(self) -> Counter[tuple[str, str]]:
        """How often each plugin was asked about a pod, by plugin and extension point."""
        return self._evaluations.total()

    # ------------------------------------------------------------------------------------------------------------ plans

    def _plan(self, template: PodTemplate, would_be: Iterable[tuple[PodTemplate, object]] = ()) -> Plan:
        """What the template is asked; `would_be` are pods that would be there. Raises PluginError."""
        table = self._table
        if table.generation != self._generation or table.capacity != self._capacity:
            # Numbers mean something else now, or the table has outgrown all columns. Both are rare.
            self._forget()
        return self._plans.of(template, would_be)

    def _forget(self) -> None:
        self._plans.drop_all()
        self._planner.forget()
        self._rooms.clear()
        self._builder.forget()
        self._generation, self._capacity = self._table.generation, self._table.capacity

    def _room(self, plan: Plan) -> ResourceFilter | None:
        """The plan's filters in numbers, brought up to date, where that is all that they come to now. Raises PluginError."""
        if plan.narrowed is not None or not plan.status.ok:
            return None
        if plan.number not in self._rooms:
            asked = self._planner.room(plan)
            room = None if asked is None else ResourceFilter(self._table, plan, *asked, self._planner.codes(plan))
            self._rooms[plan.number] = room
            allowed = ROOMS_BYTES_MAX // (ROOM_BYTES_A_ROW * max(1, self._table.capacity))
            while len(self._rooms) > max(ROOMS_MIN, min(ROOMS_MAX, allowed)):
                self._rooms.popitem(last=False)
        self._rooms.move_to_end(plan.number)
        room = self._rooms[plan.number]
        return room if room is not None and room.holds(self._builder.build) else None

    def _account(self, entries: Iterable[CacheEntry] | None) -> None:
        """Count what these take up (None: everything), and make room for it. The plan that was used last stays."""
        self._store.account(entries)
        allowed = max(BYTES_MAX, BYTES_A_ROW * self._table.capacity) if self._bytes_max is None else self._bytes_max
        while self._store.n_bytes > allowed and len(self._plans) > 1:
            self._plans.drop_oldest()

    # ------------------------------------------------------------------------------------------------------------- rows

    def _narrowed(self, plan: Plan, left_out: RowSet) -> Evaluation:
        if not plan.status.ok:
            return self._direct(plan, np.zeros(0, np.intp), ())
        if plan.narrowed_rows is None:
            asked = self._planner.room(plan)
            room = None if asked is None else FreeResources(self._table, asked[1])
            plan.narrowed_rows = PrefilteredRows(self._table, plan.filters, lambda: self._looked_at(plan), VOLATILE, room)
        index = plan.narrowed_rows.feasible()
        if len(left_out):
            index = np.setdiff1d(index, [*left_out])
        if len(index) > 1:
            return self._direct(plan, index, ())
        # Nobody is asked for scores, so it is any total from 0 up.
        total = np.zeros(len(index), self._scale.dtype)
        best = 0 if len(index) else NOT_FEASIBLE
        ties = index.tolist()
        return Evaluation(self._table.n_rows, total, best, rows=index, narrowed=plan.narrowed, n_feasible=len(ties), ties=ties)

    def _direct(self, plan: Plan, index: RowIndex, filters: Sequence[PreparedPlugin]) -> Evaluation:
        """The template over these rows and no others, as far as these filters reject none."""
        total = evaluate_rows(filters, plan.scores, Rows(self._table, index)).total
        best = int(total.max()) if len(total) else NOT_FEASIBLE
        return Evaluation(self._table.n_rows, total, best, status=plan.status, rows=index, narrowed=plan.narrowed)

    def _looked_at(self, plan: Plan) -> RowIndex:
        """Rows of the nodes that PreFilter leaves, ascending."""
        if plan.narrowed is None:
            return self._table.alive.nonzero()[0]
        rows = [row for row in map(self._table.row_of, plan.narrowed) if row is not None]
        return np.array(sorted(rows), np.intp)

    def _rows(self, rows: Rows | RowIndex) -> Rows:
        return rows if isinstance(rows, Rows) else Rows(self._table, rows)
