"""What is demanded of the series of `make soak`: that they are level. Pure.

A series is *level* when no growth goes on. It is cut into thirds of its time, and the median of each is taken: neither single
peaks nor a sawtooth of some teeth a third move medians. What rises from the first third to the second and falls back or stays
there is no leak (a cache that fills, memory that is taken once, a step); what rises both times is one. So the lesser of both
rates counts, and of each rise what exceeds the noise: the usual distance of the samples from the line through the first median
and the last.

Leading takes more memory than standing by, and a process that was started again begins anew. So a process is judged by spans: one
pid in one role. What is known of a kind, such as the SchedulerActor of leaders, is the mean over its spans by their length. Each
span begins with a warm-up of a tenth of the run, two minutes at most, which is left out.

Two things grow for an hour by what rayched promises: Events, and records of submissions, are kept so long. Their keys are judged
as keys a pod that was submitted within that time, and etcd's bytes and memory as those a key. History is kept for a quarter of an
hour at most and is a sawtooth from then on, so of etcd a run of less than half an hour says nothing.
"""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from benchmarks.soak_samples import ProcessSample, Sample

MIB: Final = 1 << 20
ETCD: Final = "etcd"
GROWTH_SHARE_MAX: Final = 0.10
"""An hour."""
MEMORY_MAX: Final = 5.0 * MIB
"""An hour; a tenth of a process of 20 MiB is no more than what allocators keep or give back by chance."""
HANDLES_MAX: Final = 3.0
"""File descriptors or threads, an hour: less than one for each of five kills."""
KEYS_MAX: Final = 20.0
_PAGE_NOISE: Final = 0.5 * MIB
"""What an allocator takes at once."""
_WARM_UP_SHARE, _WARM_UP_SECONDS_MAX = 0.1, 120.0
_KEPT_SECONDS: Final = 3900.0
"""Events and records stay for an hour, and are looked for every five minutes."""
_HISTORY_SECONDS: Final = 900.0
"""History is kept for ten minutes, told in moments five minutes apart."""
_SAMPLES_MIN: Final = 9
"""Of a span that is judged."""
_HOUR: Final = 3600.0

Point = tuple[float, float]
"""Seconds and value."""


class Trend(NamedTuple):
    """Of one span, or of all of a kind."""

    seconds: float
    start: float
    """Median of the first third."""
    end: float
    """Median of the last third."""
    slope: float
    """An hour, from the first third to the last."""
    growth: float
    """An hour: what goes on, without noise. Never negative."""


@dataclass(frozen=True, slots=True)
class Row:
    """One series. `met` None: nothing is demanded."""

    series: str
    start: str
    end: str
    slope: str
    demand: str
    met: bool | None


def trend(points: Sequence[Point], noise: float = 0.0) -> Trend | None:
    """None where there are too few. `noise`: what a rise must exceed in any case."""
    if len(points) < _SAMPLES_MIN:
        return None
    began, ended = points[0][0], points[-1][0]
    third = (ended - began) / 3
    parts: list[list[Point]] = [[], [], []]
    for point in points:
        parts[min(2, int((point[0] - began) / third)) if third else 0].append(point)
    if not all(parts):
        return None
    # The lower of two middle ones: a step in the midst of a third shall not look like two.
    middles = [(statistics.median(at for at, _ in part), statistics.median_low(value for _, value in part)) for part in parts]
    (first_at, first), _, (last_at, last) = middles
    slope = (last - first) / (last_at - first_at)
    usual = statistics.median(abs(value - first - slope * (at - first_at)) for at, value in points)
    noise = max(noise, usual)
    rates = [max(0.0, b[1] - a[1] - noise) / (b[0] - a[0]) for a, b in itertools.pairwise(middles)]
    return Trend(ended - began, first, last, slope * _HOUR, min(rates) * _HOUR)


def together(trends: Sequence[Trend]) -> Trend | None:
    """The mean by length; None of nothing."""
    seconds = sum(one.seconds for one in trends)
    if not seconds:
        return None

    def mean(of: Callable[[Trend], float]) -> float:
        return sum(of(one) * one.seconds for one in trends) / seconds

    return Trend(
        seconds, mean(lambda one: one.start), mean(lambda one: one.end), mean(lambda one: one.slope), mean(lambda one: one.growth)
    )


def warm_up_seconds(samples: Sequence[Sample]) -> float:
    return min(_WARM_UP_SECONDS_MAX, _WARM_UP_SHARE * samples[-1].seconds) if samples else 0.0


def warmed(points: Sequence[Point], warm_up: float) -> list[Point]:
    return [point for point in points if point[0] >= points[0][0] + warm_up]


def spans(samples: Iterable[Sample], value: Callable[[ProcessSample], float]) -> dict[str, list[list[Point]]]:
    """By kind of process and role. A moment at which nobody led ends no span and belongs to none."""
    found: dict[tuple[str, int], list[Point]] = defaultdict(list)
    for sample in samples:
        if sample.leader is None:
            continue
        for one in sample.processes:
            role = "" if one.replica is None else "leader, " if one.replica == sample.leader else "standby, "
            found[role + one.name, one.pid].append((sample.seconds, value(one)))
    kinds: dict[str, list[list[Point]]] = defaultdict(list)
    for (kind, _), points in found.items():
        kinds[kind].append(points)
    return kinds


def judged(samples: Sequence[Sample], kills: int) -> list[Row]:
    """All series. `kills`: as many as were asked for."""
    if not samples:
        return [Row("samples", "0", "0", "", "some", False)]
    warm_up = warm_up_seconds(samples)
    rows: list[Row] = []
    rows += _processes(samples, warm_up, "memory", lambda one: one.memory, MEMORY_MAX, GROWTH_SHARE_MAX, _PAGE_NOISE, _mib)
    rows += _processes(samples, warm_up, "fds", lambda one: one.fds, HANDLES_MAX, 0.0, 0.0, _count)
    rows += _processes(samples, warm_up, "threads", lambda one: one.threads, HANDLES_MAX, 0.0, 0.0, _count)
    if not any(row.met is not None for row in rows):
        rows.append(Row("processes", "", "", "", "seen for long enough to be judged", False))
    series: list[tuple[str, Callable[[Sample], float | None], float | None, Callable[[float], str]]] = [
        ("keys that schedulers follow", lambda one: one.cluster_keys, KEYS_MAX, _count),
        ("Events and records a pod of the last hour", _kept_a_pod(samples), 0.0, _ratio),
        (f"{ETCD}, bytes in use a key", lambda one: one.in_use / one.keys if one.keys else None, 0.0, _count),
        (f"{ETCD}, memory a key", lambda one: one.memory_of(ETCD) / one.keys if one.keys else None, 0.0, _count),
        (f"{ETCD}, bytes in use", lambda one: one.in_use, None, _mib),
        (f"{ETCD}, file", lambda one: one.file, None, _mib),
        (f"{ETCD}, disk", lambda one: one.disk, None, _mib),
        ("keys", lambda one: one.keys, None, _count),
        ("pods present", lambda one: one.present, KEYS_MAX, _count),
        ("pods waiting", lambda one: one.waiting, KEYS_MAX, _count),
        ("from creation to binding, p50", lambda one: one.p50, None, _seconds),
        ("from creation to binding, p99", lambda one: one.p99, None, _seconds),
    ]
    until = _load_ended(samples)
    for name, value, floor, shown in series:
        points = [(one.seconds, float(found)) for one in samples if (found := value(one)) is not None]
        # The last samples are of the end: the load has stopped.
        rows.append(_series(name, [point for point in points if point[0] <= until], warm_up, floor, GROWTH_SHARE_MAX, shown))
    return rows + _sums(samples[-1], kills)


def _load_ended(samples: Sequence[Sample]) -> float:
    """When the last pod but for some was submitted."""
    last = samples[-1].submitted
    return max((one.seconds for one in samples if one.submitted < last), default=samples[-1].seconds)


def _kept_a_pod(samples: Sequence[Sample]) -> Callable[[Sample], float | None]:
    moments = [one.seconds for one in samples]

    def value(one: Sample) -> float | None:
        place = bisect.bisect_left(moments, one.seconds - _KEPT_SECONDS)
        pods = one.submitted - (samples[place - 1].submitted if place else 0)
        return (one.event_keys + one.record_keys) / pods if pods else None

    return value


def _processes(
    samples: Sequence[Sample],
    warm_up: float,
    what: str,
    value: Callable[[ProcessSample], float],
    floor: float,
    share: float,
    noise: float,
    shown: Callable[[float], str],
) -> list[Row]:
    rows = []
    until = _load_ended(samples)
    for kind, all_points in sorted(spans([one for one in samples if one.seconds <= until], value).items()):
        if kind == ETCD:
            # Its index holds what is kept for an hour: its memory is judged a key.
            rows.append(_series(f"{ETCD}, {what}", all_points[0], warm_up, None if what == "memory" else floor, share, shown))
            continue
        trends = [found for points in all_points if (found := trend(warmed(points, warm_up), noise)) is not None]
        if trends:
            rows.append(_row(f"{kind}, {what}", together(trends), floor, share, shown))
    return rows


def _series(
    name: str, points: list[Point], warm_up: float, floor: float | None, share: float, shown: Callable[[float], str]
) -> Row:
    """One that began with the run."""
    if name.startswith(ETCD) and points[-1][0] < 2 * _HISTORY_SECONDS:
        floor = None
    return _row(name, trend(warmed(points, warm_up)), floor, share, shown)


def _row(name: str, found: Trend | None, floor: float | None, share: float, shown: Callable[[float], str]) -> Row:
    """`floor`: what it may grow an hour, or `share` of its start, whichever is more; None: nothing is demanded."""
    if found is None:
        return Row(name, "", "", "", "" if floor is None else "samples enough", None if floor is None else False)
    slope = ("+" if found.slope >= 0 else "-") + shown(abs(found.slope))
    if floor is None:
        return Row(name, shown(found.start), shown(found.end), slope, "", None)
    allowed = max(floor, share * found.start)
    demand = f"goes on: {shown(found.growth)}/h, at most {shown(allowed)}/h"
    return Row(name, shown(found.start), shown(found.end), slope, demand, found.growth <= allowed)


def _sums(last: Sample, kills: int) -> list[Row]:
    demands = [
        ("leaders killed", last.kills, f"{kills}", last.kills == kills),
        ("epochs after the first", last.epochs, f"at most {kills}, one a kill", last.epochs <= kills),
        ("submissions and deletions refused", last.refused, "none", last.refused == 0),
        ("pods submitted", last.submitted, "some", last.submitted > 0),
        ("pods bound", last.bound, f"all {last.created} created", last.bound == last.created >= last.submitted),
        ("pods that went unbound", last.removed_unbound, "none", last.removed_unbound == 0),
        ("pods left unbound", last.waiting, "none", last.waiting == 0),
        ("pods left", last.present, "none", last.present == 0),
    ]
    return [Row(name, "0", f"{found:,}", "", demand, met) for name, found, demand, met in demands]


def _mib(value: float) -> str:
    return f"{value / MIB:.1f} MiB"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _seconds(value: float) -> str:
    return f"{1000 * value:.0f} ms"
