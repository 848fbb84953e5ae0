"""Nodes and pods for tables of cases: `a_pod().requesting(cpu="2")`, `a_node("n1").with_taint("gpu", effect="NoSchedule")`."""

from __future__ import annotations

from typing import Self

from rayched.v1.core_pb2 import Node, NodeSelectorTerm, Pod


class PodBuilder:
    def __init__(self) -> None:
        self.pod = Pod()
        self.pod.metadata.name = "p"
        self.pod.metadata.namespace = "default"
        self.pod.spec.containers.add(name="c", image="app:1")

    def requesting(self, **amounts: str) -> Self:
        return self.requesting_of(amounts)

    def requesting_of(self, amounts: dict[str, str]) -> Self:
        for name, text in amounts.items():
            self.pod.spec.containers[0].resources.requests[name].string = text
        return self

    def selecting(self, **labels: str) -> Self:
        for key, value in labels.items():
            self.pod.spec.node_selector[key] = value
        return self

    def tolerating(self, key: str = "", value: str = "", operator: str = "", effect: str = "") -> Self:
        self.pod.spec.tolerations.add(key=key, value=value, operator=operator, effect=effect)
        return self

    def requiring(self, *terms: NodeSelectorTerm) -> Self:
        required = self.pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        required.SetInParent()
        required.node_selector_terms.extend(terms)
        return self

    def preferring(self, weight: int, term: NodeSelectorTerm) -> Self:
        self.pod.spec.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution.add(
            weight=weight, preference=term
        )
        return self

    def on_host_port(self, port: int, ip: str = "", protocol: str = "", init: bool = False, restart: str = "") -> Self:
        container = self.pod.spec.containers[0]
        if init:
            container = self.pod.spec.init_containers.add(name="i", image="init:1")
            if restart:
                container.restart_policy = restart
        container.ports.add(host_port=port, host_ip=ip, protocol=protocol)
        return self

    def with_images(self, *images: str) -> Self:
        del self.pod.spec.containers[:]
        for image in images:
            self.pod.spec.containers.add(name="c", image=image)
        return self


class NodeBuilder:
    def __init__(self, name: str) -> None:
        self.node = Node()
        self.node.metadata.name = name
        self.offering(cpu="8", memory="16Gi", pods="110")

    def offering(self, **amounts: str) -> Self:
        return self.offering_of(amounts)

    def offering_of(self, amounts: dict[str, str]) -> Self:
        for name, text in amounts.items():
            self.node.status.allocatable[name].string = text
        return self

    def labelled(self, **labels: str) -> Self:
        for key, value in labels.items():
            self.node.metadata.labels[key] = value
        return self

    def with_taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        self.node.spec.taints.add(key=key, value=value, effect=effect)
        return self

    def with_image(self, name: str, mebibytes: int) -> Self:
        self.node.status.images.add(names=[name], size_bytes=mebibytes << 20)
        return self

    def cordoned(self) -> Self:
        self.node.spec.unschedulable = True
        return self

    def with_condition(self, kind: str, status: str = "True") -> Self:
        self.node.status.conditions.add(type=kind, status=status)
        return self


def a_pod() -> PodBuilder:
    return PodBuilder()


def a_node(name: str) -> NodeBuilder:
    return NodeBuilder(name)


def a_term(*expressions: tuple[str, str, tuple[str, ...]], name: str | None = None) -> NodeSelectorTerm:
    """A node selector term of (key, operator, values), and a node's name that it asks for."""
    term = NodeSelectorTerm()
    for key, operator, values in expressions:
        term.match_expressions.add(key=key, operator=operator, values=values)
    if name is not None:
        term.match_fields.add(key="metadata.name", operator="In", values=[name])
    return term
