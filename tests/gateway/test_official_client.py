"""The official Python client of Kubernetes, over its typed models, against a real replica; and a scheduler written with it."""

from __future__ import annotations

import queue
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as kubernetes_client
from kubernetes import config, watch
from kubernetes.informer import SharedInformer

from tests.cli.cluster import PATIENCE_SECONDS, Commands, a_pod_text, run_here, wait_until
from tests.gateway.label_writer import LABEL, pod_name

pytestmark = pytest.mark.cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "kubernetes" / "another_scheduler.py"
CPU_OF_A_NODE = 16


@pytest.fixture(scope="module")
def kubeconfig(url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("official") / "kubeconfig"
    assert run_here(["kubeconfig", "--gateway", url, "-o", str(file)]).code == 0
    return file


@pytest.fixture
def core(kubeconfig: Path) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield kubernetes_client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))


def a_pod(name: str, cpu: str = "100m", scheduler: str = "", **labels: str) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.example/web:1", "resources": {"requests": {"cpu": cpu}}}
    spec: dict[str, Any] = {"containers": [container]}
    if scheduler:
        spec["schedulerName"] = scheduler
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def refused(work: Any) -> Any:
    with pytest.raises(kubernetes_client.ApiException) as raised:
        work()
    return raised.value


@pytest.mark.row("KC33")
def test_objects_are_created_listed_changed_and_deleted_over_typed_models(core: Any, rayched: Commands, namespace: str) -> None:
    created = core.create_namespaced_pod(namespace, a_pod("web", app="web"))
    assert created.metadata.uid and created.spec.containers[0].resources.requests == {"cpu": "100m"}
    rayched.running("web", namespace)
    (found,) = core.list_namespaced_pod(namespace, label_selector="app=web").items
    assert found.status.container_statuses[0].restart_count == 0 and found.spec.node_name
    node = core.read_node(found.spec.node_name)
    assert node.status.node_info.kubelet_version is not None and len(core.list_node().items) == 12
    patched = core.patch_namespaced_pod("web", namespace, {"metadata": {"labels": {"app": None, "team": "a"}}})
    assert patched.metadata.labels == {"team": "a"}
    operations = [{"op": "replace", "path": "/metadata/labels/team", "value": "b"}]
    assert core.patch_namespaced_pod("web", namespace, operations).metadata.labels == {"team": "b"}
    stale = core.read_namespaced_pod("web", namespace)
    stale.metadata.resource_version = "1"
    assert refused(lambda: core.replace_namespaced_pod("web", namespace, stale)).status == 409
    assert core.list_namespaced_event(namespace).items
    core.delete_namespaced_pod("web", namespace, grace_period_seconds=0)
    assert refused(lambda: core.read_namespaced_pod("web", namespace)).status == 404


@pytest.mark.row("KC33")
def test_a_pod_is_evicted_as_its_budget_allows(core: Any, rayched: Commands, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace, labels="{app: web}"))
    rayched.running("web", namespace)
    policy = kubernetes_client.PolicyV1Api(core.api_client)
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    policy.create_namespaced_pod_disruption_budget(namespace, budget)

    def has_seen_the_pod() -> bool:
        (found,) = policy.list_namespaced_pod_disruption_budget(namespace).items
        return bool(found.status.current_healthy == 1)

    wait_until(has_seen_the_pod, "the budget counts the pod")
    eviction = kubernetes_client.V1Eviction(metadata=kubernetes_client.V1ObjectMeta(name="web"))
    evict = lambda: core.create_namespaced_pod_eviction("web", namespace, eviction, _preload_content=False)  # noqa: E731
    assert refused(evict).status == 429
    policy.delete_namespaced_pod_disruption_budget("web", namespace)
    evict()
    wait_until(lambda: rayched.gone("web", namespace), "the pod is evicted")


@pytest.mark.row("KC33")
def test_a_watch_goes_on_at_its_version_without_a_gap_or_a_duplicate(core: Any, rayched: Commands, namespace: str) -> None:
    names = [f"web-{number:02}" for number in range(30)]
    for name in names:
        core.create_namespaced_pod(namespace, a_pod(name, scheduler="nobody"))
    seen: list[str] = []
    at = None
    for _ in range(6):
        watching = watch.Watch()
        for event in watching.stream(core.list_namespaced_pod, namespace, resource_version=at, timeout_seconds=20):
            assert event["type"] == "ADDED"
            seen.append(event["object"].metadata.name)
            at = event["object"].metadata.resource_version
            if len(seen) % 5 == 0:
                # Cut in the middle of it.
                watching.stop()
    assert seen == names


@pytest.mark.row("KC31", "KC33")
def test_a_binding_is_judged_as_every_binding_is(core: Any, rayched: Commands, namespace: str) -> None:
    for name, cpu, scheduler in (("theirs", "1", "another"), ("large", "17", "another"), ("ours", "17", "")):
        core.create_namespaced_pod(namespace, a_pod(name, cpu, scheduler))

    def bind(pod: str, node: str, **more: Any) -> Any:
        binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
        return core.create_namespaced_pod_binding(pod, namespace, binding, _preload_content=False, **more)

    for pod, node, status, words in (
        ("nobody", "node-000", 404, "not found"),
        ("theirs", "nowhere", 404, 'nodes \\"nowhere\\" not found'),
        ("large", "node-000", 409, "does not fit on node node-000: Insufficient cpu"),
        ("ours", "node-000", 409, "is scheduled here"),
    ):
        problem = refused(lambda pod=pod, node=node: bind(pod, node))
        assert problem.status == status and words in problem.body, (problem.status, problem.body)
    with rayched.nothing_changes():
        bind("theirs", "node-003", dry_run="All")
    assert rayched.pod("theirs", namespace).spec.node_name == ""
    bind("theirs", "node-003")
    assert rayched.pod("theirs", namespace).spec.node_name == "node-003"
    again = refused(lambda: bind("theirs", "node-004"))
    assert again.status == 409 and "is already assigned to node 'node-003'" in again.body
    rayched.running("theirs", namespace)
    core.create_namespaced_pod(namespace, a_pod("second", "1", "another"))
    below = {"metadata": {"name": "second"}, "target": {"kind": "Node", "name": "node-005"}}
    core.create_namespaced_binding(namespace, below, _preload_content=False)
    assert rayched.pod("second", namespace).spec.node_name == "node-005"


@pytest.mark.row("KC32")
def test_a_scheduler_of_another_binds_beside_ours_and_nothing_is_over_capacity(
    core: Any, rayched: Commands, namespace: str, kubeconfig: Path
) -> None:
    each, fit_on_a_node = 24, 3
    words = [sys.executable, str(EXAMPLE), "--kubeconfig", str(kubeconfig), "--name", "another"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for number in range(each):
            core.create_namespaced_pod(namespace, a_pod(f"theirs-{number}", "5", "another"))
            core.create_namespaced_pod(namespace, a_pod(f"ours-{number}", "5"))
        room = 12 * fit_on_a_node

        def bound() -> list[Any]:
            return [pod for pod in core.list_namespaced_pod(namespace).items if pod.spec.node_name]

        wait_until(lambda: len(bound()) >= room or process.poll() is not None, "all room is taken", 200.0)
        placed = {pod.metadata.name: pod.spec.node_name for pod in bound()}
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=30)
    cpus: dict[str, int] = defaultdict(int)
    for node in placed.values():
        cpus[node] += 5
    assert len(placed) == room, said
    assert max(cpus.values()) <= CPU_OF_A_NODE
    whose = Counter(name.partition("-")[0] for name in placed)
    assert whose["theirs"] > 0 and whose["ours"] > 0, whose
    told = [line.partition(":")[0].split(" on ") for line in said.splitlines() if line.endswith(": bound")]
    assert len(told) == len({name for name, _ in told}), "a pod was bound twice"
    assert all(placed.get(name) == node for name, node in told), said


@pytest.mark.row("KC33")
def test_an_informer_has_what_is_there_and_is_told_of_what_happens(core: Any, namespace: str) -> None:
    core.create_namespaced_pod(namespace, a_pod("first", scheduler="nobody"))
    told: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    informer = SharedInformer(core.list_namespaced_pod, namespace=namespace)
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        informer.add_event_handler(kind, lambda pod, kind=kind: told.put((kind, pod.metadata.name)))
    informer.start()
    try:
        assert told.get(timeout=PATIENCE_SECONDS) == ("ADDED", "first")
        core.create_namespaced_pod(namespace, a_pod("second", scheduler="nobody"))
        assert told.get(timeout=PATIENCE_SECONDS) == ("ADDED", "second")
        core.patch_namespaced_pod("first", namespace, {"metadata": {"labels": {"a": "b"}}})
        assert told.get(timeout=PATIENCE_SECONDS) == ("MODIFIED", "first")
        core.delete_namespaced_pod("second", namespace, grace_period_seconds=0)
        assert told.get(timeout=PATIENCE_SECONDS) == ("DELETED", "second")
        assert [pod.metadata.labels for pod in informer.cache.list()] == [{"a": "b"}]
    finally:
        informer.stop()


@pytest.mark.long
@pytest.mark.row("KC40")
def test_a_hundred_thousand_events_come_once_each_and_in_order_however_often_the_watch_is_cut(
    core: Any, rayched: Commands, namespace: str
) -> None:
    pods, changes, cut_every = 200, 500, 9_973
    for number in range(pods):
        core.create_namespaced_pod(namespace, a_pod(pod_name(number), scheduler="nobody"))
    at = core.list_namespaced_pod(namespace).metadata.resource_version
    seen: dict[str, list[int]] = defaultdict(list)
    versions: list[int] = []
    words = [rayched.server, namespace, str(pods), str(changes)]
    process = subprocess.Popen([sys.executable, "-m", "tests.gateway.label_writer", *words])
    try:
        while len(versions) < pods * changes:
            assert process.poll() in (None, 0)
            watching, before = watch.Watch(), len(versions)
            for event in watching.stream(core.list_namespaced_pod, namespace, resource_version=at, timeout_seconds=30):
                assert event["type"] == "MODIFIED"
                metadata = event["object"].metadata
                at = metadata.resource_version
                versions.append(int(at))
                seen[metadata.name].append(int(metadata.labels[LABEL]))
                if len(versions) % cut_every == 0 or len(versions) == pods * changes:
                    watching.stop()
            assert len(versions) > before or process.poll() is None, f"nothing comes after {before} events"
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
    assert versions == sorted(set(versions))
    assert seen == {pod_name(number): list(range(changes)) for number in range(pods)}
