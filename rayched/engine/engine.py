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
from collections.abc import Hashable, Iterable, Sequence
from typing import Final

import numpy as np

from rayched.engine.cached_columns import CachedColumn, refresh_each
from rayched.engine.column_store import CacheEntry, ColumnStore
from rayched.engine.diagnosing import diagnose_rows, rejected_outright, row_reasons
from rayched.engine.domain_state import DomainRejection, score_counted
from rayched.engine.dry_run import DryRun
from rayched.engine.equal_runs import NO_ROWS, EquivalentRuns
from rayched.engine.evaluation import NOT_FEASIBLE, Evaluation, Explanation, RowsEvaluation
from rayched.engine.evaluation_counts import PluginEvaluations
from rayched.engine.free_resources import FreeResources
from rayched.engine.nominations import Nomination, filter_nominated, rejected_with_nominated
from rayched.engine.planner import Plan, Planner, ScoreSum
from rayched.engine.plans import Plans
from rayched.engine.plugin_calls import NORMALIZE_SCORE, SCORE
from rayched.engine.plugin_facts import VOLATILE
from rayched.engine.prefiltered_rows import PrefilteredRows
from rayched.engine.prepared import PluginHalf, PreparedPlugin
from rayched.engine.resource_filter import ResourceFilter
from rayched.engine.row_evaluation import Filtered, evaluate_rows, filter_rows
from rayched.engine.score_range import check_scores, scores_may_be_outside
from rayched.engine.shards import ColumnBuilder, ShardEvaluator
from rayched.engine.static_sum import weighted
from rayched.engine.usage_values import TotalColumn, scale_for
from rayched.framework.diagnosis import Diagnosis
from rayched.framework.plugin_error import PluginError
from rayched.framework.profile import Profile
from rayched.framework.status import Code
from rayched.snapshot.columns import RowIndex
from rayched.snapshot.rows import Rows, compact
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import PodTemplate

__all__ = ["BYTES_MAX", "Engine", "PluginError"]

BYTES_MAX: Final = 128 << 20
"""Columns kept: at 5,000 nodes those of about 1,600 request shapes."""
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
        self._planner = Planner(snapshot, profile, self._store, self._scale)
        self._builder = ColumnBuilder(snapshot, shards)
        self._generation = snapshot.generation
        self._capacity = snapshot.capacity
        self._total: TotalColumn = np.zeros(0, self._scale.dtype)
        self._runs = EquivalentRuns(self._builder.build)
        self._rooms: OrderedDict[int, ResourceFilter | None] = OrderedDict()
        """Filters in numbers, by the plan's number, of those that were asked about so last."""
        self._evaluations = PluginEvaluations(profile)
        self._plans = Plans(snapshot, self._planner, self._evaluations)

    # ------------------------------------------------------------------------------------------------------- evaluating

    def evaluate(
        self, template: PodTemplate, without: RowIndex | None = None, nominated: Sequence[Nomination] = ()
    ) -> Evaluation:
        """The template over all rows; `without` names rows that are not feasible for reasons that no plugin knows.

        `nominated` are pods of equal or higher priority that wait for a node: a row must also do with those nominated to it.
        Raises PluginError.
        """
        plan = self._plan(template, nominated)
        plan.tally.count += 1
        followed = self._followed(plan, nominated) if without is None else None
        if followed is not None:
            return followed
        if not nominated or not plan.status.ok:
            return self._evaluated(plan, without)
        try:
            followed = self._followed(plan, ()) if without is None else None
            evaluation = self._evaluated(plan, without) if followed is None else followed
        except PluginError:
            # The row that it is about may be one that nominated pods keep free.
            return self._evaluated(plan, self._union(without, rejected_with_nominated(self._table, plan.filters, nominated)))
        # Most rows with nominated pods are full yet, so there is nothing to ask about them.
        rows: RowIndex = np.array([row for _, row in nominated], np.intp)
        is_open = evaluation.feasible[rows]
        if not is_open.any():
            return evaluation
        room = self._room(plan)
        rejected = None if room is None else room.rejected(nominated, rows[is_open])
        if rejected is None:
            open_to_all = [one for one, feasible in zip(nominated, is_open.tolist(), strict=True) if feasible]
            rejected = rejected_with_nominated(self._table, plan.filters, open_to_all)
        if not len(rejected):
            return evaluation
        if len(rejected) == evaluation.n_feasible:
            nowhere = np.full(self._table.n_rows, self._scale.infeasible, self._scale.dtype)
            return Evaluation(len(nowhere), nowhere, NOT_FEASIBLE, narrowed=plan.narrowed, n_feasible=0)
        return self._less(plan, evaluation, rejected) or self._evaluated(plan, self._union(without, rejected))

    def _less(self, plan: Plan, evaluation: Evaluation, rejected: RowIndex) -> Evaluation | None:
        """What was just evaluated, without some of its feasible rows, but not all; None: scores may depend on those."""
        stage = plan.scoring
        if stage is None or stage.bounds is None or stage.loose or not evaluation.has_all_rows:
            return None
        for score in stage.counted:
            if not score.asked.is_silent():
                return None
        total = evaluation.total.copy()
        total[rejected] = self._scale.infeasible
        if stage.static.raw_scores and not stage.static.hold(stage.bounds, total):
            return None
        return Evaluation(len(total), total, int(total[total.argmax()]))

    def _evaluated(self, plan: Plan, without: RowIndex | None) -> Evaluation:
        if not plan.status.ok or plan.narrowed is not None:
            return self._narrowed(plan, without)
        if plan.scoring is None:
            plan.scoring = self._planner.stage(plan, with_scores=True)
        if plan.scoring.was_built():
            try:
                return self._scored(plan.scoring, without)
            except PluginError as problem:
                if problem.point not in _SCORING:
                    raise
        elif plan.filtering is None and plan.scoring.usage.bring_along() and plan.scoring.was_built():
            # All that was new about it is known of each state of a row.
            try:
                return self._scored_at_first(plan, plan.scoring, without)
            except PluginError as problem:
                if problem.point not in _SCORING:
                    raise
        return self._filtered_first(plan, plan.scoring, without)

    def _followed(self, plan: Plan, nominated: Sequence[Nomination]) -> Evaluation | None:
        """What follows the last decision, where that can be known beside pods that are nominated. Raises PluginError."""
        run = self._runs.of(plan)
        if run is None:
            return None
        kept_free = NO_ROWS
        if nominated:
            room = self._room(plan)
            known = None if room is None else room.kept_free(nominated)
            if known is None:
                return None
            kept_free = known
        try:
            return self._runs.follow(run, kept_free)
        except PluginError as problem:
            # A score may have been asked for of a row that is feasible no longer.
            if problem.point not in _SCORING:
                raise
            return None

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
        """How many nodes each plugin is the first to keep the template off, of those that PreFilter leaves. Raises PluginError.

        Nothing is kept for it.
        """
        plan = self._plan(template)
        if not plan.status.ok:
            return {plan.status.plugin: self._table.n_nodes}
        failing = filter_rows(plan.filters, Rows(self._table, self._looked_at(plan))).failing
        counts = np.bincount(failing[failing >= 0], minlength=len(plan.filters)).tolist()
        return {asked.plugin.name: count for asked, count in zip(plan.filters, counts, strict=True) if count}

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

    # -------------------------------------------------------------------------------------------------- the memoised way

    def _filtered_first(self, plan: Plan, scoring: ScoreSum, without: RowIndex | None) -> Evaluation:
        """A template whose scores are not known yet: filters first, and scores only where two rows or more are feasible."""
        if plan.filtering is None and self._are_many_feasible(scoring, without):
            try:
                return self._scored_at_first(plan, scoring, without)
            except PluginError as problem:
                if problem.point not in _SCORING:
                    raise
        if plan.filtering is None:
            plan.filtering = self._planner.stage(plan, with_scores=False)
        total = self._sum(plan.filtering, without)
        self._account(plan.filtering.entries)
        feasible = (total >= 0).nonzero()[0]
        if len(feasible) <= 1:
            if len(feasible):
                self._runs.evaluated(plan.filtering, len(total), whole=without is None)
            return Evaluation(len(total), total, 0 if len(feasible) else NOT_FEASIBLE, n_feasible=len(feasible))
        try:
            evaluation = self._scored_at_first(plan, scoring, without)
        except PluginError as problem:
            if problem.point not in _SCORING:
                raise
            # Columns hold scores of all rows, but only a feasible row's score may end an attempt.
            return self._direct(plan, feasible, plan.filters)
        self._planner.drop_stage(plan.filtering)
        plan.filtering = None
        return evaluation

    def _are_many_feasible(self, scoring: ScoreSum, without: RowIndex | None) -> bool:
        """Whether two rows or more are feasible, without sums of filters alone, of which most templates need none."""
        n_rows, static = self._table.n_rows, scoring.static
        refresh_each([*static.filters, *scoring.usage.filters], self._builder.build)
        feasible = static.passing_now(slice(0, n_rows)).copy()
        columns = [one.column for one in scoring.usage.filters]
        answers = self._builder.ahead([question for question in scoring.usage.questions if question.part is PluginHalf.FILTER])
        for codes in (*answers, *columns):
            if codes is not None and np.count_nonzero(codes):
                feasible &= codes[:n_rows] == 0
        for rejection in scoring.rejections:
            ceilings = rejection.ceilings()
            if ceilings is not None:
                feasible &= ceilings[:n_rows] >= 0
        if without is not None:
            feasible[without] = False
        return int(np.count_nonzero(feasible)) > 1

    def _scored_at_first(self, plan: Plan, scoring: ScoreSum, without: RowIndex | None) -> Evaluation:
        evaluation = self._scored(scoring, without)
        self._account([*scoring.entries, *plan.entries])
        return evaluation

    def _scored(self, stage: ScoreSum, without: RowIndex | None) -> Evaluation:
        """Totals from the sums. Each step refreshes what is stale, so nothing here depends on what was evaluated before."""
        total = self._sum(stage, without)
        best = int(total[total.argmax()]) if len(total) else NOT_FEASIBLE
        if best < 0:
            return Evaluation(len(total), total, NOT_FEASIBLE, n_feasible=0)
        static = stage.static
        if static.raw_scores:
            assert stage.bounds is not None
            if not static.hold(stage.bounds, total):
                bounds = static.bounds_of(total)
                if bounds != stage.bounds:
                    stage.bounds = bounds
                    total = self._add(stage, without)
                    best = int(total[total.argmax()])
                    self._account(stage.entries)
        if stage.loose:
            self._add_loose(stage, total)
            best = int(total[total.argmax()])
        if stage.counted and self._add_counted(stage, total, without):
            best = int(total[total.argmax()])
        evaluation = Evaluation(len(total), total, best)
        self._runs.evaluated(stage, len(total), whole=without is None)
        if not self._runs and scores_may_be_outside(stage) and evaluation.n_feasible > 1:
            check_scores(stage, total)
        return evaluation

    def _sum(self, stage: ScoreSum, without: RowIndex | None) -> TotalColumn:
        """Refresh and add up a stage's sums, by the bounds that held last. Shape (n_rows,); valid until the next one."""
        build = self._builder.build
        self._runs.drop()
        stage.usage.refresh(build)
        stage.static.refresh(build)
        if stage.bounds is None:
            stage.bounds = stage.static.ranges()
        return self._add(stage, without)

    def _add(self, stage: ScoreSum, without: RowIndex | None) -> TotalColumn:
        n_rows = self._table.n_rows
        if len(self._total) < n_rows:
            self._total = np.zeros(self._table.capacity, self._scale.dtype)
        assert stage.bounds is not None
        total = self._total[:n_rows]
        np.add(stage.usage.column[:n_rows], stage.static.column(stage.bounds)[:n_rows], out=total)
        for rejection in stage.rejections:
            ceilings = rejection.ceilings()
            if ceilings is not None:
                np.minimum(total, ceilings[:n_rows], out=total)
        if without is not None:
            total[without] = self._scale.infeasible
        return total

    def _add_loose(self, stage: ScoreSum, total: TotalColumn) -> None:
        """Scores that are normalised and change with bindings: their bounds are looked for each time."""
        n_rows = len(total)
        feasible = (total >= 0).nonzero()[0]
        refresh_each([score.kept for score in stage.loose], self._builder.build)
        for score in stage.loose:
            scaled = score.kept.scaled(score.kept.bounds_over(feasible))
            if scaled is not None:
                total += weighted(scaled[:n_rows], score.weight, self._scale)

    def _add_counted(self, stage: ScoreSum, total: TotalColumn, without: RowIndex | None) -> bool:
        """Scores of counting plugins, which depend on what is feasible; nobody asks for them while one row at most is.

        Returns whether any was added.
        """
        speaking = [score for score in stage.counted if not score.asked.is_silent()]
        if not speaking:
            return False
        feasible = total >= 0
        n_feasible = int(np.count_nonzero(feasible))
        if n_feasible < 2:
            return False

        def circumstances() -> Hashable | None:
            if without is not None:
                return None
            return stage.static.version, *(rejection.version for rejection in stage.rejections)

        added = False
        rows: Rows | None = None
        for score in speaking:
            known = None if score.by_group is None else score.by_group.add(total, feasible, n_feasible, circumstances)
            if known is None:
                if rows is None:
                    rows = Rows(self._table, compact(feasible.nonzero()[0]))
                found = score_counted(score.asked, rows)
                known = found is not None
                if found is not None:
                    total[rows.selection] += (found[1] * score.weight).astype(total.dtype)
            added |= known
        return added

    # ------------------------------------------------------------------------------------------------------------ plans

    def _plan(self, template: PodTemplate, would_be: Iterable[tuple[PodTemplate, object]] = ()) -> Plan:
        """What the template is asked; `would_be` are pods that would be there. Raises PluginError."""
        table = self._table
        if table.generation != self._generation or table.capacity != self._capacity:
            # Numbers mean something else now, or the table has outgrown all columns. Both are rare.
            self._forget()
        return self._plans.of(template, would_be)

    def _forget(self) -> None:
        self._runs.forget()
        self._plans.drop_all()
        self._planner.forget()
        self._rooms.clear()
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

    @staticmethod
    def _union(without: RowIndex | None, rejected: RowIndex) -> RowIndex:
        return rejected if without is None else np.union1d(without, rejected)

    def _narrowed(self, plan: Plan, without: RowIndex | None) -> Evaluation:
        if not plan.status.ok:
            return self._direct(plan, np.zeros(0, np.intp), ())
        if plan.narrowed_rows is None:
            asked = self._planner.room(plan)
            room = None if asked is None else FreeResources(self._table, asked[1])
            plan.narrowed_rows = PrefilteredRows(self._table, plan.filters, lambda: self._looked_at(plan), VOLATILE, room)
        index = plan.narrowed_rows.feasible()
        if without is not None:
            index = np.setdiff1d(index, without)
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
