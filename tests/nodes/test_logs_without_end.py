"""Logs that go on from a place, that were removed before they were read, or that never begin: none ends as if it were complete,
and none is waited for in vain."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator

import grpc
import pytest

from rayched.client import ApiError, Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Pod
from rayched.v1.streams_pb2 import LogPosition, LogsRequest, LogsResponse
from rayched.v1.streams_pb2_grpc import LogsStub
from tests.nodes.real_node import a_pod, agent_thread, in_phase, registered, settings, sh, status, until
from tests.server.serving import Serving, serving

NODE = "has-ends"
SECONDS_MAX = 60.0
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def replica(etcd: EtcdServer) -> Iterator[Serving]:
    with serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/ends-{os.getpid()}"))) as found:
        yield found


@pytest.fixture(scope="module")
def client(replica: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """With a node whose agent runs."""
    chosen = settings(tmp_path_factory.mktemp("node"), NODE)
    with agent_thread(chosen, replica.address), Client(replica.address, timeout_seconds=20.0) as found:
        registered(found, NODE)
        yield found


def submitted(client: Client, *command: str, policy: str = "Never", first: str = "") -> str:
    """`first`: what runs before the container."""
    pod = a_pod(NODE, f"pod-{next(_numbers)}", *command, policy=policy)
    if first:
        pod.spec.init_containers.add(name="first", command=sh(first))
    return created(client, pod)


def created(client: Client, pod: Pod) -> str:
    client.submit(pod)
    return pod.metadata.name


def responses(replica: Serving, request: LogsRequest) -> Iterator[LogsResponse]:
    request.namespace = "default"
    found: Iterator[LogsResponse] = LogsStub(replica.channel).Get(request, timeout=SECONDS_MAX)
    return found


def test_a_stream_that_goes_on_still_leaves_out_what_is_older_than_was_asked_for(client: Client, replica: Serving) -> None:
    name = submitted(client, *sh("echo old"))
    in_phase(client, name, "Succeeded")
    request = LogsRequest(pod=name)
    request.since_time.FromNanoseconds(time.time_ns())
    first = next(responses(replica, request))
    assert first.HasField("position") and not first.data
    request.resume.CopyFrom(first.position)
    assert [one.data for one in responses(replica, request)][-1:] == [b""]
    assert b"".join(one.data for one in responses(replica, request)) == b""
    request.ClearField("since_time")
    request.resume.since = b""
    assert b"".join(one.data for one in responses(replica, request)) == b"old\n"


def test_who_is_behind_when_a_log_is_removed_is_told(client: Client, replica: Serving) -> None:
    name = submitted(client, *sh("echo attempt $RAYCHED_ATTEMPT; sleep 1; exit 1"), policy="Always")
    until(lambda: len(status(client, name).container_statuses) and _has_begun(client, name), "it runs")
    first = next(one for one in responses(replica, LogsRequest(pod=name, follow=True)) if one.data)
    assert first.position.attempt == 0 and first.position.file
    until(lambda: status(client, name).container_statuses[0].restart_count >= 2, "it was restarted twice")
    found = list(responses(replica, LogsRequest(pod=name, follow=True, resume=first.position)))
    assert [one.lost for one in found] == [False, True, False] and found[-1].end
    # Whoever has seen nothing of it yet learns that there is nothing any more.
    nothing = LogPosition(uid=first.position.uid)
    with pytest.raises(grpc.RpcError) as told:
        list(responses(replica, LogsRequest(pod=name, follow=True, resume=nothing)))
    assert told.value.code() is grpc.StatusCode.NOT_FOUND
    assert told.value.details() == f'the log of container "main" in pod "{name}" was removed'


def _has_begun(client: Client, name: str) -> bool:
    (found,) = status(client, name).container_statuses
    return found.restart_count == 0 and found.state.HasField("running")


def test_what_will_never_start_is_not_waited_for(client: Client) -> None:
    name = submitted(client, "true", first="sleep 1; exit 1")
    assert refusal(client, name) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        f'container "main" in pod "{name}" has not started, and will not: the pod has ended',
    )
    large = a_pod(NODE, f"pod-{next(_numbers)}", "true")
    large.spec.containers[0].resources.requests["cpu"].string = "1000"
    refused = created(client, large)
    in_phase(client, refused, "Failed")
    assert refusal(client, refused) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        f'container "main" in pod "{refused}" is waiting to start: ContainerCreating',
    )


def test_a_log_that_is_waited_for_is_open_and_ends_with_its_pod(client: Client, replica: Serving) -> None:
    name = submitted(client, "true", first="sleep 1000")
    waiting = responses(replica, LogsRequest(pod=name, container="main", follow=True))
    # The client's patience is for streams that are not open; this one is, however long the container may take.
    assert next(waiting) == LogsResponse()
    client.delete("pod", name, grace_period_seconds=1)
    with pytest.raises(grpc.RpcError) as told:
        next(waiting)
    assert told.value.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)


def refusal(client: Client, name: str) -> tuple[object, str]:
    """What following the log ends with, which has to be an error."""
    with client.logs(name, container="main", follow=True) as chunks:
        late = threading.Timer(SECONDS_MAX, chunks.close)
        late.start()
        with pytest.raises(ApiError) as told:
            list(chunks)
        late.cancel()
    return told.value.code, told.value.message
