"""What a preemption takes from hard budgets, and how much of it goes into one write.

Victims are entered in their budgets in the very write that ends them, as an eviction does it.

Pure: works on the cache's objects, which stay as they are. Cost: nothing without hard budgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rayched.api import kinds
from rayched.api.disruption import take
from rayched.core.cache.cache import Cache
from rayched.core.cache.records import PodRecord
from rayched.snapshot.budgets import Budgets
from rayched.store.codec import encode
from rayched.store.transactions import ALSO_MAX, BYTES_MAX, WRITE_BYTES_MAX
from rayched.v1.storage_pb2 import LeaderWrite
from rayched.v1.workloads_pb2 import PodDisruptionBudget

VALUES_BYTES_MAX: Final = BYTES_MAX // 4
"""Of the pods and budgets that one preemption writes at one stroke, beside the pod that wants the room."""
_BYTES_AROUND: Final = 512
"""What a budget grows by at most when a victim is entered, and its own frame."""


class Held(NamedTuple):
    """A hard budget that has a say about a pod, as it is in the cache."""

    key: bytes
    mod_revision: int
    budget: PodDisruptionBudget

    @property
    def n_bytes(self) -> int:
        """Of its value once the pod is entered; rather more than less."""
        return self.budget.ByteSize() + _BYTES_AROUND


class ObjectRewrite(NamedTuple):
    """An object to be written if it is still at its revision."""

    key: bytes
    mod_revision: int
    value: bytes


def held_by(cache: Cache, budgets: Budgets, victim: PodRecord) -> list[Held]:
    """The hard budgets that the end of this pod is taken from."""
    if not budgets.any_hard:
        return []
    template, name = victim.template, victim.name.partition("/")[2]
    found: list[Held] = []
    for budget in budgets.of(template.namespace):
        if not budget.is_hard or not budget.counts(template.namespace, name, template.labels):
            continue
        stored = cache.object_of(kinds.POD_DISRUPTION_BUDGET, budget.namespace, budget.name)
        if stored is not None:
            key, revision, message = stored
            assert isinstance(message, PodDisruptionBudget)
            found.append(Held(key, revision, message))
    return found


class VictimWrite(NamedTuple):
    """A pod beside the one that wants the room, as it is to be written, and the budgets that this is taken from."""

    record: PodRecord
    value: bytes
    held: list[Held]
    is_victim: bool

    @property
    def n_bytes(self) -> int:
        return len(self.value) + sum(held.n_bytes for held in self.held)

    @property
    def written_keys(self) -> tuple[bytes, ...]:
        return (self.record.key, *(held.key for held in self.held))

    def problem(self) -> str | None:
        """Why no write can end this pod."""
        if len(self.held) > ALSO_MAX:
            text = f"{len(self.held)} hard disruption budgets count pod {self.record.name}"
            return f"{text}: at most {ALSO_MAX} can be taken from at once"
        if self.n_bytes > WRITE_BYTES_MAX:
            text = f"pod {self.record.name} and its hard disruption budgets take {self.n_bytes} bytes"
            return f"{text}: at most {WRITE_BYTES_MAX} can be written at once"
        return None


def as_many_as_fit(parts: Sequence[VictimWrite]) -> int:
    """How many of the parts, the first ones, go into the write that makes room. A budget of several takes one place."""
    n_keys, size = 0, 0
    budgets: set[bytes] = set()
    for count, part in enumerate(parts):
        new = [held for held in part.held if held.key not in budgets]
        n_keys += 1 + len(new)
        size += part.n_bytes
        if n_keys > ALSO_MAX or size > VALUES_BYTES_MAX:
            return count
        budgets.update(held.key for held in new)
    return len(parts)


def spend(parts: Iterable[VictimWrite], stamp: LeaderWrite, now_seconds: int) -> list[ObjectRewrite] | None:
    """The budgets with the victims entered. None: one of them does not allow so much."""
    changed: dict[bytes, Held] = {}
    for part in parts:
        for held in part.held:
            if held.key not in changed:
                copy = PodDisruptionBudget()
                copy.CopyFrom(held.budget)
                changed[held.key] = held._replace(budget=copy)
            if take(changed[held.key].budget, part.record.name.partition("/")[2], now_seconds) is not None:
                return None
    return [ObjectRewrite(one.key, one.mod_revision, encode(kinds.wrap(one.budget), stamp)) for one in changed.values()]
