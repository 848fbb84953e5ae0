"""What the auditor found: violations by kind, and what was only tolerated.

Each field of `Findings` is one kind of violation; `INVARIANTS` says which invariant it belongs to. The first of each kind is kept
in words, so that a run that fails says where to look.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Final

INVARIANTS: Final = {
    "bound_twice": "S1",
    "bound_nowhere": "S1",
    "over_capacity": "S2",
    "doubled": "S3",
    "stale": "S4",
    "decided_early": "S4",
    "epochs_not_rising": "S5",
    "constraint_broken": "S8",
    "wrong_victim": "S9",
    "undeleted": "S12",
    "gang_partial": "P1",
    "gang_unplanned": "P2",
    "member_strayed": "P3",
    "plan_broken": "P4",
    "condition_wrong": "P9",
    "unit_split": "P10",
    "useless_victim": "P11",
    "needless_victim": "P15",
    "group_mixed": "P13",
    "gate_passed": "P14",
    "unreadable": "the store",
}
"""Kinds of violations, and the invariants that they break. S3 also counts the lost, S6 and S7 are judged by `streams`."""


@dataclass(slots=True)
class Findings:
    """Counts by kind."""

    bound_twice: int = 0
    """A pod, by uid, that was bound and then bound again or moved."""
    bound_nowhere: int = 0
    """A binding to a node that is not there, or of a pod that was being deleted or had ended."""
    over_capacity: int = 0
    """A binding after which a node's pods ask for more than it offers."""
    doubled: int = 0
    """One uid, two objects."""
    stale: int = 0
    """A leader's write under another epoch than the one in force."""
    decided_early: int = 0
    """A leader's write decided on a state from before its epoch."""
    epochs_not_rising: int = 0
    constraint_broken: int = 0
    """A binding that a hard constraint forbids, at its commit and at every moment since it was decided."""
    wrong_victim: int = 0
    """A pod evicted without a preemptor of higher priority."""
    undeleted: int = 0
    """What was deleted is there again, or is no longer being deleted."""
    gang_partial: int = 0
    """A member of a gang bound while fewer than its minimum are bound or have succeeded."""
    gang_unplanned: int = 0
    """The first members of a gang bound one after the other, and no plan before them."""
    member_strayed: int = 0
    """A member bound elsewhere than the plan in force has it."""
    plan_broken: int = 0
    """A plan for another state of its group, one that moves members without a cause (P12), or one that goes too early."""
    condition_wrong: int = 0
    """A group that says too early that it was scheduled, or says so no more."""
    unit_split: int = 0
    """Members ended for want of members, or of a group that ends as a whole, while others of their group go on."""
    useless_victim: int = 0
    """Pods told to end for a group that waits for nothing any more."""
    needless_victim: int = 0
    """A pod told to end for a group of which no member goes to its node."""
    group_mixed: int = 0
    """Members bound that differ in what they must have in common."""
    gate_passed: int = 0
    """Members bound while one of them has scheduling gates."""
    unreadable: int = 0
    tolerated: Counter[str] = field(default_factory=Counter)
    """What is no violation only because of a tolerance, by tolerance."""
    first: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, words: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        self.first.setdefault(kind, words)

    def counts(self) -> dict[str, int]:
        """Violations by kind."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name in INVARIANTS}

    @property
    def total(self) -> int:
        return sum(self.counts().values())
