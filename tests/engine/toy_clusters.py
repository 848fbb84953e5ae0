"""Random clusters for the toy plugins: every change goes to a snapshot and to the naive cluster alike."""

from __future__ import annotations

import copy
from random import Random

from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.v1.core_pb2 import Node, Pod
from tests.engine.toy_plugins import NaiveCluster, images_of

IMAGES = ("a", "b", "c")
TAINTS = ("hard", "soft", "odd", "mild")


class World:
    """A snapshot and a naive cluster in step."""

    def __init__(self, seed: int, n_nodes: int = 12) -> None:
        self.random = Random(seed)
        self.snapshot = Snapshot()
        self.naive = NaiveCluster({}, {}, {})
        self.templates = TemplateTable()
        self.numbers = 0
        self.pending = [a_random_pod(self.random) for _ in range(6)]
        for _ in range(n_nodes):
            self.add_node()

    def template(self, pod: Pod) -> PodTemplate:
        return self.templates.intern(pod)

    def step(self) -> None:
        change = self.random.choices(
            (self.add_node, self.remove_node, self.update_node, self.bind, self.unbind), (1, 1, 3, 8, 4)
        )[0]
        change()

    def add_node(self) -> None:
        self.numbers += 1
        # Some come back under the name of one that left.
        self._put(a_random_node(self.random, f"n{self.random.randint(1, self.numbers)}"))

    def update_node(self) -> None:
        if self.naive.nodes:
            node = copy.deepcopy(self.random.choice(list(self.naive.nodes.values())))
            other = a_random_node(self.random, node.metadata.name)
            match self.random.randrange(6):
                case 0:
                    node.spec.unschedulable = other.spec.unschedulable
                case 1:
                    del node.spec.taints[:]
                    node.spec.taints.extend(other.spec.taints)
                case 2:
                    node.metadata.labels.clear()
                    node.metadata.labels.update(other.metadata.labels)
                case 3:
                    node.status.allocatable["cpu"].string = other.status.allocatable["cpu"].string
                case 4:
                    del node.status.images[:]
                    node.status.images.extend(other.status.images)
                case 5:
                    node.metadata.annotations["nobody"] = "reads this"
            self._put(node)

    def _put(self, node: Node) -> None:
        name = node.metadata.name
        old = self.naive.nodes.get(name)
        self.snapshot.add_node(node)
        if old is None or old.status.images != node.status.images:
            others = {image for other in self.naive.nodes.values() if other is not old for image in images_of(other)}
            for image in images_of(old) if old is not None else ():
                if image not in others:
                    del self.naive.sizes[image]
            for reported in node.status.images:
                for image in reported.names:
                    self.naive.sizes.setdefault(image, reported.size_bytes)
        self.naive.nodes[name] = node

    def remove_node(self) -> None:
        if self.naive.nodes:
            name = self.random.choice(list(self.naive.nodes))
            node = self.naive.nodes.pop(name)
            for image in images_of(node):
                if not any(image in images_of(other) for other in self.naive.nodes.values()):
                    del self.naive.sizes[image]
            self.snapshot.remove_node(name)

    def bind(self) -> None:
        """Anywhere, also to nodes that are not there or have no room; some pods move or are confirmed where they are."""
        if self.naive.pods and self.random.random() < 0.2:
            uid = self.random.choice(list(self.naive.pods))
        else:
            self.numbers += 1
            uid = f"pod-{self.numbers}"
        pod = self.naive.pods[uid][0] if uid in self.naive.pods else self.random.choice(self.pending)
        name = f"n{self.random.randint(1, self.numbers)}"
        if self.naive.nodes and self.random.random() < 0.9:
            name = self.random.choice(list(self.naive.nodes))
        self.snapshot.bind(uid, self.template(pod), name)
        self.naive.pods[uid] = pod, name

    def unbind(self) -> None:
        if self.naive.pods:
            uid = self.random.choice(list(self.naive.pods))
            self.snapshot.unbind(uid)
            del self.naive.pods[uid]


def a_random_node(random: Random, name: str) -> Node:
    node = Node()
    node.metadata.name = name
    node.metadata.labels["zone"] = random.choice("xyz")
    if random.random() < 0.8:
        node.metadata.labels["rank"] = random.choice(("0", "1", "5", "5", "-3", "many"))
    if random.random() < 0.2:
        node.metadata.labels[name] = "own"
    node.spec.unschedulable = random.random() < 0.1
    for key in random.sample(TAINTS, random.choice((0, 0, 0, 1, 1, 2, 3))):
        node.spec.taints.add(key=key, effect="NoSchedule")
    node.status.allocatable["cpu"].string = random.choice(("1", "2", "4", "4"))
    node.status.allocatable["pods"].string = "10"
    if random.random() < 0.2:
        node.status.allocatable["x/gpu"].string = "2"
    for image in random.sample(IMAGES, random.choice((0, 1, 2))):
        node.status.images.add(names=[image], size_bytes=random.randint(1, 30))
    return node


def a_random_pod(random: Random) -> Pod:
    pod = Pod()
    pod.metadata.namespace = "default"
    labels = pod.metadata.labels
    for label, chance in (("brave", 0.2), ("shy", 0.4), ("odd", 0.1)):
        if random.random() < chance:
            labels[label] = ""
    labels["factor"] = random.choice(("0", "1", "3", "-2"))
    if random.random() < 0.2:
        labels["only"] = random.choice(("n1.n2.n3.n4.n5.n6.n7.nowhere", "n2", "all"))
    container = pod.spec.containers.add(name="c", image=random.choice((*IMAGES, "unknown")))
    container.resources.requests["cpu"].string = random.choice(("100m", "200m", "700m"))
    if random.random() < 0.2:
        container.resources.requests["x/gpu"].string = "1"
    if random.random() < 0.3:
        container.ports.add(host_port=random.choice((80, 443)), protocol="TCP", host_ip=random.choice(("", "10.0.0.1")))
    if random.random() < 0.3:
        pod.spec.node_selector["zone"] = random.choice("xyz")
    return pod
