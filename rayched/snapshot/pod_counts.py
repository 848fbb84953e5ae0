"""Counters: how many bound pods of each row a selector selects; kept with every binding, never recounted.

A counter comes into being when somebody asks for it first, from what is known of the templates of bound pods, and follows every
binding from then on. It is a column of numbers with a log of the rows that changed. Sums over domains of a topology key are made
of it by `domains`. Which terms bound pods carry is known at all times, see `carried_terms`.

A new counter is counted in columns: which templates it selects, and where their pods are. Bound pods find the counters that they
count for in groups, those that differ in no label that a counter goes by; and a group looks for new counters only when one of
its pods comes or goes, in an index of their conditions. So neither a thousand applications that select their own pods, nor a
label of its own for each pod, make counters and pods look at each other.

Invariants:

* A counter that is kept says of each row what a walk over its bound pods would say.
* `revision` grows whenever an answer that is derived from counters, terms, namespaces or workloads may have changed.
* At most BYTES_MAX of counters are kept, and CONDITIONS_MAX conditions. One that was let go is counted again for whoever asks
  for it.

Owner: one Snapshot. Cost: a binding costs a look-up, 0.1 µs, and 0.3 µs for each counter that its template counts for; a group
that is new what the index takes; a new counter 1 ns for each template and condition and 3 ns a pod.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from rayched.api.selectors import Operator, Requirement
from rayched.snapshot.carried_terms import CarriedTerms, SlotPlacements
from rayched.snapshot.change_log import FEW
from rayched.snapshot.condition_index import ConditionIndex
from rayched.snapshot.label_columns import LabelColumns
from rayched.snapshot.pod_selection import CarriedTerm, LabelConditions, PodSelector, terms_of_bound
from rayched.snapshot.referenced_labels import ReferencedLabels
from rayched.snapshot.row_counter import RowCounter
from rayched.snapshot.templates import PodTemplate
from rayched.snapshot.work_budget import WorkBudget

BYTES_MAX: Final = 64 << 20
COUNTERS_MIN: Final = 64
"""So many counters are kept whatever they take: those that one pod may ask for, several times over."""
CONDITIONS_MAX: Final = 16_384
"""More than one pod may ask for. What is followed costs at each binding."""
FOLLOWED_MAX: Final = 65_536
"""After so many changes of counters those that nobody has read meanwhile are let go: to count anew costs less than to follow."""
TEMPLATES_MIN: Final = 4_096
"""So many templates without bound pods may be remembered, besides those that have some; and so many groups."""

_NAMESPACE: Final = ""
"""Under this key a pod's namespace stands among its labels, none of which has an empty one."""

Counted: TypeAlias = tuple[PodSelector, ...]
"""What a counter counts: pods that all the selectors select."""


class PodCounter(RowCounter):
    """Pods of each row that selectors select."""

    __slots__ = ("n_conditions", "what")

    def __init__(self, what: Counted, capacity: int) -> None:
        super().__init__(capacity)
        self.what = what
        self.n_conditions = max(1, sum(len(selector.conditions or ()) for selector in what))

    @property
    def conditions(self) -> LabelConditions:
        """What a pod's labels and its namespace have to meet."""
        found: list[Requirement] = []
        for selector in self.what:
            if selector.conditions is None:
                return None
            found += selector.conditions
            if selector.namespaces is not None:
                found.append(Requirement(_NAMESPACE, Operator.IN, selector.namespaces))
        return tuple(found)

    @property
    def label_keys(self) -> Iterable[str]:
        """Keys of all labels that it goes by."""
        return {condition.key for selector in self.what for condition in selector.conditions or ()}


@dataclass(slots=True, eq=False)
class _CountedPods:
    """Bound pods that differ in nothing that counters go by."""

    generation: int
    """Of the groups; one of an older generation may mix pods that differ."""
    seen: int = 0
    """The place of the next counter to look at."""
    counters: list[PodCounter] = field(default_factory=list)
    """Counters that each of the pods counts for."""


@dataclass(slots=True, eq=False)
class _BoundTemplate:
    """Bound pods of one template, those that are being deleted apart from the others."""

    template: PodTemplate
    terminating: bool
    carried: tuple[CarriedTerm, ...]
    carrying: int
    """The slot of its terms."""
    slot: int
    group: _CountedPods
    pods: int = 0
    """Also on nodes that are not there."""

    def counts_for(self, what: Counted) -> bool:
        if self.terminating and not all(selector.terminating for selector in what):
            return False
        return all(selector.matches(self.template.namespace, self.template.labels) for selector in what)


class PodCounts:
    """The counters of one table."""

    def __init__(self, mentioned: ReferencedLabels, work: WorkBudget) -> None:
        """`mentioned` is told what terms of bound pods mention."""
        self.revision = 0
        self._work = work
        self._capacity = 0
        self._counters: OrderedDict[Counted, PodCounter] = OrderedDict()
        self._places: list[PodCounter] = []
        """The counters, the newest last."""
        self._index = ConditionIndex()
        """What counters go by, by place."""
        self._n_conditions = 0
        self._followed = 0
        """Changes of counters since those were let go that nobody reads."""
        self._templates: dict[tuple[int, bool], _BoundTemplate] = {}
        self._empty_looked_at = TEMPLATES_MIN
        self._labels = LabelColumns(work.spend)
        """Of bound templates, by slot."""
        self._ending = array("b")
        """Whether pods of the slot are being deleted."""
        self._placements = SlotPlacements()
        """Of slots on rows."""
        self._generation = 0
        self._groups: dict[Hashable, _CountedPods] = {}
        """By all that counters go by; TEMPLATES_MIN at most."""
        self._counted_keys: set[str] = set()
        """Keys of labels that counters go by, and some that they went by."""
        self._carried: dict[tuple[str, bytes], tuple[CarriedTerm, ...]] = {}
        """Terms by namespace and part of a pod, of TEMPLATES_MIN at most."""
        self.terms = CarriedTerms(mentioned)
        """That bound pods carry."""

    # ---------------------------------------------------------------------------------------------------------- reading

    def counter(self, what: Counted) -> PodCounter:
        """The counter; counted now where it is not kept. Valid until the next one is asked for. Raises AttemptOverBudget."""
        counter = self._counters.get(what)
        if counter is not None:
            self._counters.move_to_end(what)
            counter.is_used = True
            return counter
        self._work.spend()
        counter = PodCounter(what, self._capacity)
        self._count(counter)
        self._make_room(counter)
        self._counters[what] = counter
        self._place_of(counter)
        new_keys = set(counter.label_keys) - self._counted_keys
        if new_keys:
            self._counted_keys |= new_keys
            if any(map(self._labels.has_key, new_keys)):
                self._regroup()
        return counter

    def counters(self) -> list[PodCounter]:
        """All that are kept."""
        return list(self._counters.values())

    # ---------------------------------------------------------------------------------------------------------- writing

    def count(self, row: int | None, template: PodTemplate, change: int, *, terminating: bool) -> None:
        """A pod of the template comes (1) or goes (-1); its row is None where its node is not there."""
        bound = self._templates.get((template.id, terminating)) or self._bound_template(template, terminating)
        bound.pods += change
        if bound.carried and self.terms.carry(bound.carried, change):
            self.revision += 1
        if row is not None:
            self._place(bound, row, change)

    def move(self, row: int, template: PodTemplate, change: int, *, terminating: bool) -> None:
        """The node of a bound pod arrives at this row (1), or leaves it (-1)."""
        self._place(self._templates[template.id, terminating], row, change)

    def reserve(self, capacity: int) -> None:
        """The table has room for more rows now."""
        for counter in self._counters.values():
            counter.reserve(capacity)
        self._capacity = capacity

    # ---------------------------------------------------------------------------------------------------------- private

    def _place(self, bound: _BoundTemplate, row: int, change: int) -> None:
        if self._counters:
            counters = self._counters_of(bound)
            if counters:
                for counter in counters:
                    counter.add(row, change)
                self.revision += 1
                self._followed += len(counters)
                if self._followed > FOLLOWED_MAX:
                    self._let_go_unread()
        self._placements.add(bound.slot, row, change)
        if bound.carried:
            self.terms.placements.add(bound.carrying, row, change)
            self.revision += 1

    def _count(self, counter: PodCounter) -> None:
        """Count all pods that are there, before anything of it is known to anybody."""
        selected = self._labels.selected(counter.what)
        if not all(selector.terminating for selector in counter.what):
            selected &= np.frombuffer(self._ending, np.int8) == 0
        slots, rows, changes = self._placements.since(0)
        there = selected[slots].nonzero()[0]
        counter.count(rows[there], changes[there])

    def _bound_template(self, template: PodTemplate, terminating: bool) -> _BoundTemplate:
        if len(self._templates) >= 2 * self._empty_looked_at:
            self._forget_templates()
        carried = self._carried_by(template) if template.has_affinity else ()
        carrying = self.terms.slot(carried) if carried else 0
        bound = _BoundTemplate(template, terminating, carried, carrying, self._add_slot(template, terminating), _NO_GROUP)
        self._templates[template.id, terminating] = bound
        return bound

    def _add_slot(self, template: PodTemplate, terminating: bool) -> int:
        self._ending.append(terminating)
        return self._labels.add(template.namespace, template.labels)

    def _counters_of(self, bound: _BoundTemplate) -> list[PodCounter]:
        """The counters that its pods count for. Not to be changed."""
        group = bound.group
        if group.generation != self._generation:
            group = bound.group = self._group_of(bound)
        new = len(self._places) - group.seen
        if new:
            if new <= FEW:
                group.counters += [counter for counter in self._places[group.seen :] if bound.counts_for(counter.what)]
            else:
                labels = {**bound.template.labels, _NAMESPACE: bound.template.namespace}
                for place in self._index.holding(labels, group.seen).nonzero()[0].tolist():
                    counter = self._places[group.seen + place]
                    if not bound.terminating or all(selector.terminating for selector in counter.what):
                        group.counters.append(counter)
            group.seen += new
        return group.counters

    def _group_of(self, bound: _BoundTemplate) -> _CountedPods:
        template, keys = bound.template, self._counted_keys
        labels = tuple([label for label in template.labels.items() if label[0] in keys])
        key = template.namespace, labels, bound.terminating
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= TEMPLATES_MIN:
                self._groups.clear()
            group = self._groups[key] = _CountedPods(self._generation)
        return group

    def _regroup(self) -> None:
        """Templates find their groups anew."""
        self._generation += 1
        self._groups.clear()

    def _carried_by(self, template: PodTemplate) -> tuple[CarriedTerm, ...]:
        """The terms of its pods. The last part of a pod has them; what they say of its own namespace depends on that."""
        part = template.namespace, template.bare[-1]
        carried = self._carried.get(part)
        if carried is None:
            if len(self._carried) >= TEMPLATES_MIN:
                self._carried.clear()
            carried = self._carried[part] = terms_of_bound(template.pod)
        return carried

    def _forget_templates(self) -> None:
        """Let go of templates without pods, and number the others anew."""
        numbers = np.zeros(len(self._labels), np.int32)
        self._templates = {key: bound for key, bound in self._templates.items() if bound.pods}
        self._empty_looked_at = max(TEMPLATES_MIN, len(self._templates))
        self._labels, self._ending = LabelColumns(self._work.spend), array("b")
        carrying = [bound for bound in self._templates.values() if bound.carried]
        self.terms.renumber(bound.carried for bound in carrying)
        for bound in carrying:
            bound.carrying = self.terms.slot(bound.carried)
        for bound in self._templates.values():
            slot = self._add_slot(bound.template, bound.terminating)
            numbers[bound.slot] = bound.slot = slot
        self._placements.compact(numbers)

    def _place_of(self, counter: PodCounter) -> None:
        self._places.append(counter)
        self._index.add(counter.conditions)
        self._n_conditions += counter.n_conditions

    def _make_room(self, coming: PodCounter) -> None:
        """Let go of counters that were not asked for longest: a quarter at once, as all groups have to be told."""
        allowed = max(COUNTERS_MIN, BYTES_MAX // (self._capacity * np.dtype(np.int32).itemsize or 1))
        if len(self._counters) >= allowed:
            self._let_go(list(self._counters.values()), max(1, allowed // 4), lambda _: 1)
        if self._n_conditions + coming.n_conditions > CONDITIONS_MAX:
            self._let_go(list(self._counters.values()), CONDITIONS_MAX // 4, lambda counter: counter.n_conditions)

    def _let_go_unread(self) -> None:
        self._followed = 0
        unread = [counter for counter in self._counters.values() if not counter.is_used]
        self._let_go(unread, len(unread), lambda _: 1)
        for counter in self._counters.values():
            counter.is_used = False

    def _let_go(self, counters: Sequence[PodCounter], amount: int, size: Callable[[PodCounter], int]) -> None:
        """Of these, from the first one on, until so much is gone; those in use only where the others do not suffice."""
        unused = [counter for counter in counters if not counter.is_used]
        used = [counter for counter in counters if counter.is_used]
        if not counters:
            return
        for counter in (*unused, *used):
            if amount <= 0:
                break
            amount -= size(counter)
            counter.is_kept = False
            del self._counters[counter.what]
        for counter in used:
            counter.is_used = False
        self._places, self._index, self._n_conditions = [], ConditionIndex(), 0
        for counter in self._counters.values():
            self._place_of(counter)
        self._counted_keys = {key for counter in self._counters.values() for key in counter.label_keys}
        self._regroup()


_NO_GROUP: Final = _CountedPods(-1)
