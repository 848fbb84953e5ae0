"""What one replica's API counts.

| metric | type | labels |
|---|---|---|
| rayched_submissions_total | counter | code: of gRPC, OK for those acknowledged |
| rayched_watch_clients | gauge | |
| rayched_watch_revision | gauge | |
| rayched_watch_lag_revisions | gauge | |
| rayched_watch_overflow_total | counter | |

Owner: the event loop. Cost: a dictionary look-up a submission; a scrape looks at each watch once.
"""

from __future__ import annotations

from collections import Counter

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from rayched.server.watch_hub import WatchHub


def api_metrics(submissions: Counter[str], clients: int, hub: WatchHub) -> list[Metric]:
    """As of now. `submissions` by code."""
    submitted = CounterMetricFamily("rayched_submissions", "Objects submitted to this replica, by outcome.", labels=["code"])
    for code, count in sorted(submissions.items()):
        submitted.add_metric([code], count)
    watching = GaugeMetricFamily("rayched_watch_clients", "Watches that this replica serves.")
    watching.add_metric([], clients)
    lag = GaugeMetricFamily("rayched_watch_lag_revisions", "How far the slowest watch is behind this replica.")
    lag.add_metric([], max((hub.revision - one.revision for one in hub.subscriptions if one.pending), default=0))
    overflow = CounterMetricFamily("rayched_watch_overflow", "Watches ended because their clients read too slowly.")
    overflow.add_metric([], hub.overflows)
    revision = GaugeMetricFamily("rayched_watch_revision", "The revision of etcd that the API has read.")
    revision.add_metric([], hub.revision)
    return [submitted, watching, revision, lag, overflow]
