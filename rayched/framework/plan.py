"""The plan of a template: which plugins it asks and with what state, what PreFilter says, and the sums that its total comes from.

PreFilter's answers depend on the pod alone, so they are part of the plan. Keys are asked for once a template; plugins that skip
it (key None) do not occur in its plan. Templates with the same keys share a plan (`plans`).

Source: RunPreFilterPlugins of kube-scheduler 1.34: UNSCHEDULABLE_AND_UNRESOLVABLE ends it at once, UNSCHEDULABLE lets the others
speak, sets of nodes are intersected, and an empty intersection is a rejection.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar, cast

from rayched.framework.column_store import ColumnStore, SharedEntry
from rayched.framework.combined_sum import CombinedSum
from rayched.framework.counting import CountedAsked, CountedRejection
from rayched.framework.diagnosis import nothing_left_by
from rayched.framework.grouped_scores import GroupColumn, GroupedScore
from rayched.framework.kept_columns import FilterColumn, FinalScoreColumn, Kept, RawScoreColumn
from rayched.framework.narrowed_rows import NarrowedRows
from rayched.framework.plugin import (
    ColumnPlugin,
    ContainerlessPlugin,
    CountingPlugin,
    GroupingScorePlugin,
    NormalizingPlugin,
    PlainFilterPlugin,
    PlainScorePlugin,
    RefusingPlugin,
    RoomNeed,
    RoomPlugin,
    SelectingPlugin,
    StackingPlugin,
    ToleratingPlugin,
)
from rayched.framework.plugin_calls import call_key, call_narrow, call_needs, call_prepare
from rayched.framework.plugin_evaluations import Tally
from rayched.framework.profile import Profile
from rayched.framework.questions import Asked, Part, Question
from rayched.framework.row_evaluation import AskedScore
from rayched.framework.seen_pod import SeenPod
from rayched.framework.static_sum import AllBounds, StaticSum, WeightedFinal, WeightedRaw
from rayched.framework.status import SUCCESS, Code, Status, unresolvable
from rayched.framework.usage_stack import UsageStack, can_be_stacked, stack_key
from rayched.framework.usage_sum import Scale, UsageSum
from rayched.snapshot.columns import Log
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import PodTemplate
from rayched.v1.core_pb2 import Pod

C = TypeVar("C", bound=Kept)

VOLATILE: Log = Log.USAGE | Log.PORTS
"""Aspects that bindings change. A plugin that reads one of them has its columns refreshed at each decision."""
KEYS_BESIDE_MAX: Final = 1_024
"""What pods say beside their containers is remembered of so many, some 2 KB each; then from the beginning."""
NEEDS_MAX: Final = 62
"""Of a filter that is asked in numbers: a bit for each, and a sign."""


@dataclass(frozen=True, slots=True)
class CountedScore:
    """A counting score with its plugin's weight."""

    asked: CountedAsked
    weight: int
    by_group: GroupedScore | None
    """Where the plugin scores groups of rows."""


@dataclass(slots=True)
class Stage:
    """Sums for filters alone, or for filters and scores."""

    usage: UsageSum | CombinedSum
    static: StaticSum
    loose: tuple[WeightedRaw, ...]
    """Scores that are normalised and change with bindings; added to each total."""
    rejections: tuple[CountedRejection, ...]
    """Counting filters."""
    counted: tuple[CountedScore, ...]
    """Counting scores; added to each total, last."""
    entries: list[SharedEntry]
    """What the stage holds of the store."""
    scores: bool
    """Without scores its totals only tell which rows are feasible."""
    bounds: AllBounds | None = None
    """The bounds that held last; None before the first evaluation."""
    run_pause: int = 0
    """Decisions before a run of equal pods is begun again."""

    def kept(self) -> list[Kept]:
        """All columns that are evaluated for this stage, wherever that is best done."""
        return [*self.usage.kept(), *self.static.kept(), *(score.kept for score in self.loose)]

    def was_built(self) -> bool:
        """Whether all of it was evaluated before, so that a few rows bring it up to date."""
        return self.bounds is not None or all(kept.was_built for kept in self.kept())


class Asking(NamedTuple):
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
    entries: list[SharedEntry]
    """What the plan itself holds of the store."""
    templates: dict[int, PodTemplate] = field(default_factory=dict)
    """Those whose plan it is, by number."""
    sights: list[Hashable] = field(default_factory=list)
    """What plugins see of pods whose plan it is, as `SeenPod.sight` gives it."""
    filters: list[Asked] = field(default_factory=list)
    scores: list[AskedScore] = field(default_factory=list)
    status: Status = SUCCESS
    """PreFilter's word."""
    narrowed: frozenset[str] | None = None
    """Names of the only nodes worth looking at."""
    narrowed_rows: NarrowedRows | None = None
    """Their rows, once they were looked at."""
    tally: Tally = field(default_factory=lambda: Tally(()))
    """Counts evaluations of templates that ask the same plugins."""
    narrowing: list[str] = field(default_factory=list)
    """Plugins that left nodes out."""
    filtering: Stage | None = None
    """Filters alone: used while at most one row is feasible, as nobody is asked for scores then."""
    scoring: Stage | None = None
    codes: list[FilterColumn | CountedRejection] | None = None
    """Codes of each filter, in order; only where somebody asked why no node is feasible."""


class Planner:
    """Makes plans and their stages for one profile over one table."""

    __slots__ = (
        "_containerless",
        "_counting",
        "_grouping",
        "_keys_beside",
        "_next_number",
        "_normalizing",
        "_plain",
        "_plugins",
        "_profile",
        "_refusing",
        "_rooms",
        "_scale",
        "_selecting",
        "_stacking",
        "_stacks",
        "_store",
        "_table",
        "_tolerating",
        "_using",
        "_volatile",
        "sees_one_pod",
    )

    def __init__(self, table: NodeTable, profile: Profile, store: ColumnStore, scale: Scale) -> None:
        self._table = table
        self._profile = profile
        self._store = store
        self._scale = scale
        # Asked once: in Python 3.11 it takes 100 µs to find out whether an object is of a protocol.
        self._counting = frozenset(plugin.name for plugin in profile.plugins() if isinstance(plugin, CountingPlugin))
        self._grouping = frozenset(plugin.name for plugin in profile.plugins() if isinstance(plugin, GroupingScorePlugin))
        self._refusing = frozenset(plugin.name for plugin in profile.plugins() if isinstance(plugin, RefusingPlugin))
        self._rooms = frozenset(plugin.name for plugin in profile.filter if isinstance(plugin, RoomPlugin))
        self._normalizing = frozenset(plugin.name for plugin in profile.score if isinstance(plugin, NormalizingPlugin))
        self._selecting = frozenset(
            plugin.name
            for plugin in profile.plugins()
            if isinstance(plugin, SelectingPlugin) and plugin.reads_mentioned_labels_alone
        )
        self._tolerating = frozenset(
            plugin.name
            for plugin in profile.plugins()
            if isinstance(plugin, ToleratingPlugin) and plugin.reads_tolerations_of_known_taints_alone
        )
        self._containerless = {
            plugin.name for plugin in profile.plugins() if isinstance(plugin, ContainerlessPlugin) and plugin.reads_no_containers
        } & (self._selecting & self._tolerating)
        self._keys_beside: dict[Hashable, list[Hashable]] = {}
        """Keys of all plugins by what pods say beside their containers; those of containerless ones hold for all such pods."""
        asked: list[ColumnPlugin] = [*profile.pre_filter, *profile.filter, *profile.score]
        self._plugins = tuple({plugin.name: plugin for plugin in asked}.values())
        self.sees_one_pod = {plugin.name for plugin in self._plugins} <= self._selecting & self._tolerating
        """All plugins do with the pod without labels that nobody mentions and without tolerations of unknown taints."""
        self._next_number = 0
        self._stacking = frozenset(plugin.name for plugin in profile.plugins() if isinstance(plugin, StackingPlugin))
        self._plain = {
            Part.FILTER: {plugin.name for plugin in profile.filter if isinstance(plugin, PlainFilterPlugin)},
            Part.SCORE: {plugin.name for plugin in profile.score if isinstance(plugin, PlainScorePlugin)},
        }
        self._stacks: dict[Hashable, UsageStack] = {}
        # Sets of flags take a microsecond to compare.
        self._volatile = frozenset(plugin.name for plugin in profile.plugins() if _reads(plugin) & VOLATILE)
        self._using = frozenset(plugin.name for plugin in profile.plugins() if _reads(plugin) & Log.USAGE)

    def ask(self, template: PodTemplate, seen: SeenPod) -> Asking:
        """Ask each plugin for its key. Raises PluginError."""
        beside = seen.beside_containers()
        known = None if beside is None else self._keys_beside.get(beside)
        keys = [
            known[place]
            if known is not None and plugin.name in self._containerless
            else call_key(plugin, self._pod(seen, plugin))
            for place, plugin in enumerate(self._plugins)
        ]
        if known is None and beside is not None:
            if len(self._keys_beside) >= KEYS_BESIDE_MAX:
                self._keys_beside.clear()
            self._keys_beside[beside] = keys
        return Asking(tuple(keys), seen, template)

    def _pod(self, seen: SeenPod, plugin: ColumnPlugin) -> Pod:
        return seen.pod(selects=plugin.name in self._selecting, tolerates=plugin.name in self._tolerating)

    def plan(self, asking: Asking) -> Plan:
        """Raises PluginError; then nothing is kept."""
        plan, profile = Plan(self._next_number, asking.keys, []), self._profile
        self._next_number += 1
        try:
            by_name: dict[str, Asked] = {}
            for plugin, key in zip(self._plugins, asking.keys, strict=True):
                if key is not None:
                    by_name[plugin.name] = found = self._asked(plugin, key, asking)
                    plan.entries.append(found)
            self._pre_filter(plan, by_name)
            plan.filters = [by_name[plugin.name] for plugin in profile.filter if plugin.name in by_name]
            plan.scores = [
                AskedScore(by_name[plugin.name], profile.weights[plugin.name], plugin.name in self._normalizing)
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
        self._stacks.clear()

    def drop_stage(self, stage: Stage | None) -> None:
        if stage is not None:
            self._store.release(stage.entries)

    def stage(self, plan: Plan, *, with_scores: bool) -> Stage:
        """The plan's sums; nothing is evaluated yet. Raises PluginError; then nothing is kept."""
        entries: list[SharedEntry] = []
        try:
            return self._stage(plan, entries, with_scores=with_scores)
        except BaseException:
            self._store.release(entries)
            raise

    def _stage(self, plan: Plan, entries: list[SharedEntry], *, with_scores: bool) -> Stage:
        """`entries`: takes all that the stage holds."""
        volatile = self._volatile
        rejections: list[CountedRejection] = []
        filters: list[FilterColumn] = []
        usage_filters: list[Question] = []
        for asked in plan.filters:
            if isinstance(asked, CountedAsked):
                rejections.append(self._rejection(entries, asked))
            elif asked.plugin.name in volatile:
                usage_filters.append(Question(asked, Part.FILTER))
            else:
                filters.append(self._column(entries, FilterColumn, Question(asked, Part.FILTER)))
        counted: list[CountedScore] = []
        finals: list[WeightedFinal] = []
        raws: list[WeightedRaw] = []
        loose: list[WeightedRaw] = []
        usage_scores: list[tuple[Question, int]] = []
        for asked, weight, normalizes in plan.scores if with_scores else ():
            if isinstance(asked, CountedAsked):
                counted.append(self._counted(entries, plan, asked, weight))
                continue
            question = Question(asked, Part.SCORE)
            if normalizes:
                raw = WeightedRaw(self._column(entries, RawScoreColumn, question), weight)
                (loose if asked.plugin.name in volatile else raws).append(raw)
            elif asked.plugin.name in volatile:
                usage_scores.append((question, weight))
            else:
                finals.append(WeightedFinal(self._column(entries, FinalScoreColumn, question), weight))
        usage = self._usage_sum(entries, usage_filters, usage_scores)
        static = self._static_sum(entries, filters, finals, raws)
        return Stage(usage, static, tuple(loose), tuple(rejections), tuple(counted), entries, with_scores)

    def codes(self, plan: Plan) -> list[FilterColumn | CountedRejection]:
        """The codes of each filter of the plan, in order; the plan holds them from now on. Nothing is evaluated yet."""
        if plan.codes is None:
            plan.codes = [
                self._rejection(plan.entries, asked)
                if isinstance(asked, CountedAsked)
                else self._column(plan.entries, FilterColumn, Question(asked, Part.FILTER))
                for asked in plan.filters
            ]
        return plan.codes

    def room(self, plan: Plan) -> tuple[Asked, tuple[RoomNeed, ...]] | None:
        """The only one of the plan's filters that bindings change, counting ones apart, with what it asks for in numbers.

        None: there is no such one. Raises PluginError.
        """
        volatile = [one for one in plan.filters if not isinstance(one, CountedAsked) and self._is_volatile(one)]
        if len(volatile) != 1 or volatile[0].plugin.name not in self._rooms or volatile[0].plugin.reads != Log.USAGE:
            return None
        needs = call_needs(cast(RoomPlugin, volatile[0].plugin), volatile[0].state)
        return (volatile[0], needs) if needs and len(needs) <= NEEDS_MAX else None

    def _is_volatile(self, asked: Asked) -> bool:
        return asked.plugin.name in self._volatile

    # -------------------------------------------------------------------------------------------------------- PreFilter

    def _pre_filter(self, plan: Plan, by_name: Mapping[str, Asked]) -> None:
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

    def _asked(self, plugin: ColumnPlugin, key: Hashable, asking: Asking) -> Asked:
        """The entry for this key, of which there is one for all plans."""
        entry_key = ("asked", plugin.name, key)

        def prepared() -> Asked:
            pod, template = self._pod(asking.seen, plugin), asking.template
            state = call_prepare(plugin, pod)
            # Not the whole pod's where it says more: others with this key may not say it.
            content = template.content if pod is template.pod else pod.SerializeToString(deterministic=True)
            if plugin.name in self._counting:
                return CountedAsked(entry_key, cast(CountingPlugin, plugin), state, content, self._table)
            return Asked(entry_key, plugin, state, content)

        return self._store.take(entry_key, prepared)

    # ------------------------------------------------------------------------------------------------------- the columns

    def _rejection(self, entries: list[SharedEntry], asked: CountedAsked) -> CountedRejection:
        key = ("rejection", asked)
        by_domain = asked.plugin.name in self._refusing
        rejection = self._store.take(key, lambda: CountedRejection(key, self._table, self._scale, asked, by_domain=by_domain))
        entries.append(rejection)
        return rejection

    def _counted(self, entries: list[SharedEntry], plan: Plan, asked: CountedAsked, weight: int) -> CountedScore:
        if asked.plugin.name not in self._grouping:
            return CountedScore(asked, weight, None)
        # Which groups have a feasible row is another matter for each plan.
        key = ("grouped", plan.number, asked)
        column_key = ("group column", asked, weight)
        column = self._store.take(column_key, lambda: GroupColumn(column_key, weight))
        by_group = self._store.take(key, lambda: GroupedScore(key, self._table, asked, column))
        entries += column, by_group
        return CountedScore(asked, weight, by_group)

    def _column(self, entries: list[SharedEntry], kind: Callable[[Hashable, NodeTable, Question], C], question: Question) -> C:
        key = ("column", question)
        column = self._store.take(key, lambda: kind(key, self._table, question))
        entries.append(column)
        return column

    def _usage_sum(
        self, entries: list[SharedEntry], volatile: Sequence[Question], scores: Sequence[tuple[Question, int]]
    ) -> UsageSum | CombinedSum:
        filters = [question for question in volatile if question.asked.plugin.name in self._using]
        key = ("usage", tuple(filters), tuple([question for question, _ in scores]))
        found = self._store.take(key, lambda: self._new_usage_sum(key, filters, scores))
        entries.append(found)
        if len(filters) == len(volatile):
            return found
        columns = [
            self._column(entries, FilterColumn, question)
            for question in volatile
            if question.asked.plugin.name not in self._using
        ]
        combined_key = ("combined", found, tuple(columns))
        combined = self._store.take(combined_key, lambda: CombinedSum(combined_key, found, columns))
        entries.append(combined)
        return combined

    def _new_usage_sum(self, key: Hashable, filters: Sequence[Question], scores: Sequence[tuple[Question, int]]) -> UsageSum:
        made = UsageSum(key, self._table, self._scale, filters, scores)
        if can_be_stacked(made, self._stacking):
            stack_of = stack_key(made)
            stack = self._stacks.get(stack_of)
            if stack is None:
                stack = self._stacks[stack_of] = UsageStack(self._table, self._scale)
            made.stack = stack
            if all(question.asked.plugin.name in self._plain[question.part] for question in made.questions):
                made.ask_plain()
        return made

    def _static_sum(
        self,
        entries: list[SharedEntry],
        filters: Sequence[FilterColumn],
        scores: Sequence[WeightedFinal],
        raw_scores: Sequence[WeightedRaw],
    ) -> StaticSum:
        kept: list[Kept] = [*filters, *(score.kept for score in scores), *(score.kept for score in raw_scores)]
        key = ("static", tuple(kept))
        found = self._store.take(key, lambda: StaticSum(key, self._table, self._scale, filters, scores, raw_scores))
        entries.append(found)
        return found


def _reads(plugin: object) -> Log:
    """What a plugin reads of nodes; nothing where it is none of those that are asked about columns."""
    found: Log = getattr(plugin, "reads", Log(0))
    return found
