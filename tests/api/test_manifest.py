"""Manifests: genuine ones are read, everything odd is named, and what is written is what was read."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings

from rayched.api import kinds
from rayched.api.defaulting import default
from rayched.api.manifest import (
    ManifestErrors,
    read_documents,
    read_object,
    read_text,
    write_json,
    write_object,
    write_text,
)
from rayched.v1.core_pb2 import Pod
from tests.api.random_objects import SEEDS, random_object

DEPLOYED_POD = """
apiVersion: v1
kind: Pod
metadata:
  annotations: {note: "as kubectl shows it"}
  creationTimestamp: "2025-01-31T12:00:00Z"
  labels: {app: web}
  managedFields: [{manager: kubectl, operation: Update}]
  name: web-0
  namespace: prod
  ownerReferences:
  - {apiVersion: apps/v1, blockOwnerDeletion: true, controller: true, kind: StatefulSet, name: web, uid: 7a5d}
  resourceVersion: "4711"
spec:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{key: zone, operator: In, values: [a, b]}]
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - {weight: 50, podAffinityTerm: {labelSelector: {matchLabels: {app: web}}, topologyKey: kubernetes.io/hostname}}
  containers:
  - command: [/bin/sh, -c, "sleep 1"]
    env: [{name: A, value: "1"}]
    image: web:1
    livenessProbe: {httpGet: {path: /, port: 80}, grpc: {port: 1}}
    name: web
    ports: [{containerPort: 80, hostIP: 10.0.0.1, hostPort: 8080, protocol: TCP}]
    resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 0.5, memory: 1Gi}}
    securityContext: {runAsUser: 1, privileged: false}
    volumeMounts: [{mountPath: /data, name: data, mountPropagation: None}]
  securityContext: {sysctls: []}
  serviceAccount: default
  terminationGracePeriodSeconds: 0
  tolerations: [{effect: NoExecute, key: a, operator: Exists, tolerationSeconds: 0}]
  topologySpreadConstraints: [{labelSelector: {}, maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
  volumes: [{name: data, emptyDir: {}, secret: {}}]
status: {phase: Running, startTime: "2025-01-31T13:00:00.5+01:00", podIPs: [{ip: 10.1.2.3}]}
"""


def one(text: str) -> Any:
    (result,) = read_text(text, "test")
    return kinds.unwrap(result.object)


def errors_of(text: str) -> list[str]:
    with pytest.raises(ManifestErrors) as caught:
        for document in read_documents(text, "test"):
            read_object(document)
    return [str(error) for error in caught.value.errors]


def test_a_genuine_manifest_is_read_into_the_message() -> None:
    pod: Pod = one(DEPLOYED_POD)
    spec = pod.spec
    container = spec.containers[0]
    assert pod.metadata.owner_references[0].controller is True
    assert pod.metadata.creation_timestamp.ToJsonString() == "2025-01-31T12:00:00Z"
    assert pod.status.start_time.ToJsonString() == "2025-01-31T12:00:00.500Z"
    assert (container.ports[0].host_ip, container.ports[0].host_port) == ("10.0.0.1", 8080)
    assert {name: found.string for name, found in container.resources.requests.items()} == {"cpu": "0.5", "memory": "1Gi"}
    assert container.resources.limits["cpu"].string == "1"
    terms = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    assert list(terms[0].match_expressions[0].values) == ["a", "b"]
    assert spec.topology_spread_constraints[0].HasField("label_selector")


def test_fields_that_are_not_used_are_left_out_with_a_warning_each() -> None:
    (result,) = read_text(DEPLOYED_POD, "test")
    assert {warning.path for warning in result.warnings} == {
        "metadata.managedFields",
        "spec.containers[0].livenessProbe.grpc",
        "spec.containers[0].securityContext.privileged",
        "spec.containers[0].volumeMounts[0].mountPropagation",
        "spec.securityContext.sysctls",
        "spec.serviceAccount",
        "spec.volumes[0].secret",
        "status.podIPs",
    }
    assert {warning.message for warning in result.warnings} == {"is not used by rayched and is left out"}


def test_absence_and_zero_are_told_apart() -> None:
    pod: Pod = one(DEPLOYED_POD)
    assert pod.spec.HasField("termination_grace_period_seconds")
    assert pod.spec.tolerations[0].HasField("toleration_seconds")
    assert not pod.spec.HasField("priority")
    bare: Pod = one("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}")
    assert not bare.spec.HasField("termination_grace_period_seconds")
    default(bare)
    assert bare.spec.termination_grace_period_seconds == 30
    default(pod)
    assert pod.spec.termination_grace_period_seconds == 0


def test_null_means_absent() -> None:
    pod: Pod = one(
        "{apiVersion: v1, kind: Pod, metadata: {name: a, creationTimestamp: null, labels: null}, spec: {containers: null}}"
    )
    assert not pod.metadata.HasField("creation_timestamp")
    assert not pod.spec.containers


def test_lists_of_objects_are_taken_apart() -> None:
    pods = "{apiVersion: v1, kind: PodList, items: [{metadata: {name: a}}, {metadata: {name: b}}]}"
    mixed = "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Node, metadata: {name: n}}]}"
    found = [kinds.unwrap(result.object) for result in read_text(f"{pods}\n---\n{mixed}", "test")]
    assert [(item.kind, item.metadata.name) for item in found] == [("Pod", "a"), ("Pod", "b"), ("Node", "n")]


def test_keys_are_written_in_the_order_of_kubectl() -> None:
    document = write_object(kinds.wrap(one(DEPLOYED_POD)))
    assert list(document) == ["apiVersion", "kind", "metadata", "spec", "status"]
    assert list(document["spec"]["containers"][0])[:5] == ["command", "env", "image", "livenessProbe", "name"]
    assert list(document["spec"]["containers"][0]["resources"]) == ["limits", "requests"]


def test_quantities_are_written_as_they_were_read() -> None:
    capacity = '{cpu: 0.5, memory: "1024Ki", pods: "1e2", x/y: 0.10}'
    text = f"{{apiVersion: v1, kind: Node, metadata: {{name: n}}, status: {{capacity: {capacity}}}}}"
    document = write_object(kinds.wrap(one(text)))
    assert document["status"]["capacity"] == {"cpu": "0.5", "memory": "1024Ki", "pods": "1e2", "x/y": "0.1"}


def test_integers_or_strings_are_written_as_they_were_read() -> None:
    for amount in (0, 3, "25%", "3"):
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minAvailable": amount}}
        assert write_object(read_object(budget).object)["spec"] == {"minAvailable": amount}


def test_getting_and_applying_an_object_changes_nothing() -> None:
    pod: Pod = one(DEPLOYED_POD)
    default(pod)
    again: Pod = one(write_text([kinds.wrap(pod)]))
    default(again)
    assert again == pod


def test_several_objects_are_written_as_one_list() -> None:
    items = [kinds.wrap(one(DEPLOYED_POD)), kinds.wrap(one("{apiVersion: v1, kind: Namespace, metadata: {name: n}}"))]
    for text in (write_text(items), write_json(items)):
        assert [result.object for result in read_text(text, "test")] == items


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_reading_what_was_written_gives_an_equal_object(seed: int) -> None:
    item = random_object(seed)
    document = write_object(item)
    assert read_object(json.loads(json.dumps(document))).object == item
    assert [result.object for result in read_text(write_text([item]), "test")] == [item]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{kind: Pod, metadata: {name: a}}", 'apiVersion: is required; allowed is "v1"'),
        ("{apiVersion: v1, metadata: {name: a}}", "kind: is required; allowed are Pod, Node, Namespace,"),
        ("{apiVersion: v1, kind: Deployment}", 'kind: kind "Deployment" is not known; allowed are Pod, Node,'),
        ("{apiVersion: v1, kind: pod}", 'kind: kind "pod" is not known'),
        (
            "{apiVersion: extensions/v1beta1, kind: ReplicaSet}",
            'apiVersion: "extensions/v1beta1" is not known for ReplicaSet; allowed is "apps/v1"',
        ),
        ("{apiVersion: 1, kind: Pod}", 'apiVersion: must be a string, not the number 1; allowed is "v1"'),
        ("{apiVersion: v1, kind: {a: 1}}", "kind: must be a string, not an object; allowed are Pod, Node,"),
        ("{apiVersion: v1, kind: [List], items: []}", "kind: must be a string, not a list; allowed are Pod, Node,"),
        ("{apiVersion: [v1], kind: List, items: [{kind: Pod}]}", 'apiVersion: is required; allowed is "v1"'),
        ("[1, 2]", "test, document 1: must be an object, not a list"),
        ("text", 'test, document 1: must be an object, not the string "text"'),
        ("{apiVersion: v1, kind: List, items: 5}", "items: test, document 1: must be a list, not the number 5"),
        ("{apiVersion: v1, kind: List, items: [5]}", "items[0]: test, document 1: must be an object, not the number 5"),
    ],
)
def test_what_is_no_object_of_a_known_kind_is_refused_with_what_is_allowed(text: str, message: str) -> None:
    assert any(message in error for error in errors_of(text))


def test_all_errors_of_all_documents_come_at_once_with_the_objects_name() -> None:
    text = """
apiVersion: v1
kind: Pod
metadata: {name: Web}
spec: {containers: [{name: c, resources: {requests: {cpu: 2x}}}], nodeSelector: {a: 1}, color: red}
---
apiVersion: v1
kind: Node
metadata: {name: n, labels: 5}
---
[1, 2]
---
{apiVersion: v1, kind: List, items: [5, {apiVersion: v1, kind: Nope}]}
"""
    with pytest.raises(ManifestErrors) as caught:
        read_text(text, "test")
    assert [str(error).partition(", not")[0].partition(";")[0] for error in caught.value.errors] == [
        "test, document 3: must be an object",
        "items[0]: test, document 4: must be an object",
        'Pod Web: spec.containers[0].resources.requests["cpu"]: "2x" is not a quantity',
        'Pod Web: spec.nodeSelector["a"]: must be a string',
        "Pod Web: spec.color: PodSpec has no such field",
        'Pod Web: metadata.name: "Web" is not a valid name',
        "Node n: metadata.labels: must be an object",
        'Nope without a name: kind: kind "Nope" is not known',
    ]


def test_fields_that_nobody_knows_cost_no_search_for_each_once_there_are_many() -> None:
    began = time.process_time()
    with pytest.raises(ManifestErrors) as raised:
        read_object({"apiVersion": "v1", "kind": "Pod", "spec": {f"containerz{number}": 1 for number in range(20_000)}})
    assert len(raised.value.errors) >= 500
    assert time.process_time() - began < 10.0, "a field that is like it is looked for each"


@pytest.mark.parametrize(
    ("seconds", "nanos", "text"),
    [
        (2**62, 5, "9999-12-31T23:59:59.000000005Z"),
        (-(2**62), -5, "0001-01-01T00:00:00Z"),
        (0, 2_000_000_000, "1970-01-01T00:00:00Z"),
    ],
)
def test_a_time_that_no_text_can_say_is_written_as_the_nearest_one(seconds: int, nanos: int, text: str) -> None:
    pod = Pod(api_version="v1", kind="Pod", metadata={"name": "web"})
    pod.status.start_time.seconds, pod.status.start_time.nanos = seconds, nanos
    assert write_object(kinds.wrap(pod))["status"]["startTime"] == text
