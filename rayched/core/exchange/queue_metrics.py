"""The queue's metrics, under kube-scheduler's names.

The values lie in the QueueActor's process. They leave it as prometheus-client's own metric families, which are plain values:
whoever serves them registers a collector that yields the families it was last given (`ActorSupervisor.metrics`).

| metric | labels |
|---|---|
| scheduler_pending_pods | queue: active, backoff, unschedulable, gated |
| scheduler_queued_entities | queue; type: pod, podgroup |
| scheduler_queue_incoming_pods_total | queue: active, backoff, unschedulable; event |
| scheduler_queue_incoming_entities_total | the same; type: pod, podgroup |
| scheduler_unschedulable_pods | plugin, profile |
| scheduler_framework_extension_point_duration_seconds | extension_point: PreEnqueue; status; profile |
| scheduler_plugin_execution_duration_seconds | plugin; extension_point: PreEnqueue; status |
| scheduler_queueing_hint_execution_duration_seconds | plugin; event; hint: Queue, QueueSkip, Error |
| scheduler_inflight_events | event; PodPopped: pods in flight |
| rayched_queue_invariant_violations_total | invariant |
| rayched_queue_hint_failures_total | plugin |
| rayched_queue_namespace_turns_total | none: pods that went before those of a namespace that had its share (--fair-namespaces) |

Counters go on through sessions; a new process begins at 0. On a standby the queue is empty, and so are the gauges.
Source: pkg/scheduler/metrics of kube-scheduler 1.34. Cost: some 100 µs when asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from rayched.core.exchange.queue_core import QueueCore
from rayched.queue.audit import Invariant

PRE_ENQUEUE: Final = "PreEnqueue"


def queue_metrics(core: QueueCore) -> list[Metric]:
    """As of now."""
    return [*_pods(core), *_durations(core), *_faults(core)]


def _pods(core: QueueCore) -> list[Metric]:
    counts = core.queue.pending()
    pending = GaugeMetricFamily("scheduler_pending_pods", "Pods without a node, by the queue they wait in.", labels=["queue"])
    groups = core.groups()
    entities = GaugeMetricFamily(
        "scheduler_queued_entities", "Pods and pod groups in a queue; a group counts once.", labels=["queue", "type"]
    )
    for queue in ("active", "backoff", "unschedulable", "gated"):
        # Members of groups are counted by the scheduler, which knows them.
        pods = getattr(counts, queue) - groups[queue]
        pending.add_metric([queue], pods)
        entities.add_metric([queue, "pod"], pods)
        entities.add_metric([queue, "podgroup"], groups[queue])
    incoming = CounterMetricFamily(
        "scheduler_queue_incoming_pods", "Pods that came into a queue, by what brought them there.", labels=["queue", "event"]
    )
    came = CounterMetricFamily(
        "scheduler_queue_incoming_entities",
        "Pods and pod groups that came into a queue, by what brought them there.",
        labels=["queue", "event", "type"],
    )
    of_groups = core.incoming_groups()
    for (queue, event), count in sorted(core.incoming().items()):
        incoming.add_metric([queue, event], count)
        for kind, share in (("pod", count - of_groups[queue, event]), ("podgroup", of_groups[queue, event])):
            if share:
                came.add_metric([queue, event, kind], share)
    held = GaugeMetricFamily(
        "scheduler_unschedulable_pods", "Pods that a plugin holds until their next attempt.", labels=["plugin", "profile"]
    )
    for (plugin, profile), count in sorted(core.queue.held.items()):
        held.add_metric([plugin, profile], count)
    flights = core.queue.places.in_flight
    events = GaugeMetricFamily(
        "scheduler_inflight_events", "Events kept for pods that are being scheduled, and these pods.", labels=["event"]
    )
    for event, count in sorted(flights.events().items()):
        events.add_metric([event], count)
    events.add_metric(["PodPopped"], len(flights))
    turns = CounterMetricFamily(
        "rayched_queue_namespace_turns",
        "Pods that were tried before those of a namespace that had its share of a second.",
        value=core.turns(),
    )
    return [pending, entities, incoming, came, held, events, turns]


def _durations(core: QueueCore) -> list[Metric]:
    durations = core.durations
    return [
        _histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Time that the plugins of an extension point took together.",
            ["extension_point", "status", "profile"],
            (((PRE_ENQUEUE, *labels), *rest) for labels, *rest in durations.extension_point.histograms()),
        ),
        _histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Time that a plugin took at an extension point; sampled.",
            ["plugin", "extension_point", "status"],
            (((plugin, PRE_ENQUEUE, status), *rest) for (plugin, status), *rest in durations.plugins.histograms()),
        ),
        _histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Time that a queueing hint took; sampled.",
            ["plugin", "event", "hint"],
            durations.hints.histograms(),
        ),
    ]


def _histogram(name: str, documentation: str, labels: list[str], samples: Iterable[Any]) -> Metric:
    """`samples`: values of the labels, buckets, seconds in sum."""
    family = HistogramMetricFamily(name, documentation, labels=labels)
    for values, buckets, seconds in samples:
        family.add_metric(values, buckets, seconds)
    return family


def _faults(core: QueueCore) -> list[Metric]:
    violations = CounterMetricFamily(
        "rayched_queue_invariant_violations", "Faults that the queue found in itself; always 0.", labels=["invariant"]
    )
    for invariant in Invariant:
        violations.add_metric([invariant.value], core.violations[invariant.value])
    failures = CounterMetricFamily(
        "rayched_queue_hint_failures", "Queueing hints that raised; each counted as worth an attempt.", labels=["plugin"]
    )
    for plugin, count in sorted(core.hint_failures().items()):
        failures.add_metric([plugin], count)
    return [violations, failures]
