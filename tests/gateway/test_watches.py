"""Watches of kubectl and of clients without a library: changes, bookmarks, resumption, and the end of the gateway."""

from __future__ import annotations

import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import yaml

from rayched.client import EventType
from tests.cli.cluster import Commands, a_pod_text, run_here, started, wait_until
from tests.gateway.kubectl import Kubectl
from tests.gateway.requests import WatchLines, ask
from tests.gateway.test_kubectl_writes import a_replica_set_text, end_replica_set

pytestmark = pytest.mark.cluster


@pytest.mark.row("KC13")
def test_kubectl_watches_as_a_table_and_as_objects(kubectl: Kubectl, rayched: Commands, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace))
    rayched.running("web", namespace)
    with (
        kubectl.started("get", "pods", "-w", "-n", namespace) as table,
        kubectl.started("get", "pods", "-w", "-n", namespace, "--output-watch-events") as names,
    ):
        assert table.line().split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        assert table.line().split()[:3] == ["web", "1/1", "Running"]
        rayched.ok("apply", "-f", "-", stdin=a_pod_text("late", namespace=namespace))
        while "Running" not in table.line_with("late"):
            pass
        assert "ADDED" in names.line_with("late")
        rayched.ok("delete", "pod", "late", "-n", namespace, "--grace-period=0")
        names.line_with("DELETED")


@pytest.mark.row("KC13")
def test_kubectl_waits_for_what_happens(kubectl: Kubectl, rayched: Commands, namespace: str) -> None:
    here = ("-n", namespace)
    with kubectl.started("wait", "pod/web", "--for=create", *here) as created:
        rayched.ok(
            "apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace, spec="schedulingGates: [{name: example.com/g}]")
        )
        created.line_with("condition met")
    with kubectl.started("wait", "pod/web", "--for=condition=Ready", *here) as ready:
        kubectl.ok("patch", "pod", "web", *here, "--type=json", "-p", '[{"op": "remove", "path": "/spec/schedulingGates"}]')
        ready.line_with("condition met")
    with kubectl.started("wait", "pod/web", "--for=delete", *here) as deleted:
        rayched.ok("delete", "pod", "web", *here, "--grace-period=0")
        # It says nothing of a pod that has gone before it looked.
        assert deleted.process.wait(60) == 0


@pytest.mark.row("KC13")
def test_a_watch_without_a_version_begins_with_what_is_there(url: str, rayched: Commands, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace))
    rayched.running("web", namespace)
    place = f"/api/v1/namespaces/{namespace}/pods"
    with WatchLines(url, f"{place}?watch=True&timeoutSeconds=1&allowWatchBookmarks=1") as watch:
        lines = list(watch)
    assert [line["type"] for line in lines] == ["ADDED", "BOOKMARK"]
    assert lines[0]["object"]["metadata"]["name"] == "web"
    assert int(lines[1]["object"]["metadata"]["resourceVersion"]) >= int(lines[0]["object"]["metadata"]["resourceVersion"])
    with WatchLines(url, f"{place}?watch=1&timeoutSeconds=1") as watch:
        assert [line["type"] for line in watch] == ["ADDED"]
    informers = f"{place}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with WatchLines(url, informers) as watch:
        added, mark = watch.take(2)
    assert (added["type"], mark["type"]) == ("ADDED", "BOOKMARK")
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def _events_of(url: str, place: str, start: int, count: int) -> list[dict[str, Any]]:
    with WatchLines(url, f"{place}?watch=1&resourceVersion={start}") as watch:
        return watch.take(count)


def _second_of(url: str, place: str, last: int, start: int) -> list[dict[str, Any]]:
    """What a watch tells within a second, up to a version."""
    with WatchLines(url, f"{place}?watch=1&resourceVersion={start}&timeoutSeconds=1") as watch:
        return [line for line in watch if int(line["object"]["metadata"]["resourceVersion"]) <= last]


@pytest.mark.row("KC21")
def test_a_watch_that_is_cut_inside_a_transaction_loses_nothing(url: str, rayched: Commands, namespace: str) -> None:
    place = f"/api/v1/namespaces/{namespace}/pods"
    start = int(ask(url, place).document["metadata"]["resourceVersion"])
    rayched.ok("apply", "-f", "-", stdin=a_replica_set_text("many", namespace, 10))

    def bound() -> list[Any]:
        return [pod for pod in rayched.client.list("pods", namespace=namespace) if pod.spec.node_name]  # type: ignore[union-attr]

    wait_until(lambda: len(bound()) == 10, "all pods have a node")
    wait_until(lambda: all(pod.status.phase == "Running" for pod in bound()), "all pods run")
    last = int(ask(url, place).document["metadata"]["resourceVersion"])
    with WatchLines(url, f"{place}?watch=1&resourceVersion={start}&timeoutSeconds=2") as watch:
        whole = [line for line in watch if int(line["object"]["metadata"]["resourceVersion"]) <= last]
    versions = [int(line["object"]["metadata"]["resourceVersion"]) for line in whole]
    shared = [at for at in sorted(set(versions)) if versions.count(at) > 1]
    assert shared, "some transaction changed several pods"
    with ThreadPoolExecutor(8) as threads:
        rests = list(threads.map(partial(_second_of, url, place, last), versions[:-1]))
    for cut, rest in enumerate(rests, 1):
        seen = whole[:cut]
        told = [(line["object"]["metadata"]["uid"], line["object"]["metadata"]["resourceVersion"]) for line in seen + rest]
        for line in whole:
            assert (line["object"]["metadata"]["uid"], line["object"]["metadata"]["resourceVersion"]) in told
        if versions.count(versions[cut - 1]) == 1:
            assert len(told) == len(whole), "what was one change is not told again"
    end_replica_set(rayched, "many", namespace)


@pytest.mark.row("KC13")
def test_a_version_that_is_not_there_ends_a_watch_as_expired(url: str, namespace: str) -> None:
    place = f"/api/v1/namespaces/{namespace}/pods"
    with WatchLines(url, f"{place}?watch=1&resourceVersion={2**62}") as watch:
        (line,) = list(watch)
    assert (line["type"], line["object"]["code"], line["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert ask(url, f"{place}?watch=1&resourceVersion=x").status == 400


@pytest.mark.row("KC19")
def test_a_gateway_that_is_killed_takes_nothing_with_it(kubectl: Kubectl, rayched: Commands, namespace: str) -> None:
    with started("gateway", "--listen", "127.0.0.1:0", "--server", rayched.server) as running:
        address = running.line_with("is served at").rpartition(" ")[2]
        with WatchLines(address, f"/api/v1/namespaces/{namespace}/pods?watch=1") as watch:
            assert watch.status == 200
            leader = rayched.client.leader()
            running.process.send_signal(signal.SIGKILL)
            running.process.wait()
            # Its stream at the replica ends with it.
            assert list(watch) == []
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace))
    rayched.running("web", namespace)
    after = rayched.client.leader()
    assert (after.holder, after.epoch) == (leader.holder, leader.epoch)
    assert kubectl.ok("get", "pods", "-n", namespace, "-o", "name") == ["pod/web"]


@pytest.mark.row("KC19")
def test_a_gateway_that_is_asked_to_end_ends_its_watches(rayched: Commands, namespace: str) -> None:
    with started("gateway", "--listen", "127.0.0.1:0", "--server", rayched.server) as running:
        address = running.line_with("is served at").rpartition(" ")[2]
        with WatchLines(address, f"/api/v1/namespaces/{namespace}/pods?watch=1"):
            began = time.monotonic()
            assert running.end(signal.SIGTERM) == 0
            assert time.monotonic() - began < 30.0


@pytest.mark.row("KC18")
def test_what_a_page_in_a_browser_can_send_is_refused(url: str) -> None:
    for headers in (
        {"Origin": "http://example.com"},
        {"Origin": "null"},
        {"Origin": url},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "example.com"},
        {"Host": "rebound.example:7620"},
    ):
        answer = ask(url, "/api/v1/pods", headers=headers)
        assert (answer.status, answer.document["reason"]) == (403, "Forbidden"), headers


@pytest.mark.row("KC20", "KC30")
def test_a_kubeconfig_replaces_one_of_rayched_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("config") / "rayched"
    written = run_here(["kubeconfig", "-o", str(file), "-n", "team", "--server", "127.0.0.1:3,127.0.0.1:4"])
    assert written.code == 0 and "no gateway listens at http://127.0.0.1:203, http://127.0.0.1:204 now" in written.errors[-1]
    assert file.stat().st_mode & 0o777 == 0o600
    found = yaml.safe_load(file.read_text())
    assert [(one["name"], one["cluster"]["server"]) for one in found["clusters"]] == [
        ("rayched", "http://127.0.0.1:203"),
        ("rayched-1", "http://127.0.0.1:204"),
    ]
    assert {one["context"]["namespace"] for one in found["contexts"]} == {"team"} and found["current-context"] == "rayched"
    # As kubectl leaves it once somebody has chosen another context.
    file.write_text(yaml.safe_dump({**found, "current-context": "rayched-1", "preferences": {}}))
    assert run_here(["kubeconfig", "-o", str(file), "--server", "127.0.0.1:5"]).code == 0
    assert [one["name"] for one in yaml.safe_load(file.read_text())["contexts"]] == ["rayched"]
    assert file.stat().st_mode & 0o777 == 0o600 and [one.name for one in file.parent.iterdir()] == ["rayched"]
    with_another = {**found, "contexts": [*found["contexts"], {"name": "work", "context": {"cluster": "work", "user": "me"}}]}
    for text in (yaml.safe_dump(with_another), "", "a: [", "{contexts: 1}", "\x00\xff"):
        file.write_text(text)
        again = run_here(["kubeconfig", "-o", str(file)])
        assert again.code == 2 and "is there already, and not rayched's" in again.errors[0]
        assert file.read_text() == text
    nowhere = run_here(["kubeconfig", "-o", str(file / "below")])
    assert nowhere.code == 1 and nowhere.errors[0].startswith(f"error: --output {file / 'below'}: ")
    assert run_here(["kubeconfig", "--gateway", "127.0.0.1:7620"]).code == 2
    assert run_here(["gateway", "--listen", "0.0.0.0:1"]).code == 2


def test_the_first_gateway_that_listens_is_the_current_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("config") / "rayched"
    with socket.socket() as silent, socket.socket() as listening:
        for one in (silent, listening):
            one.bind(("127.0.0.1", 0))
        listening.listen()
        urls = [f"http://127.0.0.1:{one.getsockname()[1]}" for one in (silent, listening, silent)]
        written = run_here(["kubeconfig", "-o", str(file), "--gateway", ",".join(urls)])
    assert yaml.safe_load(file.read_text())["current-context"] == "rayched-1"
    assert written.errors[-2:] == [
        "kubectl asks one replica; when that is lost",
        f"  kubectl --kubeconfig {file} config use-context rayched-2",
    ]


def test_the_stream_has_the_client_of_the_sdk_as_its_measure(rayched: Commands, url: str, namespace: str) -> None:
    """What the gateway tells is what the SDK's watch tells, event for event."""
    place = f"/api/v1/namespaces/{namespace}/pods"
    start = int(ask(url, place).document["metadata"]["resourceVersion"])
    for number in range(3):
        rayched.ok("apply", "-f", "-", stdin=a_pod_text(f"web-{number}", namespace=namespace))
        rayched.running(f"web-{number}", namespace)
    rayched.ok("delete", "pod", "web-0", "-n", namespace, "--grace-period=0")
    with rayched.client.watch("pods", namespace=namespace, start_revision=start + 1, timeout_seconds=2.0) as events:
        wanted = [(event.type.name, event.object.metadata.name, event.revision) for event in events if event.object is not None]
    told = [
        (line["type"], line["object"]["metadata"]["name"], int(line["object"]["metadata"]["resourceVersion"]))
        for line in _events_of(url, place, start, len(wanted))
    ]
    assert told == wanted and EventType.DELETED.name in {kind for kind, _, _ in told}
