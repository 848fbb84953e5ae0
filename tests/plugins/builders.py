"""Nodes and pods for tables of cases: `a_pod().requesting(cpu="2")`, `a_node("n1").with_taint("gpu", effect="NoSchedule")`."""

from __future__ import annotations

from typing import Self

from rayched.v1.core_pb2 import Node, NodeSelectorTerm, Pod, PodAffinity, PodAffinityTerm, PodAntiAffinity


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

    def named(self, namespace: str = "default", **labels: str) -> Self:
        """Labels, and the namespace."""
        self.pod.metadata.namespace = namespace
        self.pod.metadata.labels.update(labels)
        return self

    def near(self, key: str, term: PodAffinityTerm, weight: int = 0) -> Self:
        """With pods that the term is about: required, or preferred where there is a weight."""
        return self._affine(self.pod.spec.affinity.pod_affinity, key, term, weight)

    def away(self, key: str, term: PodAffinityTerm, weight: int = 0) -> Self:
        """Away from pods that the term is about."""
        return self._affine(self.pod.spec.affinity.pod_anti_affinity, key, term, weight)

    def _affine(self, terms: PodAffinity | PodAntiAffinity, key: str, term: PodAffinityTerm, weight: int) -> Self:
        added = (
            terms.preferred_during_scheduling_ignored_during_execution.add(weight=weight).pod_affinity_term
            if weight
            else terms.required_during_scheduling_ignored_during_execution.add()
        )
        added.CopyFrom(term)
        added.topology_key = key
        return self

    def spreading(self, key: str, max_skew: int = 1, soft: bool = False, selector: dict[str, str] | None = None) -> Self:
        """A constraint over the pods with these labels, by default the pod's own; others are set on the last constraint."""
        action = "ScheduleAnyway" if soft else "DoNotSchedule"
        constraint = self.pod.spec.topology_spread_constraints.add(max_skew=max_skew, topology_key=key, when_unsatisfiable=action)
        constraint.label_selector.match_labels.update(dict(self.pod.metadata.labels) if selector is None else selector)
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


def pods_with(*namespaces: str, **labels: str) -> PodAffinityTerm:
    """A term about pods with these labels, in these namespaces (none: the pod's own)."""
    term = PodAffinityTerm(namespaces=namespaces)
    term.label_selector.match_labels.update(labels)
    return term
