"""The cluster as the scheduler knows it: nodes and bound pods, kept as columns that follow every change.

A pod is bound to a node by name. Assumed and confirmed bindings look the same here; a binding to a node that is not there (yet)
is kept and counts from the moment the node arrives. A node that leaves takes its row with it; its pods stay known until they
are unbound and count again if the node returns.

Invariants (`verification.verify` checks them all):

* requested, non_zero_requested and host ports of a row are the sums over the pods bound to its node, no more and no less.
* Everything else of a row is what its node object says. Only aspects that differ from the row's earlier ones are logged.
* Images: size and number of nodes are cluster-wide, so a change of either cuts the image log.
* Counters count the bound pods of nodes that are there; a pod that is being deleted counts for some of them only.

Owner: the scheduler; one thread. Cost: bind and unbind about 2 µs, a node that comes about
20 µs, one that changes 2 to 15 µs, whatever the size of the cluster.

Source: NodeInfo and the cache of kube-scheduler 1.34.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np
from google.protobuf.message import Message

from rayched.api.node_difference import EVERYTHING, NodeDifference
from rayched.snapshot.budgets import Budgets
from rayched.snapshot.change_log import ChangeLog
from rayched.snapshot.columns import Log
from rayched.snapshot.domains import Topology
from rayched.snapshot.images import ImageCensus, ReportedImages, reported_images
from rayched.snapshot.node_aspects import NodeAspects, allocatable_of, taints_of
from rayched.snapshot.pod_counts import PodCounts
from rayched.snapshot.pod_facts import NO_FACTS, PodFacts
from rayched.snapshot.row_groups import RowGroups
from rayched.snapshot.table import ALL_ASPECTS, NO_VALUE, NodeTable, TaintKey
from rayched.snapshot.templates import PodTemplate
from rayched.snapshot.unused_values import UnusedValues
from rayched.snapshot.workloads import Workloads
from rayched.v1.core_pb2 import Node
from rayched.v1.workloads_pb2 import PodDisruptionBudget, PodGroup

BUDGET_KIND: Final = "PodDisruptionBudget"
GROUP_KIND: Final = "PodGroup"
TOPOLOGIES_MAX: Final = 256
"""Topology keys whose domains are kept."""


class BoundPod(NamedTuple):
    """A pod that is on a node, or on its way there."""

    template: PodTemplate
    node_name: str
    terminating: bool = False
    """It is being deleted."""
    facts: PodFacts = NO_FACTS


class Snapshot(NodeTable):
    """A NodeTable that is filled from node objects and bindings."""

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[str, Node] = {}
        self._facts: dict[str, NodeAspects] = {}
        self._free: list[int] = []
        self._pods: dict[str, BoundPod] = {}
        self._pods_by_node: dict[str, dict[str, PodTemplate]] = {}
        self._priorities: dict[int, int] = {}
        """Bound pods by priority."""
        self._images = ImageCensus(self.image_states)
        self._unused = UnusedValues()
        self._counts = PodCounts(self.mentioned_labels, self.work)
        self._surroundings = Workloads(self.mentioned_labels)
        self.budgets = Budgets()
        self.facts_log = ChangeLog()
        """Rows where the facts of a pod changed, and nothing else of it."""
        self._topologies: dict[str, Topology] = {}
        self._domain_groups: dict[tuple[str, ...], tuple[tuple[tuple[int, int], ...], RowGroups]] = {}

    # ------------------------------------------------------------------------------------------------------------ nodes

    def node(self, name: str) -> Node | None:
        """The node object as it was last given. Not to be changed."""
        return self._nodes.get(name)

    def node_names(self) -> list[str]:
        """In the order in which the nodes arrived."""
        return list(self._nodes)

    def add_node(self, node: Node) -> int:
        """Take a node in and give it a row; a node that is there already is updated. Returns its row."""
        name = node.metadata.name
        if name in self._facts:
            return self.update_node(node)
        facts = NodeAspects.of(node)
        if self._free:
            row = heapq.heappop(self._free)
        else:
            row = self.n_rows
            self.reserve(row + 1)
        self._nodes[name], self._facts[name] = node, facts
        self.names[row], self.rows_by_name[name] = name, row
        self.alive_rows[row] = True
        self.n_nodes += 1
        self._write_allocatable(row, facts.allocatable)
        self._write_labels(row, {}, facts.labels)
        self._write_taints(row, facts.taints)
        self.unschedulable[row] = facts.unschedulable
        self._write_images(row, (), facts.images)
        for uid, template in self._pods_by_node.get(name, {}).items():
            self._count(row, template, 1)
            self._counts.move(row, template, 1, terminating=self._pods[uid].terminating)
        self.record(ALL_ASPECTS, row)
        self._spread_changed()
        self._unused.drop(self)
        return row

    def update_node(self, node: Node, difference: NodeDifference = EVERYTHING) -> int:
        """Take over a node's new state; a node that is not there yet is added. Returns its row.

        `difference`: in what it may differ from the node as it was last given.
        """
        name = node.metadata.name
        facts = self._facts.get(name)
        if facts is None:
            return self.add_node(node)
        row, changed = self.rows_by_name[name], list[Log]()
        if difference.allocatable and (allocatable := allocatable_of(node)) != facts.allocatable:
            self._write_allocatable(row, allocatable)
            facts.allocatable = allocatable
            changed.append(Log.USAGE)
        if difference.labels and (labels := dict(node.metadata.labels)) != facts.labels:
            self._write_labels(row, facts.labels, labels)
            facts.labels = labels
            changed.append(Log.LABELS)
        if difference.taints and (taints := taints_of(node)) != facts.taints:
            self._write_taints(row, taints)
            facts.taints = taints
            changed.append(Log.TAINTS)
        if (difference.cordoned or difference.uncordoned) and node.spec.unschedulable != facts.unschedulable:
            self.unschedulable[row] = facts.unschedulable = node.spec.unschedulable
            changed.append(Log.UNSCHEDULABLE)
        if difference.images and (images := reported_images(node)) != facts.images:
            self._write_images(row, facts.images, images)
            facts.images = images
            changed.append(Log.IMAGES)
        self._nodes[name] = node
        if changed:
            self.record(changed, row)
            if Log.IMAGES in changed:
                self._spread_changed()
            self._unused.drop(self)
        return row

    def remove_node(self, name: str) -> int | None:
        """Let a node go; its pods stay known. Returns the row it had, None where it was not there."""
        facts = self._facts.pop(name, None)
        if facts is None:
            return None
        del self._nodes[name]
        row = self.rows_by_name.pop(name)
        for uid, template in self._pods_by_node.get(name, {}).items():
            self._counts.move(row, template, -1, terminating=self._pods[uid].terminating)
            for host_port in template.host_ports:
                self.add_port_users(host_port, row, -1)
        self._spread_changed()
        self._images.remove(facts.images)
        self.clear_row(row)
        self.names[row] = ""
        self.n_nodes -= 1
        heapq.heappush(self._free, row)
        self.record(ALL_ASPECTS, row)
        return row

    # ------------------------------------------------------------------------------------------------------------- pods

    def bind(
        self, uid: str, template: PodTemplate, node_name: str, *, terminating: bool = False, facts: PodFacts = NO_FACTS
    ) -> None:
        """The pod takes up room on the node from now on. A pod that is bound elsewhere, or as another template, moves.

        `terminating`: its deletion has begun; it goes on taking up room, but does not count for everything any more.
        """
        bound = self._pods.get(uid)
        if bound is not None:
            if bound.node_name == node_name and bound.template is template and bound.terminating is terminating:
                if bound.facts != facts:
                    self._pods[uid] = BoundPod(template, node_name, terminating, facts)
                    row = self.rows_by_name.get(node_name)
                    if row is not None:
                        self.facts_log.append(row)
                return
            self.unbind(uid)
        self._pods[uid] = BoundPod(template, node_name, terminating, facts)
        self._priorities[template.priority] = self._priorities.get(template.priority, 0) + 1
        on_node = self._pods_by_node.get(node_name)
        if on_node is None:
            on_node = self._pods_by_node[node_name] = {}
        on_node[uid] = template
        row = self.rows_by_name.get(node_name)
        self._counts.count(row, template, 1, terminating=terminating)
        if row is not None:
            self._count(row, template, 1)
            self._log_count(row, template)

    def unbind(self, uid: str) -> BoundPod | None:
        """The pod takes up no room any more. Returns where it was; None where it was not bound."""
        bound = self._pods.pop(uid, None)
        if bound is None:
            return None
        priority = bound.template.priority
        self._priorities[priority] -= 1
        if not self._priorities[priority]:
            del self._priorities[priority]
        on_node = self._pods_by_node[bound.node_name]
        del on_node[uid]
        if not on_node:
            del self._pods_by_node[bound.node_name]
        row = self.rows_by_name.get(bound.node_name)
        self._counts.count(row, bound.template, -1, terminating=bound.terminating)
        if row is not None:
            self._count(row, bound.template, -1)
            self._log_count(row, bound.template)
        return bound

    @contextmanager
    def without_pod(self, uid: str) -> Iterator[None]:
        """The cluster as if the pod took up no room; afterwards it is back in its place among the pods of its node."""
        bound = self._pods.get(uid)
        order = [] if bound is None else list(self.pods_on(bound.node_name))
        self.unbind(uid)
        try:
            yield
        finally:
            if bound is not None:
                self.bind(uid, bound.template, bound.node_name, terminating=bound.terminating, facts=bound.facts)
                on_node = self._pods_by_node[bound.node_name]
                for later in order[order.index(uid) + 1 :]:
                    on_node[later] = on_node.pop(later)

    def put_in_order(self, node_name: str, uids: Iterable[str]) -> None:
        """Pods of the node that were off and are back take their places among the others again: `uids` has all, in order."""
        on_node = self._pods_by_node.get(node_name, {})
        for uid in uids:
            if uid in on_node:
                on_node[uid] = on_node.pop(uid)

    def bound(self, uid: str) -> BoundPod | None:
        return self._pods.get(uid)

    def known(self, uid: str) -> BoundPod:
        """A pod that is bound. Raises KeyError."""
        return self._pods[uid]

    def has_pods_below(self, priority: int) -> bool:
        """Whether any bound pod has a lower priority."""
        return any(known < priority for known in self._priorities)

    @property
    def n_pods(self) -> int:
        """Bound pods, also those of nodes that are not there."""
        return len(self._pods)

    def bound_node_names(self) -> list[str]:
        """Nodes that pods are bound to, also those that are not there."""
        return list(self._pods_by_node)

    def pods_on(self, node_name: str) -> Mapping[str, PodTemplate]:
        """Pods bound to a node, by uid, in the order of their binding; also of a node that is not there. Not to be changed."""
        return self._pods_by_node.get(node_name, {})

    # ----------------------------------------------------------------------------------------------- what pods refer to

    def set_object(self, kind: str, namespace: str, name: str, message: Message | None) -> None:
        """Take over an object of another kind, by its kind's name; None: it is gone. Kinds that nobody reads are let pass."""
        if kind == BUDGET_KIND:
            self.budgets.set(namespace, name, message if isinstance(message, PodDisruptionBudget) else None)
        elif kind == GROUP_KIND:
            is_whole = isinstance(message, PodGroup) and message.spec.disruption_mode.HasField("all")
            self.budgets.set_whole(namespace, name, is_whole=is_whole)
        elif self._surroundings.set_object(kind, namespace, name, message):
            self._counts.revision += 1
            self.revision += 1

    @property
    def pod_counts(self) -> PodCounts:
        return self._counts

    @property
    def surroundings(self) -> Workloads:
        return self._surroundings

    def domain_groups(self, topologies: Sequence[Topology]) -> RowGroups:
        """Rows alike in their domains of these topologies, which are refreshed already. Shared, so not to be changed."""
        keys = tuple(topology.key for topology in topologies)
        # A row that comes without a label moves in no topology, and has no group yet.
        versions = ((self.n_rows, 0), *((id(topology), topology.version) for topology in topologies))
        found = self._domain_groups.get(keys)
        if found is None or found[0] != versions or len(found[1].ids) != self.capacity:
            if len(self._domain_groups) >= TOPOLOGIES_MAX:
                del self._domain_groups[next(iter(self._domain_groups))]
            columns = [topology.column[: self.n_rows].astype(np.int64) for topology in topologies]
            found = self._domain_groups[keys] = versions, RowGroups(columns, self.capacity)
        return found[1]

    def topology(self, key: str) -> Topology:
        found = self._topologies.get(key)
        if found is None:
            if len(self._topologies) >= TOPOLOGIES_MAX:
                del self._topologies[next(iter(self._topologies))]
            found = self._topologies[key] = Topology(self, key)
        found.refresh()
        return found

    def reserve(self, n_rows: int) -> None:
        capacity = self.capacity
        super().reserve(n_rows)
        if self.capacity != capacity:
            self._counts.reserve(self.capacity)

    # ---------------------------------------------------------------------------------------------------------- writing

    def _count(self, row: int, template: PodTemplate, sign: int) -> None:
        # The vector first: a resource that is new makes the table another one.
        taken = self.vectors_of(template)[2]
        used = self.used[:, row]
        if self.wide_sums.is_asked(row, template.id):
            self.wide_sums.change(row, used, taken, sign)
        elif sign > 0:
            used += taken
        else:
            used -= taken
        for host_port in template.host_ports:
            self.add_port_users(host_port, row, sign)

    def _log_count(self, row: int, template: PodTemplate) -> None:
        """The one log entry of most decisions, so it takes the short way."""
        self.usage_log.append(row)
        if template.host_ports:
            self.logs[Log.PORTS].append(row)
        self.revision += 1

    def _write_allocatable(self, row: int, allocatable: Mapping[str, int]) -> None:
        for name in allocatable:
            self.resource_place(name)
        self.allocatable[:, row] = 0
        for name, amount in allocatable.items():
            self.allocatable[self.resources[name], row] = amount

    def _write_labels(self, row: int, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        for key in old:
            if key not in new:
                self.labels[key][row] = NO_VALUE
        for key, text in new.items():
            if old.get(key) != text:
                self.label_column(key)[row] = self.label_interner.intern(text, text)

    def _write_taints(self, row: int, taints: TaintKey) -> None:
        self.taint_set[row] = self.intern_taints(taints)

    def _write_images(self, row: int, old: ReportedImages, new: ReportedImages) -> None:
        self._images.remove(old)
        self._images.add(new)
        names = frozenset(name for name, _ in new)
        self.image_set[row] = self.image_interner.intern(names, names)

    def _spread_changed(self) -> None:
        """The share of nodes that have an image counts on every row. Nothing to do while no node reports any image."""
        if self.image_states:
            self.logs[Log.IMAGES].cut()
