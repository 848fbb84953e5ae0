"""A production trace as Kubernetes objects: Alibaba's GPU cluster trace of 2023 (public repository alibaba/clusterdata).

Reads `openb_node_list_all_node.csv` and `openb_pod_list_default.csv`, gzipped or not. A node offers its CPU and memory,
`nvidia.com/gpu` and, for pods that share one, `example.com/gpu-milli`: 1000 for each GPU; its model is the label `gpu-model`.
A pod of whole GPUs asks for the first, a sharing pod for the second; its allowed models become a required node affinity.
Latency-sensitive pods (LS, Guaranteed) have priority over Burstable over best-effort ones (BE).
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.workloads_pb2 import PriorityClass

NODES_FILE = "openb_node_list_all_node.csv"
PODS_FILE = "openb_pod_list_default.csv"
WHERE_FROM = "the public repository alibaba/clusterdata has it (cluster-trace-gpu-v2023/csv)"
PRIORITIES = {"latency-sensitive": 1000, "burstable": 500, "best-effort": 0}
_CLASS_OF_QOS = {"LS": "latency-sensitive", "Guaranteed": "latency-sensitive", "Burstable": "burstable", "BE": "best-effort"}
_WHOLE_GPU_MILLI = 1000
_PODS_PER_NODE = 256
MIB = 1 << 20


class TraceError(Exception):
    """The directory does not hold the trace, or a line of it cannot be read: one line."""


def read_nodes(directory: Path) -> list[Node]:
    nodes = []
    for place, row in _rows(directory, NODES_FILE, ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        node = Node(api_version="v1", kind="Node")
        node.metadata.name = row["sn"]
        node.metadata.labels["kubernetes.io/hostname"] = row["sn"]
        gpus = _integer(place, row, "gpu")
        offers = {
            "cpu": f"{_integer(place, row, 'cpu_milli')}m",
            "memory": str(_integer(place, row, "memory_mib") * MIB),
            "pods": str(_PODS_PER_NODE),
        }
        if gpus:
            node.metadata.labels["gpu-model"] = row["model"]
            offers |= {"nvidia.com/gpu": str(gpus), "example.com/gpu-milli": str(gpus * _WHOLE_GPU_MILLI)}
        for name, quantity in offers.items():
            node.status.capacity[name].string = quantity
            node.status.allocatable[name].string = quantity
        nodes.append(node)
    return nodes


def read_pods(directory: Path, namespace: str = "default") -> list[Pod]:
    """In the order of submission."""
    columns = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos")
    return [_pod(place, row, namespace) for place, row in _rows(directory, PODS_FILE, columns)]


def priority_classes() -> list[PriorityClass]:
    classes = []
    for name, value in PRIORITIES.items():
        priority = PriorityClass(api_version="scheduling.k8s.io/v1", kind="PriorityClass", value=value)
        priority.metadata.name = name
        classes.append(priority)
    return classes


def _pod(place: str, row: dict[str, str], namespace: str) -> Pod:
    pod = Pod(api_version="v1", kind="Pod")
    pod.metadata.name = row["name"]
    pod.metadata.namespace = namespace
    if row["qos"] not in _CLASS_OF_QOS:
        raise TraceError(f"{place}: qos is {row['qos']!r}; known are {', '.join(_CLASS_OF_QOS)}")
    pod.spec.priority_class_name = _CLASS_OF_QOS[row["qos"]]
    container = pod.spec.containers.add(name="main", image="trace")
    requests = container.resources.requests
    requests["cpu"].string = f"{_integer(place, row, 'cpu_milli')}m"
    requests["memory"].string = str(_integer(place, row, "memory_mib") * MIB)
    gpus, milli = _integer(place, row, "num_gpu"), _integer(place, row, "gpu_milli")
    extended = {}
    if gpus == 1 and milli < _WHOLE_GPU_MILLI:
        extended["example.com/gpu-milli"] = str(milli)
    elif gpus:
        extended["nvidia.com/gpu"] = str(gpus)
    for name, quantity in extended.items():
        # Kubernetes does not overcommit extended resources: limits equal requests.
        requests[name].string = quantity
        container.resources.limits[name].string = quantity
    if row["gpu_spec"]:
        required = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        term = required.node_selector_terms.add()
        term.match_expressions.add(key="gpu-model", operator="In", values=row["gpu_spec"].split("|"))
    return pod


def _rows(directory: Path, name: str, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each line with where it stands."""
    plain, packed = directory / name, directory / f"{name}.gz"
    path = plain if plain.exists() else packed
    if not path.exists():
        raise TraceError(f"{directory} holds neither {name} nor {name}.gz; {WHERE_FROM}")
    with (gzip.open if path is packed else open)(path, "rt", newline="") as lines:
        reader = csv.DictReader(lines)
        if missing := [column for column in columns if column not in (reader.fieldnames or ())]:
            raise TraceError(f"{path}: the columns {', '.join(missing)} are missing; it has {', '.join(reader.fieldnames or ())}")
        for row in reader:
            yield f"{path}:{reader.line_num}", row


def _integer(place: str, row: dict[str, str], column: str) -> int:
    text = row[column]
    if not text.isdecimal():
        raise TraceError(f"{place}: {column} is {text!r}, expected a whole number")
    return int(text)
