"""A pod whose object cannot be read any more goes on running, and a real deletion ends it all the same."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.api.kinds import POD
from rayched.client import Client
from rayched.nodes.agent.shim import proc_table
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from tests.nodes.real_node import a_pod, agent_thread, all_gone, in_phase, processes, ready, registered, settings, status, until
from tests.server.serving import Serving, serving

pytestmark = pytest.mark.cluster

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def keys() -> Keys:
    return Keys(f"/unreadable-{os.getpid()}")


@pytest.fixture(scope="module")
def api(etcd: EtcdServer, keys: Keys) -> Iterator[Serving]:
    with serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], keys)) as server:
        yield server


@pytest.fixture(scope="module")
def client(api: Serving) -> Iterator[Client]:
    with Client(api.address, timeout_seconds=10.0) as found:
        yield found


@pytest.mark.parametrize("restarted", [False, True], ids=["the agent lives", "another agent lists"])
def test_a_pod_that_cannot_be_read_runs_on_and_ends_when_it_is_gone(
    etcd: EtcdServer, keys: Keys, client: Client, api: Serving, tmp_path: Path, restarted: bool
) -> None:
    node = f"node-{next(_numbers)}"
    name, other = f"{node}-kept", f"{node}-other"
    with open_channel([etcd.endpoint]) as channel:
        kv, key = rpc.KVStub(channel), keys.object_key(POD, "default", name)
        chosen = settings(tmp_path, node)
        with agent_thread(chosen, api.address):
            registered(client, node)
            client.submit(a_pod(node, name, "sleep", "1000", policy="Always"))
            ready(client, name)
            pids = processes(client, name)
            assert pids
            value = kv.Range(rpc.RangeRequest(key=key)).kvs[0].value
            kv.Put(rpc.PutRequest(key=key, value=b"\xff\xff"))
            # What comes later is seen later: when this one runs the other's end would have begun.
            client.submit(a_pod(node, other, "sleep", "1000"))
            in_phase(client, other, "Running")
            if not restarted:
                _still_there_and_then_gone(kv, key, value, client, name, pids)
                return
        with agent_thread(chosen, api.address):
            client.submit(a_pod(node, f"{other}-2", "sleep", "1000"))
            in_phase(client, f"{other}-2", "Running")
            _still_there_and_then_gone(kv, key, value, client, name, pids)


def test_what_the_agent_knows_nothing_of_is_not_ended_while_an_object_cannot_be_read(
    etcd: EtcdServer, keys: Keys, client: Client, api: Serving, tmp_path: Path
) -> None:
    """The agent's own note of the pod is damaged, too."""
    node = f"node-{next(_numbers)}"
    name, other = f"{node}-kept", f"{node}-other"
    chosen = settings(tmp_path, node)
    with open_channel([etcd.endpoint]) as channel:
        kv, key = rpc.KVStub(channel), keys.object_key(POD, "default", name)
        with agent_thread(chosen, api.address):
            registered(client, node)
            client.submit(a_pod(node, name, "sleep", "1000", policy="Always"))
            ready(client, name)
            pids = processes(client, name)
        (noted,) = tmp_path.glob("**/pod.json")
        noted.write_text("damaged")
        kv.Put(rpc.PutRequest(key=key, value=b"\xff\xff"))
        with agent_thread(chosen, api.address):
            client.submit(a_pod(node, other, "sleep", "1000"))
            in_phase(client, other, "Running")
            assert pids and all(proc_table.is_alive(pid) for pid in pids)
            kv.DeleteRange(rpc.DeleteRangeRequest(key=key))
            client.delete("pod", other, grace_period_seconds=1)
        with agent_thread(chosen, api.address):
            until(lambda: all_gone(pids), "its object is gone, and so it ends")


def _still_there_and_then_gone(kv: rpc.KVStub, key: bytes, value: bytes, client: Client, name: str, pids: list[int]) -> None:
    assert all(proc_table.is_alive(pid) for pid in pids)
    kv.Put(rpc.PutRequest(key=key, value=value))
    assert status(client, name).phase == "Running" and all(proc_table.is_alive(pid) for pid in pids)
    kv.Put(rpc.PutRequest(key=key, value=b"\xff\xff"))
    kv.DeleteRange(rpc.DeleteRangeRequest(key=key))
    until(lambda: all_gone(pids), "its object is gone, and so it ends")
