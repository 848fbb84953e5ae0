"""Counters: how many bound pods of each row a selector selects, or carry a term; kept with every binding, never recounted.

A counter comes into being when somebody asks for it first, from what is known of the templates of bound pods, and follows every
binding from then on. It is a column of numbers with a log of the rows that changed. Sums over domains of a topology key are made
of it by `domains`. Which terms bound pods carry is known at all times: what they ask for concerns every pod that comes in.

Counters, terms and templates find each other by handles: a label with its value that a selector insists on, or a term. So a
thousand applications that select their own pods do not look at each other.

Invariants:

* A counter that is kept says of each row what a walk over its bound pods would say.
* `revision` grows whenever an answer that is derived from counters, terms, namespaces or workloads may have changed.
* At most BYTES_MAX of counters are kept. One that was let go is counted again for whoever asks for it.

Owner: one Snapshot. Cost: a binding costs a look-up, and 0.3 µs for each counter that its template counts for; a new counter
0.2 µs for each template and row where its pods are; a new template 2 µs where another counts for the same, else 1 µs for each
counter that shares a handle with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rayched.api.selectors import Operator
from rayched.snapshot.change_log import CHANGES_MAX, ChangeLog
from rayched.snapshot.mentioned_labels import MentionedLabels
from rayched.snapshot.pod_selection import CarriedTerm, LabelConditions, Labels, PodSelector, terms_of_bound
from rayched.snapshot.templates import PodTemplate

BYTES_MAX: Final = 64 << 20
COUNTERS_MIN: Final = 64
"""So many counters are kept whatever they take: those that one pod may ask for, several times over."""
TEMPLATES_MIN: Final = 4_096
"""So many templates without bound pods may be remembered, besides those that have some."""
DEAD_TERMS_MIN: Final = 1_024
"""Terms that nobody carries any more are forgotten when there are more of them than this, and than of others."""

CountColumn = NDArray[np.int32]

Counted: TypeAlias = CarriedTerm | tuple[PodSelector, ...]
"""What a counter counts: pods that carry the term (as often as they carry it), or pods that all the selectors select."""

ANY: Final = "any"
"""The handle of what insists on no label."""


def handles_insisted_on(conditions: LabelConditions) -> Sequence[Hashable]:
    """Labels one of which a pod must have to meet the conditions; ANY where none can be named."""
    for condition in conditions or ():
        if condition.operator is Operator.IN:
            return [(condition.key, value) for value in condition.values]
    return (ANY,)


def handles_of(labels: Labels) -> Sequence[Hashable]:
    """Where to look for what may select a pod with these labels."""
    return [ANY, *labels.items()]


class PodCounter:
    """Pods of each row that count."""

    __slots__ = ("column", "is_kept", "is_used", "log", "what")

    def __init__(self, what: Counted, capacity: int) -> None:
        self.what = what
        self.column: CountColumn = np.zeros(capacity, np.int32)
        """Shape (capacity,). Rows that are no nodes have 0."""
        self.log = ChangeLog(CHANGES_MAX)
        """Each change by one: the row where a pod more counts, ~row where one fewer does."""
        self.is_kept = True
        """It follows bindings; one that was let go does not, and is to be asked for anew."""
        self.is_used = False
        """To be set by whoever goes on reading it without asking for it: it is not let go the next time."""

    def add(self, row: int, change: int) -> None:
        self.column[row] += change
        entry = row if change > 0 else ~row
        for _ in range(abs(change)):
            self.log.append(entry)

    @property
    def handles(self) -> Sequence[Hashable]:
        """What one of has every template that counts."""
        if isinstance(self.what, CarriedTerm):
            return (self.what,)
        return handles_insisted_on(tuple(condition for selector in self.what for condition in selector.conditions or ()))

    @property
    def label_keys(self) -> Iterable[str]:
        """Keys of all labels that it goes by."""
        if isinstance(self.what, CarriedTerm):
            return ()
        return {condition.key for selector in self.what for condition in selector.conditions or ()}


@dataclass(slots=True, eq=False)
class _BoundTemplate:
    """Bound pods of one template, those that are being deleted apart from the others."""

    template: PodTemplate
    terminating: bool
    carried: tuple[CarriedTerm, ...]
    counters: list[tuple[PodCounter, int]] = field(default_factory=list)
    """Counters that each of the pods counts for, and how much."""
    pods: int = 0
    """Also on nodes that are not there."""
    by_row: dict[int, int] = field(default_factory=dict)
    """Row to how many of the pods are there."""

    @property
    def handles(self) -> Sequence[Hashable]:
        return [*handles_of(self.template.labels), *dict.fromkeys(self.carried)]

    def amount(self, what: Counted) -> int:
        """What one of the pods counts for."""
        if isinstance(what, CarriedTerm):
            return self.carried.count(what)
        if self.terminating and not all(selector.terminating for selector in what):
            return 0
        return int(all(selector.matches(self.template.namespace, self.template.labels) for selector in what))

    def count_from(self, counter: PodCounter) -> int:
        """Note a counter that the pods may count for. Gives the amount."""
        amount = self.amount(counter.what)
        if amount:
            self.counters.append((counter, amount))
        return amount


class PodCounts:
    """The counters of one table."""

    def __init__(self, mentioned: MentionedLabels) -> None:
        """`mentioned` is told what terms of bound pods mention."""
        self.revision = 0
        self._mentioned = mentioned
        self._capacity = 0
        self._counters: OrderedDict[Counted, PodCounter] = OrderedDict()
        self._counters_by_handle: dict[Hashable, list[PodCounter]] = {}
        self._templates: dict[tuple[int, bool], _BoundTemplate] = {}
        self._templates_by_handle: dict[Hashable, list[_BoundTemplate]] = {}
        self._unindexed: list[_BoundTemplate] = []
        """Templates that came since a counter was new, and are not found by their handles yet."""
        self._amounts: dict[Hashable, list[tuple[PodCounter, int]]] = {}
        """Counters that pods count for, by all that counters go by; of TEMPLATES_MIN at most."""
        self._counted_keys: set[str] | None = None
        """Keys of labels that counters go by; None: to be found out."""
        self._empty_looked_at = TEMPLATES_MIN
        self._carried: dict[tuple[str, bytes], tuple[CarriedTerm, ...]] = {}
        """Terms by namespace and part of a pod, of TEMPLATES_MIN at most."""
        self._carriers: dict[CarriedTerm, int] = {}
        self._terms: dict[Hashable, list[CarriedTerm]] = {}
        self.terms_generation = 0
        """Grows when lists of terms are made anew."""
        self.terms_seen = 0
        """Grows with every term that was not there before."""

    # ---------------------------------------------------------------------------------------------------------- reading

    def counter(self, what: Counted) -> PodCounter:
        """The counter; counted now where it is not kept. Valid until the next one is asked for."""
        counter = self._counters.get(what)
        if counter is not None:
            self._counters.move_to_end(what)
            return counter
        self._index()
        self._let_some_go()
        counter = self._counters[what] = PodCounter(what, self._capacity)
        if self._counted_keys is not None:
            self._counted_keys.update(counter.label_keys)
        self._amounts.clear()
        for handle in counter.handles:
            self._counters_by_handle.setdefault(handle, []).append(counter)
            for bound in self._templates_by_handle.get(handle, ()):
                amount = bound.count_from(counter)
                if amount:
                    for row, pods in bound.by_row.items():
                        counter.column[row] += amount * pods
        return counter

    def counters(self) -> list[PodCounter]:
        """All that are kept."""
        return list(self._counters.values())

    def terms(self, handle: Hashable) -> Sequence[CarriedTerm]:
        """Every term with this handle that a bound pod carries, each once, and some that nobody carries any more.

        Grows at its end, until `terms_generation` changes. Not to be changed.
        """
        return self._terms.get(handle, ())

    def carriers(self) -> Mapping[CarriedTerm, int]:
        """How many bound pods carry each term, counting each as often as it carries it. Not to be changed."""
        return self._carriers

    # ---------------------------------------------------------------------------------------------------------- writing

    def count(self, row: int | None, template: PodTemplate, change: int, *, terminating: bool) -> None:
        """A pod of the template comes (1) or goes (-1); its row is None where its node is not there."""
        bound = self._templates.get((template.id, terminating)) or self._bound_template(template, terminating)
        bound.pods += change
        for term in bound.carried:
            self._carry(term, change)
        if row is not None:
            self._place(bound, row, change)

    def move(self, row: int, template: PodTemplate, change: int, *, terminating: bool) -> None:
        """The node of a bound pod arrives at this row (1), or leaves it (-1)."""
        self._place(self._templates[template.id, terminating], row, change)

    def reserve(self, capacity: int) -> None:
        """The table has room for more rows now."""
        more = capacity - self._capacity
        for counter in self._counters.values():
            counter.column = np.concatenate((counter.column, np.zeros(more, np.int32)))
        self._capacity = capacity

    # ---------------------------------------------------------------------------------------------------------- private

    def _place(self, bound: _BoundTemplate, row: int, change: int) -> None:
        pods = bound.by_row.get(row, 0) + change
        if pods:
            bound.by_row[row] = pods
        else:
            del bound.by_row[row]
        if bound.counters:
            for counter, amount in bound.counters:
                counter.add(row, change * amount)
            self.revision += 1

    def _bound_template(self, template: PodTemplate, terminating: bool) -> _BoundTemplate:
        if len(self._templates) >= 2 * self._empty_looked_at:
            self._forget_templates()
        bound = _BoundTemplate(template, terminating, self._carried_by(template) if template.has_affinity else ())
        self._templates[template.id, terminating] = bound
        self._unindexed.append(bound)
        if self._counters:
            bound.counters = self._counters_of(bound).copy()
        return bound

    def _counters_of(self, bound: _BoundTemplate) -> list[tuple[PodCounter, int]]:
        """The counters that its pods count for. Not to be changed."""
        if self._counted_keys is None:
            self._counted_keys = {key for counter in self._counters.values() for key in counter.label_keys}
        template, keys = bound.template, self._counted_keys
        labels = tuple([label for label in template.labels.items() if label[0] in keys])
        seen = template.namespace, labels, bound.carried, bound.terminating
        found = self._amounts.get(seen)
        if found is None:
            if len(self._amounts) >= TEMPLATES_MIN:
                self._amounts.clear()
            by_handle = self._counters_by_handle
            counters = [counter for handle in bound.handles for counter in by_handle.get(handle, ())]
            found = [(counter, amount) for counter in counters if (amount := bound.amount(counter.what))]
            self._amounts[seen] = found
        return found

    def _carried_by(self, template: PodTemplate) -> tuple[CarriedTerm, ...]:
        """The terms of its pods. The last part of a pod has them; what they say of its own namespace depends on that."""
        part = template.namespace, template.bare[-1]
        carried = self._carried.get(part)
        if carried is None:
            if len(self._carried) >= TEMPLATES_MIN:
                self._carried.clear()
            carried = self._carried[part] = terms_of_bound(template.pod)
        return carried

    def _index(self) -> None:
        for bound in self._unindexed:
            for handle in bound.handles:
                self._templates_by_handle.setdefault(handle, []).append(bound)
        self._unindexed.clear()

    def _forget_templates(self) -> None:
        """Let go of templates without pods."""
        self._unindexed.clear()
        self._templates = {key: bound for key, bound in self._templates.items() if bound.pods}
        self._empty_looked_at = max(TEMPLATES_MIN, len(self._templates))
        self._templates_by_handle = {}
        for bound in self._templates.values():
            for handle in bound.handles:
                self._templates_by_handle.setdefault(handle, []).append(bound)

    def _carry(self, term: CarriedTerm, change: int) -> None:
        known = self._carriers.get(term)
        if known is None:
            self._forget_terms()
            for handle in handles_insisted_on(term.conditions):
                self._terms.setdefault(handle, []).append(term)
            self._mentioned.add_conditions(term.conditions)
            self.revision += 1
            self.terms_seen += 1
            known = 0
        self._carriers[term] = known + change

    def _forget_terms(self) -> None:
        """Now and then, let go of terms that nobody carries any more."""
        if len(self._carriers) < 2 * DEAD_TERMS_MIN or len(self._carriers) & (DEAD_TERMS_MIN - 1):
            return
        alive = {term: count for term, count in self._carriers.items() if count}
        if len(self._carriers) - len(alive) > max(DEAD_TERMS_MIN, len(alive)):
            self._carriers, self._terms = alive, {}
            for term in alive:
                for handle in handles_insisted_on(term.conditions):
                    self._terms.setdefault(handle, []).append(term)
            self.terms_generation += 1

    def _let_some_go(self) -> None:
        """Make room for another counter: a quarter at once, as all templates have to be told."""
        allowed = max(COUNTERS_MIN, BYTES_MAX // (self._capacity * np.dtype(np.int32).itemsize or 1))
        if len(self._counters) < allowed:
            return
        for _ in range(max(1, allowed // 4)):
            what, counter = self._counters.popitem(last=False)
            while counter.is_used:
                counter.is_used = False
                self._counters[what] = counter
                what, counter = self._counters.popitem(last=False)
            counter.is_kept = False
        kept: set[int] = set(map(id, self._counters.values()))
        for bound in self._templates.values():
            bound.counters = [(counter, amount) for counter, amount in bound.counters if id(counter) in kept]
        self._counters_by_handle = {}
        self._counted_keys = None
        self._amounts.clear()
        for counter in self._counters.values():
            for handle in counter.handles:
                self._counters_by_handle.setdefault(handle, []).append(counter)
