"""The picture of a soak: memory of each process, etcd, pods and latencies over the minutes, and when leaders were killed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.soak_judging import MIB, spans
from benchmarks.soak_samples import Sample

_INCHES: Final = (17.0, 14.0)
_FORMATS: Final = (".svg", ".png")
_SHOWN_FROM_BYTES: Final = 20 * MIB
"""Smaller processes would only crowd the picture."""
_MOMENTS_MIN: Final = 9
"""Nor are those drawn that were seen but for a moment."""


def check_path(path: Path) -> None:
    """Raises ValueError."""
    if path.suffix not in _FORMATS:
        raise ValueError(f"--picture {path}: found {path.suffix or 'no suffix'}, allowed are {' and '.join(_FORMATS)}")


def draw(samples: Sequence[Sample], target: Path) -> None:
    """SVG or PNG, by the name's end. Raises OSError, ValueError."""
    check_path(target)
    import matplotlib

    matplotlib.use("agg")
    # The same samples give the same file.
    matplotlib.rcParams["svg.hashsalt"] = "soak"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(3, 2, figsize=_INCHES, layout="constrained", sharex=True)
    (leaders, standbys), (fds, etcd), (keys, latency) = panels
    memory = spans(samples, lambda one: one.memory / MIB)
    for panel, role in ((leaders, "leader, "), (standbys, "standby, ")):
        _kinds(panel, {kind.removeprefix(role): found for kind, found in memory.items() if kind.startswith(role)})
        panel.set(title=f"memory of the {role.removesuffix(', ')}'s processes", ylabel="MiB", ylim=(0, None))
    _kinds(fds, {kind: found for kind, found in spans(samples, lambda one: one.fds).items() if kind in memory}, 30.0)
    fds.set(title="file descriptors", ylim=(0, None))
    for name, value in _ETCD.items():
        etcd.plot(_minutes(samples), [value(one) for one in samples], label=name)
    etcd.set(title="etcd", ylabel="MiB", ylim=(0, None))
    for name, count in _KEYS.items():
        keys.plot(_minutes(samples), [count(one) for one in samples], label=name)
    keys.set(title="keys and pods", xlabel="minutes", yscale="symlog", ylim=(0, None))
    for name in ("p50", "p99"):
        known = [(one.seconds / 60, 1000 * found) for one in samples if (found := getattr(one, name)) is not None]
        latency.plot([at for at, _ in known], [found for _, found in known], label=name)
    latency.set(title="from creation to binding", xlabel="minutes", ylabel="ms", yscale="log")
    kills = [one.seconds / 60 for before, one in itertools.pairwise(samples) if one.kills > before.kills]
    for panel in panels.flat:
        for kill in kills:
            panel.axvline(kill, color="grey", linewidth=0.8, linestyle=":")
        panel.grid(visible=True, alpha=0.3)
        if panel.get_lines():
            panel.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.suptitle("A soak: 100 pods a second, each deleted after 5 s; dotted: SIGKILL of the leader")
    figure.savefig(target, format=target.suffix[1:], dpi=100, metadata={"Date": None} if target.suffix == ".svg" else None)
    pyplot.close(figure)


def _kinds(panel: Any, kinds: dict[str, list[list[tuple[float, float]]]], least: float = _SHOWN_FROM_BYTES / MIB) -> None:
    """One colour a kind, one line a process."""
    colours = itertools.count()
    for kind, found in sorted(kinds.items()):
        processes = [points for points in found if len(points) >= _MOMENTS_MIN]
        if not processes or max(value for points in processes for _, value in points) < least:
            continue
        colour = f"C{next(colours) % 10}"
        for number, points in enumerate(processes):
            label = None if number else kind
            panel.plot([at / 60 for at, _ in points], [value for _, value in points], color=colour, label=label, linewidth=1)


def _minutes(samples: Sequence[Sample]) -> list[float]:
    return [one.seconds / 60 for one in samples]


_ETCD: Final[dict[str, Callable[[Sample], float]]] = {
    "bytes in use": lambda one: one.in_use / MIB,
    "file": lambda one: one.file / MIB,
    "disk": lambda one: one.disk / MIB,
    "memory": lambda one: one.memory_of("etcd") / MIB,
}
_KEYS: Final[dict[str, Callable[[Sample], float]]] = {
    "Events": lambda one: one.event_keys,
    "records of submissions": lambda one: one.record_keys,
    "keys that schedulers follow": lambda one: one.cluster_keys,
    "pods present": lambda one: one.present,
    "pods waiting": lambda one: one.waiting,
}
