"""The audit logs of real replicas, held against what etcd has seen; and that nothing of what pods say leaves them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import grpc
import pytest

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.api.kinds import POD, unwrap
from rayched.client import ApiError, Client
from rayched.server.admission.deletion import SYSTEM_NAMESPACES
from rayched.store.codec import decode_stored
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Event, Pod
from tests.cli.cluster import run_here
from tests.replica.clusters import SmallCluster, small_pod, until_true
from tests.replica.test_observability import ask

pytestmark = pytest.mark.cluster

CANARY: Final = "canary-7d1f"
KEYS: Final = Keys("/rayched")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    directory = tmp_path_factory.mktemp("audited")
    with SmallCluster(directory, replicas=2, options=["--log-level", "debug"]) as found:
        yield found


def audit_lines(cluster: SmallCluster) -> list[dict[str, Any]]:
    """Of all replicas."""
    files = [cluster.local.directory / f"replica-{replica.number}" / "audit.jsonl" for replica in cluster.local.replicas]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def written(lines: list[dict[str, Any]]) -> dict[tuple[str, str, str, int], dict[str, Any]]:
    """Lines that say so, by what was written at which revision."""
    found = {}
    for line in lines:
        for one in line.get("objects") or [line]:
            if one.get("revision"):
                found[one["kind"], one.get("namespace", ""), one["name"], one["revision"]] = line
    return found


class Change:
    """One of etcd's history."""

    def __init__(self, event: Any, before: bytes | None) -> None:
        self.revision, self.is_delete = event.kv.mod_revision, event.type == 1
        self.is_new = before is None
        key = KEYS.parse(event.kv.key)
        assert key is not None
        self.key = key
        self.is_by_leader = False
        if not self.is_delete:
            now = decode_stored(event.kv.value, self.revision, event.kv.key).leader_write
            was = None if before is None else decode_stored(before, 1, event.kv.key).leader_write
            self.is_by_leader = bool(now.epoch) and (was is None or now != was)

    def __repr__(self) -> str:
        return f"{self.key} at {self.revision}"


def history(cluster: SmallCluster, last: str) -> list[Change]:
    """All that ever happened to objects, until a pod of this name is created."""
    values: dict[bytes, bytes] = {}
    changes: list[Change] = []
    prefix = KEYS.cluster_prefix
    with open_channel(cluster.local.etcd_endpoints) as channel:
        create = rpc.WatchCreateRequest(key=prefix, range_end=prefix[:-1] + b"0", start_revision=1)
        for response in rpc.WatchStub(channel).Watch(iter((rpc.WatchRequest(create_request=create),)), timeout=30):
            for event in response.events:
                if KEYS.parse(event.kv.key) is None:
                    continue
                changes.append(Change(event, values.get(event.kv.key)))
                if event.type == 1:
                    del values[event.kv.key]
                else:
                    values[event.kv.key] = event.kv.value
            if any(change.key.name == last for change in changes):
                return changes
    raise AssertionError(f"the history has no pod {last}")


def is_somebodys(change: Change) -> bool:
    """Neither the leader's, nor a replica's for the system's namespaces; what controllers write of nodes is the leader's too."""
    if change.key.kind == "Namespace" and change.key.name in SYSTEM_NAMESPACES:
        return False
    return not change.is_by_leader and (change.key.kind != "Node" or change.is_new)


@pytest.mark.row("B109")
def test_each_write_of_somebody_has_a_line_that_says_who_was_let_make_it(cluster: SmallCluster) -> None:
    clients = [Client(address, timeout_seconds=10.0) for address in cluster.local.addresses]
    refusals = 0
    for number in range(30):
        client = clients[number % 2]
        client.submit(small_pod(f"single-{number}"))
        client.submit_many([small_pod(f"many-{number}-{one}") for one in range(3)])
        client.label("pod", f"single-{number}", add={"number": str(number)})
        if number % 3 == 0:
            client.apply(small_pod(f"applied-{number}"))
            client.delete("pod", f"single-{number}", grace_period_seconds=0)
        if number % 5 == 0:
            client.evict(f"many-{number}-0")
        # An agent says that it is one, and may less.
        client._transport.identity = "system:node:node-0"
        with pytest.raises(ApiError) as refused:
            client.cordon("node-1")
        client._transport.identity = ""
        assert refused.value.code is grpc.StatusCode.PERMISSION_DENIED
        refusals += 1
    clients[0].submit(small_pod("last"))
    for client in clients:
        client.close()
    lines = audit_lines(cluster)
    known, changes = written(lines), [change for change in history(cluster, "last") if is_somebodys(change)]
    assert len([change for change in changes if change.key.kind == POD.name]) > 150
    missing = [
        change for change in changes if "admin" not in known.get((*change.key, change.revision), {}).get("roles", "").split(",")
    ]
    assert missing == []
    assert len([line for line in lines if line["stage"] == "refused" and line["call"] == "Admin.Cordon"]) == refusals
    for replica in cluster.local.replicas:
        path = cluster.local.directory / f"replica-{replica.number}" / "audit.jsonl"
        assert run_here(["audit", "verify", str(path)]).code == 0


def canary_pod(name: str) -> Pod:
    """With the canary wherever a pod may say anything but its name."""
    pod = small_pod(name)
    pod.metadata.labels[CANARY] = CANARY
    pod.metadata.annotations[f"{CANARY}/note"] = CANARY
    spec, (container,) = pod.spec, pod.spec.containers
    container.name, container.image = CANARY, f"{CANARY}:{CANARY}"
    container.command.append(CANARY)
    container.args.append(CANARY)
    container.env.add(name=f"{CANARY}-name", value=CANARY)
    spec.tolerations.add(key=CANARY, operator="Equal", value=CANARY, effect="NoSchedule")
    return pod


@pytest.mark.row("B108")
def test_what_a_pod_says_is_in_no_log_no_metric_and_no_event(cluster: SmallCluster) -> None:
    client = cluster.client
    unschedulable, unknown, wrong = canary_pod("nowhere"), canary_pod("unknown"), canary_pod("wrong")
    unschedulable.spec.node_selector[CANARY] = CANARY
    unknown.spec.scheduler_name = CANARY
    wrong.spec.restart_policy = CANARY
    for pod in (canary_pod("somewhere"), unschedulable, unknown):
        client.submit(pod)
    for outcome in (client.submit_many([wrong])[0].error, client.submit_many([canary_pod("many")])[0].error):
        assert outcome is None or outcome.code is grpc.StatusCode.INVALID_ARGUMENT
    client.wait_bound("somewhere", timeout_seconds=30)
    client.apply(canary_pod("applied"))
    client.evict("somewhere")

    def events() -> list[Event]:
        return [one for one in client.list(Event) if one.involved_object.name == "nowhere"]

    until_true(lambda: bool(events()), 30, "no Event tells of the pod that has no node")
    texts = {
        "events": "\n".join(str(unwrap(one) if hasattr(one, "event") else one) for one in client.list(Event)),
        "audit log": "\n".join(json.dumps(line) for line in audit_lines(cluster)),
    }
    for replica in cluster.local.replicas:
        texts[f"log of {replica.number}"] = (cluster.local.directory / f"replica-{replica.number}.log").read_text()
        texts[f"metrics of {replica.number}"] = ask(replica, "/metrics")[2]
    assert '"name": "nowhere"' in texts["audit log"] and "nowhere" in texts["events"]
    assert [place for place, text in texts.items() if CANARY in text] == []
