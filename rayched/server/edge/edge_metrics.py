"""What the edge of one replica counts.

| metric | type | labels |
|---|---|---|
| rayched_rejected_total | counter | level, reason |
| rayched_edge_seats_used | gauge | level |
| rayched_edge_calls_waiting | gauge | level |
| rayched_edge_calls_in_flight | gauge | |
| rayched_edge_held_bytes | gauge | |

Owner: the event loop. Cost: a dictionary look-up a refused call.
"""

from __future__ import annotations

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from rayched.server.edge.edge import Edge
from rayched.server.edge.fairness import WEIGHTS


def edge_metrics(edge: Edge) -> list[Metric]:
    """As of now."""
    rejected = CounterMetricFamily("rayched_rejected", "Calls that the edge refused.", labels=["level", "reason"])
    for labels, count in sorted(edge.rejected.items()):
        rejected.add_metric(labels, count)
    used = GaugeMetricFamily("rayched_edge_seats_used", "Seats of calls that are worked on.", labels=["level"])
    waiting = GaugeMetricFamily("rayched_edge_calls_waiting", "Calls that wait for seats.", labels=["level"])
    for level in WEIGHTS:
        used.add_metric([level.value], edge.gate.queues.used(level))
        waiting.add_metric([level.value], edge.gate.queues.waiting(level))
    calls = GaugeMetricFamily("rayched_edge_calls_in_flight", "Calls with one answer that have begun and not ended.")
    calls.add_metric([], edge.calls)
    held = GaugeMetricFamily("rayched_edge_held_bytes", "Bytes of requests and of answers that callers have not taken.")
    held.add_metric([], edge.bytes.held)
    return [rejected, used, waiting, calls, held]
