"""What a preemption takes from hard budgets: entered there in the very write that ends the victims, as an eviction does it.

Pure: works on the cache's objects, which stay as they are. Cost: nothing without hard budgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rayched.actors.cache import Cache
from rayched.actors.records import PodRecord
from rayched.api import kinds
from rayched.api.disruption import take
from rayched.snapshot.budgets import Budgets
from rayched.store.codec import encode
from rayched.v1.storage_pb2 import LeaderWrite
from rayched.v1.workloads_pb2 import PodDisruptionBudget


class Spent(NamedTuple):
    """A budget with the victims entered, to be written if it is still at its revision."""

    key: bytes
    mod_revision: int
    value: bytes


def spend(
    cache: Cache, budgets: Budgets, victims: Sequence[PodRecord], stamp: LeaderWrite, now_seconds: int
) -> list[Spent] | None:
    """None: one of the budgets does not allow so much."""
    if not budgets.any_hard:
        return []
    changed: dict[bytes, tuple[int, PodDisruptionBudget]] = {}
    for victim in victims:
        template, name = victim.template, victim.name.partition("/")[2]
        for budget in budgets.of(template.namespace):
            if not budget.is_hard or not budget.counts(template.namespace, name, template.labels):
                continue
            found = cache.object_of(kinds.POD_DISRUPTION_BUDGET, budget.namespace, budget.name)
            if found is None:
                continue
            key, revision, message = found
            if key not in changed:
                assert isinstance(message, PodDisruptionBudget)
                copy = PodDisruptionBudget()
                copy.CopyFrom(message)
                changed[key] = revision, copy
            if take(changed[key][1], name, now_seconds) is not None:
                return None
    return [Spent(key, revision, encode(kinds.wrap(budget), stamp)) for key, (revision, budget) in changed.items()]
