"""Submissions over real gRPC and etcd: the same uid gives the same answer, and admission does what it says."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.client import ApiError, Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.keys import Keys, prefix_end
from rayched.v1.core_pb2 import Namespace, Pod
from rayched.v1.services_pb2 import ApplyResponse, SubmitManyRequest
from rayched.v1.services_pb2_grpc import SubmissionStub
from rayched.v1.storage_pb2 import SubmissionRecord
from rayched.v1.workloads_pb2 import Object, PodGroup
from tests.server.objects import a_namespace, a_node, a_pod, a_priority_class, a_runtime_class
from tests.server.serving import Serving, until

pytestmark = pytest.mark.cluster


def code_of(caught: pytest.ExceptionInfo[ApiError]) -> str:
    return str(caught.value.code.name)


def keys_below(etcd: EtcdServer, prefix: bytes) -> list[bytes]:
    with open_channel([etcd.endpoint]) as channel:
        answer = rpc.KVStub(channel).Range(rpc.RangeRequest(key=prefix, range_end=prefix_end(prefix), keys_only=True))
        return [pair.key for pair in answer.kvs]


def test_a_submission_is_stored_with_its_defaults(client: Client, name: str) -> None:
    answer = client.submit(a_pod(name))
    stored = client.get("pods", name)
    assert answer.object.pod == stored
    assert isinstance(stored, Pod)
    assert stored.metadata.resource_version == str(answer.revision)
    assert stored.metadata.uid == answer.uid
    assert (stored.metadata.generation, stored.spec.scheduler_name, stored.status.phase) == (1, "default-scheduler", "Pending")
    assert stored.metadata.creation_timestamp.seconds > 0


def test_the_same_uid_ten_times_at_once_is_one_object_and_one_answer(client: Client, name: str) -> None:
    pod = a_pod(name, uid=f"uid-{name}")
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: client.submit(pod), range(10)))
    assert all(answer == answers[0] for answer in answers)
    many = client.submit_many([pod] * 10)
    assert {(result.revision, result.error) for result in many} == {(answers[0].revision, None)}


def test_the_answer_stays_the_same_after_the_object_has_changed_and_gone(client: Client, name: str) -> None:
    pod = a_pod(name, uid=f"uid-{name}")
    first = client.submit(pod)
    client.label("pods", name, add={"changed": "yes"})
    assert client.submit(pod) == first
    client.delete("pods", name)
    assert client.submit(pod) == first
    with pytest.raises(ApiError) as caught:
        client.get("pods", name)
    assert code_of(caught) == "NOT_FOUND"


def test_the_answer_stays_the_same_after_what_it_referred_to_has_gone(client: Client, name: str) -> None:
    client.submit(a_priority_class(name, 1000))
    client.submit(a_namespace(name))
    pod = a_pod(name, namespace=name, uid=f"uid-{name}")
    pod.spec.priority_class_name = name
    first = client.submit(pod)
    client.delete("pods", name, name)
    client.delete("namespaces", name)
    client.delete("priorityclasses", name)
    assert client.submit(pod).revision == first.revision
    with pytest.raises(ApiError) as caught:
        client.submit(a_pod(f"{name}-2", namespace=name))
    assert code_of(caught) == "NOT_FOUND"


def test_the_same_uid_with_other_content_is_refused_and_names_the_object(client: Client, name: str) -> None:
    client.submit(a_pod(name, uid=f"uid-{name}"))
    for other in (a_pod(name, uid=f"uid-{name}", cpu="200m"), a_pod(f"{name}-2", uid=f"uid-{name}")):
        with pytest.raises(ApiError) as caught:
            client.submit(other)
        assert code_of(caught) == "ALREADY_EXISTS"
        assert f"Pod default/{name}" in caught.value.message
    client.delete("pods", name)
    with pytest.raises(ApiError) as caught:
        client.submit(a_pod(name, uid=f"uid-{name}", cpu="200m"))
    assert "which was deleted" in caught.value.message


def test_a_record_of_a_submission_expires_only_when_its_object_is_deleted(
    client: Client, name: str, etcd: EtcdServer, keys: Keys
) -> None:
    def record() -> SubmissionRecord:
        with open_channel([etcd.endpoint]) as channel:
            answer = rpc.KVStub(channel).Range(rpc.RangeRequest(key=keys.submission(f"uid-{name}")))
            return SubmissionRecord.FromString(answer.kvs[0].value)

    client.submit(a_pod(name, uid=f"uid-{name}"))
    assert record().expires_at_ms == 0
    client.delete("pods", name)
    assert 3_500_000 < record().expires_at_ms - 1000 * time.time() <= 3_700_000


def test_entries_of_a_batch_have_outcomes_of_their_own(client: Client, name: str) -> None:
    client.submit(a_pod(name))
    results = client.submit_many(
        [
            a_pod(f"{name}-a"),
            a_pod(name),
            a_pod(f"{name}-b", cpu="2x"),
            a_pod(f"{name}-a", cpu="1"),
            a_pod(f"{name}-c", namespace="nowhere"),
            a_pod("Upper"),
            a_pod(f"{name}-d"),
        ]
    )
    codes = [result.error.code.name if result.error else "OK" for result in results]
    assert codes == ["OK", "ALREADY_EXISTS", "INVALID_ARGUMENT", "ALREADY_EXISTS", "NOT_FOUND", "INVALID_ARGUMENT", "OK"]
    assert results[2].error is not None
    assert [violation.field for violation in results[2].error.violations] == ['spec.containers[0].resources.requests["cpu"]']
    assert {pod.metadata.name for pod in client.list("pods") if pod.metadata.name.startswith(name)} == {
        name,
        f"{name}-a",
        f"{name}-d",
    }


def test_a_batch_may_bring_what_its_own_objects_refer_to(client: Client, name: str) -> None:
    pod = a_pod(name, namespace=name)
    pod.spec.priority_class_name = name
    results = client.submit_many([pod, a_priority_class(name, 77), a_namespace(name)])
    assert [result.error for result in results] == [None] * 3
    stored = client.get("pods", name, name)
    assert isinstance(stored, Pod) and stored.spec.priority == 77


def test_a_generated_name_is_kept_for_the_uid(client: Client, name: str) -> None:
    pod = a_pod("", uid=f"uid-{name}")
    pod.metadata.generate_name = f"{name}-"
    first, second = client.submit(pod), client.submit(pod)
    assert first == second
    generated = first.object.pod.metadata.name
    assert generated.startswith(f"{name}-") and len(generated) == len(name) + 6
    other = a_pod("")
    other.metadata.generate_name = f"{name}-"
    assert client.submit(other).object.pod.metadata.name != generated


@pytest.mark.row("K9.5")
def test_a_priority_class_is_resolved_and_an_unknown_one_refused(client: Client, name: str) -> None:
    client.submit(a_priority_class(name, 500))
    pod = a_pod(name)
    pod.spec.priority_class_name = name
    assert client.submit(pod).object.pod.spec.priority == 500
    pod = a_pod(f"{name}-2")
    pod.spec.priority_class_name = "no-such-class"
    with pytest.raises(ApiError) as caught:
        client.submit(pod)
    assert code_of(caught) == "INVALID_ARGUMENT"
    assert [violation.field for violation in caught.value.violations] == ["spec.priorityClassName"]


@pytest.mark.row("K9.3")
def test_deleting_a_priority_class_keeps_its_pods_and_refuses_new_ones(client: Client, name: str, api: Serving) -> None:
    made = client.submit(a_priority_class(name, 500)).revision
    until(lambda: api.hub.revision >= made)
    pod = a_pod(name)
    pod.spec.priority_class_name = name
    client.submit(pod)
    gone = client.delete("priorityclasses", name).revision
    until(lambda: api.hub.revision >= gone)
    stored = client.get("pods", name)
    assert isinstance(stored, Pod) and stored.spec.priority == 500
    pod.metadata.name = f"{name}-2"
    with pytest.raises(ApiError):
        client.submit(pod)


@pytest.mark.row("K9.2")
def test_a_default_class_is_for_new_pods_only(client: Client, name: str, api: Serving) -> None:
    def priority_of_new_pod(number: int) -> int:
        return client.submit(a_pod(f"{name}-{number}")).object.pod.spec.priority

    assert priority_of_new_pod(0) == 0
    made = client.submit(a_priority_class(name, 300, is_default=True)).revision
    until(lambda: api.hub.revision >= made)
    assert priority_of_new_pod(1) == 300
    stored = client.get("pods", f"{name}-0")
    assert isinstance(stored, Pod) and stored.spec.priority == 0
    gone = client.delete("priorityclasses", name).revision
    until(lambda: api.hub.revision >= gone)
    assert priority_of_new_pod(2) == 0


@pytest.mark.row("K9.2")
def test_a_second_default_class_is_refused_however_it_comes(client: Client, name: str) -> None:
    client.submit(a_priority_class(name, 300, is_default=True))
    other = a_priority_class(f"{name}-other", 400, is_default=True)
    for call in (client.submit, client.apply):
        with pytest.raises(ApiError, match=f"globalDefault: PriorityClass {name} is the default already; there can be one"):
            call(other)
    client.submit(a_priority_class(f"{name}-other", 400))
    with pytest.raises(ApiError, match="is the default already"):
        client.apply(other)
    # The default itself may be applied again, and leave the place to another.
    client.apply(a_priority_class(name, 300, is_default=True))
    client.delete("priorityclasses", name)
    twins = client.submit_many([a_priority_class(f"{name}-{number}", number, is_default=True) for number in range(2)])
    assert [twin.error is None for twin in twins] == [True, False]
    for gone in (f"{name}-0", f"{name}-other"):
        client.delete("priorityclasses", gone)


@pytest.mark.row("K3.1")
def test_the_overhead_of_a_runtime_class_is_added_and_no_other_taken(client: Client, name: str) -> None:
    client.submit(a_runtime_class(name, cpu="250m", memory="120Mi"))
    pod = a_pod(name)
    pod.spec.runtime_class_name = name
    assert client.submit(pod).object.pod.spec.overhead["cpu"].string == "250m"
    pod.metadata.name = f"{name}-2"
    pod.spec.overhead["cpu"].string = "1"
    with pytest.raises(ApiError) as caught:
        client.submit(pod)
    assert [violation.field for violation in caught.value.violations] == ["spec.overhead"]


def test_a_pod_that_is_applied_again_keeps_the_overhead_that_a_runtime_class_gave_it(client: Client, name: str) -> None:
    client.submit(a_runtime_class(name, cpu="250m"))
    pod = a_pod(name)
    pod.spec.runtime_class_name = name
    assert client.apply(pod).action == ApplyResponse.CREATED
    client.delete("runtimeclasses", name)
    again = client.apply(pod)
    assert again.action == ApplyResponse.UNCHANGED
    assert again.object.pod.spec.overhead["cpu"].string == "250m"


def test_pods_of_one_template_are_judged_alike_and_by_their_own_names(client: Client, name: str) -> None:
    pods = [a_pod(f"{name}-{i}", labels={"app": name}) for i in range(5)]
    pods[3].metadata.name = "Not Allowed"
    pods[4].metadata.uid = "-"
    results = client.submit_many(pods)
    assert [result.error is None for result in results] == [True, True, True, False, False]
    assert results[3].error is not None and results[4].error is not None
    assert [violation.field for violation in results[3].error.violations] == ["metadata.name"]
    assert [violation.field for violation in results[4].error.violations] == ["metadata.uid"]
    stored = [client.get("pods", f"{name}-{i}") for i in range(3)]
    for i, pod in enumerate(stored):
        assert pod.metadata.uid == results[i].uid
        pod.metadata.ClearField("name"), pod.metadata.ClearField("uid"), pod.metadata.ClearField("resource_version")
        pod.metadata.ClearField("creation_timestamp")
    assert stored[0] == stored[1] == stored[2]


def test_a_status_is_left_out_with_a_warning_except_a_nodes(client: Client, name: str) -> None:
    pod = a_pod(name)
    pod.status.phase = "Running"
    answer = client.submit(pod)
    assert answer.object.pod.status.phase == "Pending"
    assert len(answer.warnings) == 1 and "status" in answer.warnings[0]
    node = client.submit(a_node(name))
    assert node.object.node.status.allocatable["cpu"].string == "4"
    assert not node.warnings


def test_nothing_is_stored_by_a_dry_run(client: Client, name: str, etcd: EtcdServer, keys: Keys) -> None:
    before = keys_below(etcd, keys.root.encode())
    answer = client.submit(a_pod(name), dry_run=True)
    assert answer.object.pod.spec.scheduler_name == "default-scheduler"
    assert client.apply(a_pod(name), dry_run=True).object.pod.status.phase == "Pending"
    assert keys_below(etcd, keys.root.encode()) == before
    client.submit(a_pod(name))
    with pytest.raises(ApiError) as caught:
        client.submit(a_pod(name), dry_run=True)
    assert code_of(caught) == "ALREADY_EXISTS"


def test_nothing_is_stored_of_what_was_refused(client: Client, name: str, etcd: EtcdServer, keys: Keys) -> None:
    before = keys_below(etcd, keys.root.encode())
    refused = [a_pod(name, cpu="2x"), a_pod(name, namespace="nowhere"), a_pod("Upper"), a_node("no_de")]
    results = client.submit_many(refused)
    assert all(result.error is not None for result in results)
    assert keys_below(etcd, keys.root.encode()) == before


def test_the_systems_namespaces_are_there(client: Client) -> None:
    for name in ("default", "kube-system"):
        namespace = client.get("namespaces", name)
        assert isinstance(namespace, Namespace) and namespace.status.phase == "Active"


@pytest.mark.row("K2.12")
def test_a_pod_may_name_its_node_itself(client: Client, name: str) -> None:
    assert client.submit(a_pod(name, node="node-that-may-come")).object.pod.spec.node_name == "node-that-may-come"


def test_limits_are_told_in_one_line(api: Serving, client: Client, name: str) -> None:
    stub = SubmissionStub(api.channel)  # type: ignore[no-untyped-call]
    large = a_pod(name)
    for size, start, limit in (
        (1 << 20, f"Pod default/{name}: 1048", "262144"),
        (2 << 20, "Submission.Submit: a request of", "1310720"),
    ):
        large.metadata.annotations["pad"] = "x" * size
        with pytest.raises(ApiError) as caught:
            client.submit(large)
        assert code_of(caught) == "RESOURCE_EXHAUSTED"
        assert caught.value.message.startswith(start) and limit in caught.value.message
    with pytest.raises(grpc.RpcError) as refused:
        stub.SubmitMany(SubmitManyRequest(objects=[Object(pod=a_pod(f"{name}-{i}")) for i in range(101)]))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "101 in one batch, at most 100" in refused.value.details()
    pad = a_pod(name)
    pad.metadata.annotations["pad"] = "x" * 100_000
    with pytest.raises(grpc.RpcError) as refused:
        stub.SubmitMany(SubmitManyRequest(objects=[Object(pod=pad)] * 12))
    assert "at most 1048576 (1 MiB)" in refused.value.details()


def test_many_large_pods_are_cut_into_batches(client: Client, name: str) -> None:
    pods = [a_pod(f"{name}-{i}") for i in range(12)]
    for pod in pods:
        pod.metadata.annotations["pad"] = "x" * 200_000
    assert [result.error for result in client.submit_many(pods)] == [None] * 12


@pytest.mark.row("G7")
def test_deleting_a_pod_group_marks_it_and_leaves_it_to_the_leader(client: Client, name: str) -> None:
    group = PodGroup(metadata={"name": name, "namespace": "default"})
    group.spec.scheduling_policy.basic.SetInParent()
    made = client.submit(group)
    first = client.delete("podgroups", name)
    stored = client.get("podgroups", name)
    assert isinstance(stored, PodGroup) and stored.metadata.uid == made.uid
    assert stored.metadata.HasField("deletion_timestamp") and stored.metadata.resource_version == str(first.revision)
    # Asked once more it stays as it is.
    assert client.delete("podgroups", name).revision == first.revision
    with pytest.raises(ApiError) as caught:
        client.submit(group)
    assert code_of(caught) == "ALREADY_EXISTS"
