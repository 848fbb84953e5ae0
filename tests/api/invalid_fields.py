"""A valid object of each kind, and a table of single mistakes with what comes of each.

A row: the kind, the path of the change, the new value (None takes the field away), the path of the error ("" for the same
path, "the object" for none) and a part of the message.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import yaml

VALID: dict[str, dict[str, Any]] = {
    document["kind"]: document
    for document in yaml.safe_load_all("""
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}, annotations: {a: b}}
spec:
  containers:
  - name: c
    image: web:1
    ports: [{containerPort: 80, name: http}]
    env: [{name: A, value: b}]
    livenessProbe: {exec: {command: [x]}, periodSeconds: 5}
    readinessProbe: {httpGet: {path: /, port: http}, successThreshold: 2}
    lifecycle: {preStop: {sleep: {seconds: 1}}}
    securityContext: {runAsUser: 1000}
    volumeMounts: [{name: v, mountPath: /v}]
    resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: "1", memory: 1Gi}}
  initContainers: [{name: i}]
  volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}, {name: h, hostPath: {path: /srv}}]
  securityContext: {fsGroup: 5}
  nodeSelector: {disk: ssd}
  tolerations: [{key: a, operator: Equal, value: b, effect: NoExecute, tolerationSeconds: 5}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{key: zone, operator: In, values: [a]}, {key: cores, operator: Gt, values: ["4"]}]
          matchFields: [{key: metadata.name, operator: In, values: [n]}]
      preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - {topologyKey: zone, labelSelector: {matchLabels: {app: web}}, namespaces: [default], matchLabelKeys: [rev]}
      preferredDuringSchedulingIgnoredDuringExecution:
      - {weight: 100, podAffinityTerm: {topologyKey: zone, labelSelector: {matchExpressions: [{key: a, operator: Exists}]}}}
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {}, namespaceSelector: {}}]
  topologySpreadConstraints:
  - {maxSkew: 1, minDomains: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, nodeTaintsPolicy: Honor}
  schedulingGates: [{name: example.com/wait}]
---
apiVersion: v1
kind: Node
metadata: {name: n}
spec: {taints: [{key: a, value: b, effect: NoSchedule}], podCIDR: 10.0.0.0/24}
status: {capacity: {cpu: 4, memory: 8Gi, pods: 110}, images: [{names: [web:1], sizeBytes: 5}]}
---
{apiVersion: v1, kind: Namespace, metadata: {name: prod}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000000000, preemptionPolicy: Never}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: b}
spec: {minAvailable: 50%, selector: {matchLabels: {a: b}}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: kata}
handler: kata
overhead: {podFixed: {cpu: 250m}}
scheduling: {nodeSelector: {a: b}, tolerations: [{operator: Exists}]}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: web}
spec: {selector: {app: web}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: count, uid: u}
spec:
  completions: 3
  parallelism: 2
  completionMode: Indexed
  template: {spec: {restartPolicy: Never, containers: [{name: c}]}}
---
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: train}
spec: {schedulingPolicy: {gang: {minCount: 3}}, priorityClassName: high, disruptionMode: {single: {}}}
---
{apiVersion: v1, kind: Event, metadata: {name: e}, reason: Scheduled, type: Normal}
""")
}

C = "spec.containers[0]"
NODE_TERM = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
POD_TERM = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
PREFERRED_NODES = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
PREFERRED_PODS = "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution"
SPREAD = "spec.topologySpreadConstraints[0]"
LONG = "a" * 64

Row = tuple[str, str, Any, str, str]

METADATA: list[Row] = [
    ("Pod", "metadata.name", "Web_1", "", '"Web_1" is not a valid name; allowed are lower case letters'),
    ("Pod", "metadata.name", "a" * 254, "", "has 254 characters; at most 253 are allowed"),
    ("Pod", "metadata.name", None, "", "is required"),
    ("Pod", "metadata.name", 5, "", "must be a string, not the number 5; put it in quotes"),
    ("Pod", "metadata.namespace", "a.b", "", '"a.b" is not a valid name'),
    ("Pod", "metadata.namespace", LONG, "", "has 64 characters; at most 63 are allowed"),
    ("Node", "metadata.namespace", "a", "", "is not allowed: a Node belongs to no namespace"),
    ("Pod", "metadata.uid", "a b", "", '"a b" is not allowed'),
    ("Pod", "metadata.generation", -1, "", "must not be negative"),
    ("Pod", 'metadata.labels["app"]', True, "", "must be a string, not the boolean true; put it in quotes"),
    ("Pod", 'metadata.labels["app"]', "-x", "", '"-x" is not a valid label value'),
    ("Pod", 'metadata.labels["app"]', LONG, "", "has 64 characters; at most 63 are allowed"),
    ("Pod", 'metadata.labels["a b"]', "x", "", 'key: "a b" is not a valid key'),
    ("Pod", 'metadata.labels["a/b/c"]', "x", "", "has more than one '/'"),
    ("Pod", 'metadata.labels["/b"]', "x", "", "is empty"),
    ("Pod", "metadata.labels", {f"k{n}": "" for n in range(65)}, "", "has 65 entries; at most 64 are allowed"),
    ("Pod", 'metadata.annotations["a b"]', "x", "", 'key: "a b" is not a valid key'),
    ("Node", "metadata.annotations", {"a": "x" * 131_000, "b": "y" * 131_200}, "", "at most 262144 are allowed"),
    ("Pod", "metadata.annotations", {"a": "x" * 300_000}, "the object", "has 300"),
    (
        "Pod",
        "metadata.ownerReferences",
        [{"kind": "ReplicaSet", "name": "r", "uid": "u"}],
        "metadata.ownerReferences[0].apiVersion",
        "is required",
    ),
    (
        "Pod",
        "metadata.ownerReferences",
        [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid, "controller": True} for uid in "ab"],
        "metadata.ownerReferences[1].controller",
        "only one owner may be the controller, and metadata.ownerReferences[0] is",
    ),
    ("Pod", "metadata.ownerReferences", [{}] * 100, "", "has 100 entries; at most 32 are allowed"),
    ("Pod", "metadata.finalizers", ["a b"], "metadata.finalizers[0]", "is not a valid key"),
    (
        "Pod",
        "metadata.creationTimestamp",
        "yesterday",
        "",
        'must be a time such as "2025-01-31T12:00:00Z", not the string "yesterday"',
    ),
    ("Pod", "metadata.creationTimestamp", "2025-02-30T00:00:00Z", "", "is no moment in time"),
]
STRUCTURE: list[Row] = [
    ("Pod", "spec", [1], "", "must be an object, not a list"),
    ("Pod", "spec.containers", {"a": 1}, "", "must be a list, not an object"),
    ("Pod", "spec.containers", [1], "spec.containers[0]", "must be an object, not the number 1"),
    ("Pod", "spec.containers", [], "", "is required: at least one container"),
    ("Pod", "spec.contaners", [], "", 'PodSpec has no such field; did you mean "containers"?'),
    ("Pod", "spec.hostNetwork", "yes", "", 'must be true or false, not the string "yes"'),
    ("Pod", "spec.terminationGracePeriodSeconds", 1.5, "", "must be an integer, not the number 1.5"),
    ("Pod", "spec.terminationGracePeriodSeconds", 2**63, "", "must lie between"),
    ("Pod", "spec.terminationGracePeriodSeconds", -1, "", "must not be negative"),
    ("Pod", "spec.terminationGracePeriodSeconds", 2**63 - 1, "", "must lie between 0 and 2147483647"),
    ("Pod", "spec.activeDeadlineSeconds", 0, "", "0 must lie between 1 and 2147483647"),
    ("Pod", "spec.restartPolicy", "Sometimes", "", '"Sometimes" is not supported; allowed is "Always", "OnFailure" or "Never"'),
    ("Pod", "spec.dnsPolicy", "x", "", "is not supported"),
    ("Pod", "spec.nodeName", "Node", "", "is not a valid name"),
    ("Pod", "spec.nodeName", "n", "", '"n" cannot be set while the pod has scheduling gates'),
    ("Pod", "spec.schedulerName", "a b", "", "is not a valid name"),
    ("Pod", "spec.priorityClassName", "a b", "", "is not a valid name"),
    ("Pod", "spec.preemptionPolicy", "Maybe", "", 'allowed is "PreemptLowerPriority" or "Never"'),
    ("Pod", 'spec.nodeSelector["disk"]', "s s d", "", "is not a valid label value"),
    ("Pod", 'spec.nodeSelector["a b"]', "x", "", "is not a valid key"),
]
CONTAINERS: list[Row] = [
    ("Pod", f"{C}.name", "C", "", "is not a valid name"),
    ("Pod", f"{C}.name", "i", "", '"i" is the name of spec.initContainers[0] too'),
    ("Pod", f"{C}.image", " web", "", "must not begin or end with space"),
    ("Pod", f"{C}.imagePullPolicy", "Later", "", "is not supported"),
    ("Pod", f"{C}.restartPolicy", "Always", "", "is only allowed in init containers"),
    ("Pod", "spec.initContainers[0].restartPolicy", "Never", "", 'allowed is "Always"'),
    ("Pod", f"{C}.env[0].name", "A=B", "", "is not a valid variable name"),
    ("Pod", f"{C}.livenessProbe.exec", None, f"{C}.livenessProbe", "want exactly one of exec, httpGet, tcpSocket, found none"),
    ("Pod", f"{C}.livenessProbe.tcpSocket", {"port": 1}, f"{C}.livenessProbe", "found exec and tcpSocket"),
    ("Pod", f"{C}.livenessProbe.exec.command", [], "", "is required"),
    ("Pod", f"{C}.livenessProbe.periodSeconds", -1, "", "must not be negative"),
    ("Pod", f"{C}.livenessProbe.successThreshold", 2, "", "2 is not allowed; allowed is 1"),
    ("Pod", f"{C}.livenessProbe.terminationGracePeriodSeconds", 0, "", "0 must lie between 1 and"),
    ("Pod", f"{C}.readinessProbe.httpGet.port", 0, "", "0 must lie between 1 and 65535"),
    ("Pod", f"{C}.readinessProbe.httpGet.port", "", "", "is required"),
    ("Pod", f"{C}.lifecycle.preStop.exec", {"command": ["x"]}, f"{C}.lifecycle.preStop", "found exec and sleep"),
    ("Pod", f"{C}.lifecycle.stopSignal", "FOO", "", '"FOO" is not supported; allowed is'),
    ("Pod", f"{C}.lifecycle.stopSignal", "SIGRTMIN+3", "", '"SIGRTMIN+3" is not supported; allowed is'),
    ("Pod", f"{C}.securityContext.runAsUser", -1, "", "-1 must lie between 0 and"),
    ("Pod", f"{C}.volumeMounts[0].name", "w", "", '"w" is no volume of the pod'),
    ("Pod", "spec.volumes[1].name", "v", "", '"v" occurs twice'),
    ("Pod", "spec.volumes[1].hostPath.path", "srv", "", '"srv" must be absolute'),
    ("Pod", "spec.securityContext.runAsGroup", -1, "", "-1 must lie between 0 and"),
    ("Pod", f"{C}.ports[0].containerPort", 0, "", "0 must lie between 1 and 65535"),
    ("Pod", f"{C}.ports[0].containerPort", 65536, "", "65536 must lie between 1 and 65535"),
    ("Pod", f"{C}.ports[0].containerPort", "80", "", 'must be an integer, not the string "80"'),
    ("Pod", f"{C}.ports[0].protocol", "tcp", "", '"tcp" is not supported; allowed is "TCP", "UDP" or "SCTP"'),
    ("Pod", f"{C}.ports[0].hostPort", 70000, "", "must lie between"),
    ("Pod", f"{C}.ports[0].hostIP", "1.2.3", "", "is not an IP address"),
    ("Pod", f"{C}.ports[0].name", "80", "", "is not a valid port name"),
    (
        "Pod",
        f"{C}.ports",
        [{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}],
        f"{C}.ports[1].hostPort",
        f"9 is taken by {C}.ports[0]",
    ),
    (
        "Pod",
        f"{C}.ports",
        [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}],
        f"{C}.ports[1].name",
        "occurs twice",
    ),
    (
        "Pod",
        "spec",
        {"hostNetwork": True, "containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 2}]}]},
        f"{C}.ports[0].hostPort",
        "2 must equal containerPort when hostNetwork is true",
    ),
    ("Pod", "spec.containers", [{"name": f"c{n}"} for n in range(64)], "", "has 65 entries; at most 64 are allowed"),
]
RESOURCES: list[Row] = [
    ("Pod", f'{C}.resources.requests["cpu"]', "2x", "", '"2x" is not a quantity'),
    ("Pod", f'{C}.resources.requests["cpu"]', "", "", '"" is not a quantity'),
    ("Pod", f'{C}.resources.requests["cpu"]', True, "", "must be a quantity, not the boolean true"),
    ("Pod", f'{C}.resources.requests["cpu"]', "-1", "", '"-1" must not be negative'),
    ("Pod", f'{C}.resources.requests["cpu"]', "2", "", '"2" must not exceed the limit, 1'),
    ("Pod", f'{C}.resources.requests["cpu"]', "1e16", "", "is beyond the largest amount of cpu"),
    ("Pod", f'{C}.resources.requests["gpu"]', "1", "", '"gpu" is not a resource of containers'),
    ("Pod", f'{C}.resources.requests["x.com/gpu"]', "500m", "", "must be an integer: this resource cannot be divided"),
    ("Pod", f'{C}.resources.requests["requests.x/y"]', "1", "", "must not begin with requests."),
    (
        "Pod",
        f"{C}.resources",
        {"requests": {"x.com/gpu": 1}, "limits": {"x.com/gpu": 2}},
        f'{C}.resources.requests["x.com/gpu"]',
        '"1" must equal the limit, 2',
    ),
    ("Pod", f"{C}.resources.requests", {f"x.com/r{n}": 1 for n in range(33)}, "", "at most 32 are allowed"),
    (
        "Pod",
        "spec.resources",
        {"requests": {"x.com/gpu": 1}},
        'spec.resources.requests["x.com/gpu"]',
        "is not a resource of pods as a whole",
    ),
    (
        "Pod",
        "spec.resources",
        {"requests": {"cpu": "50m"}},
        'spec.resources.requests["cpu"]',
        '"50m" must be at least what the containers request together, 100m',
    ),
    (
        "Pod",
        "spec.resources",
        {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}},
        f'{C}.resources.limits["cpu"]',
        '"1" must not exceed the pod\'s limit, 500m',
    ),
    ("Pod", "spec.overhead", {"cpu": "x"}, 'spec.overhead["cpu"]', "is not a quantity"),
]
NODE_AFFINITY: list[Row] = [
    (
        "Pod",
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
        [],
        "",
        "is required: at least one term",
    ),
    (
        "Pod",
        f"{NODE_TERM}.matchExpressions[0].operator",
        "in",
        "",
        '"in" is not supported; allowed is "In", "NotIn", "Exists", "DoesNotExist", "Gt" or "Lt"',
    ),
    ("Pod", f"{NODE_TERM}.matchExpressions[0].values", [], "", "operator In needs at least one value"),
    (
        "Pod",
        f"{NODE_TERM}.matchExpressions[0].operator",
        "Exists",
        f"{NODE_TERM}.matchExpressions[0].values",
        "operator Exists takes no values",
    ),
    ("Pod", f"{NODE_TERM}.matchExpressions[1].values", ["1", "2"], "", "must have exactly one value for operator Gt, not 2"),
    ("Pod", f"{NODE_TERM}.matchExpressions[1].values[0]", "four", "", '"four" must be an integer for operator Gt'),
    ("Pod", f"{NODE_TERM}.matchExpressions[0].values[0]", "a b", "", "is not a valid label value"),
    ("Pod", f"{NODE_TERM}.matchExpressions[0].key", "", "", "is required"),
    (
        "Pod",
        f"{NODE_TERM}.matchExpressions[0].values",
        [str(n) for n in range(101)],
        "",
        "has 101 entries; at most 100 are allowed",
    ),
    ("Pod", f"{NODE_TERM}.matchFields[0].key", "metadata.uid", "", 'allowed is "metadata.name"'),
    ("Pod", f"{NODE_TERM}.matchFields[0].values", ["a", "b"], "", "must have exactly one value, not 2"),
    ("Pod", f"{NODE_TERM}.matchFields[0].operator", "Exists", "", 'allowed is "In" or "NotIn"'),
    ("Pod", f"{PREFERRED_NODES}[0].weight", 101, "", "101 must lie between 1 and 100"),
    ("Pod", f"{PREFERRED_NODES}[0].weight", 0, "", "0 must lie between 1 and 100"),
    (
        "Pod",
        f"{PREFERRED_NODES}[0].preference",
        {"matchExpressions": [{"key": "a b", "operator": "Exists"}]},
        f"{PREFERRED_NODES}[0].preference.matchExpressions[0].key",
        "is not a valid key",
    ),
    (
        "Pod",
        f"{PREFERRED_NODES}[0].preference",
        {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]},
        f"{PREFERRED_NODES}[0].preference.matchExpressions[0].values[0]",
        "must be an integer for operator Gt",
    ),
    ("Pod", PREFERRED_NODES, [{"weight": 1, "preference": {}}] * 101, "", "has 101 entries; at most 100 are allowed"),
]
POD_AFFINITY: list[Row] = [
    ("Pod", f"{POD_TERM}.topologyKey", "", "", "is required"),
    ("Pod", f"{POD_TERM}.topologyKey", "a b", "", "is not a valid key"),
    ("Pod", f"{POD_TERM}.namespaces[0]", "A", "", "is not a valid name"),
    (
        "Pod",
        f"{POD_TERM}.labelSelector.matchLabels",
        {"a b": "c"},
        f'{POD_TERM}.labelSelector.matchLabels["a b"]',
        "is not a valid key",
    ),
    (
        "Pod",
        f"{POD_TERM}.labelSelector",
        {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
        f"{POD_TERM}.labelSelector.matchExpressions[0].operator",
        '"Gt" is not supported',
    ),
    (
        "Pod",
        f"{POD_TERM}.namespaceSelector",
        {"matchExpressions": [{"key": "a", "operator": "In"}]},
        f"{POD_TERM}.namespaceSelector.matchExpressions[0].values",
        "needs at least one value",
    ),
    ("Pod", f"{POD_TERM}.labelSelector", None, f"{POD_TERM}.matchLabelKeys", "must be empty without a labelSelector"),
    ("Pod", f"{POD_TERM}.mismatchLabelKeys", ["rev"], "", '"rev" stands in matchLabelKeys too'),
    ("Pod", f"{POD_TERM}.matchLabelKeys[0]", "app", "", '"app" stands in the labelSelector\'s matchLabels too'),
    ("Pod", f"{PREFERRED_PODS}[0].weight", 0, "", "0 must lie between 1 and 100"),
    ("Pod", PREFERRED_PODS, [{"weight": 1, "podAffinityTerm": {"topologyKey": "z"}}] * 33, "", "at most 32 are allowed"),
]
SPREADING: list[Row] = [
    ("Pod", f"{SPREAD}.maxSkew", 0, "", "0 must be greater than 0"),
    ("Pod", f"{SPREAD}.topologyKey", "", "", "is required"),
    ("Pod", f"{SPREAD}.whenUnsatisfiable", "Never", "", 'allowed is "DoNotSchedule" or "ScheduleAnyway"'),
    ("Pod", f"{SPREAD}.minDomains", 0, "", "0 must be greater than 0"),
    ("Pod", "spec.topologySpreadConstraints[1].minDomains", 2, "", 'is only allowed when whenUnsatisfiable is "DoNotSchedule"'),
    ("Pod", f"{SPREAD}.nodeAffinityPolicy", "honor", "", 'allowed is "Honor" or "Ignore"'),
    ("Pod", f"{SPREAD}.nodeTaintsPolicy", "x", "", 'allowed is "Honor" or "Ignore"'),
    ("Pod", "spec.topologySpreadConstraints[1].matchLabelKeys", ["a"], "", "must be empty without a labelSelector"),
    (
        "Pod",
        "spec.topologySpreadConstraints[1].whenUnsatisfiable",
        "DoNotSchedule",
        "spec.topologySpreadConstraints[1]",
        "has the topologyKey and whenUnsatisfiable of spec.topologySpreadConstraints[0]",
    ),
    (
        "Pod",
        "spec.topologySpreadConstraints",
        [{"maxSkew": 1, "topologyKey": f"k{n}"} for n in range(17)],
        "",
        "at most 16 are allowed",
    ),
]
TOLERATIONS: list[Row] = [
    ("Pod", "spec.tolerations[0].operator", "Gt", "", 'allowed is "Equal" or "Exists"'),
    ("Pod", "spec.tolerations[0].operator", "Exists", "spec.tolerations[0].value", 'must be empty when the operator is "Exists"'),
    ("Pod", "spec.tolerations[0].key", None, "spec.tolerations[0].operator", 'must be "Exists" when the key is empty'),
    ("Pod", "spec.tolerations[0].key", "a b", "", "is not a valid key"),
    ("Pod", "spec.tolerations[0].value", "a b", "", "is not a valid label value"),
    ("Pod", "spec.tolerations[0].effect", "Evict", "", 'allowed is "NoSchedule", "PreferNoSchedule" or "NoExecute"'),
    (
        "Pod",
        "spec.tolerations[0].effect",
        "NoSchedule",
        "spec.tolerations[0].tolerationSeconds",
        'is only allowed when the effect is "NoExecute"',
    ),
    ("Pod", "spec.tolerations", [{"operator": "Exists"}] * 65, "", "at most 64 are allowed"),
    ("Pod", "spec.schedulingGroup", {"podGroupName": "A b"}, "spec.schedulingGroup.podGroupName", "is not a valid name"),
    ("Pod", "spec.schedulingGates[0].name", "a b", "", "is not a valid key"),
    ("Pod", "spec.schedulingGates", [{"name": "a"}, {"name": "a"}], "spec.schedulingGates[1].name", "occurs twice"),
    ("Pod", "spec.schedulingGates", [{"name": f"g{n}"} for n in range(65)], "", "at most 64 are allowed"),
]
OTHER_KINDS: list[Row] = [
    (
        "Node",
        "spec.taints",
        [{"key": "a", "effect": "NoSchedule", "value": v} for v in "xy"],
        "spec.taints[1]",
        'the taint "a:NoSchedule" occurs twice',
    ),
    ("Node", "spec.taints[0].effect", None, "", "is required; allowed is"),
    ("Node", "spec.taints[0].key", "", "", "is required"),
    ("Node", "spec.podCIDR", "10.0.0.1", "", "is not a network"),
    ("Node", 'status.capacity["cpu"]', "four", "", "is not a quantity"),
    ("Node", 'status.allocatable["pods"]', "-1", "", "must not be negative"),
    ("Node", "status.images[0].sizeBytes", -1, "", "must not be negative"),
    ("Node", "status.images[0].sizeBytes", "5Mi", "", "must be an integer"),
    ("Node", 'status.capacity["pods"]', "1.5", "", "must be an integer: this resource cannot be divided"),
    ("Namespace", "spec.finalizers", ["kubernetes", "a b"], "spec.finalizers[1]", "is not a valid key"),
    ("Namespace", "metadata.name", "a.b", "", "is not a valid name"),
    ("PriorityClass", "value", 1_000_000_001, "", "is reserved for the system; at most 1000000000 is allowed"),
    ("PriorityClass", "value", 2**31, "", "must lie between"),
    ("PriorityClass", "metadata.name", "system-high", "", 'is reserved: the prefix "system-" is the system\'s'),
    ("StatefulSet", "spec.serviceName", "A b", "", "is not a valid name"),
    ("PriorityClass", "metadata.name", "High", "", "is not a valid name"),
    ("PriorityClass", "metadata.namespace", "default", "", "a PriorityClass belongs to no namespace"),
    ("PriorityClass", "preemptionPolicy", "Always", "", 'allowed is "PreemptLowerPriority" or "Never"'),
    ("PodDisruptionBudget", "spec.maxUnavailable", 1, "", "is not allowed together with minAvailable"),
    ("PodDisruptionBudget", "spec.minAvailable", -1, "", "must not be negative"),
    ("PodDisruptionBudget", "spec.minAvailable", "half", "", 'must be an integer or a percentage from "0%" to "100%"'),
    ("PodDisruptionBudget", "spec.minAvailable", "101%", "", "must be an integer or a percentage"),
    ("PodDisruptionBudget", "spec.minAvailable", 1.5, "", "must be an integer or a string, not the number 1.5"),
    ("PodGroup", "metadata.name", "Train", "", "is not a valid name"),
    ("PodGroup", "spec.schedulingPolicy", None, "", "has none; wanted is one of basic and gang"),
    ("PodGroup", "spec.schedulingPolicy.gang.minCount", 0, "", "0 must be at least 1"),
    ("PodGroup", "spec.preemptionPolicy", "Always", "", 'allowed is "PreemptLowerPriority" or "Never"'),
    ("RuntimeClass", "handler", "", "", "is required"),
    ("RuntimeClass", 'overhead.podFixed["cpu"]', "x", "", "is not a quantity"),
    ("RuntimeClass", "scheduling.tolerations[0].operator", "x", "", "is not supported"),
    ("Service", "metadata.name", "1web", "", "the first a letter"),
    ("Service", "spec.ports[0].port", 0, "", "0 must lie between 1 and 65535"),
    ("Service", "spec.ports[0].targetPort", 65536, "", "65536 must lie between 1 and 65535"),
    ("Service", "spec.type", "x", "", "is not supported"),
    ("ReplicaSet", "spec.replicas", -1, "", "must not be negative"),
    ("ReplicaSet", "spec.selector", None, "", "is required, and must not be empty"),
    ("ReplicaSet", "spec.selector.matchLabels", {"app": "db"}, "spec.template.metadata.labels", "must match spec.selector"),
    ("ReplicaSet", "spec.template.spec.restartPolicy", "Never", "", 'allowed is "Always"'),
    ("ReplicaSet", "spec.template.spec.containers[0].name", "C", "", "is not a valid name"),
    ("StatefulSet", "spec.podManagementPolicy", "x", "", 'allowed is "OrderedReady" or "Parallel"'),
    ("StatefulSet", "spec.selector.matchLabels", {"app": "db"}, "spec.template.metadata.labels", "must match spec.selector"),
    ("ReplicationController", "spec.selector", {"app": "db"}, "spec.template.metadata.labels", "must match spec.selector"),
    ("Job", "spec.completionMode", "Sorted", "", 'allowed is "NonIndexed" or "Indexed"'),
    ("Job", "spec.podReplacementPolicy", "Never", "", 'allowed is "TerminatingOrFailed" or "Failed"'),
    ("Job", "spec.completions", None, "", "is required when completionMode is Indexed"),
    ("Job", "spec.completions", 100_001, "", "100001 is too many for completionMode Indexed; at most 100000"),
    ("Job", "spec.parallelism", 100_001, "", "100001 is too many for completionMode Indexed; at most 100000"),
    ("Job", "spec.backoffLimit", -1, "", "must not be negative"),
    ("Job", "spec.template.spec.restartPolicy", "Always", "", 'allowed is "OnFailure" or "Never"'),
    ("Job", "spec.selector", {"matchLabels": {"app": "db"}}, "", "is not the one that is made of the job's uid"),
    ("Job", "spec.selector", {"matchLabels": {"job-name": "count"}}, "", "is not the one that is made of the job's uid"),
    ("Job", "spec.manualSelector", True, "spec.selector", "is required"),
    (
        "Job",
        "spec.template.metadata",
        {"labels": {"job-name": "other"}},
        'spec.template.metadata.labels["job-name"]',
        '"other" must be "count"',
    ),
    ("Job", "metadata.name", LONG[:63], "", "the pod of the last index is called by it as a host"),
    ("Event", "type", "Error", "", 'allowed is "Normal" or "Warning"'),
]

TABLES: dict[str, list[Row]] = {
    "metadata": METADATA,
    "structure": STRUCTURE,
    "containers": CONTAINERS,
    "resources": RESOURCES,
    "node affinity": NODE_AFFINITY,
    "tolerations": TOLERATIONS,
    "pod affinity": POD_AFFINITY,
    "spreading": SPREADING,
    "other kinds": OTHER_KINDS,
}


def changed(kind: str, path: str, value: Any) -> dict[str, Any]:
    """The valid object of a kind with one field set; None takes it away."""
    document = copy.deepcopy(VALID[kind])
    steps = [step.strip('"]') for step in path.replace("].", "[").replace("[", "\0").split("\0")]
    names: list[Any] = []
    for index, step in enumerate(steps):
        quoted = index > 0 and not step.isdigit() and f'["{step}"]' in path
        names += [step] if quoted else [int(part) if part.isdigit() else part for part in step.split(".")]
    target: Any = document
    for name, following in itertools.pairwise(names):
        if isinstance(target, dict) and name not in target:
            target[name] = [] if isinstance(following, int) else {}
        target = target[name]
    if value is None:
        del target[names[-1]]
    else:
        target[names[-1]] = value
    return document
