"""What agents report and administrators change, over real gRPC and etcd."""

from __future__ import annotations

import pytest

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.client import ApiError, Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Node, Pod, PodStatus, Taint
from rayched.v1.services_pb2 import PodStatusUpdate
from rayched.v1.storage_pb2 import Heartbeat, LeaderWrite, Stored
from tests.server.objects import a_node, a_pod

pytestmark = pytest.mark.cluster


def node_of(client: Client, name: str) -> Node:
    found = client.get("nodes", name)
    assert isinstance(found, Node)
    return found


def report(name: str, uid: str, phase: str = "", *, remove: bool = False, **fields: str) -> PodStatusUpdate:
    status = PodStatus(phase=phase, **fields)  # type: ignore[arg-type]
    return PodStatusUpdate(namespace="default", name=name, uid=uid, status=status, remove=remove)


# ------------------------------------------------------------------------------------------------------------------ nodes


def test_a_node_registers_and_registering_again_keeps_what_others_set(client: Client, name: str) -> None:
    first = client.register_node(a_node(name, labels={"zone": "a"}))
    client.cordon(name)
    client.taint(name, add=[Taint(key="dedicated", value="gpu", effect="NoSchedule")])
    client.label("nodes", name, add={"disk": "ssd"})
    again = client.register_node(a_node(name, cpu="8", labels={"zone": "b"}))
    assert again.node.metadata.uid == first.node.metadata.uid
    node = node_of(client, name)
    assert node.metadata.labels == {"zone": "b", "disk": "ssd"}
    assert node.spec.unschedulable and node.spec.taints[0].key == "dedicated"
    assert node.status.allocatable["cpu"].string == "8"
    assert client.register_node(a_node(name, cpu="8", labels={"zone": "b"})).revision == again.revision


def test_heartbeats_lie_outside_the_watched_prefix_and_name_unknown_nodes(
    client: Client, name: str, etcd: EtcdServer, keys: Keys
) -> None:
    nodes = [f"{name}-{i}" for i in range(130)]
    for node in nodes[:3]:
        client.register_node(a_node(node))
    revision = node_of(client, nodes[0]).metadata.resource_version
    start = client.list_all("nodes").revision + 1
    assert sorted(client.heartbeat([*nodes, "not/a/name"])) == sorted([*nodes[3:], "not/a/name"])
    assert node_of(client, nodes[0]).metadata.resource_version == revision

    def heartbeat_of(node: str) -> list[bytes]:
        with open_channel([etcd.endpoint]) as channel:
            return [pair.value for pair in rpc.KVStub(channel).Range(rpc.RangeRequest(key=keys.heartbeat(node))).kvs]

    assert [len(heartbeat_of(node)) for node in nodes[:4]] == [1, 1, 1, 0]
    assert Heartbeat.FromString(heartbeat_of(nodes[0])[0]).renewed_at_ms > 1_600_000_000_000
    client.delete("nodes", nodes[0])
    assert not heartbeat_of(nodes[0])
    client.register_node(a_node(f"{name}-last"))
    with client.watch("nodes", start_revision=start) as stream:
        assert [next(stream).object.metadata.name for _ in range(2)] == [nodes[0], f"{name}-last"]  # type: ignore[union-attr]


def test_a_node_status_is_written_only_when_it_says_something_new(client: Client, name: str) -> None:
    registered = client.register_node(a_node(name))
    status = registered.node.status
    status.conditions[0].last_heartbeat_time.GetCurrentTime()
    assert client.update_node_status(name, status).revision == registered.revision
    status.conditions[0].status = "False"
    changed = client.update_node_status(name, status)
    assert changed.revision > registered.revision
    assert changed.node.status.conditions[0].last_transition_time.seconds > 0
    del status.allocatable["cpu"]
    assert client.update_node_status(name, status).revision > changed.revision
    assert "cpu" not in node_of(client, name).status.allocatable
    status.allocatable["memory"].string = "much"
    with pytest.raises(ApiError) as caught:
        client.update_node_status(name, status)
    assert [violation.field for violation in caught.value.violations] == ['status.allocatable["memory"]']


def test_pod_statuses_have_outcomes_of_their_own(client: Client, name: str) -> None:
    bound = client.submit(a_pod(f"{name}-bound", node="node-1")).uid
    pending = client.submit(a_pod(f"{name}-pending")).uid
    ended = client.submit(a_pod(f"{name}-ended", node="node-1")).uid
    errors = client.update_pod_statuses(
        [
            report(f"{name}-bound", bound, "Running", message="fine"),
            report(f"{name}-pending", pending, "Running"),
            report(f"{name}-ended", ended, "Failed", reason="OutOfcpu"),
            report(f"{name}-ended", ended, "Running"),
            report(f"{name}-bound", "other-uid", "Failed"),
            report(f"{name}-none", "uid", "Running"),
            report(f"{name}-bound", bound, remove=True),
            report("Not a name", "uid", "Running"),
            report(f"{name}-none", "uid", remove=True),
            report(f"{name}-bound", bound, "Dancing"),
        ]
    )
    assert [error.code.name if error else "OK" for error in errors] == [
        "OK",
        "FAILED_PRECONDITION",
        "OK",
        "FAILED_PRECONDITION",
        "NOT_FOUND",
        "NOT_FOUND",
        "FAILED_PRECONDITION",
        "NOT_FOUND",
        "OK",
        "FAILED_PRECONDITION",
    ]
    assert errors[3] is not None and '"Running" after "Failed"' in errors[3].message
    stored = client.get("pods", f"{name}-bound")
    assert isinstance(stored, Pod)
    assert (stored.status.phase, stored.status.message, stored.status.qos_class) == ("Running", "fine", "Burstable")
    revision = stored.metadata.resource_version
    assert client.update_pod_statuses([report(f"{name}-bound", bound, "Running", message="fine")]) == (None,)
    assert client.get("pods", f"{name}-bound").metadata.resource_version == revision


def test_a_leaders_last_write_stays_with_the_object(client: Client, name: str, etcd: EtcdServer, keys: Keys) -> None:
    uid = client.submit(a_pod(name)).uid
    key = f"{keys.root}/cluster/pods/default/{name}".encode()
    with open_channel([etcd.endpoint]) as channel:
        kv = rpc.KVStub(channel)
        stored = Stored.FromString(kv.Range(rpc.RangeRequest(key=key)).kvs[0].value)
        stored.object.pod.spec.node_name = "node-1"
        stored.leader_write.CopyFrom(LeaderWrite(op="bind", epoch=3, attempt="attempt-1"))
        kv.Put(rpc.PutRequest(key=key, value=stored.SerializeToString()))
        client.update_pod_statuses([report(name, uid, "Running")])
        client.label("pods", name, add={"a": "b"})
        client.delete("pods", name, grace_period_seconds=9)
        after = Stored.FromString(kv.Range(rpc.RangeRequest(key=key)).kvs[0].value)
    assert after.leader_write == stored.leader_write
    assert after.object.pod.status.phase == "Running"
    assert not after.object.pod.metadata.resource_version


# ------------------------------------------------------------------------------------------------------------------ admin


def test_cordon_tells_whether_it_changed_anything(client: Client, name: str) -> None:
    client.register_node(a_node(name))
    assert [client.cordon(name, wanted).changed for wanted in (False, True, True, False, False)] == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert not node_of(client, name).spec.unschedulable


def test_taints_follow_kubectl(client: Client, name: str) -> None:
    client.register_node(a_node(name))
    gpu, cpu = Taint(key="dedicated", value="gpu", effect="NoSchedule"), Taint(key="dedicated", value="cpu", effect="NoSchedule")
    (added,) = client.taint(name, add=[gpu]).node.spec.taints
    assert not added.HasField("time_added")
    assert not client.taint(name, add=[gpu]).changed
    with pytest.raises(ApiError) as caught:
        client.taint(name, add=[cpu])
    assert caught.value.code.name == "FAILED_PRECONDITION" and '"gpu"' in caught.value.message
    assert client.taint(name, add=[cpu], overwrite=True).node.spec.taints[0].value == "cpu"
    evicting = client.taint(name, add=[Taint(key="dedicated", effect="NoExecute")]).node.spec.taints[1]
    assert evicting.time_added.seconds > 0
    assert len(client.taint(name, remove=[Taint(key="dedicated", effect="NoExecute")]).node.spec.taints) == 1
    with pytest.raises(ApiError):
        client.taint(name, remove=[Taint(key="other")])
    with pytest.raises(ApiError) as caught:
        client.taint(name, add=[Taint(key="a b", effect="Sometimes")])
    assert [violation.field for violation in caught.value.violations] == ["spec.taints[1].key", "spec.taints[1].effect"]
    assert not client.taint(name, remove=[Taint(key="dedicated")]).node.spec.taints


def test_labels_follow_kubectl(client: Client, name: str) -> None:
    client.submit(a_pod(name, labels={"app": "web"}))
    assert client.label("po", name, add={"tier": "db"}, remove=["absent"]).changed
    assert not client.label("po", name, add={"tier": "db"}).changed
    with pytest.raises(ApiError) as caught:
        client.label("po", name, add={"tier": "cache"})
    assert caught.value.code.name == "FAILED_PRECONDITION"
    changed = client.label("po", name, add={"tier": "cache"}, remove=["app"], overwrite=True)
    assert changed.object.pod.metadata.labels == {"tier": "cache"}
    with pytest.raises(ApiError) as caught:
        client.label("po", name, add={"tier": "not a label!"}, overwrite=True)
    assert [violation.field for violation in caught.value.violations] == ['metadata.labels["tier"]']
