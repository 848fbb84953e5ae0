"""The SDK against real replicas that die: nothing is lost, nothing is told twice."""

from __future__ import annotations

import itertools
import signal
import threading
import time

import pytest

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.client import ApiError, Client
from rayched.replica.etcd.etcd_server import EtcdServer
from tests.client.replicas import Process
from tests.server.objects import a_node, a_pod

pytestmark = pytest.mark.cluster


def test_submissions_and_watches_survive_the_death_of_replicas(replicas: list[Process]) -> None:
    addresses = ",".join(replica.address for replica in replicas)
    acknowledged: dict[str, int] = {}
    stop = threading.Event()
    with Client(addresses, timeout_seconds=8) as writer, Client(addresses, timeout_seconds=8) as reader:
        start = writer.submit(a_pod("first")).revision
        events: list[tuple[int, str]] = []
        stream = reader.watch("pods", start_revision=start)

        def follow() -> None:
            for event in stream:
                assert event.object is not None
                events.append((event.revision, event.object.metadata.name))

        def submit() -> None:
            for number in itertools.count():
                if stop.is_set():
                    return
                acknowledged[f"pod-{number}"] = writer.submit(a_pod(f"pod-{number}")).revision
                batch = [a_pod(f"batch-{number}-{i}") for i in range(3)]
                for pod, result in zip(batch, writer.submit_many(batch), strict=True):
                    assert result.error is None
                    acknowledged[pod.metadata.name] = result.revision
                time.sleep(0.005)

        threads = [threading.Thread(target=work, daemon=True) for work in (follow, submit)]
        for thread in threads:
            thread.start()
        time.sleep(0.4)
        replicas[0].end()
        time.sleep(0.4)
        replicas[1].end()
        time.sleep(0.6)
        stop.set()
        threads[1].join(60)
        assert not threads[1].is_alive()
        last = writer.submit(a_pod("last")).revision
        deadline = time.monotonic() + 60
        while (not events or events[-1][0] < last) and time.monotonic() < deadline:
            time.sleep(0.01)
        stream.close()
        threads[0].join(60)
        assert not threads[0].is_alive()
        expected = {**acknowledged, "first": start, "last": last}
        assert len(events) == len(expected)
        assert {name: revision for revision, name in events} == expected
        assert [revision for revision, _ in events] == sorted(revision for revision, _ in events)
        assert {pod.metadata.name for pod in writer.list("pods")} == set(expected)


def test_a_hung_replica_is_left_for_another(replicas: list[Process]) -> None:
    with Client([replicas[0].address]) as direct:
        direct.register_node(a_node("node-1"))
    with Client([replica.address for replica in replicas[:2]], timeout_seconds=10) as client:
        client._transport.endpoints.prefer(replicas[0].address)
        client.get("nodes", "node-1")
        replicas[0].signal(signal.SIGSTOP)
        assert client.get("nodes", "node-1").metadata.name == "node-1"
        client.heartbeat(["node-1"])
        assert client._transport.endpoints.current() == replicas[1].address, "it stays where it was answered"
        replicas[0].signal(signal.SIGCONT)


def test_a_watch_whose_revisions_were_compacted_meanwhile_says_so(replicas: list[Process], etcd: EtcdServer) -> None:
    with Client([replica.address for replica in replicas]) as client:
        start = client.submit(a_pod("one")).revision
        last = client.submit(a_pod("two")).revision
        with Client(replicas[2].address) as early, early.watch("pods", start_revision=start) as stream:
            # Its window goes back to the first of them.
            assert [next(stream).revision for _ in range(2)] == [start, last]
        with open_channel([etcd.endpoint]) as channel:
            rpc.KVStub(channel).Compact(rpc.CompactionRequest(revision=last))
        for replica in replicas[:2]:
            replica.end()
        # The third one began before both, so its window still has what etcd forgot.
        with Client(replicas[2].address) as last_one, last_one.watch("pods", start_revision=start) as stream:
            assert [next(stream).object.metadata.name for _ in range(2)] == ["one", "two"]  # type: ignore[union-attr]
            with pytest.raises(ApiError) as caught:
                next(last_one.watch("pods", start_revision=1))
    assert caught.value.code.name == "OUT_OF_RANGE"
    assert caught.value.first_available_revision > 1
