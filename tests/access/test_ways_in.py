"""What a submitter may not say is refused on every way in, and nothing is written; what they may say is written on each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from rayched.api.kinds import AnyObject
from rayched.server.errors import ApiFailure
from rayched.v1.core_pb2 import Event, Pod
from rayched.v1.services_pb2 import LabelRequest, ObjectKey, ScaleRequest
from rayched.v1.workloads_pb2 import ReplicaSet
from tests.access.matrix import IDENTITIES, binding
from tests.access.services_over_model import ServicesOverModel
from tests.server.objects import a_namespace
from tests.server.objects import a_pod as a_plain_pod

Change = Callable[[Pod], object]

FAULTS: dict[str, tuple[Change, str]] = {
    "B64": (lambda pod: setattr(pod.spec, "node_name", "node-1"), "spec.nodeName"),
    "B65": (lambda pod: setattr(pod.spec, "priority_class_name", "high"), "spec.priorityClassName"),
    "B66": (lambda pod: setattr(pod.spec, "priority_class_name", "system-node-critical"), "spec.priorityClassName"),
    "B67": (lambda pod: setattr(pod.spec, "priority", 7), "spec.priority"),
    "B68": (
        lambda pod: pod.metadata.owner_references.add(api_version="apps/v1", kind="ReplicaSet", name="theirs", uid="uid-theirs"),
        "metadata.ownerReferences[0]",
    ),
    "B69": (
        lambda pod: pod.metadata.labels.update({"node-role.kubernetes.io/x": "1"}),
        'metadata.labels["node-role.kubernetes.io/x"]',
    ),
}


def a_pod(name: str, *changes: Change, namespace: str = "team-a") -> Pod:
    pod = a_plain_pod(name, namespace=namespace, uid=f"uid-{name}")
    for change in changes:
        change(pod)
    return pod


def a_replica_set(name: str, *changes: Change, namespace: str = "team-a", replicas: int = 1) -> ReplicaSet:
    pod = a_pod(name, *changes, namespace=namespace)
    found = ReplicaSet(metadata={"name": name, "namespace": namespace, "uid": f"uid-{name}"})
    found.spec.replicas = replicas
    found.spec.selector.match_labels["app"] = name
    found.spec.template.metadata.labels.update({**pod.metadata.labels, "app": name})
    found.spec.template.spec.CopyFrom(pod.spec)
    return found


def failure_of(work: Callable[[], Any]) -> ApiFailure:
    with pytest.raises(ApiFailure) as raised:
        work()
    return raised.value


def refused(services: ServicesOverModel, way: str, change: Change) -> tuple[str, list[str]]:
    """The code and the fields with which a way in refuses a pod that is changed so."""
    bad, good = a_pod("bad", change), a_pod("bad")
    match way:
        case "Submit" | "Submit, dry":
            failure = failure_of(lambda: services.submit("submitter", bad, dry_run=way != "Submit"))
        case "SubmitMany":
            (result,) = services.submit_many("submitter", bad).results
            return grpc_code(result.outcome.code), [one.field for one in result.outcome.violations]
        case "SubmitMany, pods alike were admitted":
            # As long a name, as pods alike are known by their length.
            for number in range(4):
                (admitted,) = services.submit_many("admin", a_pod(f"ba{number}", change)).results
                assert not admitted.outcome.code, admitted
            before = services.revision
            (result,) = services.submit_many("submitter", bad).results
            assert services.revision == before
            return grpc_code(result.outcome.code), [one.field for one in result.outcome.violations]
        case "Apply, new" | "Apply, new, dry":
            failure = failure_of(lambda: services.apply("submitter", bad, dry_run=way != "Apply, new"))
        case _:
            services.apply("submitter", good)
            before = services.revision
            failure = failure_of(lambda: services.apply("submitter", bad, dry_run=way != "Apply, there"))
            assert services.revision == before
    return str(failure.code.name), [one.field for one in failure.violations]


def grpc_code(number: int) -> str:
    return str(next(code.name for code in grpc.StatusCode if code.value[0] == number))


NEW = ("Submit", "Submit, dry", "SubmitMany", "SubmitMany, pods alike were admitted", "Apply, new", "Apply, new, dry")


def with_foreign_owner() -> ServicesOverModel:
    services = ServicesOverModel()
    services.submit("admin", a_replica_set("theirs", namespace="team-b"))
    services.show()
    return services


@pytest.mark.row("B64", "B65", "B66")
@pytest.mark.parametrize("way", NEW)
@pytest.mark.parametrize("row", FAULTS)
def test_a_new_pod_is_refused_by_the_field(row: str, way: str) -> None:
    services = with_foreign_owner()
    change, field = FAULTS[row]
    if row == "B67" and "alike" in way:
        pytest.skip("nobody is admitted with it: the class says another priority")
    keys = set(services.api.store.model.now)

    assert refused(services, way, change) == ("PERMISSION_DENIED", [field])

    assert not any(b"bad" in key for key in set(services.api.store.model.now) - keys)


@pytest.mark.row("B67", "B68", "B69")
@pytest.mark.parametrize("way", ["Apply, there", "Apply, there, dry"])
@pytest.mark.parametrize("row", FAULTS)
def test_a_pod_that_is_there_cannot_become_it(row: str, way: str) -> None:
    code, fields = refused(with_foreign_owner(), way, FAULTS[row][0])

    # What no pod may change at all is told as that.
    assert code in ("PERMISSION_DENIED", "INVALID_ARGUMENT") and fields


@pytest.mark.row("B64", "B65", "B66")
@pytest.mark.parametrize("row", [row for row in FAULTS if row not in ("B68", "B67")])
def test_a_controller_cannot_be_told_to_make_it(row: str) -> None:
    services = ServicesOverModel()
    change, field = FAULTS[row]
    path = field.replace("spec.", "spec.template.spec.", 1) if field.startswith("spec.") else f"spec.template.{field}"

    for work in (
        lambda: services.submit("submitter", a_replica_set("web", change)),
        lambda: services.apply("submitter", a_replica_set("web", change)),
        lambda: services.apply("submitter", a_replica_set("web", change), dry_run=True),
    ):
        failure = failure_of(work)
        assert (failure.code.name, [one.field for one in failure.violations]) == ("PERMISSION_DENIED", [path])
    (result,) = services.submit_many("submitter", a_replica_set("web", change)).results
    assert grpc_code(result.outcome.code) == "PERMISSION_DENIED"

    services.apply("submitter", a_replica_set("web"))
    failure = failure_of(lambda: services.apply("submitter", a_replica_set("web", change)))
    assert (failure.code.name, [one.field for one in failure.violations]) == ("PERMISSION_DENIED", [path])


@pytest.mark.row("B65")
def test_an_administrators_controller_is_not_for_a_submitter_to_grow() -> None:
    services = ServicesOverModel()
    services.submit("admin", a_replica_set("web", FAULTS["B65"][0]))
    services.submit("submitter", a_replica_set("mine"))

    def scale(column: str, name: str, replicas: int) -> Any:
        key = ObjectKey(kind="ReplicaSet", namespace="team-a", name=name)
        return services.do(column, "Admin.Scale", ScaleRequest(key=key, replicas=replicas))

    failure = failure_of(lambda: scale("submitter", "web", 5))
    assert failure.code is grpc.StatusCode.PERMISSION_DENIED
    assert [one.field for one in failure.violations] == ["spec.template.spec.priorityClassName"]
    assert scale("submitter", "mine", 5).changed
    assert scale("admin", "web", 5).changed


@pytest.mark.parametrize("column", ["submitter", "admin"])
def test_what_may_be_said_is_written_on_each_way(column: str) -> None:
    services = ServicesOverModel()

    services.submit(column, a_pod("one"))
    assert [result.outcome.code for result in services.submit_many(column, a_pod("two"), a_pod("three")).results] == [0, 0]
    services.apply(column, a_pod("four"))
    services.apply(column, a_pod("four", lambda pod: pod.metadata.labels.update({"app": "web"})))
    services.submit(column, a_replica_set("web"))
    services.apply(column, a_replica_set("web", replicas=3))

    stored = {pod.metadata.name for pod in services.api.store.model.pods().values()}
    assert stored == {"one", "two", "three", "four"}


@pytest.mark.row("B68")
def test_an_owner_of_the_same_namespace_may_be_named() -> None:
    services = ServicesOverModel()
    services.submit("submitter", a_replica_set("web"))
    own: Change = lambda pod: pod.metadata.owner_references.add(  # noqa: E731
        api_version="apps/v1", kind="ReplicaSet", name="web", uid="uid-web"
    )

    services.submit("submitter", a_pod("one", own))
    assert services.submit_many("submitter", a_pod("two", own)).results[0].outcome.code == 0
    services.apply("submitter", a_pod("three", own))


@pytest.mark.row("B46")
def test_each_of_many_is_judged_by_its_own_namespace_and_kind() -> None:
    services = ServicesOverModel()
    foreign = a_pod("b", namespace="team-b")

    results = services.submit_many("submitter", a_pod("a"), foreign, a_namespace("team-c"), a_pod("c")).results

    assert [grpc_code(result.outcome.code) for result in results] == ["OK", "PERMISSION_DENIED", "PERMISSION_DENIED", "OK"]
    assert "that needs the role submitter in namespace team-b or admin; it has submitter" in results[1].outcome.message


def event_of(namespace: str) -> Event:
    event = Event(metadata={"name": "web.1", "namespace": namespace}, reason="Killing", type="Normal")
    event.involved_object.kind, event.involved_object.namespace, event.involved_object.name = "Pod", namespace, "web"
    event.source.component, event.source.host = "default-scheduler", "node-1"
    return event


@pytest.mark.row("B71")
@pytest.mark.parametrize("column", ["operator", "admin"])
def test_the_source_of_an_event_is_who_reports_it(column: str) -> None:
    services = ServicesOverModel()

    answer = services.submit(column, event_of("team-a"))

    assert answer.object.event.source.component == IDENTITIES[column]
    assert answer.object.event.source.host == ""


@pytest.mark.row("B72")
@pytest.mark.parametrize("overwrite", [False, True])
def test_labels_of_others_and_of_the_cluster_stay(overwrite: bool) -> None:
    services = ServicesOverModel()
    for namespace in ("team-a", "team-b"):
        services.submit("admin", a_pod(f"of-{namespace}", namespace=namespace))

    def label(namespace: str, key: str) -> Any:
        target = ObjectKey(kind="Pod", namespace=namespace, name=f"of-{namespace}")
        request = LabelRequest(key=target, set={key: "1"}, overwrite=overwrite)
        return services.do("submitter", "Admin.Label", request)

    before = services.revision
    assert failure_of(lambda: label("team-b", "app")).code is grpc.StatusCode.PERMISSION_DENIED
    failure = failure_of(lambda: label("team-a", "node-role.kubernetes.io/x"))
    assert failure.code is grpc.StatusCode.PERMISSION_DENIED
    assert [one.field for one in failure.violations] == ['metadata.labels["node-role.kubernetes.io/x"]']
    assert services.revision == before
    assert label("team-a", "app").changed


@pytest.mark.row("B70")
def test_a_uid_of_another_namespace_is_no_obstacle_and_tells_nothing() -> None:
    services = ServicesOverModel()
    secret = a_pod("secret-name", lambda pod: setattr(pod.metadata, "uid", "uid-1"), namespace="team-b")
    services.submit("admin", secret)
    mine = a_pod("mine")
    mine.metadata.uid = secret.metadata.uid

    answer = services.submit("submitter", mine)
    assert answer.uid == answer.object.pod.metadata.uid != secret.metadata.uid and kept_by(services, mine)
    assert b"secret-name" not in answer.SerializeToString() and b"team-b" not in answer.SerializeToString()
    assert services.submit("submitter", mine).uid == answer.uid
    # The object itself, by whoever may not see it: nothing of the answer that was given to another one.
    again = failure_of(lambda: services.submit("submitter", secret))
    assert again.code is grpc.StatusCode.PERMISSION_DENIED
    (result,) = services.submit_many("submitter", secret).results
    assert grpc_code(result.outcome.code) == "PERMISSION_DENIED" and not result.uid and not result.revision


def kept_by(services: ServicesOverModel, message: AnyObject) -> bool:
    return services.api.stored(message) is not None


@pytest.mark.row("B66")
def test_a_class_of_the_system_is_not_for_submitters_of_its_namespace_either() -> None:
    services = ServicesOverModel()
    services.guard.authorizer.table.changed(_also("submitter", "submitter", "kube-system"))
    critical = a_pod("critical", FAULTS["B66"][0], namespace="kube-system")

    failure = failure_of(lambda: services.submit("submitter", critical))

    assert failure.code is grpc.StatusCode.PERMISSION_DENIED and not kept_by(services, critical)


def _also(column: str, role: str, *namespaces: str) -> list[tuple[bytes, bytes | None]]:
    found = binding(column, role, *namespaces)
    return [(f"/rayched/access/bindings/{found.id}".encode(), found.to_message().SerializeToString())]
