"""What an agent shows of itself over HTTP: kubelet's metrics under their names, its own, and what its pods use."""

from __future__ import annotations

import itertools
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rayched.client import Client
from rayched.nodes.agent.eviction.manager import EvictionSettings
from rayched.nodes.agent.eviction.thresholds import EvictionFlags, thresholds_of
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from tests.nodes.real_node import a_pod, agent_thread, gone, in_phase, ready, registered, settings, sh, until
from tests.replica.metric_names import NODE_METRICS, NODE_RESOURCE_METRICS
from tests.server.objects import a_runtime_class
from tests.server.serving import serving

_numbers = itertools.count(1)
Samples = dict[str, tuple[str, list[tuple[dict[str, str], float]]]]


@pytest.fixture(scope="module")
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/agent-metrics-{os.getpid()}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        yield found


def fetched(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scraped(address: str, path: str) -> Samples:
    """By name: type, and each sample's labels and value; of histograms their counts."""
    code, text = fetched(address, path)
    assert code == 200
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name not in found, f"{name} is there twice"
        suffix = "_count" if family.type == "histogram" else "_total" if family.type == "counter" else ""
        values = [(dict(one.labels), one.value) for one in family.samples if one.name == f"{family.name}{suffix}"]
        found[name] = (family.type, values)
    return found


def check(found: Samples, names: dict[str, tuple[str, set[str], bool]]) -> None:
    assert found.keys() == names.keys()
    for name, (kind, labels, has_values) in names.items():
        assert found[name][0] == kind, name
        assert all(set(one) == labels for one, _ in found[name][1]), name
        assert found[name][1] or not has_values, f"{name} has no values"


def value(found: Samples, name: str, **labels: str) -> float:
    return next((amount for one, amount in found[name][1] if one == labels), 0.0)


@pytest.mark.row("K3.3")
def test_a_scrape_shows_what_the_agent_did_and_what_its_pods_use(client: Client, tmp_path: Path) -> None:
    node = f"metrics-{next(_numbers)}"
    runtime_class = a_runtime_class(f"class-of-{node}", cpu="250m", memory="64Mi")
    runtime_class.handler = "process"
    client.submit(runtime_class)
    thresholds = thresholds_of(EvictionFlags("memory.available<1Ki", "pid.available<1", "pid.available=1m"))
    chosen = settings(tmp_path, node, http_address="127.0.0.1:0", eviction=EvictionSettings(thresholds))
    with agent_thread(chosen, client.endpoints[0]) as agent:
        registered(client, node)
        address = agent.agent.http_address
        busy = a_pod(node, f"busy-{node}", "python3", "-c", "kept=b'x'*(32<<20)\nwhile True: sum(range(1000))")
        busy.spec.runtime_class_name = f"class-of-{node}"
        busy.spec.containers[0].readiness_probe.exec.command.append("true")
        missing = a_pod(node, f"missing-{node}", "/no/such/program")
        large = a_pod(node, f"large-{node}", *sh("head -c 3000000 /dev/zero > x; sleep 1000"))
        large.spec.containers[0].resources.limits["ephemeral-storage"].string = "1Mi"
        refused = a_pod(node, f"refused-{node}", "true")
        refused.spec.node_selector["no"] = "where"
        for pod in (busy, missing, large, refused):
            client.submit(pod)
        ready(client, busy.metadata.name)
        for pod in (missing, large, refused):
            in_phase(client, pod.metadata.name, "Failed")
        until(
            lambda: value(scraped(address, "/metrics"), "kubelet_evictions_total", eviction_signal="ephemeralpodfs.limit"),
            "evicted",
        )
        found = scraped(address, "/metrics")
        check(found, NODE_METRICS)
        assert value(found, "kubelet_node_name", node=node) == 1
        assert value(found, "kubelet_running_pods") == 1
        assert value(found, "kubelet_running_containers", container_state="running") == 1
        assert value(found, "kubelet_started_pods_total") == 3
        assert value(found, "kubelet_started_containers_total", container_type="container") == 2
        assert value(found, "kubelet_started_containers_errors_total", container_type="container", code="StartError") == 1
        assert value(found, "kubelet_admission_rejections_total", reason="NodeAffinity") == 1
        assert value(found, "kubelet_pod_start_duration_seconds") == 2
        assert value(found, "prober_probe_total", probe_type="Readiness", result="successful") >= 1
        assert value(found, "rayched_node_incarnation") == agent.agent._reporter.incarnation > 0
        assert value(found, "rayched_node_signal_threshold", signal="memory.available", kind="hard") == 1024
        assert value(found, "rayched_node_signal_available", signal="memory.available") > 1 << 20
        assert 0 <= value(found, "rayched_node_heartbeat_age_seconds") < 60
        used = scraped(address, "/metrics/resource")
        check(used, NODE_RESOURCE_METRICS)
        of_pod = {"namespace": "default", "pod": busy.metadata.name}
        assert value(used, "kube_pod_overhead_cpu_cores", **of_pod) == 0.25
        assert value(used, "kube_pod_overhead_memory_bytes", **of_pod) == 64 << 20
        of_container = {**of_pod, "container": "main"}
        assert value(used, "container_memory_working_set_bytes", **of_container) > 32 << 20
        seconds = value(used, "pod_cpu_usage_seconds_total", **of_pod)
        until(lambda: value(scraped(address, "/metrics/resource"), "pod_cpu_usage_seconds_total", **of_pod) > seconds, "it works")
        assert fetched(address, "/livez") == (200, "ok\n") and fetched(address, "/readyz") == (200, "ok\n")
        assert fetched(address, "/other")[0] == 404
        for pod in (busy, missing, large, refused):
            client.delete("pod", pod.metadata.name, grace_period_seconds=1)
            gone(client, pod.metadata.name)
    with agent_thread(chosen, client.endpoints[0]) as agent, socket.create_connection(_split(agent.agent.http_address)) as idle:
        until(lambda: fetched(agent.agent.http_address, "/readyz")[0] == 200, "who says nothing is in nobody's way")
        assert idle.fileno() >= 0


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
