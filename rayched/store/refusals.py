"""Counts the leader's writes that the store refused because their epoch was over: the proof that the guard stood, and an alarm.

    rayched_fenced_writes_total{op="bind" | "status" | "event" | ...}

Counted in the replica's process, whoever sent the write. Cost: a microsecond.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import Counter

from rayched.store.transactions import Fenced, Outcome

FENCED_WRITES: Final = Counter("rayched_fenced_writes", "Writes of a former leader that the store refused.", ["op"])

for _op in ("bind", "group", "preempt", "status", "event", "nodes", "budget", "garbage", "workload"):
    # An alarm needs the zeros before the first refusal.
    FENCED_WRITES.labels(_op)

log = logging.getLogger("rayched.replica")


def fenced_writes() -> dict[str, int]:
    """How many there were since the process began, by what they were for; those that there were none of are left out."""
    (family,) = FENCED_WRITES.collect()
    counted = {one.labels["op"]: int(one.value) for one in family.samples if one.name.endswith("_total")}
    return {op: count for op, count in counted.items() if count}


def count_fenced_among(op: str, outcomes: Iterable[Outcome]) -> int:
    """Counts those of the outcomes that are refusals, and returns how many they are."""
    fenced = sum(isinstance(outcome, Fenced) for outcome in outcomes)
    if fenced:
        count_fenced({op: fenced})
    return fenced


def count_fenced(writes: Mapping[str, int]) -> None:
    """Counts and logs so many more, by what they were for."""
    for op, count in writes.items():
        FENCED_WRITES.labels(op).inc(count)
    words = ", ".join(f"{op} {count}" for op, count in sorted(writes.items()) if count)
    log.warning("the store refused writes of an epoch that was over: %s", words)
