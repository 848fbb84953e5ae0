"""Random clusters and pods in which every rule of the in-tree plugins comes up, from one seeded generator.

A `World` keeps a Snapshot and a NaiveScheduler in step: every change goes to both.
"""

from __future__ import annotations

from random import Random
from typing import Any

from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.v1.core_pb2 import Container, Node, NodeAffinity, NodeSelectorTerm, Pod, Toleration
from tests.oracle.naive import NaiveScheduler, Settings
from tests.oracle.naive_topology import AffinitySettings, SpreadSettings
from tests.plugins.topology_parts import (
    add_domains,
    add_topology,
    random_constraint,
    random_namespace,
    random_replica_set,
    random_service,
)

LABELS = {
    "disktype": ("ssd", "hdd", "nvme"),
    "zone": ("a", "b", "c"),
    "cores": ("4", "16", "-3", "007", "9223372036854775808", "many"),
    "gpu": ("", "a100"),
}
TAINTS = (("gpu", ""), ("dedicated", "a"), ("dedicated", "b"), ("node.kubernetes.io/unreachable", ""))
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
IMAGES = ("nginx:latest", "redis:7", "registry.example:5000/app:latest", "huge:1", "sidecar:2")
SIZES = (24 << 20, 700 << 20, 90 << 20, 2000 << 20, 1)
EXTENDED = ("nvidia.com/gpu", "example.com/foo", "hugepages-2Mi")


class World:
    """A cluster in two forms."""

    def __init__(self, seed: int, settings: Settings | None = None, n_nodes: int = 12, n_pods: int = 20) -> None:
        self.random = Random(seed)
        self.snapshot = Snapshot()
        self.templates = TemplateTable()
        self.naive = NaiveScheduler(settings)
        self._numbers = 0
        for _ in range(3):
            self.change_surroundings()
        for _ in range(n_nodes):
            self.add_node()
        for _ in range(n_pods):
            self.bind()

    def add_node(self) -> None:
        self._numbers += 1
        node = self.draw_node(f"n{self._numbers}")
        self.snapshot.add_node(node)
        self.naive.add_node(node)

    def remove_node(self) -> None:
        if self.naive.nodes:
            name = self.random.choice(sorted(self.naive.nodes))
            self.snapshot.remove_node(name)
            self.naive.remove_node(name)

    def update_node(self) -> None:
        """Changes a node; its images stay, so that both forms agree on who reported a size first."""
        if self.naive.nodes:
            old = self.naive.nodes[self.random.choice(sorted(self.naive.nodes))]
            node = self.draw_node(old.metadata.name)
            del node.status.images[:]
            node.status.images.extend(old.status.images)
            self.snapshot.update_node(node)
            self.naive.nodes[old.metadata.name] = node

    def update_one_aspect(self) -> None:
        """Changes labels, or taints, or the cordon, or what there is to allocate, and nothing else."""
        if self.naive.nodes:
            old = self.naive.nodes[self.random.choice(sorted(self.naive.nodes))]
            drawn, node = self.draw_node(old.metadata.name), Node()
            node.CopyFrom(old)
            match self.random.randrange(4):
                case 0:
                    node.metadata.CopyFrom(drawn.metadata)
                case 1:
                    del node.spec.taints[:]
                    node.spec.taints.extend(drawn.spec.taints)
                case 2:
                    node.spec.unschedulable = not old.spec.unschedulable
                case 3:
                    node.status.allocatable.clear()
                    node.status.allocatable.MergeFrom(drawn.status.allocatable)
            self.snapshot.update_node(node)
            self.naive.nodes[old.metadata.name] = node

    def bind(self) -> None:
        """Puts a pod somewhere, now and then on a node that is not there, or one whose deletion has begun."""
        self._numbers += 1
        pod = self.draw_pod()
        where = self.random.choice([*self.naive.nodes, "gone"])
        terminating = self.random.random() < 0.15
        self.snapshot.bind(f"u{self._numbers}", self.templates.intern(pod), where, terminating=terminating)
        self.naive.bind(f"u{self._numbers}", pod, where, terminating)

    def terminate(self) -> None:
        """The deletion of a bound pod begins."""
        if self.naive.pods:
            uid = self.random.choice(sorted(self.naive.pods))
            pod, where = self.naive.pods[uid]
            self.snapshot.bind(uid, self.templates.intern(pod), where, terminating=True)
            self.naive.terminating.add(uid)

    def change_surroundings(self) -> None:
        """A namespace, service or replica set comes, changes or goes."""
        around, gone = self.naive.around, self.random.random() < 0.25
        match self.random.randrange(3):
            case 0:
                namespace = random_namespace(self.random)
                name = namespace.metadata.name
                around.namespaces[name] = dict(namespace.metadata.labels)
                if gone:
                    del around.namespaces[name]
                self.snapshot.set_object("Namespace", "", name, None if gone else namespace)
            case 1:
                service = random_service(self.random)
                place = service.metadata.namespace, service.metadata.name
                around.services[place] = dict(service.spec.selector)
                if gone:
                    del around.services[place]
                self.snapshot.set_object("Service", *place, None if gone else service)
            case 2:
                replica_set = random_replica_set(self.random)
                place = replica_set.metadata.namespace, replica_set.metadata.name
                around.controllers["ReplicaSet", *place] = replica_set.spec.selector
                if gone:
                    del around.controllers["ReplicaSet", *place]
                self.snapshot.set_object("ReplicaSet", *place, None if gone else replica_set)

    def unbind(self) -> None:
        if self.naive.pods:
            uid = self.random.choice(sorted(self.naive.pods))
            self.snapshot.unbind(uid)
            self.naive.unbind(uid)

    def change(self) -> None:
        self.random.choice(
            (
                self.add_node,
                self.remove_node,
                self.update_node,
                self.bind,
                self.bind,
                self.unbind,
                self.terminate,
                self.change_surroundings,
            )
        )()

    def draw_node(self, name: str) -> Node:
        return random_node(self.random, name)

    def draw_pod(self) -> Pod:
        return random_pod(self.random)

    def incoming(self) -> tuple[Pod, PodTemplate]:
        pod = self.draw_pod()
        if self.random.random() < 0.1:
            pod.spec.node_name = self.random.choice([*self.naive.nodes, "gone"])
        return pod, self.templates.intern(pod, with_node_name=True)


def random_settings(random: Random) -> Settings:
    """Arguments for the plugins that take some."""
    names = ["cpu", "memory", *random.sample(["ephemeral-storage", *EXTENDED, "pods"], random.randrange(4))]
    utilizations = sorted(random.sample(range(101), random.randrange(1, 5)))
    return Settings(
        strategy=random.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")),
        fit_resources=tuple((name, random.choice((1, 1, 3, 100))) for name in names),
        shape=tuple((utilization, random.choice((0, 0, random.randrange(11)))) for utilization in utilizations),
        balanced_resources=tuple(random.sample(names, random.randrange(1, len(names) + 1))),
        ignored_resources=("example.com/foo",) if random.random() < 0.3 else (),
        ignored_groups=("nvidia.com",) if random.random() < 0.3 else (),
        added_affinity=random_affinity(random, invalid=False) if random.random() < 0.5 else None,
        spread=random_spread_settings(random),
        affinity=AffinitySettings(random.choice((1, 1, 0, 10)), random.random() < 0.3, random.random() < 0.5),
    )


def random_spread_settings(random: Random) -> SpreadSettings:
    if random.random() < 0.5:
        return SpreadSettings()
    constraints = {}
    for _ in range(random.choice((0, 1, 2, 3))):
        constraint = random_constraint(random, with_selector=False)
        constraints[constraint.topology_key, constraint.when_unsatisfiable] = constraint
    return SpreadSettings(False, tuple(constraints.values()))


def random_node(random: Random, name: str) -> Node:
    node = Node()
    node.metadata.name = name
    for key, values in LABELS.items():
        if random.random() < 0.6:
            node.metadata.labels[key] = random.choice(values)
    add_domains(random, node.metadata.labels, name)
    node.spec.unschedulable = random.random() < 0.1
    soft = random.random() < 0.4
    for key, value in random.sample(TAINTS, random.choice((1, 2, 3)) if soft else random.choice((0, 0, 1, 2))):
        node.spec.taints.add(key=key, value=value, effect="PreferNoSchedule" if soft else random.choice(EFFECTS))
    allocatable = node.status.allocatable
    allocatable["cpu"].string = random.choice(("4", "1500m", "8", "0"))
    allocatable["memory"].string = random.choice(("8Gi", "4000Mi", "16G", "1"))
    allocatable["pods"].string = random.choice(("110", "110", "2", "1", "0"))
    if random.random() < 0.5:
        allocatable["ephemeral-storage"].string = random.choice(("10Gi", "1Gi"))
    for extended in EXTENDED:
        if random.random() < 0.4:
            allocatable[extended].string = random.choice(("1", "8", "64Mi"))
    for place in random.sample(range(len(IMAGES)), random.choice((0, 1, 3))):
        node.status.images.add(names=[IMAGES[place], f"alias-{place}:1"], size_bytes=SIZES[place] + random.randrange(3))
    return node


def random_pod(random: Random) -> Pod:
    pod = Pod()
    pod.metadata.namespace = "default"
    spec = pod.spec
    for _ in range(random.choice((1, 1, 2))):
        _random_container(random, spec.containers.add(name="c"))
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        container = spec.init_containers.add(name="i")
        _random_container(random, container)
        if random.random() < 0.5:
            container.restart_policy = "Always"
    if random.random() < 0.1:
        spec.overhead["cpu"].string = "250m"
        spec.overhead["memory"].string = "120Mi"
    if random.random() < 0.1:
        spec.resources.requests["memory"].string = "3Gi"
    if random.random() < 0.3:
        spec.node_selector["disktype"] = random.choice((*LABELS["disktype"], "tape"))
    if random.random() < 0.4:
        spec.affinity.node_affinity.CopyFrom(random_affinity(random, invalid=True))
    for _ in range(random.choice((0, 0, 1, 3))):
        spec.tolerations.append(_random_toleration(random))
    add_topology(random, pod)
    return pod


def tweaked(random: Random, pod: Pod) -> Pod:
    """A copy that differs in one small thing, if it has that thing."""
    other = Pod()
    other.CopyFrom(pod)
    spec, container = other.spec, random.choice(other.spec.containers)
    preferred = spec.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution
    match random.randrange(9):
        case 0 if spec.tolerations:
            random.choice(spec.tolerations).value = random.choice(("a", "b", ""))
        case 1 if spec.tolerations:
            random.choice(spec.tolerations).effect = random.choice(EFFECTS)
        case 2 if spec.tolerations:
            random.choice(spec.tolerations).operator = random.choice(("Equal", "Exists"))
        case 3 if preferred:
            random.choice(preferred).weight += 1
        case 4:
            spec.node_selector["disktype"] = random.choice(LABELS["disktype"])
        case 5 if container.ports:
            container.ports[0].host_ip = random.choice(("10.0.0.1", "10.0.0.2"))
        case 6:
            container.image = random.choice(IMAGES)
        case 7:
            container.resources.requests["memory"].string = random.choice(("1Gi", "2Gi"))
        case 8:
            container.resources.requests[random.choice(EXTENDED)].string = "1"
    return other


def _random_container(random: Random, container: Container) -> None:
    container.image = random.choice((*IMAGES, "nginx", "registry.example:5000/app", "unknown"))
    requests = container.resources.requests
    for name, texts in (
        ("cpu", ("100m", "0", "1", "0.25", "2500m")),
        ("memory", ("200Mi", "1Gi", "0", "1500M", "9Gi")),
        ("ephemeral-storage", ("1Gi", "0", "5Gi")),
        *((extended, ("0", "1", "2", "9")) for extended in EXTENDED),
    ):
        if random.random() < (0.6 if name in ("cpu", "memory") else 0.15):
            requests[name].string = random.choice(texts)
    if random.random() < 0.2:
        container.ports.add(
            host_port=random.choice((0, 80, 8080)),
            protocol=random.choice(("", "TCP", "UDP")),
            host_ip=random.choice(("", "0.0.0.0", "10.0.0.1", "10.0.0.2")),
        )


def _random_toleration(random: Random) -> Toleration:
    key, value = random.choice((*TAINTS, ("", ""), ("node.kubernetes.io/unschedulable", "")))
    operator = random.choice(("", "Equal", "Exists", "Exists", "Like"))
    return Toleration(key=key, value=value, operator=operator, effect=random.choice(("", "", *EFFECTS)))


def random_affinity(random: Random, invalid: bool) -> NodeAffinity:
    """Required and preferred terms; `invalid` allows required terms that do not parse."""
    affinity = NodeAffinity()
    if random.random() < 0.6:
        required = affinity.required_during_scheduling_ignored_during_execution
        required.SetInParent()
        required.node_selector_terms.extend(_random_term(random, invalid) for _ in range(random.choice((0, 1, 1, 2))))
    for _ in range(random.choice((0, 0, 1, 3))):
        affinity.preferred_during_scheduling_ignored_during_execution.add(
            weight=random.choice((1, 50, 100)), preference=_random_term(random, invalid=False)
        )
    return affinity


def _random_term(random: Random, invalid: bool) -> NodeSelectorTerm:
    term = NodeSelectorTerm()
    for _ in range(random.choice((0, 1, 1, 2))):
        key = random.choice((*LABELS, "missing"))
        operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        values: Any = random.sample((*LABELS["disktype"], *LABELS["zone"], "x"), random.choice((1, 2)))
        if operator in ("Exists", "DoesNotExist"):
            values = []
        elif operator in ("Gt", "Lt"):
            key, values = "cores", [random.choice(("3", "0", "15", "-1") if invalid else ("3", "0", "15"))]
        term.match_expressions.add(key=key, operator=operator, values=values)
    if random.random() < 0.25:
        term.match_fields.add(key="metadata.name", operator=random.choice(("In", "NotIn")), values=[f"n{random.randrange(1, 9)}"])
    return term
