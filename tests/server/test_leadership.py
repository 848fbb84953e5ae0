"""Who leads, questions to the leader, health and reflection, over real gRPC."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from rayched.client import ApiError, Client
from rayched.client.errors import api_error
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.ports import Leader
from rayched.server.server_options import ListenError, ServerOptions
from rayched.store.keys import Keys
from rayched.v1.services_pb2 import GetSchedulerStatusRequest
from rayched.v1.services_pb2_grpc import SchedulingStub
from tests.server.serving import Serving, serving

pytestmark = pytest.mark.cluster

_NAMES = "Submission Eviction Watch Nodes Admin Leadership Scheduling Logs Exec PortForward Usage AgentStreams Access"
SERVICES = {f"rayched.v1.{name}" for name in _NAMES.split()}


@pytest.fixture
def pair(etcd: EtcdServer, etcd_root: str) -> Iterator[tuple[Serving, Serving]]:
    """Two replicas; nobody leads."""
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(etcd_root), version="1.2.3")
    with serving(options, "replica-0") as one, serving(options, "replica-1") as other:
        yield one, other


def lead(leader: Serving, *replicas: Serving, epoch: int = 7) -> Leader:
    record = Leader(leader.leadership.identity, leader.address, epoch, transitions=epoch - 1, lease_duration_ms=2000)
    for replica in replicas:
        replica.leadership.set(record)
    return record


def test_every_replica_tells_who_leads(pair: tuple[Serving, Serving]) -> None:
    one, other = pair
    with Client(other.address) as client, client.watch_leader() as leaders:
        assert next(leaders).holder == ""
        record = lead(one, one, other)
        seen = next(leaders)
        assert (seen.holder, seen.address, seen.epoch, seen.transitions) == ("replica-0", one.address, 7, 6)
        assert (seen.answered_by, seen.version) == ("replica-1", "1.2.3")
        assert client.leader().epoch == record.epoch
        lead(other, one, other, epoch=9)
        assert next(leaders).holder == "replica-1"


def test_questions_to_the_scheduler_reach_the_leader_from_anywhere(pair: tuple[Serving, Serving]) -> None:
    one, other = pair
    with Client(other.address, timeout_seconds=0.3) as client:
        with pytest.raises(ApiError) as caught:
            client.scheduler_status()
        assert caught.value.code.name == "UNAVAILABLE" and "nobody leads" in caught.value.message
        lead(one, one, other)
        assert client.scheduler_status(timeout_seconds=3).holder == "replica-0"
        assert client.explain("known", timeout_seconds=3).feasible == 1
        with pytest.raises(ApiError) as caught:
            client.explain("unknown", timeout_seconds=3)
        assert (caught.value.code.name, caught.value.message) == ("NOT_FOUND", "Pod default/unknown not found")
        for replica in (one, other):
            with Client(replica.address) as asking, pytest.raises(ApiError) as caught:
                asking.explain("broken", timeout_seconds=3)
            assert (caught.value.code.name, caught.value.message) == ("INTERNAL", "Explain: the scheduler failed to answer")
        basis = client.plan_basis(timeout_seconds=3)
        assert (basis.revision, basis.decisions, list(basis.rows)) == (11, 12, ["node-0", "", "node-2"])
        # The question itself arrives as it was asked.
        (pod,) = client.queue(namespace="space", name="web", timeout_seconds=3).pods
        assert (pod.namespace, pod.name, pod.queue) == ("space", "web", "active")


def test_what_pods_take_up_is_told_by_each_replica_whoever_leads(pair: tuple[Serving, Serving]) -> None:
    for replica in pair:
        with Client(replica.address) as client:
            found = client.allocated_resources("the first")
            assert (found.position, list(found.nodes), list(found.pods)) == ("after the first", ["node-0"], [2])
            for position, code, words in (
                ("too early", "UNAVAILABLE", "has no scheduler that has read the cluster"),
                ("broken", "INTERNAL", "GetAllocatedResources: the scheduler failed to answer"),
            ):
                with pytest.raises(ApiError) as caught:
                    client.allocated_resources(position, timeout_seconds=0.3)
                assert caught.value.code.name == code and words in caught.value.message


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (["a.io/x"] * 9, "resources: found 9 names, allowed are 8"),
        (["a.io/x", "b b"], 'resources: "b b" is not a valid key; allowed are'),
        (["x" * 100_000], "resources: the name part of"),
    ],
)
def test_resources_that_cannot_be_are_refused(pair: tuple[Serving, Serving], resources: list[str], words: str) -> None:
    with Client(pair[0].address) as client, pytest.raises(ApiError) as caught:
        client.allocated_resources(resources=resources)
    assert caught.value.code.name == "INVALID_ARGUMENT" and caught.value.message.startswith(words)
    assert len(caught.value.message) < 400


def test_a_binding_of_another_scheduler_reaches_the_leader_and_its_refusal_comes_back(pair: tuple[Serving, Serving]) -> None:
    one, other = pair
    with Client(other.address, timeout_seconds=0.3) as client:
        with pytest.raises(ApiError) as caught:
            client.bind("web", node="n", uid="7")
        assert caught.value.code.name == "UNAVAILABLE" and "nobody leads" in caught.value.message
        lead(one, one, other)
        found = client.bind("web", node="n", uid="7", timeout_seconds=3)
        assert (found.uid, found.revision) == ("7", 9)
    for replica in (one, other):
        with Client(replica.address) as client:
            for name, node, code in (("bound", "n", "ABORTED"), ("web", "full", "FAILED_PRECONDITION")):
                with pytest.raises(ApiError) as caught:
                    client.bind(name, node=node, timeout_seconds=3)
                assert caught.value.code.name == code and caught.value.leader_address == "", replica.address
            with pytest.raises(ApiError) as caught:
                client.bind("web", node="", timeout_seconds=3)
            assert caught.value.message == "node: is missing; a binding names a pod and a node"


@pytest.mark.parametrize(
    ("namespace", "name", "part"),
    [("a/b", "p", "namespace"), ("", "a/b", "name"), ("", "p\0", "name"), ("", "x" * 65_536, "name")],
)
@pytest.mark.row("B101")
def test_a_pod_that_cannot_be_is_refused_where_the_question_comes_in(
    pair: tuple[Serving, Serving], namespace: str, name: str, part: str
) -> None:
    with Client(pair[0].address) as client, pytest.raises(ApiError) as caught:
        client.explain(name, namespace=namespace)
    assert caught.value.code.name == "INVALID_ARGUMENT" and caught.value.message.startswith(f"{part} ")


def test_more_pods_of_the_queue_than_a_message_holds_are_refused(pair: tuple[Serving, Serving]) -> None:
    for limit in (-1, 2001):
        with Client(pair[0].address) as client, pytest.raises(ApiError) as caught:
            client.queue(limit=limit)
        assert caught.value.code.name == "INVALID_ARGUMENT"
        assert caught.value.message == f"limit: {limit}: allowed are 0 to 2000"


def test_a_question_passed_on_in_a_circle_ends_with_the_leaders_address(pair: tuple[Serving, Serving]) -> None:
    one, other = pair
    # Each believes that the other leads, as happens for a moment at a change.
    one.leadership.set(Leader("replica-1", other.address, 8))
    other.leadership.set(Leader("replica-0", one.address, 7))
    with Client(other.address) as client, pytest.raises(ApiError) as caught:
        client.scheduler_status()
    assert caught.value.code.name == "FAILED_PRECONDITION"
    with pytest.raises(grpc.RpcError) as refused:
        SchedulingStub(other.channel).GetSchedulerStatus(GetSchedulerStatusRequest(hops=3))  # type: ignore[no-untyped-call]
    error = api_error(refused.value, "")
    assert (error.code.name, error.leader_address) == ("FAILED_PRECONDITION", one.address)
    assert one.address in error.message


def test_a_leader_that_does_not_answer_is_unavailable(pair: tuple[Serving, Serving]) -> None:
    one, _ = pair
    one.leadership.set(Leader("replica-9", "127.0.0.1:1", 8))
    with Client(one.address, timeout_seconds=0.5) as client, pytest.raises(ApiError) as caught:
        client.scheduler_status()
    assert caught.value.code.name == "UNAVAILABLE" and "replica-9 at 127.0.0.1:1" in caught.value.message


def test_health_is_told_for_each_service_and_pushed_when_the_lead_changes(pair: tuple[Serving, Serving]) -> None:
    one, other = pair
    assert {service: one.health(service) for service in SERVICES} == {
        service: "NOT_SERVING" if service == "rayched.v1.Scheduling" else "SERVING" for service in SERVICES
    }
    assert one.health("") == "SERVING"
    with pytest.raises(grpc.RpcError) as caught:
        one.health("rayched.v1.Nothing")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    watch = health_pb2_grpc.HealthStub(one.channel).Watch(health_pb2.HealthCheckRequest(service="rayched.v1.Scheduling"))
    status = health_pb2.HealthCheckResponse
    assert next(watch).status == status.NOT_SERVING
    lead(one, one, other)
    assert next(watch).status == status.SERVING
    lead(other, one, other, epoch=8)
    assert next(watch).status == status.NOT_SERVING
    watch.cancel()


def test_health_turns_off_before_calls_are_refused(pair: tuple[Serving, Serving]) -> None:
    one, _ = pair
    one.run(one.server.announce_stop())
    assert {one.health(service) for service in (*SERVICES, "")} == {"NOT_SERVING"}
    with Client(one.address) as client:
        assert client.leader().answered_by == "replica-0"


def test_reflection_lists_every_service(pair: tuple[Serving, Serving]) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(pair[0].channel)
    requests = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    listed = {service.name for service in next(stub.ServerReflectionInfo(requests)).list_services_response.service}
    assert listed == SERVICES | {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    requests = iter([reflection_pb2.ServerReflectionRequest(file_containing_symbol="rayched.v1.Submission")])
    assert next(stub.ServerReflectionInfo(requests)).file_descriptor_response.file_descriptor_proto


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nowhere", "want host:port"),
        ("127.0.0.1:70000", "want host:port"),
        ("0.0.0.0:0", "not loopback"),
        ("192.0.2.1:7420", "not loopback"),
    ],
)
def test_an_address_that_cannot_be_listened_on_gives_one_line(etcd: EtcdServer, address: str, words: str) -> None:
    with pytest.raises(ListenError, match=words) as caught, serving(ServerOptions(address, [etcd.endpoint])):
        pass
    assert "\n" not in str(caught.value)


def test_a_port_in_use_gives_one_line(pair: tuple[Serving, Serving], etcd: EtcdServer) -> None:
    taken = pair[0].address
    with pytest.raises(ListenError) as caught, serving(ServerOptions(taken, [etcd.endpoint])):
        pass
    assert taken in str(caught.value) and "\n" not in str(caught.value)


def test_a_stopped_server_leaves_no_thread_behind(etcd: EtcdServer, etcd_root: str) -> None:
    before = set(threading.enumerate())
    with serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(etcd_root))) as server, Client(server.address) as client:
        client.leader()
        list(client.list("pods"))
        client.list_all("events")
    left = {thread.name for thread in set(threading.enumerate()) - before if not thread.name.startswith(("asyncio", "Thread-"))}
    assert left == set()
