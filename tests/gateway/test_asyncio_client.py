"""The asynchronous Python client of Kubernetes, over its typed models, against a real replica."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.cluster import Commands, run_here
from tests.gateway.test_official_client import a_pod

kubernetes_asyncio = pytest.importorskip("kubernetes_asyncio", reason="kubernetes_asyncio is not installed")
from kubernetes_asyncio import client as asyncio_client  # noqa: E402
from kubernetes_asyncio import config, watch  # noqa: E402

pytestmark = pytest.mark.cluster

SECONDS_MAX = 120.0
Work = Callable[[Any], Awaitable[None]]


@pytest.fixture
def run(url: str, tmp_path: Path) -> Callable[[Work], None]:
    """Carries out work with a client, where a warning is an error."""
    file = tmp_path / "kubeconfig"
    assert run_here(["kubeconfig", "--gateway", url, "-o", str(file)]).code == 0

    async def done(work: Work) -> None:
        settings = asyncio_client.Configuration()
        await config.load_kube_config(config_file=str(file), client_configuration=settings)
        async with asyncio.timeout(SECONDS_MAX), asyncio_client.ApiClient(settings) as api:
            await work(asyncio_client.CoreV1Api(api))

    def carried_out(work: Work) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            asyncio.run(done(work))

    return carried_out


async def refused(work: Awaitable[Any]) -> int:
    """The code of a refusal."""
    with pytest.raises(asyncio_client.ApiException) as raised:
        await work
    found: int = raised.value.status
    return found


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while not await holds():
        await asyncio.sleep(0.05)


@pytest.mark.row("KC39")
def test_objects_are_created_listed_changed_and_deleted(run: Callable[[Work], None], namespace: str) -> None:
    async def work(core: Any) -> None:
        created = await core.create_namespaced_pod(namespace, a_pod("web", app="web"))
        assert created.metadata.uid and created.spec.containers[0].resources.requests == {"cpu": "100m"}

        async def runs() -> bool:
            found = (await core.list_namespaced_pod(namespace, label_selector="app=web")).items
            return [pod.status.phase for pod in found] == ["Running"]

        await until(runs)
        merge = {"metadata": {"labels": {"app": None, "team": "a"}}}
        operations = [{"op": "replace", "path": "/metadata/labels/team", "value": "b"}]
        assert (await core.patch_namespaced_pod("web", namespace, merge)).metadata.labels == {"team": "a"}
        assert (await core.patch_namespaced_pod("web", namespace, operations)).metadata.labels == {"team": "b"}
        stale = await core.read_namespaced_pod("web", namespace)
        stale.metadata.resource_version = "1"
        assert await refused(core.replace_namespaced_pod("web", namespace, stale)) == 409
        assert len((await core.list_node()).items) == 12
        await core.delete_namespaced_pod("web", namespace, grace_period_seconds=0)
        assert await refused(core.read_namespaced_pod("web", namespace)) == 404

    run(work)


@pytest.mark.row("KC39")
def test_a_watch_begins_with_what_is_there_and_goes_on_at_its_version(run: Callable[[Work], None], namespace: str) -> None:
    async def work(core: Any) -> None:
        names = [f"web-{number:02}" for number in range(20)]
        for name in names[:10]:
            await core.create_namespaced_pod(namespace, a_pod(name, scheduler="nobody"))
        seen, at = [], None
        for take in (3, 7, 10):
            if take == 10:
                for name in names[10:]:
                    await core.create_namespaced_pod(namespace, a_pod(name, scheduler="nobody"))
            async with watch.Watch() as watching:
                more = {} if at is None else {"resource_version": at}
                async for event in watching.stream(core.list_namespaced_pod, namespace, timeout_seconds=60, **more):
                    assert event["type"] == "ADDED"
                    seen.append(event["object"].metadata.name)
                    at = event["object"].metadata.resource_version
                    take -= 1
                    if not take:
                        break
        assert seen == names

    run(work)


@pytest.mark.row("KC39")
def test_pods_are_bound_and_evicted(run: Callable[[Work], None], rayched: Commands, namespace: str) -> None:
    async def work(core: Any) -> None:
        await core.create_namespaced_pod(namespace, a_pod("theirs", "1", "another"))
        binding = {"metadata": {"name": "theirs"}, "target": {"kind": "Node", "name": "node-003"}}
        # The answer is a Status, as any Kubernetes gives it, and no Binding.
        bound = await core.create_namespaced_pod_binding("theirs", namespace, binding, _preload_content=False)
        assert bound.status == 201
        assert (await core.read_namespaced_pod("theirs", namespace)).spec.node_name == "node-003"
        again = {**binding, "target": {"kind": "Node", "name": "node-004"}}
        assert await refused(core.create_namespaced_pod_binding("theirs", namespace, again)) == 409
        eviction = asyncio_client.V1Eviction(metadata=asyncio_client.V1ObjectMeta(name="theirs"))
        evicted = await core.create_namespaced_pod_eviction("theirs", namespace, eviction, _preload_content=False)
        assert evicted.status == 201

        async def gone() -> bool:
            return not (await core.list_namespaced_pod(namespace)).items

        await until(gone)

    run(work)
