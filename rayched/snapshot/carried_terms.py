"""Terms of affinity that bound pods carry, and what those about one incoming pod come to on each row.

A term of a bound pod concerns every pod that comes in, and pods may carry terms of their own: what matters to one that comes in
is not which terms there are, but how many pods on a row carry terms about it, by what the terms say. So terms are looked at once
for each incoming pod, where they share a handle with its labels, and the pods that carry them are added up in columns.

    CarriedTerms   who carries what, and where; owned by one PodCounts
    TermTarget     the terms about one incoming pod, added up; owned by whoever asks for that pod

Pods that carry the same terms share a slot, whatever else differs between them.

Cost: a pod that carries terms 1 µs; a target 2 µs for each term that shares a handle with it, once, and some calls of numpy for
pods that came since, 1 µs for each that carries a term about it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.mentioned_labels import MentionedLabels
from rayched.snapshot.pod_selection import CarriedTerm, handles_insisted_on
from rayched.snapshot.row_counter import RowCounter
from rayched.snapshot.work_budget import WorkBudget

ONE_BY_ONE_MAX: Final = 64
"""More pods that came and went are added up anew with all the others."""
AT_ONCE: Final = 64
"""Terms that are looked at at a stretch."""
PLACEMENTS_MIN: Final = 4_096
"""So many pods that came and went may be remembered, besides those that are there."""

Ints = NDArray[np.int32]
R = TypeVar("R", bound=Hashable)


class Placements:
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


class CarriedTerms:
    """Of bound pods."""

    def __init__(self, mentioned: MentionedLabels) -> None:
        """`mentioned` is told what the terms mention."""
        self._mentioned = mentioned
        self._carriers: dict[CarriedTerm, int] = {}
        self._terms: dict[Hashable, list[CarriedTerm]] = {}
        self.generation = 0
        """Grows when terms or slots are listed anew: targets are to be made anew."""
        self._ids: dict[CarriedTerm, int] = {}
        self._slots: dict[tuple[CarriedTerm, ...], int] = {}
        self.of_slots = array("i"), array("i")
        """Slots and numbers of terms, for each term of each slot."""
        self.placements = Placements()

    def __len__(self) -> int:
        """Terms that have a number."""
        return len(self._ids)

    @property
    def n_slots(self) -> int:
        return len(self._slots)

    def terms(self, handle: Hashable) -> Sequence[CarriedTerm]:
        """Every term with this handle that a bound pod carries, each once, and some that nobody carries any more.

        Grows at its end, until `generation` changes. Not to be changed.
        """
        return self._terms.get(handle, ())

    def number(self, term: CarriedTerm) -> int:
        """Of a term that `terms` gave."""
        return self._ids[term]

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
                numbers.append(self._ids.setdefault(term, len(self._ids)))
        return slot

    def carry(self, carried: Iterable[CarriedTerm], change: int) -> bool:
        """A pod with these terms comes, or goes. Returns whether a term is new."""
        is_new = False
        for term in carried:
            known = self._carriers.get(term)
            if known is None:
                self._list(term)
                self._mentioned.add_conditions(term.conditions)
                is_new, known = True, 0
            self._carriers[term] = known + change
        return is_new

    def renumber(self, kept: Iterable[tuple[CarriedTerm, ...]]) -> None:
        """Slots of others are no more, and terms that nobody carries are forgotten."""
        old = self._slots
        self._slots, self._ids, self.of_slots = {}, {}, (array("i"), array("i"))
        numbers = np.zeros(len(old), np.int32)
        for carried in dict.fromkeys(kept):
            numbers[old[carried]] = self.slot(carried)
        self._carriers, self._terms = {term: count for term, count in self._carriers.items() if count}, {}
        for term in self._carriers:
            self._list(term)
        self.placements.compact(numbers)
        self.generation += 1

    def _list(self, term: CarriedTerm) -> None:
        for handle in handles_insisted_on(term.conditions):
            self._terms.setdefault(handle, []).append(term)


class TermTarget(Generic[R]):
    """Bound pods by row that carry terms about one incoming pod, a counter for each role that such terms have."""

    __slots__ = (
        "_amount_of",
        "_amounts",
        "_compared",
        "_concerned",
        "_paired",
        "_placed",
        "_role_of",
        "_roles",
        "carried",
        "counters",
    )

    def __init__(self, carried: CarriedTerms, handles: Iterable[Hashable]) -> None:
        """`handles` of the incoming pod. Valid while `carried.generation` stays the same."""
        self.carried = carried
        self._compared = dict.fromkeys(handles, 0)
        """How many of the terms of each handle were looked at."""
        self._roles: dict[R, int] = {}
        self._role_of = array("i")
        """By number of the term; 0: it has none, else one more than the role's number."""
        self._amount_of = array("i")
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
        return counters + sum(amounts.nbytes for amounts in self._amounts) + len(self._concerned) + 4 * len(self._role_of)

    def refresh(self, role: Callable[[CarriedTerm], tuple[R, int] | None], capacity: int, work: WorkBudget) -> bool:
        """Follow what is carried. `role`: what a term says of the pod, and how much; None: it is not about it.

        Returns whether a counter is new. Raises OverBudget, and goes on from there the next time.
        """
        n_counters = len(self.counters)
        self._look_at_terms(role, work)
        for counter in self.counters.values():
            counter.reserve(capacity)
        for one in self._roles:
            if one not in self.counters:
                self.counters[one] = RowCounter(capacity)
        self._pair()
        self._add_up()
        return len(self.counters) != n_counters

    def _look_at_terms(self, role: Callable[[CarriedTerm], tuple[R, int] | None], work: WorkBudget) -> None:
        carried, roles = self.carried, self._roles
        for handle, compared in self._compared.items():
            terms = carried.terms(handle)
            if len(terms) == compared:
                continue
            self._grow()
            for place in range(compared, len(terms)):
                found = role(terms[place])
                if found is not None:
                    number = carried.number(terms[place])
                    self._role_of[number] = 1 + roles.setdefault(found[0], len(roles))
                    self._amount_of[number] = found[1]
                self._compared[handle] = place + 1
                if not place % AT_ONCE:
                    work.spend()

    def _pair(self) -> None:
        """Which terms about the pod new slots carry."""
        slots, numbers = self.carried.of_slots
        n_slots = self.carried.n_slots
        while len(self._amounts) < len(self._roles):
            self._amounts.append(np.zeros(n_slots, np.int32))
        if self._paired == len(slots):
            return
        self._grow()
        self._concerned = _longer(self._concerned, n_slots)
        self._amounts = [_longer(amounts, n_slots) for amounts in self._amounts]
        new_slots, terms = (np.frombuffer(part, np.int32)[self._paired :] for part in (slots, numbers))
        roles, amounts = (np.frombuffer(part, np.int32)[terms] for part in (self._role_of, self._amount_of))
        there = roles.nonzero()[0]
        for number in np.unique(roles[there]).tolist():
            np.add.at(self._amounts[number - 1], new_slots[roles == number], amounts[roles == number])
        self._concerned[new_slots[there]] = True
        self._paired = len(slots)

    def _grow(self) -> None:
        more = [0] * (len(self.carried) - len(self._role_of))
        self._role_of.extend(more)
        self._amount_of.extend(more)

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
            for slot, row, change in zip(*(part.tolist() for part in placements.since(position)), strict=True):
                if self._concerned.item(slot):
                    for counter, amounts in zip(counters, self._amounts, strict=True):
                        amount = amounts.item(slot)
                        if amount:
                            counter.add(row, change * amount)
        self._placed = placements.generation, len(placements)


T = TypeVar("T", bound=np.generic)


def _longer(column: NDArray[T], n: int) -> NDArray[T]:
    return column if len(column) == n else np.concatenate((column, np.zeros(n - len(column), column.dtype)))
