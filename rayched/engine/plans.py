"""The plans of templates. Templates of which all plugins read the same have one plan, whatever else they differ in.

A plugin's key is all that it reads of a pod, so equal keys of all plugins make equal plans. Labels that no selector mentions and
tolerations of taints that no node has are left out before plugins are asked, where these allow it, and values of labels that no
selector mentions are told apart no longer; when such a label or taint comes up for the first time, templates that have to do with
it are planned anew.

Owner: one Engine. Cost: a template whose plan is known 0.5 µs; one seen for the first time 6 µs where plugins see the same of it
as of another, else a key of each plugin, some 30 µs, and a plan where no other has the same keys.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from rayched.engine.evaluation_counts import PluginEvaluations
from rayched.engine.planner import Plan, Planner
from rayched.engine.prepared import PreparedPlugin
from rayched.engine.signature import ALL_BY_SIGHT, SeenPod
from rayched.snapshot.referenced_labels import Mention
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import CONTENT_BYTES_MAX, PodTemplate

TEMPLATES_MAX: Final = 16_384
"""Templates whose plan is known, and of at most CONTENT_BYTES_MAX; a plan without columns of its own takes about 2 KB, a template
that shares one 0.2, beside what it consists of."""
SIGHTS_MAX: Final = 4_096
"""What plugins see of pods is remembered of so many, some 0.5 KB each; then from the beginning."""
LABELS_MAX: Final = 65_536
"""Labels of templates, or twice as many as those have whose plan is known; then the others are left out."""


class Plans:
    """Plans by template, at most `TEMPLATES_MAX`; the template that was not asked about longest goes first."""

    __slots__ = (
        "_by_keys",
        "_by_sight",
        "_by_template",
        "_bytes",
        "_evaluations",
        "_heeded",
        "_labels",
        "_labels_max",
        "_mentioned_of",
        "_newest",
        "_planner",
        "_seen_labels",
        "_seen_taints",
        "_table",
        "_used",
    )

    def __init__(self, table: NodeTable, planner: Planner, evaluations: PluginEvaluations) -> None:
        self._table = table
        self._planner = planner
        self._evaluations = evaluations
        self._by_template: OrderedDict[int, Plan] = OrderedDict()
        self._bytes = 0
        """That these templates consist of."""
        self._by_keys: dict[tuple[Hashable, ...], Plan] = {}
        self._by_sight: dict[Hashable, Plan] = {}
        """By what plugins see of a pod, where all of them see the same."""
        self._heeded: set[bytes] = set()
        """Parts of pods whose mentions were taken note of, at most SIGHTS_MAX: mentioned labels are never forgotten."""
        self._labels: set[Mention] = set()
        """Those of all templates whose plan is known, and of some that were let go."""
        self._labels_max = LABELS_MAX
        self._used: OrderedDict[int, Plan] = OrderedDict()
        """By the plan's number, the one that was used last at the end."""
        self._seen_labels = table.mentioned_labels.revision
        self._seen_taints = table.known_taints.revision
        """Plans were made with the labels and the tolerations that counted then."""
        self._mentioned_of: Iterable[tuple[PodTemplate, object]] = ()
        """Pods that would be there, as they were given last: an attempt asks several times beside the same."""
        self._newest = -1
        """The template that was asked about last."""

    def __len__(self) -> int:
        """Plans, not templates."""
        return len(self._used)

    def of(self, template: PodTemplate, would_be: Iterable[tuple[PodTemplate, object]] = ()) -> Plan:
        """The template's plan; `would_be` are pods that would be there, whose terms count as those of bound ones do.

        Raises PluginError.
        """
        mentioned, taints = self._table.mentioned_labels, self._table.known_taints
        if would_be is not self._mentioned_of:
            for other, _ in would_be:
                if other.has_affinity:
                    mentioned.add_of(other.pod)
            if type(would_be) is tuple:
                # Anything else may name others the next time.
                self._mentioned_of = would_be
        if template.mentions_labels and template.id not in self._by_template:
            self._heed(template)
        if mentioned.revision != self._seen_labels or taints.revision != self._seen_taints:
            self._drop_outdated()
        plan = self._by_template.get(template.id)
        if plan is None:
            return self._planned(template)
        if template.id != self._newest:
            self._newest = template.id
            self._by_template.move_to_end(template.id)
            self._used.move_to_end(plan.number)
        return plan

    def _heed(self, template: PodTemplate) -> None:
        """Take note of labels that the pod mentions; what mentions them stands in the last part of it."""
        part = template.bare[-1]
        if part not in self._heeded:
            if len(self._heeded) >= SIGHTS_MAX:
                self._heeded.clear()
            self._heeded.add(part)
            self._table.mentioned_labels.add_of(template.pod)

    def drop_oldest(self) -> None:
        """Let go of the plan that was not used longest. Raises KeyError where there is none."""
        plan = self._used.popitem(last=False)[1]
        for number, template in plan.templates.items():
            del self._by_template[number]
            self._bytes -= len(template.content)
        plan.templates.clear()
        self._drop(plan)

    def drop_all(self) -> None:
        while self._used:
            self.drop_oldest()

    def _planned(self, template: PodTemplate) -> Plan:
        seen = SeenPod(template, self._table)
        reads = self._planner.reads
        if ALL_BY_SIGHT not in reads:
            plan = self._planned_by_keys(template, seen)
        else:
            # Most templates that are new differ in a name only, in a label that nobody mentions, or in their group.
            sight = seen.sight(reads)
            known = self._by_sight.get(sight)
            plan = self._planned_by_keys(template, seen) if known is None else known
            if known is None:
                if len(self._by_sight) >= SIGHTS_MAX:
                    self._by_sight.clear()
                    for one in self._used.values():
                        one.sights.clear()
                self._by_sight[sight] = plan
                plan.sights.append(sight)
        self._used.move_to_end(plan.number)
        plan.templates[template.id] = template
        self._labels.update(template.labels.items())
        if len(self._labels) > self._labels_max:
            self._labels = {
                label for one in self._used.values() for each in one.templates.values() for label in each.labels.items()
            }
            self._labels_max = max(LABELS_MAX, 2 * len(self._labels))
        self._by_template[template.id] = plan
        self._newest = template.id
        self._bytes += len(template.content)
        while len(self._by_template) > TEMPLATES_MAX or (self._bytes > CONTENT_BYTES_MAX and len(self._by_template) > 1):
            self._forget(next(iter(self._by_template)))
        return plan

    def _planned_by_keys(self, template: PodTemplate, seen: SeenPod) -> Plan:
        asking = self._planner.ask(template, seen)
        plan = self._by_keys.get(asking.keys)
        if plan is None:
            plan = self._by_keys[asking.keys] = self._planner.plan(asking)
            self._used[plan.number] = plan
            plan.tally = self._evaluations.tally(
                tuple([entry.plugin.name for entry in plan.entries if isinstance(entry, PreparedPlugin)]),
                tuple([asked.plugin.name for asked in plan.filters]),
                tuple([score.asked.plugin.name for score in plan.scores]),
            )
        return plan

    def _drop_outdated(self) -> None:
        """Labels or taints count now that did not: forget the plans of templates that have to do with them."""
        mentioned, known = self._table.mentioned_labels, self._table.known_taints
        mentions = mentioned.since(self._seen_labels) if mentioned.revision != self._seen_labels else ()
        taints = known.since(self._seen_taints) if known.revision != self._seen_taints else ()
        self._seen_labels, self._seen_taints = mentioned.revision, known.revision
        if mentions and not taints and taints is not None:
            # An application's value is mostly mentioned with its first pod; then no template that is known has it.
            mentions = [one for one in mentions if one[1] is None or one in self._labels]
            if not mentions:
                return
        for number, plan in list(self._by_template.items()):
            template = plan.templates[number]
            labels, tolerations = template.labels, template.tolerations
            has_label = labels and (mentions is None or any(_has(labels, *mention) for mention in mentions))
            if has_label or (tolerations and (taints is None or known.counting(tolerations, taints))):
                self._forget(number)

    def _forget(self, number: int) -> None:
        """The plan of the template with this number, if no other has it."""
        plan = self._by_template.pop(number)
        self._bytes -= len(plan.templates.pop(number).content)
        if not plan.templates:
            del self._used[plan.number]
            self._drop(plan)

    def _drop(self, plan: Plan) -> None:
        for sight in plan.sights:
            del self._by_sight[sight]
        del self._by_keys[plan.keys]
        self._planner.drop(plan)


def _has(labels: Mapping[str, str], key: str, value: str | None) -> bool:
    """Whether this value is among the labels; None: any value of the key."""
    return key in labels if value is None else labels.get(key) == value
