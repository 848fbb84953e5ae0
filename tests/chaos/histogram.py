"""Histograms of seconds, a panel for each class, on one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_INCHES: Final = (9.0, 1.3)
"""Width, and height of a panel."""
_BINS: Final = 120


def draw_histograms(classes: Mapping[str, Sequence[float]], label: str, target: Path) -> None:
    """Writes the PNG. Raises OSError."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    width, height = _INCHES
    drawn = {name: values for name, values in classes.items() if values} or {"nothing": [0.0]}
    longest = max(max(values) for values in drawn.values()) or 1.0
    size = (width, height * len(drawn) + 0.6)
    figure, panels = pyplot.subplots(len(drawn), 1, figsize=size, squeeze=False, sharex=True, layout="constrained")
    for panel, (name, values) in zip(panels[:, 0], drawn.items(), strict=True):
        panel.hist(values, bins=_BINS, range=(0.0, longest), color="0.35")
        words = f"{name}: n={len(values)}, p50 {quantile(values, 0.5):.2f} s, p99 {quantile(values, 0.99):.2f} s"
        panel.set_title(words, loc="left", fontsize="small")
        panel.grid(visible=True, axis="x", alpha=0.3)
    panels[-1, 0].set_xlabel(label)
    figure.savefig(target, format="png", dpi=110)
    pyplot.close(figure)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that has this share of them at or below it."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
