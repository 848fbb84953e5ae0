"""How long what the queue calls takes: PreEnqueue, and queueing hints.

All of PreEnqueue is measured for each pod that is examined; the plugins one by one for one examination in ten, and so are hints
(pluginMetricsSamplePercent of kube-scheduler). The stopwatch comes from outside, for the queue has no clock of its own.

Source: framework_extension_point_duration_seconds, plugin_execution_duration_seconds, queueing_hint_execution_duration_seconds
of kube-scheduler 1.34. Cost: 0.5 µs a measurement.
"""

from __future__ import annotations

from collections.abc import Callable

from rayched.framework.cluster_event import ClusterEvent
from rayched.framework.durations import EXTENSION_POINT_BUCKETS, PLUGIN_BUCKETS, SAMPLED_EVERY, Durations
from rayched.framework.queueing_hints import Hint

_HINT_LABELS = {Hint.QUEUE: "Queue", Hint.SKIP: "QueueSkip"}
"""As kube-scheduler names them; a hint function that raises is "Error"."""


class PreEnqueueDurations:
    """What a queue notes down. It outlives the queue."""

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        """`stopwatch`: seconds of any clock."""
        self.stopwatch = stopwatch
        self.extension_point = Durations(EXTENSION_POINT_BUCKETS)
        """By status and profile."""
        self.plugins = Durations(PLUGIN_BUCKETS)
        """By plugin and status."""
        self.hints = Durations(PLUGIN_BUCKETS)
        """By plugin, event and answer."""
        self._examinations = 0
        self._hints_asked = 0

    def is_sampled(self) -> bool:
        """Whether the plugins of the next examination are to be measured one by one."""
        self._examinations += 1
        return self._examinations % SAMPLED_EVERY == 1

    def timed_hint(self, plugin: str, event: ClusterEvent, hint: Callable[..., Hint]) -> Callable[..., Hint]:
        """The hint function with a stopwatch around some of its calls."""

        def timed(*asked: object) -> Hint:
            self._hints_asked += 1
            if self._hints_asked % SAMPLED_EVERY != 1:
                return hint(*asked)
            label, began = "Error", self.stopwatch()
            try:
                answer = hint(*asked)
                label = _HINT_LABELS[answer]
                return answer
            finally:
                self.hints.observe((plugin, event.label, label), self.stopwatch() - began)

        return timed
