"""The page's answers from a real replica, held against what the command and the SDK say of the same cluster."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rayched.api import kinds, quantity
from rayched.api.resources import accounted_requests
from rayched.client.async_client import AsyncClient
from rayched.page.guarding import HEADERS
from rayched.page.planning import PLAN_SECONDS, PlanRunner, PlanWish
from rayched.v1.core_pb2 import Node, Pod
from tests.cli.cluster import Commands, Running, a_pod_text, wait_until
from tests.gateway.requests import HttpAnswer, ask
from tests.page.streams import PageFrames, SeenColumns
from tests.patience import TRIES_MAX

pytestmark = pytest.mark.cluster

PATHS = (
    "/ui",
    "/ui/",
    "/ui/api/queue",
    "/ui/api/replicas",
    "/ui/api/node/node-001",
    "/ui/api/select?selector=a",
    "/ui/api/pod/default/nobody",
    "/ui/api/explain/default/nobody",
    "/ui/api/plan",
    "/ui/api/secrets",
    "/ui/static/0/app.js",
    "/ui/stream?topics=moods",
    "/ui/a%0Ab",
)


def get(url: str, path: str) -> Any:
    answer = ask(url, path)
    assert answer.status == 200, (answer.status, answer.body)
    return answer.document


def shares(rayched: Commands) -> dict[str, list[int]]:
    """Of each node, by lists of nodes and pods: cpu, memory and pods in thousandths."""
    pods = rayched.client.list_all(kinds.POD)
    nodes = rayched.client.list_all(kinds.NODE, revision=pods.revision)
    used: dict[str, Counter[str]] = {}
    for pod in pods.objects:
        if isinstance(pod, Pod) and pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed"):
            used.setdefault(pod.spec.node_name, Counter()).update({**accounted_requests(pod), "pods": 1})
    found = {}
    for node in nodes.objects:
        assert isinstance(node, Node)
        here, has = used.get(node.metadata.name, Counter()), node.status.allocatable
        offered = [
            quantity.milli_value(has["cpu"].string),
            quantity.value(has["memory"].string),
            quantity.value(has["pods"].string),
        ]
        taken = [here["cpu"], here["memory"], here["pods"]]
        found[node.metadata.name] = [min(1000, part * 1000 // of) for part, of in zip(taken, offered, strict=True)]
    return found


@pytest.mark.row("UI10", "UI11")
def test_the_columns_are_what_lists_of_nodes_and_pods_give(rayched: Commands, url: str, namespace: str) -> None:
    with PageFrames(url, "usage") as frames:
        seen = SeenColumns()
        stream = iter(frames)
        assert next(stream)[0] == "hello"
        seen.take(next(stream)[1])
        assert {name: row[:3] for name, row in seen.rows.items()} == shares(rayched)
        assert set(seen.zone.values()) == {"zone-a", "zone-b", "zone-c"}
        rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace, cpu="8"))
        node = rayched.running("web", namespace).spec.node_name
        wanted = shares(rayched)
        while seen.rows[node][:3] != wanted[node]:
            _, message = next(stream)
            # A binding is one row, not all of them.
            assert "full" not in message and len(message["rows"]) <= 12
            seen.take(message)
        assert {name: row[:3] for name, row in seen.rows.items()} == wanted


@pytest.mark.row("UI13")
def test_a_node_that_is_cordoned_changes_its_row_and_one_that_is_removed_all(rayched: Commands, url: str, cordoned: str) -> None:
    with PageFrames(url, "usage") as frames:
        seen = SeenColumns()
        stream = iter(frames)
        next(stream)
        seen.take(next(stream)[1])
        assert seen.rows[cordoned][3] == 0
        rayched.ok("cordon", cordoned)
        rayched.ok("taint", "nodes", cordoned, "dedicated=x:NoSchedule")
        while seen.rows[cordoned][3] != 5:
            name, message = next(stream)
            assert (name, "full" in message) == ("usage", False)
            seen.take(message)
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "aaa"},
            "status": {"capacity": {"cpu": "1", "pods": "5"}},
        }
        rayched.ok("apply", "-f", "-", stdin=json.dumps(node))
        seen.take(frames.until(lambda name, found: "aaa" in found.get("names", ()))[1])
        assert next(iter(seen.rows)) == "aaa" and seen.zone["aaa"] == "" and seen.rows[cordoned][3] == 5
        rayched.ok("delete", "node", "aaa")
        seen.take(frames.until(lambda name, found: bool(found.get("full")) and "aaa" not in found["names"])[1])
        assert next(iter(seen.rows)) == "node-000"


@pytest.mark.row("UI10", "UI11")
def test_an_extended_resource_of_a_node_is_a_column(rayched: Commands, url: str, namespace: str) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "zzz"},
        "status": {"capacity": {"cpu": "4", "pods": "5", "example.com/gpu": "4"}},
    }
    rayched.ok("apply", "-f", "-", stdin=json.dumps(node))
    try:
        with PageFrames(url, "usage") as frames:
            seen = SeenColumns()
            stream = iter(frames)
            next(stream)
            while seen.extended != ["example.com/gpu"]:
                seen.take(next(stream)[1])
            assert seen.rows["zzz"][4:] == [0] and seen.rows["node-000"][4:] == [-1]
            one = {"example.com/gpu": "1"}
            container = {"name": "main", "image": "registry.example/train:1", "resources": {"requests": one, "limits": one}}
            # The node has no condition, so no pod is scheduled to it.
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "trainer", "namespace": namespace},
                "spec": {"nodeName": "zzz", "containers": [container]},
            }
            rayched.ok("apply", "-f", "-", stdin=json.dumps(pod))
            while seen.rows["zzz"][4:] != [250]:
                seen.take(next(stream)[1])
    finally:
        rayched.ok("delete", "pod", "trainer", "-n", namespace)
        rayched.ok("delete", "node", "zzz")


@pytest.mark.row("UI16", "UI39")
def test_zones_are_told_by_their_totals(rayched: Commands, url: str) -> None:
    with PageFrames(url, "status") as frames:
        _, status = frames.until(lambda name, found: name == "status" and bool(found["zones"]))
    found = json.loads("\n".join(rayched.ok("status", "-o", "json")))
    assert {zone["zone"] for zone in status["zones"]} == set(found["by"]["groups"])
    for zone in status["zones"]:
        whole = found["by"]["groups"][zone["zone"]]
        names = ("cpu", "memory", "pods")
        assert zone["nodes"] == whole["nodes"]
        assert zone["offered"] == [whole["allocatable"][name] for name in names]
        assert zone["used"] == [whole["requested"].get(name, 0) for name in names]
    assert "node-001" not in json.dumps(status["zones"])


@pytest.mark.row("UI9", "UI53")
def test_attempts_a_second_are_differences_of_attempts(rayched: Commands, url: str, namespace: str) -> None:
    with PageFrames(url, "status") as frames:
        _, hello = next(iter(frames))
        assert abs(hello["now"] - time.time()) < 30 and hello["since"] <= hello["now"]
        samples = [frames.until(lambda name, found: name == "status")[1]["sample"] for _ in range(2)]
        before = rayched.client.scheduler_status().attempts["scheduled"]
        rayched.ok("apply", "-f", "-", stdin="---\n".join(a_pod_text(f"web-{n}", namespace=namespace) for n in range(5)))
        for number in range(5):
            rayched.running(f"web-{number}", namespace)
        after = rayched.client.scheduler_status().attempts["scheduled"]
        assert after - before == 5
        counted = 0.0
        while round(counted) < 5:
            samples.append(frames.until(lambda name, found: name == "status")[1]["sample"])
            counted = sum((b[1] or 0.0) * (b[0] - a[0]) for a, b in itertools.pairwise(samples[1:]))
        assert counted == pytest.approx(5, rel=0.02)
        # How long they took is known where there were any.
        for one in samples[1:]:
            attempt_half, attempt_most, wait_half, wait_most = one[9:]
            if one[1]:
                assert 0 < attempt_half <= attempt_most < 60 and 0 < wait_half <= wait_most
            else:
                assert one[9:] == [None] * 4
    status = rayched.client.scheduler_status()
    for histogram in (status.attempt_durations, status.sli_durations):
        assert sum(histogram.counts) == status.attempts["scheduled"]


@pytest.mark.row("UI6")
def test_the_term_on_the_page_is_that_of_the_command(rayched: Commands, url: str) -> None:
    with PageFrames(url, "leader") as frames:
        _, found = frames.until(lambda name, found: name == "leader" and bool(found["terms"]))
    term, leader = found["terms"][-1], rayched.client.leader()
    assert (term["holder"], term["epoch"], term["until"]) == (leader.holder, leader.epoch, None)
    assert term["since"] == pytest.approx(leader.acquired_at_ms / 1000, abs=0.05)


@pytest.mark.row("UI18", "UI19", "UI21")
def test_the_queue_is_that_of_the_command(rayched: Commands, url: str, namespace: str) -> None:
    gated = a_pod_text("gated", namespace=namespace, spec="schedulingGates: [{name: example.com/wait}]")
    rayched.ok("apply", "-f", "-", stdin="---\n".join([a_pod_text("big", namespace=namespace, cpu="99"), gated]))
    rayched.unschedulable("big", "Insufficient cpu", namespace)
    wait_until(lambda: rayched.client.queue(namespace=namespace).total == 2, "both wait")
    found = get(url, f"/ui/api/queue?namespace={namespace}")
    answer = rayched.client.queue(namespace=namespace)
    assert [(pod["name"], pod["queue"], pod["position"]) for pod in found["pods"]] == [
        (pod.name, pod.queue, pod.position) for pod in answer.pods
    ]
    assert found["counts"] == {name: int(count) for name, count in answer.counts.items()}
    assert sum(found["counts"].values()) == get(url, "/ui/api/queue")["total"]
    held = Counter(plugin for pod in answer.pods for plugin in pod.held_by)
    assert dict(map(tuple, found["held"])) == dict(held) and held["NodeResourcesFit"] == 1
    by_name = {pod["name"]: pod for pod in found["pods"]}
    assert by_name["big"]["would_wake"] and by_name["gated"]["gating"] + by_name["gated"]["would_wake"]


@pytest.mark.row("UI20", "UI22", "UI23")
def test_a_decision_is_what_explain_says(rayched: Commands, url: str, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace))
    node = rayched.running("web", namespace).spec.node_name
    found = get(url, f"/ui/api/explain/{namespace}/web")
    answer = json.loads("\n".join(rayched.ok("explain", "web", "-n", namespace, "-o", "json")))
    totals = Counter(int(one["total"]) for one in answer["verdicts"] if not one["rejections"])
    assert found["totals"] == [list(pair) for pair in sorted(totals.items(), reverse=True)]
    assert found["best"] == answer["best"] and found["ties"] == len(answer["best"])
    assert found["node"] == found["decision"]["node"] == node
    assert found["decision"]["number"] == int(answer["decision"]["number"])
    assert {one["node"]: one["total"] for one in found["verdicts"]} == {
        one["node"]: int(one["total"]) for one in answer["verdicts"] if not one["rejections"]
    }
    assert found["feasible"] + sum(one["count"] for one in found["rejections"]) == found["nodes"] == 12
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("big", namespace=namespace, cpu="99"))
    rayched.unschedulable("big", "Insufficient cpu", namespace)
    big = get(url, f"/ui/api/explain/{namespace}/big")
    assert (big["feasible"], big["totals"], big["nodes"]) == (0, [], 12)
    assert sum(one["count"] for one in big["rejections"]) == 12
    assert sorted(name for one in big["rejections"] for name in one["nodes"]) == sorted(f"node-{n:03}" for n in range(12))


@pytest.mark.row("UI26")
def test_a_pods_times_are_those_of_its_object(rayched: Commands, url: str, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace))
    pod = rayched.running("web", namespace)
    found = get(url, f"/ui/api/pod/{namespace}/web")
    assert (found["node"], found["phase"], found["uid"]) == (pod.spec.node_name, "Running", pod.metadata.uid)
    assert found["created"] == pod.metadata.creation_timestamp.ToNanoseconds() / 1e9
    assert {one["type"]: one["at"] for one in found["conditions"]} == {
        one.type: one.last_transition_time.ToNanoseconds() / 1e9 for one in pod.status.conditions
    }
    wait_until(lambda: get(url, f"/ui/api/pod/{namespace}/web")["events"] != [], "its event is there")
    assert get(url, f"/ui/api/pod/{namespace}/web")["events"][0]["reason"] == "Scheduled"


@pytest.mark.row("UI15")
def test_a_selector_lights_the_nodes_that_a_list_gives(rayched: Commands, url: str) -> None:
    selector = "topology.kubernetes.io/zone in (zone-a, zone-b)"
    found = get(url, f"/ui/api/select?selector={quote(selector)}")
    wanted = [node.metadata.name for node in rayched.client.list("nodes", label_selector=selector)]
    assert found["names"] == wanted and found["count"] == len(wanted) == 8
    answer = ask(url, f"/ui/api/select?selector={quote('a in (')}")
    assert answer.status == 400 and answer.document["error"]


@pytest.mark.row("UI27")
def test_a_plan_is_that_of_the_command(rayched: Commands, url: str, namespace: str, tmp_path: Path) -> None:
    most_allocated = tmp_path / "most-allocated.yaml"
    most_allocated.write_text(MOST_ALLOCATED)
    manifest = "---\n".join(a_pod_text(f"web-{n}", namespace=namespace, cpu="3") for n in range(3))
    wishes: list[tuple[dict[str, Any], list[str], str]] = [
        ({"manifest": manifest}, ["-f", "-"], manifest),
        (
            {"manifest": a_pod_text("big", namespace=namespace, cpu="99")},
            ["-f", "-"],
            a_pod_text("big", namespace=namespace, cpu="99"),
        ),
        ({"drain": ["node-002"]}, ["--drain", "node-002"], ""),
        ({"add_nodes": 2, "like": "node-001"}, ["--add-nodes", "2", "--like", "node-001"], ""),
        ({"manifest": manifest, "configuration": MOST_ALLOCATED}, ["-f", "-", "--config", str(most_allocated)], manifest),
    ]
    for wish, words, text in wishes:
        found, answer = planned_and_asked(rayched, url, wish)
        assert "exit_code" in found, found
        if answer is not None:
            # Of a later moment, at which all that counts is as it was.
            assert (answer.status, {**answer.document, "revision": found["revision"]}) == (200, found)
        result = rayched("plan", *words, "-o", "json", stdin=text)
        wanted = json.loads(result.out)
        assert found["exit_code"] == result.code and found["command"].startswith("rayched plan")
        for kind in ("placements", "preemptions", "unplaced"):
            assert (found[kind], found["counts"][kind]) == (wanted[kind], len(wanted[kind])), kind
        assert found["resources"] == ["cpu", "memory", "pods"]
        for row, node in zip(found["nodes"], wanted["nodes"], strict=True):
            before = None if node["is_new"] else shares_of(node, node["requested_before"])
            assert row == [node["node_name"], node["zone"], node["unschedulable"], before, shares_of(node, node["requested"])]
    wrong = planned(rayched, {"manifest": "kind: Pod\nmetadata:\n\tname: x\n"})
    assert "line 3" in " ".join(wrong["errors"])
    assert planned(rayched, {"drain": ["node-999"]})["errors"] == ['--drain: there is no node "node-999"']
    odd = planned(rayched, {"configuration": MOST_ALLOCATED.replace("MostAllocated", "Emptiest")})
    assert odd["command"] == "rayched plan --config FILE"
    assert [line.partition(":")[0] for line in odd["errors"]] == ["configuration"] and "Emptiest" in odd["errors"][0]


MOST_ALLOCATED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
        resources: [{name: cpu, weight: 1}]
"""


def shares_of(node: dict[str, Any], amounts: dict[str, int]) -> list[int]:
    return [amounts.get(name, 0) * 1_000 // node["allocatable"][name] for name in ("cpu", "memory", "pods")]


def planned(rayched: Commands, wish: object) -> dict[str, Any]:
    """What the page would show, however long it takes: on a busy host a plan may be ended each time that the page asks."""

    async def play() -> dict[str, Any]:
        async with AsyncClient(rayched.server) as client:
            return await PlanRunner(seconds=240.0).run(PlanWish.of(wish), client)

    found: dict[str, Any] = json.loads(json.dumps(asyncio.run(play())))
    return found


def planned_and_asked(rayched: Commands, url: str, wish: object) -> tuple[dict[str, Any], HttpAnswer | None]:
    """A plan, and the page's answer to the same wish. None: the host is so busy that the plan took longer than a page's may."""
    limited = f"the plan took longer than {PLAN_SECONDS:g} s and was ended"
    for _ in range(TRIES_MAX):
        began = time.monotonic()
        found = planned(rayched, wish)
        took = time.monotonic() - began
        answer = ask(url, "/ui/api/plan", "POST", wish, {"Content-Type": "application/json"})
        if answer.document.get("errors") != [limited]:
            return found, answer
        assert (answer.status, answer.document) == (200, {"command": found["command"], "errors": [limited]})
        if took > PLAN_SECONDS:
            return found, None
    raise AssertionError(f"a plan that took {took:.1f} s was ended {TRIES_MAX} times")


def test_what_is_no_plan_is_refused_by_its_field(url: str) -> None:
    for wish, field in (
        ([], "the body"),
        ({"files": "/etc/passwd"}, "files"),
        ({"add_nodes": -1, "like": "a"}, "add_nodes"),
        ({"add_nodes": True, "like": "a"}, "add_nodes"),
        ({"add_nodes": 3}, "add_nodes"),
        ({"add_nodes": 1, "like": "--config=/etc/passwd"}, "like"),
        ({"drain": ["--config=x"]}, "drain"),
        ({"drain": "node-001"}, "drain"),
        ({"manifest": 5}, "manifest"),
        ({"configuration": ["profiles"]}, "configuration"),
    ):
        answer = ask(url, "/ui/api/plan", "POST", wish, {"Content-Type": "application/json"})
        assert (answer.status, answer.document["error"].startswith(field)) == (400, True), answer.body
    for body in (b"{", b"[" * 100_000, b"\xff"):
        assert ask(url, "/ui/api/plan", "POST", body, {"Content-Type": "application/json"}).status == 400
    assert ask(url, "/ui/api/plan", "POST", b" " * ((1 << 20) + 1), {"Content-Type": "application/json"}).status == 413


@pytest.mark.row("UI29")
def test_events_come_once_each_also_over_two_streams(rayched: Commands, url: str, namespace: str) -> None:
    def told(frames: PageFrames, wanted: set[str]) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        names: set[str] = set()
        for name, content in frames:
            if name == "events":
                here = [
                    event for event in content["events"] if event["namespace"] == namespace and event["reason"] == "Scheduled"
                ]
                found += [(event["uid"], event["revision"]) for event in here]
                names |= {event["name"] for event in here}
            if names >= wanted:
                break
        return found

    with PageFrames(url, "events") as frames:
        rayched.ok("apply", "-f", "-", stdin="---\n".join(a_pod_text(f"web-{n}", namespace=namespace) for n in range(4)))
        first = told(frames, {f"web-{n}" for n in range(4)})
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("late", namespace=namespace))
    with PageFrames(url, "events") as frames:
        again = told(frames, {f"web-{n}" for n in range(4)} | {"late"})
    assert len(set(first)) == len(first) == 4 and len(set(again)) == len(again) == 5
    assert set(first) < set(again)


def test_replicas_say_what_they_are(rayched: Commands, url: str) -> None:
    (one,) = get(url, "/ui/api/replicas")["replicas"]
    leader = rayched.client.leader()
    assert (one["name"], one["role"], one["epoch"]) == (leader.answered_by, "leads", leader.epoch)
    assert one["endpoint"] == rayched.server
    # Nobody has seen more than the only one, whose API shows no certificate.
    assert one["memory"] > 10 << 20 and one["revision"] > leader.epoch
    assert (one["lag"], one["certificate_seconds_left"], one["fenced"]) == (0, None, 0)


def test_a_node_has_its_pods(rayched: Commands, url: str, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace, cpu="2"))
    node = rayched.running("web", namespace).spec.node_name
    found = get(url, f"/ui/api/node/{node}")
    pod = next(one for one in found["pods"] if one["namespace"] == namespace)
    assert (pod["name"], pod["cpu"], found["count"]) == ("web", 2000, len(found["pods"]))
    missing = ask(url, "/ui/api/node/nobody")
    assert missing.status == 404 and "nobody" in missing.document["error"]


@pytest.mark.row("UI44")
def test_every_answer_has_the_headers(url: str) -> None:
    for path in PATHS:
        for method, headers in (("GET", {}), ("HEAD", {}), ("POST", {}), ("PUT", {}), ("GET", {"Host": "rebind.example"})):
            answer = ask(url, path, method, None, headers)
            for name, value in HEADERS.items():
                assert answer.headers.get(name) == value, (method, path, name, answer.status)
            assert not [name for name in answer.headers if name.lower().startswith(("access-control-", "set-cookie"))]


@pytest.mark.row("UI40", "UI41")
def test_other_origins_and_other_hosts_get_nothing(url: str) -> None:
    own = url.removeprefix("http://")
    for headers, code in (
        ({"Host": "rebind.example"}, 421),
        ({"Host": "rebind.example:7620"}, 421),
        ({"Host": "127.0.0.1.example.com"}, 421),
        ({"Origin": "http://example.com"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": f"https://{own}"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ):
        for path in ("/ui/", "/ui/api/queue", "/ui/stream?topics=usage", "/ui/api/node/node-001"):
            answer = ask(url, path, headers=headers)
            assert (answer.status, list(answer.document)) == (code, ["error"]), (path, headers)
        body = ask(url, "/ui/api/plan", "POST", {}, {"Content-Type": "application/json", **headers})
        assert body.status == code
    assert ask(url, "/ui/api/queue", headers={"Origin": url, "Sec-Fetch-Site": "same-origin"}).status == 200
    # What a form can send without being asked about first.
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert ask(url, "/ui/api/plan", "POST", b"{}", {"Content-Type": kind}).status == 415
    refused = ask(url, "/ui/api/queue", "DELETE")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD, POST")


def test_the_gateway_names_the_page_and_answers_others_as_before(gateway: tuple[Running, str], url: str) -> None:
    assert ask(url, "/api/v1/pods", headers={"Origin": url}).status == 403
    assert ask(url, "/ui").headers["Location"] == "/ui/"
    assert ask(url, "/uix").status == 404
    assert ask(url, "/ui/static/../../gateway.py").status == 404


@pytest.mark.row("UI48")
def test_more_streams_than_may_be_are_refused_politely(url: str) -> None:
    streams: list[PageFrames] = []
    try:
        while len(streams) <= 64:
            streams.append(PageFrames(url, "leader"))
            if streams[-1].status != 200:
                break
        # Streams that were closed a moment ago may still count.
        assert streams[-1].status == 503 and 50 <= len(streams) <= 65
    finally:
        for stream in streams:
            stream.__exit__()
    wait_until(lambda: _is_taken(url), "a place is free again")


def _is_taken(url: str) -> bool:
    with PageFrames(url, "leader") as frames:
        return frames.status == 200


@pytest.mark.row("UI47")
def test_requests_that_are_never_finished_keep_nobody_else_waiting(url: str) -> None:
    host, _, port = url.removeprefix("http://").rpartition(":")
    halves = []
    try:
        for _ in range(200):
            half = socket.create_connection((host, int(port)))
            half.sendall(b"GET /ui/api/queue HTTP/1.1\r\nHost: 127.0.0.1\r\nX-")
            halves.append(half)
        assert ask(url, "/ui/").status == 200
    finally:
        for half in halves:
            half.close()
