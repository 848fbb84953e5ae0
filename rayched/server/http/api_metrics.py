"""What one replica's API counts.

| metric | type | labels |
|---|---|---|
| rayched_submissions_total | counter | code: of gRPC, OK for those acknowledged |
| rayched_watch_clients | gauge | |
| rayched_watch_revision | gauge | |
| rayched_watch_lag_revisions | gauge | |
| rayched_watch_overflow_total | counter | |
| rayched_api_write_limit | gauge | |
| rayched_api_writes_in_flight | gauge | |
| rayched_api_writes_waiting | gauge | |
| rayched_api_writes_refused_total | counter | precedence: nodes, users, large |
| rayched_api_large_object_rate | gauge | |
| rayched_audit_lines_total | counter | outcome: written, lost |
| rayched_audit_lines_waiting | gauge | |
| rayched_audit_failing | gauge | |
| rayched_certificate_expiry_seconds | gauge | use: server, client-ca; the replica adds etcd |

Owner: the event loop. Cost: a dictionary look-up a submission; a scrape looks at each watch once.
"""

from __future__ import annotations

from collections import Counter

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from rayched.server.admission.write_gate import LINES, WriteGate
from rayched.server.audit_writer import AuditWriter
from rayched.server.peers import ServerTls
from rayched.server.watching.watch_hub import WatchHub


def api_metrics(submissions: Counter[str], clients: int, hub: WatchHub, gate: WriteGate) -> list[Metric]:
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
    return [submitted, watching, revision, lag, overflow, *_gate_metrics(gate)]


def audit_metrics(writer: AuditWriter | None) -> list[Metric]:
    """As of now; None: there is no audit log, and no values."""
    lines = CounterMetricFamily("rayched_audit_lines", "Lines of the audit log, by what became of them.", labels=["outcome"])
    waiting = GaugeMetricFamily("rayched_audit_lines_waiting", "Lines of the audit log that are not written yet.")
    failing = GaugeMetricFamily("rayched_audit_failing", "Whether the audit log cannot be written.")
    if writer is not None:
        lines.add_metric(["written"], writer.lines)
        lines.add_metric(["lost"], writer.lost)
        waiting.add_metric([], writer.waiting)
        failing.add_metric([], 1.0 if writer.failing else 0.0)
    return [lines, waiting, failing]


def certificate_metrics(tls: ServerTls | None, now: float) -> list[Metric]:
    """`now`: seconds since 1970. Without TLS there are no values."""
    left = GaugeMetricFamily(
        "rayched_certificate_expiry_seconds", "How long certificates in use are still valid; negative: expired.", labels=["use"]
    )
    if tls is not None:
        left.add_metric(["server"], tls.certificate.facts.not_after - now)
        left.add_metric(["client-ca"], tls.certificate.trusted_until - now)
    return [left]


def _gate_metrics(gate: WriteGate) -> list[Metric]:
    limit = GaugeMetricFamily(
        "rayched_api_write_limit", "Weight of the writes that may be under way, learnt from etcd's answers."
    )
    limit.add_metric([], gate.limit.weight)
    within = GaugeMetricFamily("rayched_api_writes_in_flight", "Weight of the writes under way.")
    within.add_metric([], gate.within)
    waiting = GaugeMetricFamily("rayched_api_writes_waiting", "Weight of the writes that wait for a place.")
    waiting.add_metric([], gate.waiting)
    refused = CounterMetricFamily(
        "rayched_api_writes_refused", "Writing calls refused because too much was under way.", labels=["precedence"]
    )
    for line in LINES:
        refused.add_metric([line], gate.refused[line])
    large = GaugeMetricFamily(
        "rayched_api_large_object_rate",
        "Bytes a second that objects beyond 2 KiB may bring, learnt from how soon pods are tried.",
    )
    large.add_metric([], gate.large.rate)
    return [limit, within, waiting, refused, large]
