"""Shadow plugins: asked about every pod beside the others and without a say; what they would have decided is recorded.

A profile's shadow is the profile with further Filter and Score plugins. Where a pod was given a node by evaluating them, the
shadow evaluates them at the same moment, before the pod takes its room:

    same       the node is one of those that the shadow finds best
    other      the shadow would have taken another one
    pending    the shadow would have found none
    error      a plugin of the shadow raised, answered what its contract forbids, or took longer than its time budget

Nothing of it reaches a decision or the queue, but for its time: a shadow costs what its plugins cost. Pods that go to the node
they are nominated to, and pods that find none, are not asked about. The shadow looks at all nodes, also where a profile scores
only a share of them.

Owner: the Scheduler; one thread.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rayched.engine.engine import Engine
from rayched.engine.nominations import Nomination
from rayched.framework.plugin_error import PluginError
from rayched.framework.profile import Profile
from rayched.framework.raised import Raised
from rayched.framework.time_budget import CycleMeter
from rayched.scheduler.attempt import Attempt
from rayched.scheduler.selection import TieBreaker
from rayched.snapshot.snapshot import Snapshot

UNREAD_MAX: Final = 1_000
"""Decisions kept until they are read; the oldest are dropped first."""


class ShadowResult(enum.Enum):
    SAME = "same"
    OTHER = "other"
    PENDING = "pending"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ShadowDecision:
    """What a shadow says about a pod that was given a node, where it does not agree."""

    uid: str
    pod: str
    """namespace/name."""
    scheduler_name: str
    plugins: tuple[str, ...]
    """Those that the shadow has and the profile has not."""
    result: ShadowResult
    node_name: str
    """The node that the pod was given."""
    would_be: str
    """OTHER: the shadow's node. PENDING, ERROR: why."""

    def message(self) -> str:
        who = ", ".join(self.plugins)
        match self.result:
            case ShadowResult.OTHER:
                return f"With {who} the pod would be on {self.would_be}, not on {self.node_name}"
            case ShadowResult.PENDING:
                return f"With {who} the pod would be pending: {self.would_be}"
            case _:
                return f"{who} failed beside the decision: {self.would_be}"


class ShadowRecords:
    """What shadows said: counts of all, and the decisions that differ until somebody takes them."""

    def __init__(self, raised: Raised | None = None) -> None:
        """`raised`: where tracebacks go."""
        self.raised = Raised() if raised is None else raised
        self.counts: Counter[tuple[str, ShadowResult]] = Counter()
        """By profile and result."""
        self.unread: deque[ShadowDecision] = deque(maxlen=UNREAD_MAX)


class Shadow:
    """The shadow of one profile."""

    def __init__(self, snapshot: Snapshot, profile: Profile, chance: TieBreaker, stopwatch: Callable[[], float]) -> None:
        assert profile.shadow is not None
        self._meter = CycleMeter(stopwatch, profile.time_budgets)
        known = {plugin.name for plugin in profile.plugins()}
        self._plugins = tuple(plugin.name for plugin in profile.shadow.plugins() if plugin.name not in known)
        # Workers have the profile's plugins alone, so this is evaluated here.
        self._engine = Engine(snapshot, self._meter.metered(profile.shadow))
        self._snapshot = snapshot
        self._chance = chance

    def ask(self, attempt: Attempt, row: int, nominated: Sequence[Nomination], records: ShadowRecords) -> None:
        """The attempt is about to take this row. Raises nothing."""
        with self._meter.cycle():
            try:
                result, text = self._decided(attempt, row, nominated)
            except PluginError as problem:
                result, text = ShadowResult.ERROR, self._meter.complaint(problem.plugin) or str(problem)
                records.raised.note(text, problem)
            except Exception as problem:
                # Whatever a shadow does, the pod gets its node.
                result, text = ShadowResult.ERROR, f"{type(problem).__name__}: {problem}"
                records.raised.note(f"asking the shadow {', '.join(self._plugins)}: {text}", problem)
        name = attempt.template.scheduler_name
        records.counts[name, result] += 1
        if result is not ShadowResult.SAME:
            node_name = self._snapshot.name_of(row)
            records.unread.append(ShadowDecision(attempt.uid, attempt.name, name, self._plugins, result, node_name, text))

    def _decided(self, attempt: Attempt, row: int, nominated: Sequence[Nomination]) -> tuple[ShadowResult, str]:
        evaluation = self._engine.evaluate(attempt.template, nominated=nominated)
        if not evaluation.is_feasible:
            return ShadowResult.PENDING, self._engine.diagnose(attempt.template, nominated).message()
        best = evaluation.best_rows
        if row in best:
            return ShadowResult.SAME, ""
        return ShadowResult.OTHER, self._snapshot.name_of(self._chance.among(best, attempt.number))
