"""Lists over real gRPC and etcd: one moment on all pages, and what the selectors say."""

from __future__ import annotations

import grpc
import pytest

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.client import ApiError, Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.v1.services_pb2 import ListRequest
from rayched.v1.services_pb2_grpc import SubmissionStub
from tests.server.objects import a_namespace, a_node, a_pod
from tests.server.serving import Serving

pytestmark = pytest.mark.cluster


def names(client: Client, kind: str = "pods", **selection: str) -> list[str]:
    return [item.metadata.name for item in client.list(kind, **selection)]  # type: ignore[arg-type]


def test_all_pages_show_the_moment_of_the_first_under_writes(client: Client, name: str) -> None:
    client.submit(a_namespace(name))
    client.submit_many([a_pod(f"pod-{i:03}", namespace=name, labels={"v": "old"}) for i in range(120)])
    seen: list[tuple[str, str]] = []
    pages = 0
    revisions = set()
    for page in client.pages("pods", namespace=name, limit=25):
        seen += [(item.pod.metadata.name, item.pod.metadata.labels["v"]) for item in page.objects]
        revisions.add(page.revision)
        assert len(page.objects) <= 25
        client.delete("pods", f"pod-{pages:03}", name)
        client.delete("pods", f"pod-{119 - pages:03}", name)
        client.label("pods", "pod-060", name, add={"v": f"new-{pages}"}, overwrite=True)
        client.submit(a_pod(f"pod-{pages:03}a", namespace=name, labels={"v": "new"}))
        pages += 1
    assert (pages, len(revisions)) == (5, 1)
    assert seen == [(f"pod-{i:03}", "old") for i in range(120)]


def test_pages_of_a_selection_are_full_and_complete(client: Client, name: str) -> None:
    client.submit(a_namespace(name))
    client.submit_many([a_pod(f"pod-{i:04}", namespace=name, labels={"third": str(i % 3)}) for i in range(1300)])
    sizes = [len(page.objects) for page in client.pages("pods", namespace=name, label_selector="third=1", limit=100)]
    assert sizes == [100, 100, 100, 100, 33]
    assert [len(page.objects) for page in client.pages("pods", namespace=name)] == [500, 500, 300]
    assert names(client, namespace=name, label_selector="third=1") == [f"pod-{i:04}" for i in range(1300) if i % 3 == 1]


def test_selectors_choose_by_labels_and_fields(client: Client, name: str) -> None:
    client.submit(a_namespace(name))
    client.submit(a_pod("red", namespace=name, labels={"app": "red"}, node="node-1"))
    client.submit(a_pod("blue", namespace=name, labels={"app": "blue", "canary": ""}))
    for label_selector, field_selector, expected in (
        ("app=red", "", ["red"]),
        ("app in (red,blue)", "", ["blue", "red"]),
        ("!canary", "", ["red"]),
        ("app!=red", "status.phase=Pending", ["blue"]),
        ("", "spec.nodeName=node-1", ["red"]),
        ("", "spec.nodeName!=node-1,metadata.namespace=" + name, ["blue"]),
        ("app=green", "", []),
    ):
        assert names(client, namespace=name, label_selector=label_selector, field_selector=field_selector) == expected
    assert names(client, "nodes", field_selector="metadata.name=no-such-node") == []
    client.submit(a_node(name))
    assert names(client, "nodes", field_selector=f"metadata.name={name}") == [name]


def test_a_list_whose_revision_was_compacted_asks_for_a_new_one(client: Client, name: str, etcd: EtcdServer) -> None:
    client.submit(a_namespace(name))
    client.submit_many([a_pod(f"pod-{i}", namespace=name) for i in range(10)])
    pages = client.pages("pods", namespace=name, limit=5)
    next(pages)
    last = client.submit(a_pod("late", namespace=name)).revision
    with open_channel([etcd.endpoint]) as channel:
        rpc.KVStub(channel).Compact(rpc.CompactionRequest(revision=last))
    with pytest.raises(ApiError) as caught:
        next(pages)
    assert caught.value.code.name == "OUT_OF_RANGE" and "list again" in caught.value.message
    assert len(names(client, namespace=name)) == 11


def test_a_list_can_show_an_earlier_moment_and_none_to_come(client: Client, name: str) -> None:
    client.submit(a_namespace(name))
    revision = client.submit(a_pod("early", namespace=name)).revision
    client.submit(a_pod("late", namespace=name))
    then = client.list_all("pods", namespace=name, revision=revision)
    assert ([item.metadata.name for item in then.objects], then.revision) == (["early"], revision)
    for wrong, code in ((1 << 40, "OUT_OF_RANGE"), (-1, "INVALID_ARGUMENT")):
        with pytest.raises(ApiError) as caught:
            client.list_all("pods", namespace=name, revision=wrong)
        assert caught.value.code.name == code and "revision" in caught.value.message


@pytest.mark.parametrize(
    "other",
    [{"kind": "Node"}, {"kind": "Pod", "namespace": "default", "label_selector": "app=b"}, {"kind": "Pod"}],
    ids=["another kind", "another selector", "another namespace"],
)
def test_a_page_of_one_list_does_not_go_on_in_another(api: Serving, client: Client, name: str, other: dict[str, str]) -> None:
    for number in range(2):
        client.submit(a_pod(f"{name}-{number}"))
    stub = SubmissionStub(api.channel)  # type: ignore[no-untyped-call]
    first = stub.List(ListRequest(kind="Pod", namespace="default", limit=1), timeout=10)
    token = getattr(first, "continue")
    assert token
    with pytest.raises(grpc.RpcError, match="belongs to a list of another kind, namespace or selector") as caught:
        stub.List(ListRequest(**other, **{"continue": token}), timeout=10)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len(stub.List(ListRequest(kind="Pod", namespace="default", **{"continue": token}), timeout=10).objects) > 0
