"""What a real replica shows over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.replica.clusters import SmallCluster

pytestmark = pytest.mark.cluster

ADVERTISED = "replica-0.rayched.example:7420"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    options = ["--advertise-address", ADVERTISED]
    with SmallCluster(tmp_path_factory.mktemp("observed"), replicas=1, options=options) as found:
        yield found


def ask(cluster: SmallCluster, path: str, accept: str = "") -> tuple[int, str, str]:
    """Status, content type, body."""
    request = urllib.request.Request(f"http://{cluster.local.replicas[0].http_address}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def test_a_replica_that_leads_is_live_ready_and_healthy(cluster: SmallCluster) -> None:
    for path in ("/livez", "/readyz", "/healthz", "/readyz/leaderElection"):
        assert ask(cluster, path) == (200, "text/plain; charset=utf-8", "ok"), path
    passed = ["ping", "leaderElection", "shutdown", "sched-handler-sync", "watch-sync"]
    assert ask(cluster, "/readyz?verbose")[2] == "".join(f"[+]{name} ok\n" for name in passed) + "readyz check passed\n"


def test_configuration_and_status_are_shown(cluster: SmallCluster) -> None:
    status, content_type, body = ask(cluster, "/configz")
    shown = json.loads(body)
    assert (status, content_type) == (200, "application/json")
    assert shown["replica"]["electionProfile"] == "fast"
    assert shown["kubescheduler.config.k8s.io"]["podMaxBackoffSeconds"] == 10
    scores = {one["name"]: one["weight"] for one in shown["profiles"]["default-scheduler"]["plugins"]["score"]}
    assert scores["TaintToleration"] == 3
    status, content_type, body = ask(cluster, "/statusz")
    assert (status, content_type) == (200, "text/plain; charset=utf-8")
    assert "Leads: yes\n" in body and "Ready: yes\n" in body
    assert ask(cluster, "/unknown")[0] == 404
    assert json.loads(ask(cluster, "/version")[2])["version"]


def test_refused_writes_are_shown_also_while_there_are_none(cluster: SmallCluster) -> None:
    assert 'rayched_fenced_writes_total{op="bind"} 0.0' in ask(cluster, "/metrics")[2]


def test_the_leader_is_named_by_its_advertised_address_and_not_by_where_it_listens(cluster: SmallCluster) -> None:
    assert cluster.client.leader().address == ADVERTISED
    assert f"at {ADVERTISED}, epoch" in ask(cluster, "/statusz")[2]
    assert f"API: {cluster.local.addresses[0]}\n" in ask(cluster, "/statusz")[2]
