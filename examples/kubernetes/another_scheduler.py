"""A scheduler of one's own beside rayched, written with Kubernetes' official client: it binds the pods that name it.

    rayched kubeconfig -o rayched.kubeconfig
    python examples/kubernetes/another_scheduler.py --kubeconfig rayched.kubeconfig --name another

A pod with `spec.schedulerName: another` is left to it. It takes any node that looks free enough; where rayched, or another of its
kind, was faster, the binding is refused, and it tries the next one.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict

from kubernetes import client, config
from kubernetes.utils import parse_quantity


def cpu_of(pod: client.V1Pod) -> float:
    requests = [one.resources.requests or {} for one in pod.spec.containers if one.resources]
    return sum(float(parse_quantity(found.get("cpu", "0"))) for found in requests)


def free_cpus(api: client.CoreV1Api) -> dict[str, float]:
    used: dict[str, float] = defaultdict(float)
    for pod in api.list_pod_for_all_namespaces(field_selector="spec.nodeName!=,status.phase!=Succeeded").items:
        used[pod.spec.node_name] += cpu_of(pod)
    nodes = [node for node in api.list_node().items if not node.spec.unschedulable]
    return {one.metadata.name: float(parse_quantity(one.status.allocatable["cpu"])) - used[one.metadata.name] for one in nodes}


def bind(api: client.CoreV1Api, pod: client.V1Pod, node: str) -> bool:
    target = client.V1ObjectReference(kind="Node", name=node)
    binding = client.V1Binding(metadata=client.V1ObjectMeta(name=pod.metadata.name, uid=pod.metadata.uid), target=target)
    try:
        # The API answers with a Status, which this method of the client takes for a Binding.
        api.create_namespaced_pod_binding(pod.metadata.name, pod.metadata.namespace, binding, _preload_content=False)
    except client.ApiException as refused:
        print(f"{pod.metadata.name} on {node}: {refused.status} {refused.reason}", flush=True)
        return False
    print(f"{pod.metadata.name} on {node}: bound", flush=True)
    return True


def schedule(api: client.CoreV1Api, name: str) -> None:
    for pod in api.list_pod_for_all_namespaces(field_selector=f"spec.schedulerName={name},spec.nodeName=").items:
        fits = [node for node, free in free_cpus(api).items() if free >= cpu_of(pod)]
        random.shuffle(fits)
        any(bind(api, pod, node) for node in fits)


def main() -> None:
    words = argparse.ArgumentParser(description="Binds pods of its own name, at random.")
    words.add_argument("--kubeconfig", required=True)
    words.add_argument("--name", default="another")
    given = words.parse_args()
    config.load_kube_config(given.kubeconfig)
    while True:
        schedule(client.CoreV1Api(), given.name)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
