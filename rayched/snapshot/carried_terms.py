"""Terms of affinity that bound pods carry, and what those about one incoming pod come to on each row.

A term of a bound pod concerns every pod that comes in, and pods may carry terms of their own: what matters to one that comes in
is not which terms there are, but how many pods on a row carry terms about it, by what the terms say. So all terms are held
against an incoming pod at once, by an index of their conditions, and the pods that carry them are added up in columns.

    CarriedTerms   who carries what, and where; owned by one PodCounts
    TermTarget     the terms about one incoming pod, added up; owned by whoever asks for that pod

Pods that carry the same terms share a slot, whatever else differs between them.

Cost: a pod that carries terms 1 µs; a term that nobody carried yet what its conditions cost the index; a target 5 ns for each
term, once, and some calls of numpy for pods that came since, 1 µs for each that carries a term about it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rayched.api.selectors import Operator, Requirement
from rayched.snapshot.condition_index import ConditionIndex
from rayched.snapshot.pod_selection import CarriedTerm, LabelConditions, Labels, TermKind
from rayched.snapshot.referenced_labels import ReferencedLabels
from rayched.snapshot.row_counter import RowCounter
from rayched.snapshot.work_budget import WorkBudget

ONE_BY_ONE_MAX: Final = 64
"""More pods that came and went are added up anew with all the others."""
PLACEMENTS_MIN: Final = 4_096
"""So many pods that came and went may be remembered, besides those that are there."""

_NAMESPACE: Final = "namespace"
"""Under this label a pod's namespace is held against those that terms name."""
_UNKNOWN: Final = -2
_NO_ROLE: Final = -1

Ints = NDArray[np.int32]
R = TypeVar("R", bound=Hashable)


class SlotPlacements:
    """Which slots' pods came to which rows, and went: added up, the pods that are there."""

    __slots__ = ("_changes", "_n_placed", "_rows", "_slots", "generation")

    def __init__(self) -> None:
        self._slots, self._rows, self._changes = array("i"), array("i"), array("i")
        self._n_placed = 0
        self.generation = 0
        """Grows when entries change their places."""

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, slot: int, row: int, change: int) -> None:
        self._slots.append(slot)
        self._rows.append(row)
        self._changes.append(change)
        self._n_placed += change
        if len(self._slots) > 2 * self._n_placed + PLACEMENTS_MIN:
            self.compact()

    def since(self, position: int) -> tuple[Ints, Ints, Ints]:
        """Slots, rows and changes from there on; to be let go of before anything is added."""
        slots, rows, changes = (np.frombuffer(part, np.int32) for part in (self._slots, self._rows, self._changes))
        return slots[position:], rows[position:], changes[position:]

    def few_since(self, position: int) -> Iterator[tuple[int, int, int]]:
        """The same of a few, one by one."""
        return zip(self._slots[position:], self._rows[position:], self._changes[position:], strict=True)

    def compact(self, numbers: Ints | None = None) -> None:
        """Add up what came and went. `numbers`: slots are called so from now on."""
        slots, rows, changes = self.since(0)
        if not len(slots):
            return
        width = int(rows.max()) + 1
        places, at = np.unique(slots.astype(np.int64) * width + rows, return_inverse=True)
        pods = np.bincount(at, weights=changes).astype(np.int32)
        there = pods.nonzero()[0]
        slots, rows = (part.astype(np.int32) for part in np.divmod(places[there], width))
        if numbers is not None:
            slots = numbers[slots]
        self._slots, self._rows, self._changes = (array("i", part.tobytes()) for part in (slots, rows, pods[there]))
        self.generation += 1


class TermShape(NamedTuple):
    """What a term says, whoever it is about."""

    kind: TermKind
    weight: int
    """0 where the term is required."""
    topology_key: str


class CarriedTerms:
    """Of bound pods."""

    def __init__(self, mentioned: ReferencedLabels) -> None:
        """`mentioned` is told what the terms mention."""
        self._mentioned = mentioned
        self._carriers: dict[CarriedTerm, int] = {}
        self.generation = 0
        """Grows when terms or slots are numbered anew: targets are to be made anew."""
        self._numbers: dict[CarriedTerm, int] = {}
        self._selectors = ConditionIndex()
        """Of pods, by the number of the term."""
        self._shape_of = array("i")
        """By number of the term; shapes are never forgotten, as only weights and topology keys make them many."""
        self.shapes: list[TermShape] = []
        self._shapes: dict[TermShape, int] = {}
        self._reach_of = array("i")
        """By number of the term."""
        self._reaches: dict[tuple[frozenset[str], LabelConditions], int] = {}
        """By the namespaces and the selector of namespaces."""
        self._names, self._namespaces = ConditionIndex(), ConditionIndex()
        """Of reaches: one for the namespaces that are named, one for those that are selected."""
        self._slots: dict[tuple[CarriedTerm, ...], int] = {}
        self.of_slots = array("i"), array("i")
        """Slots and numbers of terms, for each term of each slot."""
        self.placements = SlotPlacements()

    def __len__(self) -> int:
        """Terms that have a number, and some that nobody carries any more."""
        return len(self._numbers)

    @property
    def n_slots(self) -> int:
        return len(self._slots)

    def about(self, namespace: str, labels: Labels, namespace_labels: Labels, since: int) -> NDArray[np.bool_]:
        """Which of the terms from this number on are about such a pod: what `CarriedTerm.matches` says of each."""
        reached = self._names.holding({_NAMESPACE: namespace}) | self._namespaces.holding(namespace_labels)
        return self._selectors.holding(labels, since) & reached[np.frombuffer(self._reach_of, np.int32)[since:]]

    def shape_of(self) -> Ints:
        """Shapes by number of the term; to be let go of before anything is added."""
        return np.frombuffer(self._shape_of, np.int32)

    def number(self, term: CarriedTerm) -> int:
        """Of a term that some pod carries. Raises KeyError."""
        return self._numbers[term]

    def carriers(self) -> Mapping[CarriedTerm, int]:
        """How many bound pods carry each term, counting each as often as it carries it. Not to be changed."""
        return self._carriers

    # ---------------------------------------------------------------------------------------------------------- writing

    def slot(self, carried: tuple[CarriedTerm, ...]) -> int:
        """Of pods that carry these."""
        slot = self._slots.get(carried)
        if slot is None:
            slot = self._slots[carried] = len(self._slots)
            slots, numbers = self.of_slots
            for term in carried:
                slots.append(slot)
                numbers.append(self._number(term))
        return slot

    def carry(self, carried: Iterable[CarriedTerm], change: int) -> bool:
        """A pod with these terms, which have a slot, comes or goes. Returns whether a term is new."""
        is_new = False
        for term in carried:
            known = self._carriers.get(term)
            if known is None:
                self._mentioned.add_conditions(term.conditions)
                is_new, known = True, 0
            self._carriers[term] = known + change
        return is_new

    def renumber(self, kept: Iterable[tuple[CarriedTerm, ...]]) -> None:
        """Slots of others are no more, and terms that nobody carries are forgotten."""
        old = self._slots
        self._slots, self.of_slots = {}, (array("i"), array("i"))
        self._carriers = {term: count for term, count in self._carriers.items() if count}
        self._forget_terms()
        slots = np.zeros(len(old), np.int32)
        for carried in dict.fromkeys(kept):
            slots[old[carried]] = self.slot(carried)
        self.placements.compact(slots)
        self.generation += 1

    def _forget_terms(self) -> None:
        """Those that nobody carries. The others keep their order."""
        numbers = np.full(len(self._numbers), -1, np.int32)
        kept = [term for term in self._numbers if term in self._carriers]
        there = np.fromiter((self._numbers[term] for term in kept), np.int32, len(kept))
        numbers[there] = np.arange(len(kept), dtype=np.int32)
        self._selectors.keep(numbers)
        self._numbers = {term: number for number, term in enumerate(kept)}
        self._shape_of = array("i", self.shape_of()[there].tobytes())
        self._reaches, self._names, self._namespaces = {}, ConditionIndex(), ConditionIndex()
        self._reach_of = array("i", map(self._reach, kept))

    def _number(self, term: CarriedTerm) -> int:
        number = self._numbers.get(term)
        if number is None:
            number = self._numbers[term] = self._selectors.add(term.conditions)
            shape = TermShape(term.kind, term.weight, term.topology_key)
            at = self._shapes.get(shape)
            if at is None:
                at = self._shapes[shape] = len(self.shapes)
                self.shapes.append(shape)
            self._shape_of.append(at)
            self._reach_of.append(self._reach(term))
        return number

    def _reach(self, term: CarriedTerm) -> int:
        content = term.namespaces, term.namespace_conditions
        reach = self._reaches.get(content)
        if reach is None:
            reach = self._reaches[content] = self._names.add((Requirement(_NAMESPACE, Operator.IN, term.namespaces),))
            self._namespaces.add(term.namespace_conditions)
        return reach


class TermTarget(Generic[R]):
    """Bound pods by row that carry terms about one incoming pod, a counter for each role that such terms have."""

    __slots__ = (
        "_about",
        "_amount_of",
        "_amounts",
        "_concerned",
        "_labels",
        "_namespace",
        "_namespace_labels",
        "_paired",
        "_placed",
        "_role_of",
        "_roles",
        "carried",
        "counters",
    )

    def __init__(self, carried: CarriedTerms, namespace: str, labels: Labels, namespace_labels: Labels) -> None:
        """What of the incoming pod terms read. Valid while `carried.generation` and the namespace's labels stay the same."""
        self.carried = carried
        self._namespace, self._labels, self._namespace_labels = namespace, labels, namespace_labels
        self._about = bytearray()
        """By number of the term: whether it is about the pod."""
        self._roles: dict[R, int] = {}
        self._role_of, self._amount_of = array("i"), array("i")
        """By shape: the role's number and what a term comes to; UNKNOWN before a term about the pod has it, NO_ROLE for none."""
        self._paired = 0
        self._amounts: list[Ints] = []
        """For each role what its terms that the pods of each slot carry come to."""
        self._concerned: NDArray[np.bool_] = np.zeros(0, np.bool_)
        """Slots that have any."""
        self._placed = (-1, 0)
        """Generation and position of the placements that were added up."""
        self.counters: dict[R, RowCounter] = {}

    @property
    def n_bytes(self) -> int:
        counters = sum(counter.column.nbytes for counter in self.counters.values())
        return counters + sum(amounts.nbytes for amounts in self._amounts) + len(self._concerned) + len(self._about)

    def refresh(self, role: Callable[[TermShape], tuple[R, int] | None], capacity: int, work: WorkBudget) -> bool:
        """Follow what is carried. `role`: what a term about the pod is to it, and how much; None: it means nothing.

        Returns whether a counter is new. Raises AttemptOverBudget, and goes on from there the next time.
        """
        n_counters = len(self.counters)
        if len(self._about) < len(self.carried):
            work.spend()
            self._look_at_terms(role)
        if not self._roles:
            # Of no term that is carried now; whoever has a role later is new then, and so are its carriers.
            return False
        for counter in self.counters.values():
            counter.reserve(capacity)
        for one in self._roles:
            if one not in self.counters:
                self.counters[one] = RowCounter(capacity)
        self._pair()
        self._add_up()
        return len(self.counters) != n_counters

    def _look_at_terms(self, role: Callable[[TermShape], tuple[R, int] | None]) -> None:
        since = len(self._about)
        about = self.carried.about(self._namespace, self._labels, self._namespace_labels, since)
        shapes, more = self.carried.shapes, len(self.carried.shapes) - len(self._role_of)
        self._role_of.extend([_UNKNOWN] * more)
        self._amount_of.extend([0] * more)
        there = np.zeros(len(shapes), np.bool_)
        there[self.carried.shape_of()[since:][about]] = True
        for shape in (there & (np.frombuffer(self._role_of, np.int32) == _UNKNOWN)).nonzero()[0].tolist():
            found = role(shapes[shape])
            if found is None:
                self._role_of[shape] = _NO_ROLE
            else:
                self._role_of[shape] = self._roles.setdefault(found[0], len(self._roles))
                self._amount_of[shape] = found[1]
        self._about += about.tobytes()

    def _pair(self) -> None:
        """Which terms about the pod new slots carry."""
        slots, numbers = self.carried.of_slots
        n_slots = self.carried.n_slots
        while len(self._amounts) < len(self._roles):
            self._amounts.append(np.zeros(n_slots, np.int32))
        if self._paired == len(slots):
            return
        self._concerned = _longer(self._concerned, n_slots)
        self._amounts = [_longer(amounts, n_slots) for amounts in self._amounts]
        new_slots, terms = (np.frombuffer(part, np.int32)[self._paired :] for part in (slots, numbers))
        there = np.frombuffer(self._about, np.bool_)[terms].nonzero()[0]
        new_slots, shapes = new_slots[there], self.carried.shape_of()[terms[there]]
        roles, amounts = (np.frombuffer(part, np.int32)[shapes] for part in (self._role_of, self._amount_of))
        for number, of_role in enumerate(self._amounts):
            chosen = (roles == number).nonzero()[0]
            np.add.at(of_role, new_slots[chosen], amounts[chosen])
        self._concerned[new_slots[roles != _NO_ROLE]] = True
        self._paired = len(slots)

    def _add_up(self) -> None:
        placements = self.carried.placements
        generation, position = self._placed
        if generation == placements.generation and position == len(placements):
            return
        counters = list(self.counters.values())
        if generation != placements.generation or len(placements) - position > ONE_BY_ONE_MAX:
            slots, rows, changes = placements.since(0)
            there = self._concerned[slots].nonzero()[0]
            slots, rows, changes = slots[there], rows[there], changes[there]
            for counter, amounts in zip(counters, self._amounts, strict=True):
                counter.count(rows, changes * amounts[slots])
        else:
            for slot, row, change in placements.few_since(position):
                if self._concerned.item(slot):
                    for counter, amounts in zip(counters, self._amounts, strict=True):
                        amount = amounts.item(slot)
                        if amount:
                            counter.add(row, change * amount)
        self._placed = placements.generation, len(placements)


T = TypeVar("T", bound=np.generic)


def _longer(column: NDArray[T], n: int) -> NDArray[T]:
    return column if len(column) == n else np.concatenate((column, np.zeros(n - len(column), column.dtype)))
