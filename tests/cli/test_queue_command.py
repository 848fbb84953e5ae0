"""queue: who waits for a node, in which order, and why."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from rayched.cli.scheduling.queue_command import GONE, _news
from rayched.v1.services_pb2 import PendingPod
from tests.cli.cluster import Commands, a_gang_text, a_pod_text, run_here, started, wait_until

HEADINGS = ["NAMESPACE", "NAME", "QUEUE", "PRIORITY", "ATTEMPTS", "HELD BY"]


@pytest.mark.cluster
@pytest.mark.row("Q31", "Q58")
def test_queue_shows_who_holds_a_pod_and_what_would_wake_it(rayched: Commands, web: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("gated", namespace=web, spec="schedulingGates: [{name: wait}]"))
    wait_until(lambda: len(rayched.ok("queue", "-n", web)) == 3, "both pods are listed")
    headings, *rows = rayched.ok("queue", "-n", web)
    assert headings.split("  ")[0] == "NAMESPACE" and all(heading in headings for heading in HEADINGS)
    db, gated = sorted((row.split() for row in rows), key=lambda row: row[1])
    assert (db[0], db[1], db[2], db[5]) == (web, "db", "unschedulable", "NodeResourcesFit")
    assert int(db[4]) >= 1
    (wide,) = rayched.ok("queue", "-n", web, "-o", "wide", "-t", "unschedulable")[1:]
    assert "a node is added" in wide
    assert [row.split()[1] for row in rayched.ok("queue", "-n", web, "--sort-by", ".name")[1:]] == ["db", "gated"]
    assert [row.split()[1] for row in rayched.ok("queue", "-n", web, "-l", "app=db")[1:]] == ["db"]
    assert rayched.ok("queue", "-n", web, "-o=custom-columns=N:.name,Q:.queue", "-t=gated") == ["N       Q", "gated   gated"]
    assert sorted(rayched.ok("queue", "-n", web, "-o", "name")) == ["pod/db", "pod/gated"]
    assert gated[1:] == ["gated", "gated", "0", "0", "SchedulingGates"]
    found = json.loads("\n".join(rayched.ok("queue", "db", "-n", web, "-o", "json")))
    (item,) = found["items"]
    assert (item["name"], item["queue"], item["held_by"]) == ("db", "unschedulable", ["NodeResourcesFit"])
    assert 0 < item["tried_in_seconds"] <= 300 and found["total"] in (1, "1")
    assert yaml.safe_load("\n".join(rayched.ok("queue", "db", "-n", web, "-o", "yaml")))["items"][0]["name"] == "db"


@pytest.mark.cluster
def test_queue_follows_pods_until_they_are_gone(rayched: Commands, web: str) -> None:
    with started("queue", "-n", web, "-w", environment={"RAYCHED_SERVER": rayched.server}) as watch:
        assert watch.line().split() == " ".join(HEADINGS).split()
        assert watch.line().split()[1:3] == ["db", "unschedulable"]
        rayched.ok("delete", "pod", "db", "-n", web)
        assert watch.line().split()[1:3] == ["db", GONE]
    with started("queue", "-n", web, "-w", "-o", "json", environment={"RAYCHED_SERVER": rayched.server}) as watch:
        rayched.ok("apply", "-f", "-", stdin=a_pod_text("late", namespace=web, cpu="17"))
        assert json.loads(watch.line())["name"] == "late"


@pytest.mark.cluster
def test_an_empty_queue_says_so_and_a_wrong_limit_is_told(rayched: Commands, namespace: str) -> None:
    result = rayched("queue", "-n", namespace)
    assert (result.code, result.out, result.errors) == (0, "", ["No pending pods found"])
    result = rayched("queue", "--limit", "0")
    assert result.code == 2 and "--limit" in result.errors[0]


def test_only_what_changes_about_a_pod_is_news() -> None:
    known: dict[str, PendingPod] = {}
    waiting = PendingPod(uid="a", namespace="default", name="web", queue="active", position=7)
    assert _news(known, [waiting], complete=True) == [waiting]
    nearer = PendingPod(uid="a", namespace="default", name="web", queue="active", position=3)
    assert _news(known, [nearer], complete=True) == []
    failed = PendingPod(uid="a", namespace="default", name="web", queue="backoff", attempts=1)
    assert _news(known, [failed], complete=True) == [failed]
    # Where the answer was cut off, a pod that is missing may be further down.
    assert _news(known, [], complete=False) == []
    (gone,) = _news(known, [], complete=True)
    assert (gone.name, gone.queue) == ("web", GONE) and known == {}


@pytest.mark.cluster
def test_a_pod_for_a_scheduler_that_is_not_there_is_told_of(rayched: Commands, namespace: str, tmp_path: Path) -> None:
    pods = [a_pod_text(f"packed-{number}", namespace=namespace, spec="schedulerName: nobody") for number in range(3)]
    rayched.ok("apply", "-f", "-", stdin="---\n".join(pods))
    one = rayched("queue", "packed-0", "-n", namespace)
    served = "bin-packing-scheduler, default-scheduler"
    assert (one.code, one.out) == (0, "")
    (line,) = one.errors
    assert line.startswith(f'{namespace}/packed-0 waits for the scheduler "nobody", which is not served here; served: ')
    for scheduler in served.split(", "):
        assert scheduler in line
    (line,) = rayched("queue", "-n", namespace).errors
    assert line.startswith(f'{namespace}/packed-0 and 2 more wait for the scheduler "nobody"')
    for choice in (("-t", "gated"), ("-l", "app=other")):
        told = " ".join(rayched("queue", "-n", namespace, *choice).errors)
        assert "nobody" not in told, "none of those that were asked for"
    whole = json.loads("\n".join(rayched.ok("queue", "-n", namespace, "-o", "json")))
    (not_served,) = whole["not_served"]
    assert (not_served["scheduler"], not_served["pods"]) == ("nobody", [f"{namespace}/packed-{number}" for number in range(3)])
    assert set(not_served["served"]) >= set(served.split(", ")) and whole["items"] == []
    for output in ((), ("-o", "json")):
        errors, environment = tmp_path / "errors", {"RAYCHED_SERVER": rayched.server}
        with started("queue", "-n", namespace, "-w", *output, environment=environment, errors=errors):
            wait_until(lambda told=errors: told.read_text() == f"{line}\n", "the pods are told of")  # type: ignore[misc]
    assert "Scheduler:        nobody (not served here; served: " in rayched("describe", "pod", "packed-0", "-n", namespace).out


@pytest.mark.cluster
def test_of_a_pod_that_was_named_it_is_told_where_it_is_or_that_there_is_none(rayched: Commands, web: str) -> None:
    rayched.running("web-0", web)
    for place, said in ((("-n", web), f"Pod {web}/none-such not found"), ((), "Pod none-such not found in any namespace")):
        for output in ((), ("-o", "json")):
            missing = rayched("queue", "none-such", *place, *output)
            assert (missing.code, missing.out, missing.errors) == (1, "", [f"error: {said}"])
    found = rayched("queue", "web-0", "-n", web)
    node = rayched.pod("web-0", web).spec.node_name
    assert (found.code, found.out) == (0, "")
    assert found.errors == [f"pod {web}/web-0 is not pending: it is on node {node} (Running)"]
    group = rayched("queue", "podgroup:none-such", "-n", web)
    assert (group.code, group.errors) == (1, [f"error: PodGroup {web}/none-such not found"])


@pytest.mark.cluster
def test_a_start_is_told_where_the_ends_of_others_are_known(rayched: Commands, web: str, name: str) -> None:
    node = f"""apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{only: {name}, kubernetes.io/hostname: {name}}}, annotations: {{rayched.dev/agent: hollow}}}}
status: {{capacity: {{cpu: "1", memory: 1Gi, pods: "9"}}}}
"""
    there = f"nodeSelector: {{only: {name}}}"
    try:
        rayched.ok("apply", "-f", "-", stdin=node)
        holder = a_pod_text("holder", namespace=web, cpu="1", spec=f"{there}\nactiveDeadlineSeconds: 600")
        rayched.ok("apply", "-f", "-", stdin=holder)
        rayched.pod_when("holder", lambda pod: pod.spec.node_name == name, "bound", web)
        rayched.ok("apply", "-f", "-", stdin=a_pod_text("next", namespace=web, cpu="1", spec=there))
        rayched.unschedulable("next", "Insufficient cpu", web)
        headings, *rows = rayched.ok("queue", "-n", web, "--start")
        assert headings.endswith("   STARTS BY")
        told = {row.split()[1]: row for row in rows}
        assert told["db"].endswith("   <unknown>")
        assert re.search(r"   \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(in (10m|9m\d*s?)\)$", told["next"])
    finally:
        rayched("delete", "pods", "holder", "next", "-n", web, "--grace-period", "0", "--ignore-not-found")
        rayched("delete", "node", name, "--ignore-not-found")


@pytest.mark.parametrize("words", ["queue --start -w", "queue --start -o json"])
def test_starts_are_estimated_once_and_for_people(words: str) -> None:
    refused = run_here(words.split())
    assert refused.code == 2 and "--start cannot be combined with" in refused.errors[0]


@pytest.mark.cluster
@pytest.mark.row("G65")
def test_a_group_is_one_line_with_its_members_and_what_holds_it_and_one_held_back_is_told_of(
    rayched: Commands, namespace: str
) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_gang_text("large", 2, 2, namespace=namespace, cpu="17"))
    wait_until(lambda: "unschedulable" in "".join(rayched.ok("queue", "-n", namespace)), "the group has failed")
    _, row = rayched.ok("queue", "-n", namespace)
    assert "podgroup:large (2 members)" in row and "NodeResourcesFit" in row
    assert rayched.ok("queue", "-n", namespace, "-o", "name") == ["podgroup/large"]
    rayched.ok("apply", "-f", "-", stdin=a_gang_text("few", 1, 2, namespace=namespace))
    said = f"{namespace}/podgroup:few is held back: 1 of 2 members run or wait: waiting for pod group {namespace}/few: "
    wait_until(lambda: rayched("queue", "-n", namespace).errors[:1] != [], "the other one is told of")
    result = rayched("queue", "-n", namespace)
    assert len(result.lines) == 2 and result.errors == [f"{said}it needs 2 members that run or wait"]
    document = json.loads("\n".join(rayched.ok("queue", "-n", namespace, "-o", "json")))
    assert [(one["name"], one["members"]) for one in document["items"]] == [("podgroup:large", 2)]
    assert [one["name"] for one in document["held_groups"]] == ["few"]
    assert json.loads("\n".join(rayched.ok("queue", "podgroup:large", "-n", namespace, "-o", "json")))["held_groups"] == []
