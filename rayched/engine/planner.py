"""The plan of a template: which plugins it asks and with what state, what PreFilter says, and the sums that its total comes from.

PreFilter's answers depend on the pod alone, so they are part of the plan. Keys are asked for once a template; plugins that skip
it (key None) do not occur in its plan. Templates with the same keys share a plan (`plans`).

Source: RunPreFilterPlugins of kube-scheduler 1.34: UNSCHEDULABLE_AND_UNRESOLVABLE ends it at once, UNSCHEDULABLE lets the others
speak, sets of nodes are intersected, and an empty intersection is a rejection.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Final, NamedTuple, TypeVar, cast

from rayched.engine.cached_columns import CachedColumn, FilterColumn, FinalScoreColumn, RawScoreColumn
from rayched.engine.column_store import CacheEntry, ColumnStore
from rayched.engine.domain_state import DomainRejection, DomainState
from rayched.engine.evaluation_counts import EvaluationCount
from rayched.engine.grouped_scores import GroupColumn, GroupedScore
from rayched.engine.plugin_calls import call_key, call_narrow, call_needs, call_prepare
from rayched.engine.plugin_facts import PluginFacts, facts_of
from rayched.engine.prefiltered_rows import PrefilteredRows
from rayched.engine.prepared import FILTER_HALF, SCORE_HALF, ColumnKey, PreparedPlugin
from rayched.engine.row_evaluation import WeightedScore
from rayched.engine.scale import Scale
from rayched.engine.score_caps import FilterCap
from rayched.engine.score_sum import CountedScore, ScoreSum
from rayched.engine.signature import ALL_BY_SIGHT, SeenPod
from rayched.engine.static_sum import StaticSum, WeightedFinal, WeightedRaw
from rayched.engine.totals import KeptTotals
from rayched.engine.usage_values import UsageSum, UsageValues, memory_key
from rayched.framework.accelerated import ResourcePlugin
from rayched.framework.diagnosis import nothing_left_by
from rayched.framework.plugin import CountingPlugin, PodPart
from rayched.framework.profile import Profile
from rayched.framework.resource_needs import ResourceNeeds
from rayched.framework.status import SUCCESS, Code, Status, unresolvable
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import PodTemplate
from rayched.snapshot.usage_states import UsageStates

C = TypeVar("C", bound=CachedColumn)

NEEDS_MAX: Final = 62
"""Of a filter that is asked in numbers: a bit for each, and a sign."""


class PodSignature(NamedTuple):
    """What plugins read of a template, in the order in which an attempt first meets them."""

    keys: tuple[Hashable, ...]
    """Their keys; None of a plugin that skips the template."""
    seen: SeenPod
    template: PodTemplate


@dataclass(slots=True, eq=False)
class Plan:
    """All that is known of templates of which all plugins read the same."""

    number: int
    """Unique in its Planner, never given again."""
    keys: tuple[Hashable, ...]
    entries: list[CacheEntry]
    """What the plan itself holds of the store."""
    templates: dict[int, PodTemplate] = field(default_factory=dict)
    """Those whose plan it is, by number."""
    sights: list[Hashable] = field(default_factory=list)
    """What plugins see of pods whose plan it is, as `SeenPod.sight` gives it."""
    filters: list[PreparedPlugin] = field(default_factory=list)
    scores: list[WeightedScore] = field(default_factory=list)
    status: Status = SUCCESS
    """PreFilter's word."""
    narrowed: frozenset[str] | None = None
    """Names of the only nodes worth looking at."""
    narrowed_rows: PrefilteredRows | None = None
    """Their rows, once they were looked at."""
    tally: EvaluationCount = field(default_factory=lambda: EvaluationCount(()))
    """Counts evaluations of templates that ask the same plugins."""
    narrowing: list[str] = field(default_factory=list)
    """Plugins that left nodes out."""
    filtering: ScoreSum | None = None
    """Filters alone: used while at most one row is feasible, as nobody is asked for scores then."""
    scoring: ScoreSum | None = None
    has_kept_free: bool = False
    """Whether nominated pods kept rows free of it that were feasible, the last time that there were such pods."""
    codes: list[FilterColumn | DomainRejection] | None = None
    """Codes of each filter, in order; only where somebody asked why no node is feasible."""


class Planner:
    """Makes plans and their stages for one profile over one table."""

    __slots__ = (
        "_facts",
        "_next_number",
        "_profile",
        "_scale",
        "_states",
        "_store",
        "_table",
        "_totals",
        "_usage_values",
        "reads",
    )

    def __init__(self, table: NodeTable, profile: Profile, store: ColumnStore, totals: KeptTotals, scale: Scale) -> None:
        self._table = table
        self._totals = totals
        self._profile = profile
        self._store = store
        self._scale = scale
        self._facts = facts_of(profile)
        self.reads = reduce(and_, (facts.reads_pod for facts in self._facts.values()), PodPart.LEAST)
        """All plugins do with a pod without the parts that this says."""
        self._next_number = 0
        self._states = UsageStates(table)
        self._usage_values: dict[Hashable, UsageValues] = {}

    def ask(self, template: PodTemplate, seen: SeenPod) -> PodSignature:
        """Ask each plugin for its key. Raises PluginError."""
        if ALL_BY_SIGHT in self.reads:
            pod = seen.pod(self.reads)
            keys = [call_key(facts.plugin, pod) for facts in self._facts.values()]
        else:
            keys = [call_key(facts.plugin, seen.pod(facts.reads_pod)) for facts in self._facts.values()]
        return PodSignature(tuple(keys), seen, template)

    def plan(self, asking: PodSignature) -> Plan:
        """Raises PluginError; then nothing is kept."""
        plan, profile = Plan(self._next_number, asking.keys, []), self._profile
        self._next_number += 1
        try:
            by_name: dict[str, PreparedPlugin] = {}
            for facts, key in zip(self._facts.values(), asking.keys, strict=True):
                if key is not None:
                    by_name[facts.plugin.name] = found = self._asked(facts, key, asking)
                    plan.entries.append(found)
            self._pre_filter(plan, by_name)
            plan.filters = [by_name[plugin.name] for plugin in profile.filter if plugin.name in by_name]
            plan.scores = [
                WeightedScore(by_name[plugin.name], profile.weights[plugin.name], self._facts[plugin.name].normalizes)
                for plugin in profile.score
                if plugin.name in by_name
            ]
        except BaseException:
            self._store.release(plan.entries)
            raise
        return plan

    def drop(self, plan: Plan) -> None:
        """Give back all that the plan holds."""
        self.drop_stage(plan.filtering)
        self.drop_stage(plan.scoring)
        plan.filtering = plan.scoring = None
        self._store.release(plan.entries)

    def forget(self) -> None:
        """All plans were dropped, and columns begin anew."""
        self._states = UsageStates(self._table)
        self._usage_values.clear()

    def drop_stage(self, stage: ScoreSum | None) -> None:
        if stage is not None:
            self._totals.forget(stage)
            self._store.release(stage.entries)

    def stage(self, plan: Plan, *, with_scores: bool) -> ScoreSum:
        """The plan's sums; nothing is evaluated yet. Raises PluginError; then nothing is kept."""
        entries: list[CacheEntry] = []
        try:
            return self._stage(plan, entries, with_scores=with_scores)
        except BaseException:
            self._store.release(entries)
            raise

    def _stage(self, plan: Plan, entries: list[CacheEntry], *, with_scores: bool) -> ScoreSum:
        """`entries`: takes all that the stage holds."""
        facts = self._facts
        caps: list[FilterCap | DomainRejection] = []
        filters: list[FilterColumn] = []
        usage_filters: list[ColumnKey] = []
        for asked in plan.filters:
            if isinstance(asked, DomainState):
                caps.append(self._rejection(entries, asked))
            elif facts[asked.plugin.name].reads_usage:
                usage_filters.append(ColumnKey(asked, FILTER_HALF))
            elif facts[asked.plugin.name].is_volatile:
                caps.append(self._filter_cap(entries, ColumnKey(asked, FILTER_HALF)))
            else:
                filters.append(self._column(entries, FilterColumn, ColumnKey(asked, FILTER_HALF)))
        counted: list[CountedScore] = []
        finals: list[WeightedFinal] = []
        raws: list[WeightedRaw] = []
        rescaled: list[WeightedRaw] = []
        usage_scores: list[tuple[ColumnKey, int]] = []
        for asked, weight, normalizes in plan.scores if with_scores else ():
            if isinstance(asked, DomainState):
                counted.append(self._counted(entries, plan, asked, weight))
                continue
            question = ColumnKey(asked, SCORE_HALF)
            if normalizes:
                raw = WeightedRaw(self._column(entries, RawScoreColumn, question), weight)
                (rescaled if facts[asked.plugin.name].is_volatile else raws).append(raw)
            elif facts[asked.plugin.name].is_volatile:
                usage_scores.append((question, weight))
            else:
                finals.append(WeightedFinal(self._column(entries, FinalScoreColumn, question), weight))
        usage = self._usage_sum(entries, usage_filters, usage_scores)
        static = self._static_sum(entries, filters, finals, raws)
        return ScoreSum(usage, static, tuple(caps), tuple(rescaled), tuple(counted), entries, with_scores)

    def codes(self, plan: Plan) -> list[FilterColumn | DomainRejection]:
        """The codes of each filter of the plan, in order; the plan holds them from now on. Nothing is evaluated yet."""
        if plan.codes is None:
            plan.codes = [
                self._rejection(plan.entries, asked)
                if isinstance(asked, DomainState)
                else self._column(plan.entries, FilterColumn, ColumnKey(asked, FILTER_HALF))
                for asked in plan.filters
            ]
        return plan.codes

    def kept_codes(self, asked: PreparedPlugin) -> FilterColumn | None:
        """The column of a filter's codes that some plan holds; nobody has to give it back."""
        found = self._store.find(_column_key(ColumnKey(asked, FILTER_HALF)))
        return found if isinstance(found, FilterColumn) else None

    def room(self, plan: Plan) -> tuple[PreparedPlugin, ResourceNeeds] | None:
        """The only one of the plan's filters that bindings change, counting ones apart, with what it asks for in numbers.

        None: there is no such one. Raises PluginError.
        """
        volatile = [one for one in plan.filters if not isinstance(one, DomainState) and self._facts[one.plugin.name].is_volatile]
        if len(volatile) != 1:
            return None
        facts = self._facts[volatile[0].plugin.name]
        if not (facts.needs and facts.reads_usage_alone):
            return None
        needs = call_needs(cast(ResourcePlugin, volatile[0].plugin), volatile[0].state)
        return (volatile[0], needs) if needs is not None and len(needs.needs) <= NEEDS_MAX else None

    # -------------------------------------------------------------------------------------------------------- PreFilter

    def _pre_filter(self, plan: Plan, by_name: Mapping[str, PreparedPlugin]) -> None:
        for plugin in self._profile.pre_filter:
            asked = by_name.get(plugin.name)
            if asked is None:
                continue
            answer = call_narrow(plugin, asked.state)
            if isinstance(answer, Status):
                plan.status = answer
                if answer.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                    return
            elif answer is not None:
                plan.narrowing.append(plugin.name)
                plan.narrowed = answer if plan.narrowed is None else plan.narrowed & answer
                if not plan.narrowed:
                    plan.status = unresolvable(nothing_left_by(plan.narrowing))
                    return

    def _asked(self, facts: PluginFacts, key: Hashable, asking: PodSignature) -> PreparedPlugin:
        """The entry for this key, of which there is one for all plans."""
        plugin = facts.plugin
        entry_key = ("asked", plugin.name, key)

        def prepared() -> PreparedPlugin:
            pod, template = asking.seen.pod(facts.reads_pod), asking.template
            state = call_prepare(plugin, pod)
            # Not the whole pod's where it says more: others with this key may not say it.
            content = template.content if pod is template.pod else pod.SerializeToString(deterministic=True)
            if facts.counts:
                return DomainState(entry_key, cast(CountingPlugin, plugin), state, content, self._table)
            return PreparedPlugin(entry_key, plugin, state, content)

        return self._store.take(entry_key, prepared)

    # ------------------------------------------------------------------------------------------------------- the columns

    def _rejection(self, entries: list[CacheEntry], asked: DomainState) -> DomainRejection:
        key = ("rejection", asked)
        by_domain = self._facts[asked.plugin.name].blocks_domains
        rejection = self._store.take(key, lambda: DomainRejection(key, self._table, self._scale, asked, by_domain=by_domain))
        entries.append(rejection)
        return rejection

    def _counted(self, entries: list[CacheEntry], plan: Plan, asked: DomainState, weight: int) -> CountedScore:
        if not self._facts[asked.plugin.name].groups:
            return CountedScore(asked, weight, None)
        # Which groups have a feasible row is another matter for each plan.
        key = ("grouped", plan.number, asked)
        column_key = ("group column", asked, weight)
        column = self._store.take(column_key, lambda: GroupColumn(column_key, weight))
        by_group = self._store.take(key, lambda: GroupedScore(key, self._table, asked, column))
        entries += column, by_group
        return CountedScore(asked, weight, by_group)

    def _column(self, entries: list[CacheEntry], kind: Callable[[Hashable, NodeTable, ColumnKey], C], question: ColumnKey) -> C:
        key = _column_key(question)
        column = self._store.take(key, lambda: kind(key, self._table, question))
        entries.append(column)
        return column

    def _filter_cap(self, entries: list[CacheEntry], question: ColumnKey) -> FilterCap:
        column = self._column(entries, FilterColumn, question)
        key = ("cap", column)
        cap = self._store.take(key, lambda: FilterCap(key, self._table, self._scale, column))
        entries.append(cap)
        return cap

    def _usage_sum(
        self, entries: list[CacheEntry], filters: Sequence[ColumnKey], scores: Sequence[tuple[ColumnKey, int]]
    ) -> UsageSum:
        key = ("usage", tuple(filters), tuple([question for question, _ in scores]))
        found = self._store.take(key, lambda: self._new_usage_sum(key, filters, scores))
        entries.append(found)
        return found

    def _new_usage_sum(self, key: Hashable, filters: Sequence[ColumnKey], scores: Sequence[tuple[ColumnKey, int]]) -> UsageSum:
        made = UsageSum(key, self._table, self._scale, filters, scores)
        if made.reads_usage_alone:
            stacks, key = memory_key(made, self._facts)
            made.memory = self._usage_values.get(key)
            if made.memory is None:
                made.memory = self._usage_values[key] = UsageValues(self._states, self._scale, stacks=stacks)
        return made

    def _static_sum(
        self,
        entries: list[CacheEntry],
        filters: Sequence[FilterColumn],
        scores: Sequence[WeightedFinal],
        raw_scores: Sequence[WeightedRaw],
    ) -> StaticSum:
        kept: list[CachedColumn] = [*filters, *(score.kept for score in scores), *(score.kept for score in raw_scores)]
        key = ("static", tuple(kept))
        found = self._store.take(key, lambda: StaticSum(key, self._table, self._scale, filters, scores, raw_scores))
        entries.append(found)
        return found


def _column_key(question: ColumnKey) -> Hashable:
    return "column", question
