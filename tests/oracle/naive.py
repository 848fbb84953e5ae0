"""The naive scheduler: kube-scheduler's rules for one pod and one node at a time, in plain Python over messages.

The oracle of the plugins and of the engine. It shares no function, no constant and no column with them: quantities, selectors,
tolerations and resources are worked out here once more, and everything is counted anew for every pod. It is slow and obvious.

    naive = NaiveScheduler()
    naive.add_node(node); naive.bind(uid, pod, node_name)
    attempt = naive.attempt(pod)

Source: the documented behaviour of kube-scheduler 1.34 and the recorded cases.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from rayched.v1.core_pb2 import Node, Pod
from tests.oracle.naive_rules import (
    accounted,
    allocatable,
    any_term,
    covers,
    has_required,
    host_ports,
    is_counted,
    preferred,
    preferred_terms,
    requests,
    required_terms,
    term_matches,
    whole,
)
from tests.oracle.naive_topology import AffinitySettings, NaiveAffinity, NaiveSpread, SpreadSettings, Surroundings

GOOD, NO, NEVER = "Success", "Unschedulable", "UnschedulableAndUnresolvable"
Verdict = tuple[str, list[str]]
"""Code and reasons, sorted."""

FILTERS = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
)
WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}


@dataclass
class Settings:
    """Arguments of the plugins, as plain data."""

    strategy: str = "LeastAllocated"
    fit_resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))
    shape: tuple[tuple[int, int], ...] = ()
    balanced_resources: tuple[str, ...] = ("cpu", "memory")
    ignored_resources: tuple[str, ...] = ()
    ignored_groups: tuple[str, ...] = ()
    added_affinity: Any = None
    spread: SpreadSettings = field(default_factory=SpreadSettings)
    affinity: AffinitySettings = field(default_factory=AffinitySettings)
    weights: dict[str, int] = field(default_factory=lambda: dict(WEIGHTS))


@dataclass
class Attempt:
    """All that there is to know about scheduling one pod now."""

    prefilter: Verdict
    narrowed: set[str] | None
    verdicts: dict[str, dict[str, Verdict]]
    """Node to plugin to verdict, each plugin on its own."""
    rejected_by: dict[str, str]
    """Node to the first plugin that rejects it."""
    feasible: list[str]
    raw: dict[str, dict[str, int]]
    """Plugin to node to raw score, over the feasible nodes; skipped plugins are absent."""
    normalized: dict[str, dict[str, int]]
    total: dict[str, int]


class NaiveScheduler:
    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, tuple[Pod, str]] = {}
        self.images: dict[str, tuple[int, set[str]]] = {}
        self.terminating: set[str] = set()
        self.around = Surroundings()

    # ----------------------------------------------------------------------------------------------------- cluster

    def add_node(self, node: Node) -> None:
        self.remove_node(node.metadata.name)
        self.nodes[node.metadata.name] = node
        for image in node.status.images:
            for name in image.names:
                self.images.setdefault(name, (image.size_bytes, set()))[1].add(node.metadata.name)

    def remove_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        for image, (_, holders) in list(self.images.items()):
            holders.discard(name)
            if not holders:
                del self.images[image]

    def bind(self, uid: str, pod: Pod, node_name: str, terminating: bool = False) -> None:
        self.pods[uid] = (pod, node_name)
        self.terminating.discard(uid)
        if terminating:
            self.terminating.add(uid)

    def unbind(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.terminating.discard(uid)

    def _pods_on(self, node: Node) -> list[Pod]:
        return [pod for pod, where in self.pods.values() if where == node.metadata.name]

    # ----------------------------------------------------------------------------------------------------- attempt

    def attempt(self, pod: Pod) -> Attempt:
        prefilter, narrowed = narrow(pod)
        verdicts: dict[str, dict[str, Verdict]] = {}
        rejected_by: dict[str, str] = {}
        feasible: list[str] = []
        self._spread, self._affinity = self.beyond_one_node(pod)
        for name, node in self.nodes.items():
            verdicts[name] = {plugin: self.verdict(plugin, pod, node) for plugin in FILTERS}
            rejections = [plugin for plugin in FILTERS if verdicts[name][plugin][0] != GOOD]
            if rejections:
                rejected_by[name] = rejections[0]
            elif prefilter[0] == GOOD and (narrowed is None or name in narrowed):
                feasible.append(name)
        raw: dict[str, dict[str, int]] = {}
        normalized: dict[str, dict[str, int]] = {}
        for plugin, beyond in (("PodTopologySpread", self._spread), ("InterPodAffinity", self._affinity)):
            found = beyond.scores([self.nodes[name] for name in feasible]) if feasible else None
            if found is not None:
                raw[plugin], normalized[plugin] = (dict(zip(feasible, column, strict=True)) for column in found)
        for plugin in self.settings.weights:
            if plugin in ("PodTopologySpread", "InterPodAffinity"):
                continue
            if self.scores_for(plugin, pod):
                raw[plugin] = {name: self.score(plugin, pod, self.nodes[name]) for name in feasible}
                normalized[plugin] = normalize(plugin, raw[plugin])
        total = {
            name: sum(self.settings.weights[plugin] * scores[name] for plugin, scores in normalized.items()) for name in feasible
        }
        return Attempt(prefilter, narrowed, verdicts, rejected_by, feasible, raw, normalized, total)

    def beyond_one_node(self, pod: Pod) -> tuple[NaiveSpread, NaiveAffinity]:
        nodes = list(self.nodes.values())
        pods = [(other, where, uid in self.terminating) for uid, (other, where) in self.pods.items()]
        return (
            NaiveSpread(pod, nodes, pods, self.around, self.settings.spread),
            NaiveAffinity(pod, nodes, pods, self.around, self.settings.affinity),
        )

    def verdict(self, plugin: str, pod: Pod, node: Node) -> Verdict:
        code, reasons = getattr(self, f"_filter_{plugin}")(pod, node)
        return code, sorted(reasons)

    def scores_for(self, plugin: str, pod: Pod) -> bool:
        """Whether the plugin takes part in scoring this pod."""
        if plugin == "NodeAffinity":
            return bool(preferred(pod)) or bool(self._added() and preferred_terms(self._added()))
        if plugin == "NodeResourcesBalancedAllocation":
            asked = requests(pod)
            return any(whole(asked, name) for name in self.settings.balanced_resources)
        return True

    def score(self, plugin: str, pod: Pod, node: Node) -> int:
        score: int = getattr(self, f"_score_{plugin}")(pod, node)
        return score

    # ----------------------------------------------------------------------------------------------------- filters

    def _filter_NodeUnschedulable(self, pod: Pod, node: Node) -> Verdict:
        tolerated = any(covers(t, "node.kubernetes.io/unschedulable", "", "NoSchedule") for t in pod.spec.tolerations)
        return (NEVER, ["node(s) were unschedulable"]) if node.spec.unschedulable and not tolerated else (GOOD, [])

    def _filter_NodeName(self, pod: Pod, node: Node) -> Verdict:
        wanted = pod.spec.node_name
        if wanted and wanted != node.metadata.name:
            return NEVER, ["node(s) didn't match the requested node name"]
        return GOOD, []

    def _filter_TaintToleration(self, pod: Pod, node: Node) -> Verdict:
        for taint in node.spec.taints:
            if taint.effect == "PreferNoSchedule":
                continue
            if not any(covers(t, taint.key, taint.value, taint.effect) for t in pod.spec.tolerations):
                return NEVER, ["node(s) had untolerated taint {" + taint.key + ": " + taint.value + "}"]
        return GOOD, []

    def _added(self) -> Any:
        return self.settings.added_affinity

    def _filter_NodeAffinity(self, pod: Pod, node: Node) -> Verdict:
        added = self._added()
        if added is not None and has_required(added) and not any_term(required_terms(added), node):
            return NEVER, ["node(s) didn't match scheduler-enforced node affinity"]
        reason = "node(s) didn't match Pod's node affinity/selector"
        for key, value in pod.spec.node_selector.items():
            if node.metadata.labels.get(key) != value:
                return NEVER, [reason]
        own = pod.spec.affinity.node_affinity
        if has_required(own) and not any_term(required_terms(own), node):
            return NEVER, [reason]
        return GOOD, []

    def _filter_NodePorts(self, pod: Pod, node: Node) -> Verdict:
        held = [port for other in self._pods_on(node) for port in host_ports(other)]
        for protocol, number, address in host_ports(pod):
            for other_protocol, other_number, other_address in held:
                same = protocol == other_protocol and number == other_number
                if same and (address == other_address or "0.0.0.0" in (address, other_address)):
                    return NO, ["node(s) didn't have free ports for the requested pod ports"]
        return GOOD, []

    def _filter_NodeResourcesFit(self, pod: Pod, node: Node) -> Verdict:
        reasons: list[str] = []
        never = False
        if len(self._pods_on(node)) + 1 > allocatable(node, "pods"):
            reasons.append("Too many pods")
        asked = requests(pod)
        for name in asked:
            amount = whole(asked, name)
            if not amount or not is_counted(name) or self._is_ignored(name):
                continue
            there = allocatable(node, name)
            taken = sum(whole(requests(other), name) for other in self._pods_on(node))
            if amount > there - taken:
                reasons.append(f"Insufficient {name}")
                never = never or amount > there
        if not reasons:
            return GOOD, []
        return (NEVER if never else NO), reasons

    def _is_ignored(self, name: str) -> bool:
        if "/" not in name or "kubernetes.io/" in name:
            return False
        return name in self.settings.ignored_resources or name.split("/")[0] in self.settings.ignored_groups

    def _filter_PodTopologySpread(self, pod: Pod, node: Node) -> Verdict:
        return self._spread.verdict(node)

    def _filter_InterPodAffinity(self, pod: Pod, node: Node) -> Verdict:
        return self._affinity.verdict(node)

    # ------------------------------------------------------------------------------------------------------ scores

    def _score_TaintToleration(self, pod: Pod, node: Node) -> int:
        count = 0
        for taint in node.spec.taints:
            if taint.effect == "PreferNoSchedule":
                count += not any(covers(t, taint.key, taint.value, taint.effect) for t in pod.spec.tolerations)
        return count

    def _score_NodeAffinity(self, pod: Pod, node: Node) -> int:
        total = 0
        for source in (self._added(), pod.spec.affinity.node_affinity):
            for term in () if source is None else preferred_terms(source):
                if term_matches(term.preference, node):
                    total += term.weight
        return total

    def _score_NodeResourcesFit(self, pod: Pod, node: Node) -> int:
        parts: list[tuple[int, int]] = []
        for name, weight in self.settings.fit_resources:
            own = whole(requests(pod, assume=True, pod_level=False), name)
            if not is_counted(name) or (name not in ("cpu", "memory", "ephemeral-storage") and own == 0):
                continue
            there = allocatable(node, name)
            if there == 0:
                continue
            assume = name in ("cpu", "memory")
            used = own + sum(whole(accounted(other) if assume else requests(other), name) for other in self._pods_on(node))
            parts.append((self._share(used, there), weight))
        if self.settings.strategy == "RequestedToCapacityRatio":
            parts = [(score, weight) for score, weight in parts if score > 0]
            if not parts:
                return 0
            mean = Fraction(sum(s * w for s, w in parts), sum(w for _, w in parts))
            return math.floor(mean + Fraction(1, 2))
        if not parts:
            return 0
        return sum(s * w for s, w in parts) // sum(w for _, w in parts)

    def _share(self, used: int, there: int) -> int:
        if self.settings.strategy == "LeastAllocated":
            return 0 if used > there else (there - used) * 100 // there
        if self.settings.strategy == "MostAllocated":
            return 100 if used > there else used * 100 // there
        percent = 100 if used > there else used * 100 // there
        points = [(utilization, score * 10) for utilization, score in self.settings.shape]
        if percent <= points[0][0]:
            return points[0][1]
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            if percent <= x1:
                return y0 + math.trunc(Fraction((y1 - y0) * (percent - x0), x1 - x0))
        return points[-1][1]

    def _score_NodeResourcesBalancedAllocation(self, pod: Pod, node: Node) -> int:
        shares: list[float] = []
        asked = requests(pod)
        for name in self.settings.balanced_resources:
            own = whole(asked, name)
            if not is_counted(name) or (name not in ("cpu", "memory", "ephemeral-storage") and own == 0):
                continue
            there = allocatable(node, name)
            if there == 0:
                continue
            used = own + sum(whole(requests(other), name) for other in self._pods_on(node))
            shares.append(min(float(used) / float(there), 1.0))
        deviation = 0.0
        if len(shares) == 2:
            deviation = abs((shares[0] - shares[1]) / 2)
        elif len(shares) > 2:
            total = 0.0
            for share in shares:
                total += share
            mean = total / float(len(shares))
            squares = 0.0
            for share in shares:
                squares += (share - mean) * (share - mean)
            deviation = math.sqrt(squares / float(len(shares)))
        return int((1 - deviation) * 100.0)

    def _score_ImageLocality(self, pod: Pod, node: Node) -> int:
        here = {name for image in node.status.images for name in image.names}
        containers = [*pod.spec.init_containers, *pod.spec.containers]
        total = 0
        for container in containers:
            name = container.image
            if ":" not in name.split("/")[-1]:
                name += ":latest"
            if name in here:
                size, holders = self.images[name]
                total += int(float(size) * (float(len(holders)) / float(len(self.nodes))))
        mebibyte = 2**20
        low, high = 23 * mebibyte, 1000 * mebibyte * len(containers)
        return 100 * (min(max(total, low), high) - low) // (high - low)


def normalize(plugin: str, raw: dict[str, int]) -> dict[str, int]:
    if plugin not in ("TaintToleration", "NodeAffinity") or not raw:
        return dict(raw)
    highest = max(raw.values())
    if plugin == "NodeAffinity":
        return {name: 100 * score // highest if highest else score for name, score in raw.items()}
    return {name: 100 - 100 * score // highest if highest else 100 for name, score in raw.items()}


def narrow(pod: Pod) -> tuple[Verdict, set[str] | None]:
    """What PreFilter of NodeAffinity makes of the pod."""
    terms = required_terms(pod.spec.affinity.node_affinity)
    allowed: set[str] = set()
    for term in terms:
        names = [set(e.values) for e in term.match_fields if e.key == "metadata.name" and e.operator == "In"]
        if not names:
            return (GOOD, []), None
        allowed |= set.intersection(*names)
    if not terms:
        return (GOOD, []), None
    if not allowed:
        return (NEVER, ["pod affinity terms conflict"]), None
    return (GOOD, []), allowed
