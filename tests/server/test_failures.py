"""Every refusal has its documented code, one line that says what to do, and changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from rayched.api.errors import FieldError
from rayched.api.kinds import UnknownKind, wrap
from rayched.client.errors import ApiError, api_error
from rayched.server.admission.write_gate import WriteGate
from rayched.server.call_guard import insecure_guard
from rayched.server.edge.edge import Edge, EdgePorts
from rayched.server.edge.limits import EdgeLimits
from rayched.server.errors import ApiFailure, Code, failure_of, invalid_fields, one_line, trailers
from rayched.server.rpc import handler_of
from rayched.store.codec import PoisonedObject
from rayched.store.errors import Compacted, FutureRevision, RequestTooLarge, StoreBusy, StoreFull, StoreUnavailable
from rayched.v1 import services_pb2 as messages
from rayched.v1.services_pb2_grpc import AdminStub, NodesStub, SubmissionStub, WatchStub
from rayched.v1.workloads_pb2 import Object
from tests.server.objects import a_node, a_pod
from tests.server.serving import Serving

STUBS = {"Submission": SubmissionStub, "Watch": WatchStub, "Nodes": NodesStub, "Admin": AdminStub}


def a_key(kind: str = "Pod", name: str = "web", namespace: str = "") -> messages.ObjectKey:
    return messages.ObjectKey(kind=kind, name=name, namespace=namespace)


def changed_pod(**fields: Any) -> Object:
    """A pod with metadata fields set."""
    item = wrap(a_pod("web"))
    for name, setting in fields.items():
        setattr(item.pod.metadata, name, setting)
    return item


@dataclass(frozen=True)
class Refusal:
    """A request, the code it must get, and words its message must have."""

    call: str
    request: Message
    code: str
    words: Iterable[str]


REFUSALS = [
    Refusal("Submission.Submit", messages.SubmitRequest(), "INVALID_ARGUMENT", ["empty"]),
    Refusal("Submission.Submit", messages.SubmitRequest(object=Object()), "INVALID_ARGUMENT", ["empty"]),
    Refusal("Submission.Submit", messages.SubmitRequest(object=changed_pod(name="")), "INVALID_ARGUMENT", ["metadata.name"]),
    Refusal(
        "Submission.Submit", messages.SubmitRequest(object=changed_pod(name="Web")), "INVALID_ARGUMENT", ["metadata.name", "Web"]
    ),
    Refusal(
        "Submission.Submit",
        messages.SubmitRequest(object=changed_pod(namespace="a/b")),
        "INVALID_ARGUMENT",
        ["metadata.namespace"],
    ),
    Refusal(
        "Submission.Submit",
        messages.SubmitRequest(object=changed_pod(namespace="no")),
        "NOT_FOUND",
        ["namespace no does not exist"],
    ),
    Refusal(
        "Submission.Submit",
        messages.SubmitRequest(object=changed_pod(resource_version="1")),
        "INVALID_ARGUMENT",
        ["resourceVersion"],
    ),
    Refusal("Submission.Submit", messages.SubmitRequest(object=changed_pod(uid="a/b")), "INVALID_ARGUMENT", ["uid"]),
    Refusal("Submission.Submit", messages.SubmitRequest(object=wrap(a_pod("w", cpu="2x"))), "INVALID_ARGUMENT", ["cpu", "2x"]),
    Refusal("Submission.Apply", messages.ApplyRequest(), "INVALID_ARGUMENT", ["empty"]),
    Refusal("Submission.Apply", messages.ApplyRequest(object=changed_pod(name="")), "INVALID_ARGUMENT", ["name"]),
    Refusal("Submission.Get", messages.GetRequest(), "INVALID_ARGUMENT", ["kind"]),
    Refusal("Submission.Get", messages.GetRequest(key=a_key("Deployment")), "INVALID_ARGUMENT", ["Deployment", "Pod"]),
    Refusal("Submission.Get", messages.GetRequest(key=a_key(name="")), "INVALID_ARGUMENT", ["name"]),
    Refusal("Submission.Get", messages.GetRequest(key=a_key(name="a/b")), "INVALID_ARGUMENT", ["a/b"]),
    Refusal("Submission.Get", messages.GetRequest(key=a_key("Node", namespace="x")), "INVALID_ARGUMENT", ["namespace"]),
    Refusal("Submission.Get", messages.GetRequest(key=a_key(name="none")), "NOT_FOUND", ["Pod default/none"]),
    Refusal("Submission.List", messages.ListRequest(), "INVALID_ARGUMENT", ["kind"]),
    Refusal("Submission.List", messages.ListRequest(kind="Pod", limit=-1), "INVALID_ARGUMENT", ["limit"]),
    Refusal("Submission.List", messages.ListRequest(kind="Node", namespace="x"), "INVALID_ARGUMENT", ["namespace"]),
    Refusal("Submission.List", messages.ListRequest(kind="Pod", label_selector="a in"), "INVALID_ARGUMENT", ["a in"]),
    Refusal(
        "Submission.List", messages.ListRequest(kind="Pod", label_selector="a" * 20_000), "INVALID_ARGUMENT", ["label_selector"]
    ),
    Refusal(
        "Submission.List", messages.ListRequest(kind="Pod", field_selector="spec.color=red"), "INVALID_ARGUMENT", ["spec.color"]
    ),
    Refusal("Submission.List", messages.ListRequest(kind="Pod", **{"continue": "%%%"}), "INVALID_ARGUMENT", ["continue"]),
    Refusal("Submission.Delete", messages.DeleteRequest(key=a_key(name="none")), "NOT_FOUND", ["none"]),
    Refusal(
        "Submission.Delete",
        messages.DeleteRequest(key=a_key(), grace_period_seconds=-1),
        "INVALID_ARGUMENT",
        ["grace_period_seconds"],
    ),
    Refusal("Submission.Delete", messages.DeleteRequest(key=a_key("Namespace", "default")), "FAILED_PRECONDITION", ["default"]),
    Refusal("Watch.Watch", messages.WatchRequest(kind="Deployment"), "INVALID_ARGUMENT", ["Deployment"]),
    Refusal("Watch.Watch", messages.WatchRequest(start_revision=-1), "INVALID_ARGUMENT", ["start_revision"]),
    Refusal("Watch.Watch", messages.WatchRequest(label_selector="=,="), "INVALID_ARGUMENT", []),
    Refusal("Watch.Watch", messages.WatchRequest(field_selector="spec.nodeName=a"), "INVALID_ARGUMENT", ["without a kind"]),
    Refusal("Watch.Watch", messages.WatchRequest(kind="Pod", start_revision=10**12), "OUT_OF_RANGE", ["future", "list again"]),
    Refusal("Nodes.Register", messages.RegisterNodeRequest(), "INVALID_ARGUMENT", ["name"]),
    Refusal("Nodes.Register", messages.RegisterNodeRequest(node=a_node("n", cpu="-1")), "INVALID_ARGUMENT", ["cpu"]),
    Refusal(
        "Nodes.Heartbeat", messages.HeartbeatRequest(nodes=map(str, range(10_001))), "RESOURCE_EXHAUSTED", ["10001", "10000"]
    ),
    Refusal("Nodes.UpdateNodeStatus", messages.UpdateNodeStatusRequest(name="none"), "NOT_FOUND", ["Node none"]),
    Refusal("Nodes.UpdateNodeStatus", messages.UpdateNodeStatusRequest(), "INVALID_ARGUMENT", ["name"]),
    Refusal(
        "Nodes.UpdatePodStatus",
        messages.UpdatePodStatusRequest(updates=[messages.PodStatusUpdate()] * 1001),
        "RESOURCE_EXHAUSTED",
        ["1001", "1000"],
    ),
    Refusal("Admin.Cordon", messages.CordonRequest(node="none"), "NOT_FOUND", ["Node none"]),
    Refusal("Admin.Taint", messages.TaintRequest(node="none"), "INVALID_ARGUMENT", ["at least one taint"]),
    Refusal("Admin.Label", messages.LabelRequest(key=a_key(name="none"), set={"a": "b"}), "NOT_FOUND", ["none"]),
    Refusal("Admin.Label", messages.LabelRequest(key=a_key()), "INVALID_ARGUMENT", ["at least one label"]),
]


@pytest.mark.cluster
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: f"{refusal.call}-{refusal.code}")
def test_a_bad_request_gets_its_code_and_one_line(refusal: Refusal, api: Serving, caplog: pytest.LogCaptureFixture) -> None:
    service, method = refusal.call.split(".")
    call = getattr(STUBS[service](api.channel), method)
    with pytest.raises(grpc.RpcError) as caught, caplog.at_level(logging.ERROR):
        answer = call(refusal.request, timeout=30)
        if service == "Watch":
            list(answer)
    error = api_error(caught.value, "")
    assert error.code.name == refusal.code, error
    assert "\n" not in error.message
    for word in refusal.words:
        assert word in error.message
    assert not caplog.records


@pytest.mark.cluster
def test_bytes_that_are_no_message_are_refused_and_no_later_call_suffers(api: Serving) -> None:
    for service, method in (("Submission", "Submit"), ("Submission", "SubmitMany"), ("Nodes", "Heartbeat"), ("Admin", "Label")):
        raw = api.channel.unary_unary(f"/rayched.v1.{service}/{method}")
        for data in (b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x02\xff\xfe"):
            with pytest.raises(grpc.RpcError) as caught:
                raw(data, timeout=30)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    raw_stream = api.channel.unary_stream("/rayched.v1.Watch/Watch")
    with pytest.raises(grpc.RpcError) as caught:
        list(raw_stream(b"\xff", timeout=30))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.RpcError) as caught:
        api.channel.unary_unary("/rayched.v1.Submission/Guess")(b"", timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert api.health("rayched.v1.Submission") == "SERVING"


@pytest.mark.cluster
def test_all_that_is_wrong_with_a_pod_is_told_at_once(api: Serving) -> None:
    pod = a_pod("Web", labels={"bad key!": "x"}, cpu="2x")
    pod.spec.restart_policy = "Sometimes"
    pod.spec.priority_class_name = "none"
    pod.spec.tolerations.add(operator="Like")
    with pytest.raises(grpc.RpcError) as caught:
        STUBS["Submission"](api.channel).Submit(messages.SubmitRequest(object=wrap(pod)), timeout=30)  # type: ignore[no-untyped-call]
    violations = api_error(caught.value, "").violations
    assert {violation.object for violation in violations} == {"Pod default/Web"}
    assert {violation.field for violation in violations} >= {
        "metadata.name",
        'metadata.labels["bad key!"]',
        'spec.containers[0].resources.requests["cpu"]',
        "spec.restartPolicy",
        "spec.priorityClassName",
        "spec.tolerations[0].operator",
    }


# --------------------------------------------------------------------------------------------------------- without a server


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownKind("no"), Code.INVALID_ARGUMENT),
        (PoisonedObject(b"key", 3, "does not parse"), Code.DATA_LOSS),
        (Compacted("gone", 7), Code.OUT_OF_RANGE),
        (FutureRevision("early"), Code.OUT_OF_RANGE),
        (RequestTooLarge("large"), Code.RESOURCE_EXHAUSTED),
        (StoreFull("full"), Code.RESOURCE_EXHAUSTED),
        (StoreBusy("busy"), Code.UNAVAILABLE),
        (StoreUnavailable("down"), Code.UNAVAILABLE),
    ],
)
def test_what_the_store_raises_has_a_code(error: Exception, code: grpc.StatusCode) -> None:
    failure = failure_of(error, "Submission.Submit")
    assert failure.code is code
    assert str(error) in failure.message


def test_a_bug_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    failure = failure_of(RuntimeError("secret detail"), "Submission.Submit")
    assert failure.code is Code.INTERNAL
    assert "secret detail" not in failure.message
    assert "secret detail" in caplog.text


@pytest.mark.parametrize("count", [1, 10, 500])
def test_details_fit_into_a_trailer_and_the_last_counts_the_rest(count: int) -> None:
    errors = [FieldError(f"spec.containers[{i}].image", "x" * 40) for i in range(count)]
    failure = invalid_fields("Pod default/web", errors)
    ((key, data),) = trailers(failure)
    assert len(data) + len(one_line(failure.message)) < 8000

    class Refused(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return failure.code

        def details(self) -> str:
            return one_line(failure.message)

        def trailing_metadata(self) -> list[tuple[str, bytes]]:
            return [(key, data)]

    violations = api_error(Refused(), "").violations
    if count < 50:
        assert len(violations) == count
    else:
        left_out = int(violations[-1].message.removeprefix("and ").removesuffix(" more"))
        assert len(violations) - 1 + left_out == count
        assert len(violations) > 40
    assert len(failure.outcome().violations) == count


def test_an_error_of_the_client_is_one_line_with_its_code() -> None:
    assert str(ApiError(Code.NOT_FOUND, "Pod default/web not found")) == "Pod default/web not found (NOT_FOUND)"
    assert one_line("a\n b") == "a b"
    assert isinstance(ApiFailure(Code.ABORTED, "x"), Exception)


def test_a_service_without_a_method_for_each_call_does_not_start() -> None:
    guard = insecure_guard()
    edge = Edge(EdgeLimits(), EdgePorts(guard.identify, guard.authorize))
    with pytest.raises(TypeError, match=r"Admin\.Cordon"):
        handler_of(messages.DESCRIPTOR.services_by_name["Admin"], object(), WriteGate(), edge, guard)
