"""A check of a whole snapshot: everything is recounted from its node objects and bound pods, one by one, and compared.

Shares no arithmetic with the snapshot: no columns, no vectors, no differences. For tests, after each step, and for a look into a
running scheduler. Cost: about 20 µs a node and 5 µs a pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from rayched.api import quantity
from rayched.snapshot.pod_selection import CarriedTerm, terms_of_bound
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import NO_VALUE
from rayched.snapshot.templates import PodTemplate
from rayched.snapshot.wide_sums import INT64_MAX
from rayched.v1.core_pb2 import Node

ASKED_ABOUT_MAX: Final = 16
"""Bound pods for which it is asked which terms are about such a one."""


class SnapshotError(AssertionError):
    """A snapshot that does not say what its nodes and pods say. Each line: a row, a column, what is there, what should be."""


def verify(snapshot: Snapshot) -> None:
    """Raises SnapshotError."""
    faults = [*_faults_of_rows(snapshot), *_faults_of_ports(snapshot), *_faults_of_images(snapshot)]
    faults += _faults_of_counters(snapshot)
    if faults:
        raise SnapshotError("\n".join(faults))


def _faults_of_rows(snapshot: Snapshot) -> Iterator[str]:
    names = snapshot.node_names()
    rows = {name: snapshot.row_of(name) for name in names}
    yield from _difference("snapshot", "n_nodes", snapshot.n_nodes, len(names))
    yield from _difference("snapshot", "rows", len(set(rows.values()) - {None}), len(names))
    alive = {row for row in range(snapshot.n_rows) if snapshot.alive[row]}
    yield from _difference("snapshot", "alive", alive, set(rows.values()))
    for name, row in rows.items():
        node = snapshot.node(name)
        if row is not None and node is not None:
            yield from _difference(f"row {row}", "name", snapshot.name_of(row), name)
            yield from _faults_of_usage(snapshot, row, node)
            yield from _faults_of_node(snapshot, row, node)
    for row in set(range(snapshot.n_rows)) - alive:
        yield from _difference(f"row {row}", "name", snapshot.name_of(row), "")
        yield from _difference(f"row {row}", "allocatable", snapshot.allocatable[:, row].any(), False)
        yield from _difference(f"row {row}", "requested", snapshot.requested[:, row].any(), False)
        yield from _difference(f"row {row}", "labels", _labels(snapshot, row), {})


def _faults_of_usage(snapshot: Snapshot, row: int, node: Node) -> Iterator[str]:
    requested: Counter[str] = Counter()
    cpu = memory = 0
    for template in snapshot.pods_on(node.metadata.name).values():
        requested.update({**template.accounted, "pods": 1})
        cpu, memory = cpu + template.non_zero[0], memory + template.non_zero[1]
    offered = {
        name: quantity.milli_value(amount.string) if name == "cpu" else quantity.value(amount.string)
        for name, amount in node.status.allocatable.items()
    }
    place = f"row {row}"
    for name, at in snapshot.resources.items():
        yield from _difference(place, f'allocatable["{name}"]', snapshot.allocatable[at, row], offered.get(name, 0))
        yield from _difference(place, f'requested["{name}"]', snapshot.requested[at, row], min(requested[name], INT64_MAX))
    yield from _difference(place, "resources", set(offered) | set(requested) <= set(snapshot.resources), True)
    yield from _difference(
        place, "non_zero_requested", snapshot.non_zero_requested[:, row].tolist(), [min(cpu, INT64_MAX), min(memory, INT64_MAX)]
    )


def _faults_of_node(snapshot: Snapshot, row: int, node: Node) -> Iterator[str]:
    place = f"row {row}"
    yield from _difference(place, "labels", _labels(snapshot, row), dict(node.metadata.labels))
    yield from _difference(place, "unschedulable", bool(snapshot.unschedulable[row]), node.spec.unschedulable)
    taints = [(taint.key, taint.value, taint.effect) for taint in snapshot.taint_sets[snapshot.taint_set[row]]]
    yield from _difference(place, "taints", taints, [(taint.key, taint.value, taint.effect) for taint in node.spec.taints])
    images = {name for image in node.status.images for name in image.names}
    yield from _difference(place, "images", set(snapshot.image_sets[snapshot.image_set[row]]), images)


def _labels(snapshot: Snapshot, row: int) -> dict[str, str]:
    return {key: snapshot.label_values[column[row]] for key, column in snapshot.labels.items() if column[row] != NO_VALUE}


def _faults_of_ports(snapshot: Snapshot) -> Iterator[str]:
    expected: Counter[tuple[str, int, str, int]] = Counter()
    for name in snapshot.node_names():
        row = snapshot.row_of(name)
        for template in snapshot.pods_on(name).values():
            for protocol, port, ip in template.host_ports:
                if row is not None:
                    expected[protocol, port, ip, row] += 1
    found = {
        (protocol, port, ip, row): count
        for (protocol, port), by_ip in snapshot.port_use.items()
        for ip, users in by_ip.items()
        for row, count in users.items()
    }
    yield from _difference("snapshot", "port_use", found, dict(expected))


def _faults_of_images(snapshot: Snapshot) -> Iterator[str]:
    """The size depends on which node came first, so only that some node reports, or reported, the image is checked."""
    nodes: Counter[str] = Counter()
    for name in snapshot.node_names():
        node = snapshot.node(name)
        if node is not None:
            nodes.update({image for reported in node.status.images for image in reported.names})
    yield from _difference("snapshot", "image_states", {name: n for name, (_, n) in snapshot.image_states.items()}, dict(nodes))


def _faults_of_counters(snapshot: Snapshot) -> Iterator[str]:
    bound = [(name, uid, template) for name in snapshot.bound_node_names() for uid, template in snapshot.pods_on(name).items()]
    carried: Counter[CarriedTerm] = Counter()
    for _, _, template in bound:
        carried.update(terms_of_bound(template.pod))
    carriers = {term: count for term, count in snapshot.pod_counts.terms.carriers().items() if count}
    yield from _difference("snapshot", "carriers of terms", carriers, dict(carried))
    for _, _, template in bound[:ASKED_ABOUT_MAX]:
        yield from _faults_of_terms(snapshot, carried, template)
    for counter in snapshot.pod_counts.counters():
        expected = [0] * snapshot.n_rows
        for name, uid, template in bound:
            row, pod = snapshot.row_of(name), snapshot.bound(uid)
            if row is None or pod is None:
                continue
            expected[row] += all(
                one.matches(template.namespace, template.labels) and (one.terminating or not pod.terminating)
                for one in counter.what
            )
        yield from _difference("snapshot", f"counter {counter.what}", counter.column[: snapshot.n_rows].tolist(), expected)


def _faults_of_terms(snapshot: Snapshot, carried: Iterable[CarriedTerm], template: PodTemplate) -> Iterator[str]:
    terms, labels = snapshot.pod_counts.terms, snapshot.surroundings.labels_of(template.namespace)
    about = terms.about(template.namespace, template.labels, labels, 0)
    found = {term for term in carried if about.item(terms.number(term))}
    expected = {term for term in carried if term.matches(template.namespace, template.labels, labels)}
    yield from _difference("snapshot", f"terms about pods like {template.pod.metadata.name}", found, expected)


def _difference(place: str, column: str, found: object, expected: object) -> Iterator[str]:
    if found != expected:
        yield f"{place}: {column} is {found}, expected {expected}"
