"""What a plan's total is added up from, and what is kept of it.

    total(row) = min(usage(row) + static(row), caps(row)) + rescaled(row) + counted(row)

Owner: a Plan; one for filters alone, one for filters and scores.
"""

from __future__ import annotations

from dataclasses import dataclass

from rayched.engine.cached_columns import CachedColumn
from rayched.engine.column_store import CacheEntry
from rayched.engine.domain_state import DomainRejection, DomainState
from rayched.engine.grouped_scores import GroupedScore
from rayched.engine.score_caps import FilterCap
from rayched.engine.static_sum import AllBounds, StaticSum, WeightedRaw
from rayched.engine.usage_values import UsageSum


@dataclass(frozen=True, slots=True)
class CountedScore:
    """A counting score with its plugin's weight."""

    asked: DomainState
    weight: int
    by_group: GroupedScore | None
    """Where the plugin scores groups of rows."""


@dataclass(slots=True, eq=False)
class ScoreSum:
    """Sums for filters alone, or for filters and scores."""

    usage: UsageSum
    static: StaticSum
    caps: tuple[FilterCap | DomainRejection, ...]
    """Filters that follow a log of their own, and counting ones."""
    rescaled: tuple[WeightedRaw, ...]
    """Scores that are normalised and change with bindings; added to each total."""
    counted: tuple[CountedScore, ...]
    """Counting scores; added to each total, last."""
    entries: list[CacheEntry]
    """What the sum holds of the store."""
    scores: bool
    """Without scores its totals only tell which rows are feasible."""
    bounds: AllBounds | None = None
    """The bounds that held last; None before the first evaluation."""

    def kept(self) -> list[CachedColumn]:
        """All columns that are evaluated for this sum, wherever that is best done."""
        filters = [cap.filter for cap in self.caps if isinstance(cap, FilterCap)]
        return [self.usage, *self.static.kept(), *(score.kept for score in self.rescaled), *filters]

    def was_built(self) -> bool:
        """Whether all of it was evaluated before, so that a few rows bring it up to date."""
        return self.bounds is not None or (self.usage.was_built and all(kept.was_built for kept in self.kept()))
