"""Counters: how many bound pods of each row a selector selects, or carry a term; kept with every binding, never recounted.

A counter comes into being when somebody asks for it first, by walking the bound pods, and follows every binding from then on. It
is a column of numbers with a log of the rows that changed. Sums over domains of a topology key are made of it by `domains`.

Which terms bound pods carry is known at all times, as what other pods ask for concerns every pod that comes in.

Invariants:

* A counter that is kept says of each row what a walk over its bound pods would say.
* `revision` grows whenever an answer that is derived from counters, terms, namespaces or workloads may have changed.
* At most BYTES_MAX of counters are kept. Whoever uses one asks for it anew each time; one that was let go is counted again.

Owner: one Snapshot. Cost: a binding costs a look-up, and 0.3 µs for each counter that its template counts for; a new counter
0.2 µs for each bound pod; a new counter or template 1 µs for each pair of the two.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.change_log import ChangeLog
from rayched.snapshot.pod_selection import CarriedTerm, PodSelector, terms_of_bound
from rayched.snapshot.templates import PodTemplate

BYTES_MAX: Final = 64 << 20
COUNTERS_MIN: Final = 64
"""So many counters are kept whatever they take: those that one pod may ask for, several times over."""
TEMPLATES_MAX: Final = 65_536
"""Templates for which it is remembered what they count for."""
DEAD_TERMS_MIN: Final = 1_024
"""Terms that nobody carries any more are forgotten when there are more of them than this, and than of others."""

CountColumn = NDArray[np.int32]

Counted: TypeAlias = CarriedTerm | tuple[PodSelector, ...]
"""What a counter counts: pods that carry the term (as often as they carry it), or pods that all the selectors select."""


class PodCounter:
    """Pods of each row that count."""

    __slots__ = ("column", "log", "what")

    def __init__(self, what: Counted, capacity: int) -> None:
        self.what = what
        self.column: CountColumn = np.zeros(capacity, np.int32)
        """Shape (capacity,). Rows that are no nodes have 0."""
        self.log = ChangeLog()
        """Each change by one: the row where a pod more counts, ~row where one fewer does."""

    def add(self, row: int, change: int) -> None:
        self.column[row] += change
        entry = row if change > 0 else ~row
        for _ in range(abs(change)):
            self.log.append(entry)

    def of_template(self, template: PodTemplate, carried: Iterable[CarriedTerm], *, terminating: bool) -> int:
        """What one bound pod counts for."""
        what = self.what
        if isinstance(what, CarriedTerm):
            return sum(term == what for term in carried)
        if terminating and not all(selector.terminating for selector in what):
            return 0
        return int(all(selector.matches(template.namespace, template.labels) for selector in what))


@dataclass(slots=True)
class _TemplateFacts:
    """What is remembered of a template, for pods that are, or are not, being deleted."""

    carried: tuple[CarriedTerm, ...]
    counters: list[tuple[PodCounter, int]]
    """Counters that its pods count for, and how much."""
    upto: tuple[int, int]
    """How many counters had been made, and let go, when this was found out."""


BoundPods: TypeAlias = Callable[[], Iterable[tuple[int, PodTemplate, bool]]]
"""All pods on rows: the row, the template, and whether the pod is being deleted."""


class PodCounts:
    """The counters of one table."""

    def __init__(self, bound_pods: BoundPods) -> None:
        self.revision = 0
        self._bound_pods = bound_pods
        self._capacity = 0
        self._counters: OrderedDict[Counted, PodCounter] = OrderedDict()
        self._made: list[PodCounter] = []
        """In the order in which they were made, those let go lately included."""
        self._let_go = 0
        self._facts: dict[tuple[int, bool], _TemplateFacts] = {}
        self._carriers: dict[CarriedTerm, int] = {}
        self.terms: list[CarriedTerm] = []
        """Every term that some bound pod carries, each once, and some that nobody carries any more; grows at its end."""
        self.terms_generation = 0
        """Grows when `terms` is made anew."""

    def __len__(self) -> int:
        return len(self._counters)

    # ---------------------------------------------------------------------------------------------------------- reading

    def counter(self, what: Counted) -> PodCounter:
        """The counter; counted now where it is not kept. Valid until the next one is asked for."""
        counter = self._counters.get(what)
        if counter is not None:
            self._counters.move_to_end(what)
            return counter
        counter = PodCounter(what, self._capacity)
        amounts: dict[tuple[int, bool], int] = {}
        for row, template, terminating in self._bound_pods():
            key = template.id, terminating
            amount = amounts.get(key)
            if amount is None:
                amount = amounts[key] = counter.of_template(template, terms_of_bound(template.pod), terminating=terminating)
            if amount:
                counter.column[row] += amount
        self._counters[what] = counter
        self._made.append(counter)
        self._let_some_go()
        return counter

    def counters(self) -> list[PodCounter]:
        """All that are kept."""
        return list(self._counters.values())

    def carriers(self) -> dict[CarriedTerm, int]:
        """How many bound pods carry each term, counting each as often as it carries it. Not to be changed."""
        return self._carriers

    # ---------------------------------------------------------------------------------------------------------- writing

    def count(self, row: int | None, template: PodTemplate, change: int, *, terminating: bool) -> None:
        """A pod of the template comes (1) or goes (-1); its row is None where its node is not there."""
        facts = self._facts.get((template.id, terminating))
        if facts is None or facts.upto != (len(self._made), self._let_go):
            facts = self._find_out(template, terminating, facts)
        for term in facts.carried:
            self._carry(term, change)
        if row is not None:
            for counter, amount in facts.counters:
                counter.add(row, change * amount)
            if facts.counters:
                self.revision += 1

    def move(self, row: int, template: PodTemplate, change: int, *, terminating: bool) -> None:
        """The node of a bound pod arrives at this row (1), or leaves it (-1)."""
        facts = self._facts.get((template.id, terminating))
        if facts is None or facts.upto != (len(self._made), self._let_go):
            facts = self._find_out(template, terminating, facts)
        for counter, amount in facts.counters:
            counter.add(row, change * amount)
        self.revision += 1

    def reserve(self, capacity: int) -> None:
        """The table has room for more rows now."""
        more = capacity - self._capacity
        for counter in self._counters.values():
            counter.column = np.concatenate((counter.column, np.zeros(more, np.int32)))
        self._capacity = capacity

    # ---------------------------------------------------------------------------------------------------------- private

    def _carry(self, term: CarriedTerm, change: int) -> None:
        known = self._carriers.get(term)
        if known is None:
            self.terms.append(term)
            self._forget_terms()
            self.revision += 1
            known = 0
        self._carriers[term] = known + change

    def _forget_terms(self) -> None:
        if len(self.terms) < 2 * DEAD_TERMS_MIN or len(self.terms) & (DEAD_TERMS_MIN - 1):
            return
        alive = {term: count for term, count in self._carriers.items() if count}
        if len(self.terms) - len(alive) > max(DEAD_TERMS_MIN, len(alive)):
            # The newest term is not among the carriers yet.
            self.terms = [*alive, self.terms[-1]]
            self._carriers = alive
            self.terms_generation += 1

    def _find_out(self, template: PodTemplate, terminating: bool, known: _TemplateFacts | None) -> _TemplateFacts:
        if known is None or known.upto[1] != self._let_go:
            known = _TemplateFacts(terms_of_bound(template.pod), [], (0, self._let_go))
            if len(self._facts) >= TEMPLATES_MAX:
                self._facts.clear()
            self._facts[template.id, terminating] = known
        for counter in self._made[known.upto[0] :]:
            amount = counter.of_template(template, known.carried, terminating=terminating)
            if amount:
                known.counters.append((counter, amount))
        known.upto = len(self._made), self._let_go
        return known

    def _let_some_go(self) -> None:
        allowed = max(COUNTERS_MIN, BYTES_MAX // (self._capacity * np.dtype(np.int32).itemsize or 1))
        if len(self._counters) <= allowed:
            return
        # A quarter at once, as each time all templates have to find out anew what they count for.
        for _ in range(max(1, allowed // 4)):
            self._counters.popitem(last=False)
        self._made = list(self._counters.values())
        self._let_go += 1
