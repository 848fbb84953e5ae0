"""The best nodes of a decision, as they are told."""

from __future__ import annotations

from collections.abc import Sequence

from rayched.scheduler.decisions import BEST


def told_best(ranked: Sequence[tuple[str, int]], chosen: str) -> tuple[tuple[str, int], ...]:
    """`ranked`: nodes and totals, by falling total and ascending row. The chosen one is the last where it would be left out."""
    best = tuple(ranked[:BEST])
    return best if not chosen or chosen in dict(best) else (*best[:-1], (chosen, best[0][1]))
