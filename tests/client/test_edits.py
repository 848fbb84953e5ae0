"""Read, change, put back: what is made again when somebody else comes between, and what is not."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import pytest

from rayched.api.kinds import AnyObject
from rayched.client.calls import UnaryCall
from rayched.client.edits import Edit, annotation_edit, edited, label_edit, patch_edit
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.services_pb2 import ApplyRequest, ApplyResponse


def a_pod(version: str, **labels: str) -> Pod:
    return Pod(metadata={"name": "web", "namespace": "default", "uid": "u", "resource_version": version, "labels": labels})


def conflict(*, unanswered: bool = False) -> ApiError:
    error = ApiError(grpc.StatusCode.ABORTED, "read again")
    error.may_have_been_done = unanswered
    return error


def carried_out(edit: Edit, outcomes: Sequence[ApiError | None], *, repeatable: bool = True) -> list[Pod]:
    """What was sent, where the writes end so and each look shows a newer object. Raises what the steps raise."""
    steps = edited("pod", "web", "default", edit, False, repeatable=repeatable)
    sent: list[Pod] = []
    call: UnaryCall[object] = next(steps)
    try:
        for number, outcome in enumerate(outcomes):
            assert call.name == "Submission.Get"
            call = steps.send(a_pod(str(number), seen=str(number)))
            assert call.name == "Submission.Apply" and isinstance(call.request, ApplyRequest) and call.request.replace
            sent.append(call.request.object.pod)
            call = steps.send(ApplyResponse()) if outcome is None else steps.throw(outcome)
    except StopIteration:
        assert len(sent) == len(outcomes)
    return sent


def test_a_conflict_is_read_and_changed_again() -> None:
    sent = carried_out(label_edit({"a": "b"}, (), False), [conflict(), conflict(unanswered=True), None])
    assert [pod.metadata.resource_version for pod in sent] == ["0", "1", "2"]
    assert [dict(pod.metadata.labels) for pod in sent] == [{"seen": str(number), "a": "b"} for number in range(3)]


def test_what_must_not_be_made_twice_is_not() -> None:
    edit = patch_edit([{"op": "add", "path": "/metadata/labels/a", "value": "b"}], "json")
    assert len(carried_out(edit, [conflict(), None], repeatable=False)) == 2
    with pytest.raises(ApiError):
        carried_out(edit, [conflict(unanswered=True), None], repeatable=False)


def test_a_patch_that_insists_on_a_revision_is_not_tried_again() -> None:
    with pytest.raises(ApiError):
        carried_out(patch_edit({"metadata": {"resourceVersion": "7"}}, "merge"), [conflict(), None])


def test_other_errors_are_raised() -> None:
    with pytest.raises(ApiError, match="gone"):
        carried_out(label_edit({"a": "b"}, (), False), [ApiError(grpc.StatusCode.NOT_FOUND, "gone"), None])


@pytest.mark.parametrize("make", [annotation_edit, label_edit])
def test_another_value_is_kept_unless_it_may_be_replaced(make: object) -> None:
    assert callable(make)
    what = "annotations" if make is annotation_edit else "labels"
    pod = a_pod("1")
    getattr(pod.metadata, what)["a"] = "1"

    def values(item: AnyObject) -> dict[str, str]:
        return dict(getattr(item.metadata, what))

    with pytest.raises(ApiError) as refusal:
        make({"a": "2"}, (), False)(pod)
    assert refusal.value.code is grpc.StatusCode.FAILED_PRECONDITION and 'has value "1" already' in refusal.value.message
    assert values(make({"a": "1", "b": "2"}, (), False)(pod)) == {"a": "1", "b": "2"}
    assert values(make({"b": "2"}, ("a", "none"), True)(pod)) == {"b": "2"}
    assert values(pod) == {"a": "1"}


def test_whose_object_it_is_is_not_the_patchs_to_say() -> None:
    found = patch_edit({"metadata": {"name": "other", "uid": "x", "namespace": "y"}}, "strategic")(a_pod("3"))
    assert (found.metadata.name, found.metadata.namespace, found.metadata.uid) == ("web", "default", "u")
    assert found.metadata.resource_version == "3"


def test_a_strategic_patch_goes_by_the_kind_of_what_it_changes() -> None:
    node = Node(api_version="v1", kind="Node")
    node.metadata.name = "n"
    node.spec.taints.add(key="a", effect="NoSchedule")
    found = patch_edit({"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}, "strategic")(node)
    assert isinstance(found, Node)
    # A node's taints are replaced as a whole, and a pod's containers are known by their names.
    assert [taint.key for taint in found.spec.taints] == ["b"]
    pod = a_pod("3")
    pod.spec.containers.add(name="side", image="s:1")
    names = [one.name for one in pod.spec.containers]
    changed = patch_edit({"spec": {"containers": [{"name": "side", "image": "s:2"}]}}, "strategic")(pod)
    assert isinstance(changed, Pod)
    assert [one.name for one in changed.spec.containers] == names
    assert changed.spec.containers[-1].image == "s:2"
