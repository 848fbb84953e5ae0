"""Everyday pods and nodes from a line: `new_pod("web", cpu="500m", memory="1Gi", labels={"app": "web"})`. Pure.

Amounts are quantities as in manifests. What is not named here is set on the message that comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.workloads_pb2 import Job


def new_pod(
    name: str = "",
    *,
    namespace: str = "",
    generate_name: str = "",
    image: str = "",
    command: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    cpu: str = "",
    memory: str = "",
    resources: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    priority_class: str = "",
    scheduler: str = "",
    restart_policy: str = "",
) -> Pod:
    """A pod of one container, `main`. `resources`: further requests by name, as {"nvidia.com/gpu": "1"}."""
    pod = Pod(metadata={"name": name, "namespace": namespace, "generate_name": generate_name, "labels": dict(labels or {})})
    spec = pod.spec
    spec.priority_class_name, spec.scheduler_name, spec.restart_policy = priority_class, scheduler, restart_policy
    container = spec.containers.add(name="main", image=image, command=command)
    for key, text in (env or {}).items():
        container.env.add(name=key, value=text)
    for resource, amount in {"cpu": cpu, "memory": memory, **(resources or {})}.items():
        if amount:
            container.resources.requests[resource].string = amount
    for key, text in (node_selector or {}).items():
        spec.node_selector[key] = text
    return pod


def new_node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    pods: int = 110,
    resources: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Node:
    """A node that offers all that it has. `resources`: further ones by name."""
    node = Node(metadata={"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}})
    for resource, amount in {"cpu": cpu, "memory": memory, "pods": str(pods), **(resources or {})}.items():
        node.status.capacity[resource].string = amount
        node.status.allocatable[resource].string = amount
    return node


def new_job(pod: Pod, *, count: int = 1, parallelism: int = 0, name: str = "") -> Job:
    """An indexed job of pods like this one; its name is the pod's unless another is given. `parallelism` 0: all at once."""
    job = Job(metadata={"name": name or pod.metadata.name, "namespace": pod.metadata.namespace})
    job.spec.completions, job.spec.parallelism = count, parallelism or count
    job.spec.completion_mode = "Indexed"
    for key, text in pod.metadata.labels.items():
        job.spec.template.metadata.labels[key] = text
    job.spec.template.spec.CopyFrom(pod.spec)
    job.spec.template.spec.restart_policy = pod.spec.restart_policy or "Never"
    return job
