"""get and describe: objects as tables, names, manifests and as text for a person, now and as they change."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.cli.cluster import Commands, a_pod_text, started, wait_until

pytestmark = pytest.mark.cluster


def test_get_shows_objects_as_table_names_or_manifests(rayched: Commands, web: str) -> None:
    table = [line.split() for line in rayched.ok("get", "pods", "-n", web)]
    assert table[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [row[:4] for row in table[1:]] == [
        ["db", "0/1", "Pending", "0"],
        ["web-0", "1/1", "Running", "0"],
        ["web-1", "1/1", "Running", "0"],
    ]
    wide = rayched.ok("get", "po", "-n", web, "-o", "wide")
    assert wide[0].split()[5:] == ["IP", "NODE", "NOMINATED", "NODE"]
    assert wide[2].split()[6] == rayched.pod("web-0", web).spec.node_name
    assert rayched.ok("get", "pods", "-n", web, "-o", "name") == ["pod/db", "pod/web-0", "pod/web-1"]
    found = json.loads("\n".join(rayched.ok("get", "pods", "-n", web, "-o", "json")))
    assert (found["kind"], [item["metadata"]["name"] for item in found["items"]]) == ("List", ["db", "web-0", "web-1"])
    of_one = json.loads("\n".join(rayched.ok("get", "pods", "-l", "app=db", "-n", web, "-o", "json")))
    assert (of_one["kind"], len(of_one["items"])) == ("List", 1)
    one = yaml.safe_load("\n".join(rayched.ok("get", "pod", "web-0", "-n", web, "-o", "yaml")))
    assert (one["kind"], one["metadata"]["name"]) == ("Pod", "web-0")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("-l app=web", "web-0 web-1"),
        ("-l app!=web,tier", "db"),
        ("-l !tier", "web-0 web-1"),
        ("--field-selector metadata.name=web-1", "web-1"),
        ("--field-selector status.phase!=Running", "db"),
        ("-l app=db --field-selector status.phase=Pending", "db"),
        ("-l app=none", ""),
    ],
)
def test_selectors_choose_by_labels_and_fields(rayched: Commands, web: str, options: str, names: str) -> None:
    found = rayched.ok("get", "pods", "-n", web, "-o", "name", *options.split())
    assert found == [f"pod/{name}" for name in names.split()]


def test_objects_of_several_types_and_namespaces_stand_side_by_side(rayched: Commands, web: str) -> None:
    lines = rayched.ok("get", "pods/db", "no/node-000", "-n", web, "--no-headers")
    assert [line.split()[0] for line in lines if line] == ["pod/db", "node/node-000"]
    both = rayched.ok("get", "pods,nodes", "-n", web)
    assert both[0].startswith("NAME ")
    assert both.index("") == 4
    everywhere = [line.split()[:2] for line in rayched.ok("get", "pods", "-A")]
    assert everywhere[0] == ["NAMESPACE", "NAME"]
    assert [web, "db"] in everywhere
    assert rayched.ok("get", "all", "-n", web, "-o", "name") == ["pod/db", "pod/web-0", "pod/web-1"]


def test_labels_are_shown_where_they_are_asked_for(rayched: Commands, web: str) -> None:
    lines = rayched.ok("get", "pods", "-n", web, "--show-labels", "-L", "tier")
    assert [line.split()[5:] for line in lines] == [["TIER", "LABELS"], ["back", "app=db,tier=back"], ["app=web"], ["app=web"]]


def test_nothing_found_is_no_error_and_is_told_on_the_side(rayched: Commands, namespace: str) -> None:
    assert rayched("get", "pods", "-n", namespace).errors == [f"No resources found in {namespace} namespace."]
    assert rayched("get", "pods", "-A", "-l", "app=none-such").errors == ["No resources found"]
    empty = rayched("get", "pods", "-n", namespace, "-o", "json")
    assert (json.loads(empty.out)["items"], empty.errors) == ([], [])


def test_what_is_there_is_shown_also_where_something_else_is_not(rayched: Commands, web: str) -> None:
    result = rayched("get", "pods", "none-such", "web-0", "-n", web, "-o", "name")
    assert (result.code, result.lines) == (1, ["pod/web-0"])
    assert result.errors == [f"error: Pod {web}/none-such not found"]


def test_a_watch_shows_what_is_there_and_goes_on_with_each_change(rayched: Commands, web: str) -> None:
    environment = {"RAYCHED_SERVER": rayched.server}
    with started("get", "pods", "-n", web, "-l", "app=web", "-w", environment=environment) as table:
        assert [table.line().split()[0] for _ in range(3)] == ["NAME", "web-0", "web-1"]
        rayched.ok("delete", "pod", "web-1", "-n", web, "--grace-period", "0")
        # The word is wider than its column was when the table began; it must not touch the next one.
        assert table.line_with("web-1").split()[:4] == ["web-1", "1/1", "Running", "0"]
        rayched.ok("apply", "-f", "-", stdin=a_pod_text("web-9", namespace=web, labels="{app: web}"))
        assert table.line_with("web-9").split()[:3] == ["web-9", "0/1", "Pending"]
        table.line_with("Running")
        assert table.end() == 130
    with started("get", "pod", "web-0", "-n", web, "-w", "-o", "name", environment=environment) as names:
        assert names.line() == "pod/web-0"
        rayched.ok("label", "pod", "web-0", "-n", web, "a=b")
        assert names.line() == "pod/web-0"
    missing = rayched("get", "pod", "none-such", "-n", web, "-w")
    assert (missing.code, missing.out) == (1, "")


# -------------------------------------------------------------------------------------------------------------- describe


def test_describe_says_where_a_pod_is_or_why_it_is_not(rayched: Commands, web: str) -> None:
    text = "\n".join(rayched.ok("describe", "pods", "-n", web))
    db, web_0, _ = text.split("\n\n\n")
    assert "PodScheduled   False    Unschedulable   0/1" in db
    assert "12 Insufficient cpu" in db
    assert re.search(r"^Queue: +\w+, after \d+ attempts?\nHeld by: +NodeResourcesFit\nRetried when: +\w", db, re.MULTILINE)
    assert f"Node:             {rayched.pod('web-0', web).spec.node_name}" in web_0
    assert "Total Requests:   cpu 100m" in web_0 and "Queue:" not in web_0
    assert not any(line != line.rstrip() for line in text.splitlines() if not line.endswith(":"))
    both = rayched("describe", "pod", "web-0", "none-such", "-n", web)
    assert (both.code, both.errors) == (1, [f"error: Pod {web}/none-such not found"])
    assert both.lines[0] == "Name:             web-0"


@pytest.mark.row("K3.2")
def test_describe_says_what_a_node_offers_and_what_pods_with_their_overhead_take(
    rayched: Commands, namespace: str, name: str
) -> None:
    handler = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "sandbox"}
    overhead = {**handler, "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}}}
    rayched.ok("apply", "-f", "-", stdin=json.dumps(overhead))
    spec = f"runtimeClassName: {name}\nnodeSelector: {{kubernetes.io/hostname: node-009}}"
    pod = a_pod_text(name, namespace=namespace, cpu="2, memory: 200Mi", spec=spec)
    rayched.ok("apply", "-f", "-", stdin=pod)
    rayched.running(name, namespace)
    lines = rayched.ok("describe", "node", "node-009")
    rows = [line.split() for line in lines]
    assert [namespace, name, "2250m", "320Mi"] in rows
    assert lines[0] == "Name:             node-009"
    assert ["Taints:", "<none>"] in rows
    rayched.ok("delete", "pod", name, "-n", namespace, "--grace-period", "0")
    rayched.ok("delete", "runtimeclass", name)


@pytest.mark.parametrize("word", ["namespace/default", "namespaces"])
def test_describe_shows_other_kinds_as_their_manifest(rayched: Commands, word: str) -> None:
    assert "kind: Namespace" in rayched.ok("describe", word)


def test_describe_shows_what_makes_pods_with_how_many_it_has(rayched: Commands, namespace: str, name: str) -> None:
    labels = f"{{app: {name}}}"
    text = f"""apiVersion: apps/v1
kind: ReplicaSet
metadata: {{name: {name}, namespace: {namespace}, labels: {labels}}}
spec:
  replicas: 2
  selector: {{matchLabels: {labels}, matchExpressions: [{{key: old, operator: DoesNotExist}}]}}
  template:
    metadata: {{labels: {labels}}}
    spec: {{containers: [{{name: main, image: "web:1", resources: {{requests: {{cpu: 100m}}}}}}], nodeSelector: {{none: such}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  suspend: true
  completions: 3
  template: {{spec: {{restartPolicy: Never, containers: [{{name: main}}]}}}}
"""
    rayched.ok("apply", "-f", "-", stdin=text)
    wait_until(lambda: len([*rayched.client.list("pods", namespace=namespace)]) == 2, "two pods")
    lines = [" ".join(line.split()) for line in rayched.ok("describe", f"rs/{name}", f"job/{name}", "-n", namespace)]
    for line in (
        f"Selector: app={name},!old",
        "Replicas: 2 current / 2 desired",
        "Pods Statuses: 0 Running / 2 Waiting / 0 Succeeded / 0 Failed",
        "Image: web:1",
        "Node-Selectors: none=such",
        "Completions: 3",
        "Suspend: true",
        "Pods Statuses: 0 Running / 0 Waiting / 0 Succeeded / 0 Failed",
    ):
        assert line in lines, lines
    assert any("SuccessfulCreate" in line for line in lines)
