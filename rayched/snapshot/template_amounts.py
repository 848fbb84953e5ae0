"""What a bound pod of each template takes up, as columns over templates, for whoever adds up many pods at once.

A template gets a number when it is first asked for. Numbers mean the same for as long as `generation` stays; `make_room` may
begin anew.

Axes: (resources, numbers), int64; resources as in the table.
Owner: a NodeTable. Memory: 8 bytes a resource and template, of NUMBERS_MAX and those that come between two calls of `make_room`.
Cost: a dictionary look-up for a template that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rayched.snapshot.templates import PodTemplate

NUMBERS_MAX: Final = 65_536

VectorOf = Callable[[PodTemplate], NDArray[np.int64]]
"""What one bound pod adds to a row of `requested`. Shape (resources,)."""


class TemplateAmounts:
    """Amounts by number."""

    __slots__ = ("_amounts", "_limit", "_numbers", "_vector_of", "generation")

    def __init__(self, vector_of: VectorOf, limit: int = NUMBERS_MAX) -> None:
        self._vector_of = vector_of
        self._limit = limit
        self._numbers: dict[int, int] = {}
        self._amounts = np.zeros((0, 16), np.int64)
        self.generation = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def make_room(self) -> None:
        """Begin anew where too many have a number. Those that were given before may be void now."""
        if len(self._numbers) >= self._limit:
            self._numbers.clear()
            self.generation += 1

    def numbers(self, templates: Iterable[PodTemplate]) -> list[int]:
        """Their numbers, in their order."""
        known = self._numbers
        found = []
        for template in templates:
            number = known.get(template.id)
            found.append(self._add(template) if number is None else number)
        return found

    def amounts(self, resource: int) -> NDArray[np.int64]:
        """Of one resource, by number; templates that were numbered when it was unknown have none of it."""
        found: NDArray[np.int64] = (
            self._amounts[resource] if resource < len(self._amounts) else np.zeros(self._amounts.shape[1], np.int64)
        )
        return found

    def _add(self, template: PodTemplate) -> int:
        vector = self._vector_of(template)
        number = self._numbers[template.id] = len(self._numbers)
        n_resources, capacity = self._amounts.shape
        if number >= capacity or len(vector) > n_resources:
            wider = np.zeros((max(len(vector), n_resources), max(capacity, 2 * number)), np.int64)
            wider[:n_resources, :capacity] = self._amounts
            self._amounts = wider
        self._amounts[: len(vector), number] = vector
        self._amounts[len(vector) :, number] = 0
        return number
