"""`make bench-plot JSON=FILE [PNG=FILE]`: pods a second over the number of nodes, from the JSON lines of `make bench`.

One panel for each depth, one line for each workload and number of templates, both axes logarithmic. Where a size was measured
more than once, the best run counts. What is no line of a run is refused, with its number.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

NEEDED: Final = ("workload", "nodes", "init_pods", "measured_pods", "depth", "pods_per_second")
_DEPTHS: Final = ("engine", "scheduler", "cluster")
_INCHES: Final = (9.0, 5.0)
"""Of one panel: width and height."""

Curve = list[tuple[int, float]]
Curves = Mapping[str, Mapping[str, Curve]]
"""By depth, then by the line's name: nodes and pods a second, fewest nodes first."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make bench-plot", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("json", type=Path, help="JSON lines of `make bench`")
    parser.add_argument("--png", type=Path, help="the picture; by default beside the lines, with .png")
    options = parser.parse_args(arguments)
    target: Path = options.png or options.json.with_suffix(".png")
    try:
        found = curves(read(options.json))
        draw(found, target)
    except (ValueError, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    print(f"{target}: {sum(len(lines) for lines in found.values())} lines")
    return 0


def read(path: Path) -> list[dict[str, Any]]:
    """One object a line. Raises ValueError, OSError."""
    found = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            row = json.loads(text)
        except json.JSONDecodeError:
            raise ValueError(f"{path}:{number}: found {text[:40]!r}, a JSON object is wanted") from None
        missing = [name for name in NEEDED if not isinstance(row, dict) or name not in row]
        if missing:
            raise ValueError(f"{path}:{number}: {', '.join(missing)} is missing; needed are {', '.join(NEEDED)}")
        found.append(row)
    if not found:
        raise ValueError(f"{path}: there are no lines")
    return found


def curves(rows: Iterable[Mapping[str, Any]]) -> Curves:
    """The best rate of each size, by depth and line."""
    best: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        templates = row.get("templates", 1)
        name = row["workload"] if templates == 1 else f"{row['workload']}, {templates} templates"
        sizes = best[row["depth"]][name]
        sizes[row["nodes"]] = max(sizes.get(row["nodes"], 0.0), row["pods_per_second"])
    return {depth: {name: sorted(sizes.items()) for name, sizes in best[depth].items()} for depth in sorted(best, key=_place)}


def draw(found: Curves, target: Path) -> None:
    """Writes the PNG. Raises OSError."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    width, height = _INCHES
    figure, panels = pyplot.subplots(len(found), 1, figsize=(width, height * len(found)), squeeze=False, layout="constrained")
    for panel, (depth, lines) in zip(panels[:, 0], found.items(), strict=True):
        for name, curve in lines.items():
            panel.plot([nodes for nodes, _ in curve], [rate for _, rate in curve], marker="o", markersize=4, label=name)
        panel.set(title=f"depth {depth}", xlabel="nodes", ylabel="pods/s", xscale="log", yscale="log")
        panel.grid(visible=True, which="both", alpha=0.3)
        panel.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(target, format="png", dpi=120)
    pyplot.close(figure)


def _place(depth: str) -> tuple[int, str]:
    return (_DEPTHS.index(depth) if depth in _DEPTHS else len(_DEPTHS)), depth


if __name__ == "__main__":
    sys.exit(main())
