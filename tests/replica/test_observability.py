"""What real replicas show over HTTP: health, status, and every metric under its name, with values that agree."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from rayched.replica.cluster.local_cluster import ReplicaProcess
from rayched.replica.ray.processes import end_tree
from rayched.replica.source_commit import source_commit
from tests.replica.clusters import READY_SECONDS_MAX, SmallCluster, small_pod, until_true
from tests.replica.metric_names import METRICS

pytestmark = pytest.mark.cluster

PODS = 60
LOGS = ["--log-format", "json", "--log-level", "debug"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    """Two replicas; PODS pods are bound, one is too large for any node."""
    with SmallCluster(tmp_path_factory.mktemp("observed"), replicas=2, options=LOGS) as found:
        found.client.submit(small_pod("too-large", cpu="1000"))
        found.submit(PODS)
        found.wait_until_all_bound()
        until_true(lambda: found.wait_for_leader().attempts["unschedulable"] > 0, 10, "no attempt failed")
        for replica in found.local.replicas:
            until_true(lambda one=replica: ask(one, "/readyz")[0] == 200, READY_SECONDS_MAX, "a replica is not ready")  # type: ignore[misc]
        yield found


def ask(replica: ReplicaProcess, path: str, accept: str = "") -> tuple[int, str, str]:
    """Status, content type, body."""
    request = urllib.request.Request(f"http://{replica.http_address}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def follower(cluster: SmallCluster) -> ReplicaProcess:
    leader = cluster.leader()
    return next(replica for replica in cluster.local.replicas if replica is not leader)


class Scrape:
    """One scrape, read by Prometheus' own parser."""

    def __init__(self, replica: ReplicaProcess) -> None:
        status, content_type, text = ask(replica, "/metrics")
        assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
        families = list(text_string_to_metric_families(text))
        self.types = {f"{one.name}_total" if one.type == "counter" else one.name: one.type for one in families}
        assert len(self.types) == len(families), "a name occurs twice"
        self.samples = [sample for family in families for sample in family.samples]

    def sum(self, name: str, /, **labels: str) -> float:
        """Of the samples of that name with these labels."""
        found = [one.value for one in self.samples if one.name == name and labels.items() <= one.labels.items()]
        assert found, f"no sample {name} {labels}"
        return sum(found)

    def labels(self, name: str) -> list[set[str]]:
        """Of the samples of a metric; `le` is the histogram's own."""
        names = {name, f"{name}_bucket", f"{name}_count", f"{name}_sum"}
        return [set(one.labels) - {"le"} for one in self.samples if one.name in names]


@pytest.mark.row("Q25", "D14")
def test_a_scrape_has_every_metric_with_its_type_and_labels(cluster: SmallCluster) -> None:
    scrape = Scrape(cluster.leader())
    for name, (kind, labels, has_values) in METRICS.items():
        assert scrape.types.get(name) == kind, name
        found = scrape.labels(name)
        assert all(one == labels for one in found), (name, found[0])
        assert found or not has_values, f"{name} has no values"


def test_what_is_counted_in_different_places_agrees(cluster: SmallCluster) -> None:
    scrape = Scrape(cluster.leader())
    assert scrape.sum("scheduler_schedule_attempts_total", result="scheduled") == PODS
    assert scrape.sum("scheduler_scheduling_attempt_duration_seconds_count", result="scheduled") == PODS
    assert scrape.sum("scheduler_pod_scheduling_sli_duration_seconds_count") == PODS
    assert scrape.sum("scheduler_pod_scheduling_attempts_count") == PODS
    assert scrape.sum("scheduler_pod_scheduling_attempts_sum") >= PODS
    assert scrape.sum("scheduler_cache_size", type="pods") + scrape.sum("scheduler_cache_size", type="assumed_pods") == PODS
    assert scrape.sum("scheduler_cache_size", type="nodes") == 8
    attempts = scrape.sum("scheduler_schedule_attempts_total")
    assert attempts == scrape.sum("scheduler_scheduling_attempt_duration_seconds_count") > PODS
    assert scrape.sum("scheduler_scheduling_algorithm_duration_seconds_count") >= attempts
    assert scrape.sum("scheduler_plugin_evaluation_total", plugin="NodeResourcesFit", extension_point="Filter") >= attempts
    assert scrape.sum("scheduler_pending_pods", queue="unschedulable") == 1
    assert scrape.sum("scheduler_unschedulable_pods", plugin="NodeResourcesFit") == 1
    assert scrape.sum("scheduler_queue_incoming_pods_total", queue="active", event="UnschedulablePodAdd") == PODS + 1
    assert scrape.sum("scheduler_async_api_call_execution_total", call_type="pod_binding", result="success") >= PODS
    assert scrape.sum("rayched_queue_invariant_violations_total") == scrape.sum("rayched_fenced_writes_total") == 0
    assert 0 < scrape.sum("scheduler_scheduling_algorithm_duration_seconds_sum") < 60


def test_buckets_are_cumulated_and_end_with_the_count(cluster: SmallCluster) -> None:
    scrape = Scrape(cluster.leader())
    series: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for one in scrape.samples:
        if one.name.endswith("_bucket"):
            labels = tuple(sorted((name, value) for name, value in one.labels.items() if name != "le"))
            series.setdefault((one.name.removesuffix("_bucket"), labels), []).append((float(one.labels["le"]), one.value))
    for (name, labels), buckets in series.items():
        values = [value for _, value in buckets]
        assert buckets == sorted(buckets) and values == sorted(values), (name, labels)
        assert values[-1] == scrape.sum(f"{name}_count", **dict(labels)), (name, labels)
    bounds = {name: len(buckets) - 1 for (name, _), buckets in series.items()}
    assert bounds["scheduler_scheduling_attempt_duration_seconds"] == 15
    assert bounds["scheduler_pod_scheduling_sli_duration_seconds"] == 20
    assert bounds["scheduler_framework_extension_point_duration_seconds"] == 12


@pytest.mark.row("L30")
def test_one_replica_shows_that_it_leads_and_all_show_how_often_the_lead_passed(cluster: SmallCluster) -> None:
    leader, standby = Scrape(cluster.leader()), Scrape(follower(cluster))
    assert leader.sum("leader_election_master_status", name="rayched") == 1
    assert standby.sum("leader_election_master_status", name="rayched") == 0
    found = cluster.client.leader()
    for scrape in (leader, standby):
        assert scrape.sum("rayched_leader_epoch") == found.epoch
        assert scrape.sum("rayched_leader_transitions_total") == found.transitions
    assert leader.sum("rayched_leader_last_renew_age_seconds") < 60.0
    assert standby.labels("rayched_leader_last_renew_age_seconds") == []


def test_a_standby_counts_no_attempts_and_holds_no_pending_pods(cluster: SmallCluster) -> None:
    scrape = Scrape(follower(cluster))
    assert scrape.labels("scheduler_schedule_attempts_total") == []
    assert scrape.sum("scheduler_pending_pods") == 0
    assert scrape.sum("rayched_actor_up") == 2


def test_openmetrics_is_given_to_whoever_asks_for_it(cluster: SmallCluster) -> None:
    _, content_type, text = ask(cluster.leader(), "/metrics", "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in openmetrics.text_string_to_metric_families(text)}
    assert {"scheduler_schedule_attempts", "scheduler_pending_pods"} <= names


def test_leader_and_standby_are_live_ready_and_healthy(cluster: SmallCluster) -> None:
    passed = ["ping", "leaderElection", "shutdown", "sched-handler-sync", "storage", "watch-sync"]
    for replica in cluster.local.replicas:
        for path in ("/livez", "/readyz", "/healthz", "/readyz/leaderElection"):
            assert ask(replica, path) == (200, "text/plain; charset=utf-8", "ok"), path
        assert ask(replica, "/readyz?verbose")[2] == "".join(f"[+]{name} ok\n" for name in passed) + "readyz check passed\n"
    _, _, text = ask(cluster.leader(), "/metrics/slis")
    slis = {family.name: family for family in text_string_to_metric_families(text)}
    assert {one.value for one in slis["kubernetes_healthcheck"].samples} == {1.0}
    assert {one.labels["type"] for one in slis["kubernetes_healthchecks"].samples} == {"livez", "readyz", "healthz"}


def test_configuration_and_status_are_shown(cluster: SmallCluster) -> None:
    status, content_type, body = ask(cluster.leader(), "/configz")
    shown = json.loads(body)
    assert (status, content_type) == (200, "application/json")
    assert shown["replica"]["electionProfile"] == "fast"
    assert shown["kubescheduler.config.k8s.io"]["podMaxBackoffSeconds"] == 10
    scores = {one["name"]: one["weight"] for one in shown["profiles"]["default-scheduler"]["plugins"]["score"]}
    assert scores["TaintToleration"] == 3
    status, content_type, body = ask(cluster.leader(), "/statusz")
    assert (status, content_type) == (200, "text/plain; charset=utf-8")
    assert "Leads: yes\n" in body and "Ready: yes\n" in body
    assert ask(cluster.leader(), "/unknown")[0] == 404
    version = json.loads(ask(cluster.leader(), "/version")[2])
    assert version.keys() == {"version", "commit", "python"}
    (told,) = (one.labels for one in Scrape(cluster.leader()).samples if one.name == "rayched_build_info")
    assert told == {"version": version["version"], "commit": version["commit"]}
    assert told["commit"] == source_commit()


def test_each_line_of_the_log_is_one_object_that_tells_pod_attempt_cycle_and_epoch(cluster: SmallCluster) -> None:
    epoch = cluster.client.leader().epoch
    lines = [json.loads(line) for line in cluster.leader().log_file.read_text().splitlines()]
    assert {"time", "level", "logger", "message", "component"} <= set.intersection(*(set(line) for line in lines))
    assert {"replica", "scheduler", "queue"} <= {line["component"] for line in lines}
    bound = [line for line in lines if line["component"] == "scheduler" and line.get("node")]
    assert {line["pod"] for line in bound} == {f"default/pod-{number}" for number in range(PODS)}
    assert {line["epoch"] for line in bound} == {epoch} and len({line["cycle"] for line in bound}) == PODS
    failed = next(line for line in lines if line.get("pod") == "default/too-large" and line["component"] == "scheduler")
    assert failed["attempt"] == 1 and "Insufficient cpu" in failed["message"] and failed["level"] == "DEBUG"
    assert next(line for line in lines if line["message"] == f"leading under epoch {epoch}")["epoch"] == epoch


def test_an_actor_that_hangs_is_left_out_of_a_scrape_and_holds_up_nobody(cluster: SmallCluster) -> None:
    leader, queue = cluster.leader(), cluster.pid_of("queue")
    os.kill(queue, signal.SIGSTOP)
    try:
        began = time.monotonic()
        scrape = Scrape(leader)
        seconds = time.monotonic() - began
    finally:
        with contextlib.suppress(ProcessLookupError):  # its scheduler may have ended it by now
            os.kill(queue, signal.SIGCONT)
    assert seconds < 8
    assert scrape.sum("rayched_actor_up", actor="queue") == 0 and scrape.labels("scheduler_pending_pods") == []
    assert scrape.sum("rayched_actor_up", actor="scheduler") == 1
    assert scrape.sum("scheduler_schedule_attempts_total", result="scheduled") == PODS
    assert scrape.sum("leader_election_master_status") == 1
    assert ask(leader, "/livez")[0] == ask(leader, "/healthz")[0] == 200
    until_true(lambda: Scrape(leader).sum("rayched_actor_up", actor="queue") == 1, 30, "the queue is not there again")


@pytest.mark.row("L30")
def test_a_takeover_is_counted_and_timed_by_the_new_leader(cluster: SmallCluster) -> None:
    """Ends the leader, so it comes last."""
    dead, heir = cluster.leader(), follower(cluster)
    before = Scrape(heir)
    end_tree(dead.pid)
    until_true(lambda: Scrape(heir).sum("leader_election_master_status") == 1, 20, "nobody took over")
    after = Scrape(heir)
    assert after.sum("rayched_leader_transitions_total") == before.sum("rayched_leader_transitions_total") + 1
    assert after.sum("rayched_leader_epoch") > before.sum("rayched_leader_epoch")
    assert after.sum("rayched_failover_duration_seconds_count", kind="expired") == 1
    assert 0 < after.sum("rayched_failover_duration_seconds_sum", kind="expired") < 20
    # The pod that no node can take is tried anew by the new leader.
    until_true(lambda: Scrape(heir).labels("scheduler_schedule_attempts_total") != [], 10, "the new leader tries nothing")
    assert Scrape(heir).sum("scheduler_pending_pods") == 1
