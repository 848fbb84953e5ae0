"""set image, set resources, set env: on pods and on what makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rayched.v1.workloads_pb2 import ReplicaSet
from tests.cli.cluster import Commands, wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def maker(rayched: Commands, namespace: str) -> str:
    """A ReplicaSet of no pods, with two containers and one that starts first."""
    text = f"""apiVersion: apps/v1
kind: ReplicaSet
metadata: {{name: web, namespace: {namespace}, labels: {{app: web}}}}
spec:
  replicas: 0
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      initContainers: [{{name: first, image: "a:1"}}]
      containers:
      - {{name: main, image: "a:1", resources: {{requests: {{cpu: 100m, memory: 1Gi}}}}, env: [{{name: OLD, value: "1"}}]}}
      - {{name: side, image: "b:1"}}
"""
    rayched.ok("apply", "-f", "-", stdin=text)
    return namespace


@contextmanager
def nothing_changes(rayched: Commands, namespace: str) -> Iterator[None]:
    """Once the controller has nothing more to write of the last change."""

    def observed() -> bool:
        found = rayched.client.get(ReplicaSet, "web", namespace)
        return found.status.observed_generation == found.metadata.generation

    wait_until(observed, "the ReplicaSet's status is of its generation")
    with rayched.nothing_changes():
        yield


def spec_of(rayched: Commands, namespace: str) -> dict[str, tuple[str, dict[str, str], dict[str, str], dict[str, str]]]:
    """By container: image, requests, limits, variables."""
    spec = rayched.client.get(ReplicaSet, "web", namespace).spec.template.spec
    return {
        one.name: (
            one.image,
            {name: amount.string for name, amount in one.resources.requests.items()},
            {name: amount.string for name, amount in one.resources.limits.items()},
            {variable.name: variable.value for variable in one.env},
        )
        for one in (*spec.init_containers, *spec.containers)
    }


def test_an_image_is_set_on_one_container_or_on_all(rayched: Commands, maker: str) -> None:
    assert rayched.ok("set", "image", "rs/web", "side=b:2", "-n", maker) == ["replicaset.apps/web image updated"]
    assert [image for image, *_ in spec_of(rayched, maker).values()] == ["a:1", "a:1", "b:2"]
    with nothing_changes(rayched, maker):
        assert rayched.ok("set", "image", "rs/web", "side=b:2", "-n", maker) == ["replicaset.apps/web image not changed"]
        tried = rayched.ok("set", "image", "rs/web", "*=c:3", "-n", maker, "--dry-run=server")
        assert tried == ["replicaset.apps/web image updated (server dry run)"]
    assert rayched.ok("-n", maker, "set", "image", "rs", "-l=app=web", "*=c:3") == ["replicaset.apps/web image updated"]
    assert [image for image, *_ in spec_of(rayched, maker).values()] == ["c:3", "c:3", "c:3"]


def test_a_container_that_is_not_there_is_told_and_none_is_made(rayched: Commands, maker: str) -> None:
    with nothing_changes(rayched, maker):
        refused = rayched("set", "image", "rs/web", "mian=b:2", "-n", maker)
        assert refused.code == 1
        assert refused.errors == ["error: replicaset.apps/web: no container has the name 'mian'; there are first, main, side"]
        other = rayched("set", "env", "node/node-001", "A=b")
        assert other.code == 1 and other.errors[0].startswith("error: node/node-001: has no containers; set is about pods, ")


def test_resources_that_are_not_named_stay(rayched: Commands, maker: str) -> None:
    words = ("set", "resources", "rs/web", "-c", "main", "--requests", "cpu=200m", "--limits=cpu=1,memory=2Gi", "-n", maker)
    assert rayched.ok(*words) == ["replicaset.apps/web resource requirements updated"]
    found = spec_of(rayched, maker)
    assert found["main"][1:3] == ({"cpu": "200m", "memory": "1Gi"}, {"cpu": "1", "memory": "2Gi"})
    assert found["side"][1:3] == ({}, {})
    with nothing_changes(rayched, maker):
        refused = rayched("set", "resources", "rs/web", "--requests", "cpu=many", "-n", maker)
    assert refused.code == 1 and '"many" is not a quantity' in refused.errors[0]
    assert refused.errors[0].startswith("error: replicaset.apps/web: spec.template.spec.")


def test_variables_are_set_removed_and_listed(rayched: Commands, maker: str) -> None:
    assert rayched.ok("set", "env", "rs/web", "-c=main", "LEVEL=debug", "OLD-", "NONE-", "-n", maker) == [
        "replicaset.apps/web env updated"
    ]
    found = spec_of(rayched, maker)
    assert (found["main"][3], found["side"][3]) == ({"LEVEL": "debug"}, {})
    assert rayched.ok("set", "env", "rs/web", "--list", "-c", "m*", "-n", maker) == [
        "# replicaset.apps/web, container main",
        "LEVEL=debug",
    ]


def test_the_image_of_a_pod_changes_and_its_resources_cannot(rayched: Commands, web: str) -> None:
    assert rayched.ok("set", "image", "pods", "-l", "app=web", "main=registry.example/web:2", "-n", web) == [
        "pod/web-0 image updated",
        "pod/web-1 image updated",
    ]
    assert rayched.pod("web-0", web).spec.containers[0].image == "registry.example/web:2"
    refused = rayched("set", "resources", "pod/web-0", "pod/db", "--limits", "cpu=1", "-n", web)
    assert refused.code == 1 and f"error: Pod {web}/web-0: spec.containers: cannot be changed" in refused.errors
    assert any(f"Pod {web}/db: " in line for line in refused.errors)
