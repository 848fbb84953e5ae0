"""The metrics of the election, as this replica sees it.

| metric | type | labels |
|---|---|---|
| leader_election_master_status | gauge | name |
| leader_election_slowpath_total | counter | name |
| rayched_leader_renew_duration_seconds | histogram | |
| rayched_leader_last_renew_age_seconds | gauge | ; only while this replica leads |
| rayched_failover_duration_seconds | histogram | kind: released, expired |
| rayched_leader_suspicions_total | counter | evidence: refused, silent; by this replica |
| rayched_leader_revocations_total | counter | evidence: dead, refused, silent; of a term that this replica succeeded |
| rayched_leader_transitions_total | counter | ; kept in etcd, so it goes on through all leaders |
| rayched_leader_epoch | gauge | ; of whoever leads, 0 while nobody does |

Source: client-go's leaderelection metrics 0.34 for the first two.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram, Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from leader.clock import NS_PER_SECOND, boottime
from leader.observation import Vacated
from leader.revocation import Evidence
from rayched.server.ports import Leader

RENEW_BUCKETS: Final = tuple(0.001 * 2**i for i in range(15))
FAILOVER_BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0)


class ElectionCounts:
    """Filled by the elector on its thread, as its ElectionMetrics; read on any. It outlives the electors of a replica."""

    def __init__(self, name: str) -> None:
        self._status = Gauge("leader_election_master_status", "1 on the replica that leads, else 0.", ["name"], registry=None)
        self._slow = Counter(
            "leader_election_slowpath", "Renewals that first had to read the record back.", ["name"], registry=None
        )
        self._renewals = Histogram(
            "rayched_leader_renew_duration_seconds",
            "Time that a renewal took; one without an answer: until it was given up.",
            buckets=RENEW_BUCKETS,
            registry=None,
        )
        self._failovers = Histogram(
            "rayched_failover_duration_seconds",
            "From the last sign of the former leader until this replica led.",
            ["kind"],
            buckets=FAILOVER_BUCKETS,
            registry=None,
        )
        evidence = ["evidence"]
        self._suspicions = Counter(
            "rayched_leader_suspicions", "Times this replica took the leader for gone.", evidence, registry=None
        )
        self._revocations = Counter(
            "rayched_leader_revocations", "Terms ended before their lease, as told by their successor.", evidence, registry=None
        )
        for one in Evidence:
            self._revocations.labels(one.value)
            if one is not Evidence.DEAD:  # that is for guardians to say
                self._suspicions.labels(one.value)
        self._renewed_at: float | None = None
        self._status.labels(name)
        self._slow.labels(name)

    # ------------------------------------------------------------------------------------------------ the elector's thread

    def master_status(self, name: str, leading: bool) -> None:
        self._status.labels(name).set(leading)
        self._renewed_at = boottime() if leading else None

    def slowpath(self, name: str) -> None:
        self._slow.labels(name).inc()

    def renewed(self, _name: str, seconds: float) -> None:
        self._renewals.observe(seconds)
        self._renewed_at = boottime()

    def not_renewed(self, _name: str, seconds: float) -> None:
        self._renewals.observe(seconds)

    # ---------------------------------------------------------------------------------------------------------- any thread

    def took_over(self, vacated: Vacated) -> None:
        """This replica begins to lead; `vacated`: how its predecessor went."""
        kind = "released" if vacated.released else "expired"
        self._failovers.labels(kind).observe(max(0.0, boottime() - vacated.since_ns / NS_PER_SECOND))

    def suspects(self, evidence: Evidence) -> None:
        """This replica takes whoever leads for gone."""
        self._suspicions.labels(evidence.value).inc()

    def revoked(self, evidence: Evidence) -> None:
        """The term before that of this replica was ended before its lease."""
        self._revocations.labels(evidence.value).inc()

    def families(self, leader: Leader | None, transitions: int | None) -> list[Metric]:
        """`transitions`: as stored in etcd; None before it was read."""
        age = GaugeMetricFamily("rayched_leader_last_renew_age_seconds", "Time since the lease was renewed, on the leader.")
        renewed_at = self._renewed_at
        if renewed_at is not None:
            age.add_metric([], max(0.0, boottime() - renewed_at))
        changes = CounterMetricFamily("rayched_leader_transitions", "How often the lead has passed to another process.")
        if transitions is not None:
            changes.add_metric([], transitions)
        epoch = GaugeMetricFamily("rayched_leader_epoch", "The epoch of the present leader, 0 while nobody leads.")
        epoch.add_metric([], 0 if leader is None else leader.epoch)
        counted = (self._status, self._slow, self._renewals, self._failovers, self._suspicions, self._revocations)
        own = [family for metric in counted for family in metric.collect()]
        return [*own, age, changes, epoch]
