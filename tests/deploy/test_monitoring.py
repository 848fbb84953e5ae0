"""Prometheus' rules and scrapes, and Grafana's board: they parse, and what they ask for a real replica and a real etcd show.

Neither Prometheus nor Grafana is here: expressions are sieved for names and labels (queries.py), not evaluated.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from rayched.store.quota import metrics_of
from tests.deploy.queries import grouped, metrics, selected
from tests.replica.clusters import SmallCluster

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())["groups"] for rule in group["rules"]
]
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
BOARD = json.loads((DEPLOY / "grafana" / "rayched.json").read_text())
OPERATIONS = (DEPLOY.parent / "docs" / "operations.md").read_text()
GIVEN_BY_PROMETHEUS = {"job", "instance", "le"}


def board_queries() -> list[str]:
    panels = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", [])]
    variables = [variable["query"]["query"] for variable in BOARD["templating"]["list"] if isinstance(variable["query"], dict)]
    return [*panels, *variables, *(annotation["expr"] for annotation in BOARD["annotations"]["list"])]


QUERIES = [rule["expr"] for rule in RULES] + board_queries()


def test_the_sieve_finds_metrics_and_labels() -> None:
    expression = (
        'histogram_quantile(0.99, sum by (le, op) (rate(a_bucket{job="$job",op=~"x|y"}[5m]))) > 0.5 unless max(b_total) == 0'
    )
    assert metrics(expression) == {"a_bucket", "b_total"}
    assert selected(expression) == [("a_bucket", "job", "$job"), ("a_bucket", "op", "x|y")]
    assert grouped(expression) == {"le", "op"}


def test_each_alert_has_a_name_of_its_own_a_severity_a_sentence_and_a_place_in_the_documentation() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names) >= 20
    headings = [line.removeprefix("### ") for line in OPERATIONS.splitlines() if line.startswith("### Rayched")]
    assert headings == names
    for rule in RULES:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s")), rule
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"
        labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        plain = not grouped(rule["expr"])
        assert plain or labels <= grouped(rule["expr"]), f"{rule['alert']} tells labels that its expression drops"


def test_scrapes_name_the_rules_and_the_ports_and_paths_of_replicas() -> None:
    for file in PROMETHEUS["rule_files"]:
        assert (DEPLOY / "prometheus" / file).is_file()
    targets = {
        (job["job_name"], job.get("metrics_path", "/metrics")): [t for one in job["static_configs"] for t in one["targets"]]
        for job in PROMETHEUS["scrape_configs"]
    }
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
    published = [
        port.removesuffix(":7520") for service in compose.values() for port in service.get("ports", []) if port.endswith(":7520")
    ]
    assert targets["rayched", "/metrics"] == targets["rayched-health", "/metrics/slis"] == published
    for job in PROMETHEUS["scrape_configs"]:
        assert (job.get("scheme", "http") == "https") == job["job_name"].startswith("rayched")
    assert [target.removesuffix(":2381") for target in targets["etcd", "/metrics"]] == [
        name for name in compose if "etcd" in name
    ]


def test_the_board_has_panels_that_do_not_overlap_and_variables_that_exist() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    variables = {variable["name"] for variable in BOARD["templating"]["list"]} | {"__rate_interval", "__interval"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD))) <= variables
    for panel in BOARD["panels"]:
        for target in panel.get("targets", []):
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            by = grouped(target["expr"])
            assert not by or shown <= by, f"{panel['title']} shows labels that its query drops"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Metric]]:
    """What a leader with some pods and its etcd show, by the name of each sample and of each family without any."""
    with SmallCluster(tmp_path_factory.mktemp("monitored"), replicas=1) as cluster:
        cluster.submit(20)
        cluster.wait_until_all_bound()
        replica, etcd = cluster.local.replicas[0].http_address, cluster.local.etcd_endpoints[0]
        found = {}
        texts = [metrics_of(etcd).decode()]
        for address in (f"{replica}/metrics", f"{replica}/metrics/slis"):
            with urllib.request.urlopen(f"http://{address}", timeout=10) as answer:
                texts.append(answer.read().decode())
        for family in (family for text in texts for family in text_string_to_metric_families(text)):
            endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
            names = {f"{family.name}{ending}" for ending in endings} | {sample.name for sample in family.samples}
            found |= dict.fromkeys(names, family)
        yield found


@pytest.mark.cluster
def test_everything_asked_for_is_shown_by_a_real_replica_or_a_real_etcd(shown: dict[str, Metric]) -> None:
    assert not {name for query in QUERIES for name in metrics(query)} - set(shown)


@pytest.mark.cluster
def test_labels_that_are_asked_for_are_those_of_the_metrics(shown: dict[str, Metric]) -> None:
    """As far as they have samples: what never happened has no labels yet."""
    seen = 0
    for query in QUERIES:
        labels = {name: {key for sample in shown[name].samples for key in sample.labels} for name in metrics(query)}
        if all(shown[name].samples for name in labels):
            known = set().union(*labels.values()) | GIVEN_BY_PROMETHEUS
            assert grouped(query) <= known, query
            seen += 1
        for name, label, value in selected(query):
            if label in GIVEN_BY_PROMETHEUS or not shown[name].samples:
                continue
            values = {sample.labels[label] for sample in shown[name].samples if label in sample.labels}
            assert values, f"{name} has no label {label}"
            if (name, label) in (("leader_election_master_status", "name"), ("scheduler_pending_pods", "queue")):
                assert value in values, f"{name}{{{label}}} is never {value!r}"
    assert seen > len(QUERIES) / 2
