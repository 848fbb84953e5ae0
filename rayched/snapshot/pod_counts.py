"""Counters: how many bound pods of each row a selector selects, or carry a term; kept with every binding, never recounted.

A counter comes into being when somebody asks for it first, from what is known of the templates of bound pods, and follows every
binding from then on. It is a column of numbers with a log of the rows that changed. Sums over domains of a topology key are made
of it by `domains`. Which terms bound pods carry is known at all times: what they ask for concerns every pod that comes in.

A new counter is counted in columns: which templates it selects, and where their pods are. Bound pods find the counters that they
count for in groups, those that differ in no label that a counter goes by; and a group looks at a counter only when one of its
pods comes or goes, and only where they share a handle: a label with its value that a selector insists on, or a term. So neither a
thousand applications that select their own pods, nor a label of its own for each pod, make counters and pods look at each other.

Invariants:

* A counter that is kept says of each row what a walk over its bound pods would say.
* `revision` grows whenever an answer that is derived from counters, terms, namespaces or workloads may have changed.
* At most BYTES_MAX of counters are kept, and CONDITIONS_MAX conditions for a handle. One that was let go is counted again for
  whoever asks for it.

Owner: one Snapshot. Cost: a binding costs a look-up, 0.1 µs, and 0.3 µs for each counter that its template counts for; a group
that is new 1 µs for each condition of counters that share a handle with it; a new counter 1 ns for each template and condition
and 3 ns a pod.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rayched.api.selectors import Operator
from rayched.snapshot.change_log import CHANGES_MAX, ChangeLog
from rayched.snapshot.label_columns import LabelColumns
from rayched.snapshot.mentioned_labels import MentionedLabels
from rayched.snapshot.pod_selection import CarriedTerm, LabelConditions, Labels, PodSelector, terms_of_bound
from rayched.snapshot.templates import PodTemplate
from rayched.snapshot.work_budget import WorkBudget

BYTES_MAX: Final = 64 << 20
COUNTERS_MIN: Final = 64
"""So many counters are kept whatever they take: those that one pod may ask for, several times over."""
CONDITIONS_MAX: Final = 16_384
"""Conditions of counters that share a handle: more than one pod may ask for. Pods of a new group are compared with them."""
TEMPLATES_MIN: Final = 4_096
"""So many templates without bound pods may be remembered, besides those that have some; and so many groups."""
PLACEMENTS_MIN: Final = 4_096
"""So many pods that came and went may be remembered, besides those that are there."""
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

    __slots__ = ("column", "handles", "is_kept", "is_used", "log", "n_conditions", "number", "what")

    def __init__(self, what: Counted, capacity: int, number: int) -> None:
        self.what = what
        self.number = number
        """In the order of all that were ever made."""
        self.column: CountColumn = np.zeros(capacity, np.int32)
        """Shape (capacity,). Rows that are no nodes have 0."""
        self.log = ChangeLog(CHANGES_MAX)
        """Each change by one: the row where a pod more counts, ~row where one fewer does."""
        self.is_kept = True
        """It follows bindings; one that was let go does not, and is to be asked for anew."""
        self.is_used = False
        """To be set by whoever goes on reading it without asking for it: it is not let go the next time."""
        conditions = [] if isinstance(what, CarriedTerm) else [one for selector in what for one in selector.conditions or ()]
        self.n_conditions = max(1, len(conditions))
        """What it takes to find out whether a pod counts."""
        self.handles = (what,) if isinstance(what, CarriedTerm) else handles_insisted_on(tuple(conditions))
        """What one of has every template that counts."""

    def add(self, row: int, change: int) -> None:
        self.column[row] += change
        entry = row if change > 0 else ~row
        for _ in range(abs(change)):
            self.log.append(entry)

    @property
    def label_keys(self) -> Iterable[str]:
        """Keys of all labels that it goes by."""
        if isinstance(self.what, CarriedTerm):
            return ()
        return {condition.key for selector in self.what for condition in selector.conditions or ()}


@dataclass(slots=True, eq=False)
class _Group:
    """Bound pods that differ in nothing that counters go by."""

    generation: int
    """Of the groups; one of an older generation may mix pods that differ."""
    seen: int = 0
    """The number of the next counter to look at."""
    counters: list[tuple[PodCounter, int]] = field(default_factory=list)
    """Counters that each of the pods counts for, and how much."""


@dataclass(slots=True, eq=False)
class _BoundTemplate:
    """Bound pods of one template, those that are being deleted apart from the others."""

    template: PodTemplate
    terminating: bool
    carried: tuple[CarriedTerm, ...]
    slot: int
    group: _Group
    pods: int = 0
    """Also on nodes that are not there."""

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


class PodCounts:
    """The counters of one table."""

    def __init__(self, mentioned: MentionedLabels, work: WorkBudget) -> None:
        """`mentioned` is told what terms of bound pods mention."""
        self.revision = 0
        self._mentioned = mentioned
        self._work = work
        self._capacity = 0
        self._counters: OrderedDict[Counted, PodCounter] = OrderedDict()
        self._counters_by_handle: dict[Hashable, list[PodCounter]] = {}
        """In the order of their numbers."""
        self._conditions: dict[Hashable, int] = {}
        """Of the counters by handle."""
        self._next_number = 0
        self._templates: dict[tuple[int, bool], _BoundTemplate] = {}
        self._empty_looked_at = TEMPLATES_MIN
        self._labels = LabelColumns()
        """Of bound templates, by slot."""
        self._ending = array("b")
        """Whether pods of the slot are being deleted."""
        self._carrying: dict[CarriedTerm, array[int]] = {}
        """Slots whose pods carry the term, each as often as they do."""
        self._placed = array("i"), array("i"), array("i")
        """Slots, rows and changes: added up, the pods of each slot on each row."""
        self._n_placed = 0
        """Pods on rows."""
        self._generation = 0
        self._groups: dict[Hashable, _Group] = {}
        """By all that counters go by; TEMPLATES_MIN at most."""
        self._counted_keys: set[str] = set()
        """Keys of labels that counters go by, and some that they went by."""
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
        """The counter; counted now where it is not kept. Valid until the next one is asked for. Raises OverBudget."""
        counter = self._counters.get(what)
        if counter is not None:
            self._counters.move_to_end(what)
            return counter
        self._work.spend()
        counter = PodCounter(what, self._capacity, self._next_number)
        self._make_room(counter)
        self._count(counter)
        self._next_number += 1
        self._counters[what] = counter
        for handle in counter.handles:
            self._counters_by_handle.setdefault(handle, []).append(counter)
            self._conditions[handle] = self._conditions.get(handle, 0) + counter.n_conditions
        new_keys = set(counter.label_keys) - self._counted_keys
        if new_keys:
            self._counted_keys |= new_keys
            if any(map(self._labels.has_key, new_keys)):
                self._regroup()
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
        if self._counters:
            counters = self._counters_of(bound)
            if counters:
                for counter, amount in counters:
                    counter.add(row, change * amount)
                self.revision += 1
        slots, rows, changes = self._placed
        slots.append(bound.slot)
        rows.append(row)
        changes.append(change)
        self._n_placed += change
        if len(slots) > 2 * self._n_placed + PLACEMENTS_MIN:
            self._compact()

    def _count(self, counter: PodCounter) -> None:
        """Count all pods that are there, before anything of it is known to anybody."""
        slots, rows, changes = (np.frombuffer(part, np.int32) for part in self._placed)
        what = counter.what
        if not len(slots):
            return
        if isinstance(what, CarriedTerm):
            carrying = self._carrying.get(what)
            if carrying is None:
                return
            amounts = np.bincount(np.frombuffer(carrying, np.int32), minlength=len(self._labels))[slots]
            there = amounts.nonzero()[0]
            pods = changes[there] * amounts[there]
        else:
            selected = self._labels.selected(what)
            if not all(selector.terminating for selector in what):
                selected &= np.frombuffer(self._ending, np.int8) == 0
            there = selected[slots].nonzero()[0]
            pods = changes[there]
        counter.column += np.bincount(rows[there], weights=pods, minlength=self._capacity).astype(np.int32)

    def _compact(self) -> None:
        """Add up what came and went."""
        slots, rows, changes = (np.frombuffer(part, np.int32) for part in self._placed)
        places, at = np.unique(slots.astype(np.int64) * self._capacity + rows, return_inverse=True)
        pods = np.bincount(at, weights=changes).astype(np.int32)
        there = pods.nonzero()[0]
        slots, rows = np.divmod(places[there], max(1, self._capacity))
        self._placed = _array(slots), _array(rows), _array(pods[there])

    def _bound_template(self, template: PodTemplate, terminating: bool) -> _BoundTemplate:
        if len(self._templates) >= 2 * self._empty_looked_at:
            self._forget_templates()
        carried = self._carried_by(template) if template.has_affinity else ()
        slot = self._add_slot(template, terminating, carried)
        bound = _BoundTemplate(template, terminating, carried, slot, _NO_GROUP)
        self._templates[template.id, terminating] = bound
        return bound

    def _add_slot(self, template: PodTemplate, terminating: bool, carried: Sequence[CarriedTerm]) -> int:
        slot = self._labels.add(template.namespace, template.labels)
        self._ending.append(terminating)
        for term in carried:
            self._carrying.setdefault(term, array("i")).append(slot)
        return slot

    def _counters_of(self, bound: _BoundTemplate) -> list[tuple[PodCounter, int]]:
        """The counters that its pods count for. Not to be changed."""
        group = bound.group
        if group.generation != self._generation:
            group = bound.group = self._group_of(bound)
        if group.seen != self._next_number:
            by_handle = self._counters_by_handle
            for handle in bound.handles:
                for counter in reversed(by_handle.get(handle, ())):
                    if counter.number < group.seen:
                        break
                    amount = bound.amount(counter.what)
                    if amount:
                        group.counters.append((counter, amount))
            group.seen = self._next_number
        return group.counters

    def _group_of(self, bound: _BoundTemplate) -> _Group:
        template, keys = bound.template, self._counted_keys
        labels = tuple([label for label in template.labels.items() if label[0] in keys])
        key = template.namespace, labels, bound.carried, bound.terminating
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= TEMPLATES_MIN:
                self._groups.clear()
            group = self._groups[key] = _Group(self._generation)
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
        self._compact()
        numbers = np.zeros(len(self._labels), np.int32)
        self._templates = {key: bound for key, bound in self._templates.items() if bound.pods}
        self._empty_looked_at = max(TEMPLATES_MIN, len(self._templates))
        self._labels, self._ending, self._carrying = LabelColumns(), array("b"), {}
        for bound in self._templates.values():
            slot = self._add_slot(bound.template, bound.terminating, bound.carried)
            numbers[bound.slot] = bound.slot = slot
        slots, rows, changes = self._placed
        self._placed = _array(numbers[np.frombuffer(slots, np.int32)]), rows, changes

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

    def _make_room(self, coming: PodCounter) -> None:
        """Let go of counters that were not asked for longest: a quarter at once, as all groups have to be told."""
        allowed = max(COUNTERS_MIN, BYTES_MAX // (self._capacity * np.dtype(np.int32).itemsize or 1))
        if len(self._counters) >= allowed:
            self._let_go(list(self._counters.values()), max(1, allowed // 4), lambda _: 1)
        for handle in coming.handles:
            if self._conditions.get(handle, 0) + coming.n_conditions > CONDITIONS_MAX:
                there = list(self._counters_by_handle[handle])
                self._let_go(there, CONDITIONS_MAX // 4, lambda counter: counter.n_conditions)

    def _let_go(self, counters: Sequence[PodCounter], amount: int, size: Callable[[PodCounter], int]) -> None:
        """Of these, from the first one on, until so much is gone; those in use only where the others do not suffice."""
        unused = [counter for counter in counters if not counter.is_used]
        used = [counter for counter in counters if counter.is_used]
        for counter in (*unused, *used):
            if amount <= 0:
                break
            amount -= size(counter)
            counter.is_kept = False
            del self._counters[counter.what]
        for counter in used:
            counter.is_used = False
        self._counters_by_handle, self._conditions = {}, {}
        for counter in sorted(self._counters.values(), key=lambda counter: counter.number):
            for handle in counter.handles:
                self._counters_by_handle.setdefault(handle, []).append(counter)
                self._conditions[handle] = self._conditions.get(handle, 0) + counter.n_conditions
        self._counted_keys = {key for counter in self._counters.values() for key in counter.label_keys}
        self._regroup()


_NO_GROUP: Final = _Group(-1)


def _array(numbers: NDArray[np.integer[Any]]) -> array[int]:
    return array("i", numbers.astype(np.int32).tobytes())
