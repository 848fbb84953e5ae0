"""Small column plugins, one for each aspect of a node, and the same rules once more for one pod and one node in plain Python.

The second form is the oracle: it reads messages and a list of bound pods, and shares nothing with the columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rayched.framework.profile import Profile
from rayched.framework.status import Code, Status, unresolvable, unschedulable
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Node, Pod

NO = int(Code.UNSCHEDULABLE)
NEVER = int(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)


class _Rejecting:
    """One reason for all rejected rows."""

    reason = "no"

    def reasons(self, state: Any, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:
        return ((self.reason, codes != 0),)

    def prepare(self, pod: Pod) -> Any:
        return self.key(pod)  # type: ignore[attr-defined]


class Named(_Rejecting):
    """PreFilter: the label "only" names the nodes to look at, separated by dots; "reject" and "never" reject the pod."""

    name = "Named"
    reads = Log.LABELS

    def key(self, pod: Pod) -> Hashable | None:
        return pod.metadata.labels.get("only")

    def narrow(self, state: str) -> frozenset[str] | Status | None:
        match state:
            case "reject":
                return unschedulable("rejected for a reason")
            case "never":
                return unresolvable("rejected for good")
            case "all":
                return None
        return frozenset(state.split("."))


class OddNames(_Rejecting):
    """PreFilter: with the label "odd" only nodes with an odd number, out of the first hundred."""

    name = "OddNames"
    reads = Log.LABELS

    def key(self, pod: Pod) -> Hashable | None:
        return True if "odd" in pod.metadata.labels else None

    def narrow(self, state: bool) -> frozenset[str]:
        return frozenset(f"n{number}" for number in range(1, 100, 2))


class Cordon(_Rejecting):
    name = "Cordon"
    reads = Log.UNSCHEDULABLE
    reason = "cordoned"

    def key(self, pod: Pod) -> Hashable | None:
        return ()

    def filter(self, state: Any, rows: Rows) -> CodeColumn:
        return np.where(rows.unschedulable, NEVER, 0)


class Taints(_Rejecting):
    """Filter: a taint "hard" rejects. Score: fewer taints are better, relative to the most."""

    name = "Taints"
    reads = Log.TAINTS
    reason = "tainted"

    def key(self, pod: Pod) -> Hashable | None:
        return None if "brave" in pod.metadata.labels else ()

    def filter(self, state: Any, rows: Rows) -> CodeColumn:
        hard = np.array([any(taint.key == "hard" for taint in taints) for taints in rows.snapshot.taint_sets] + [False])
        return (hard[rows.taint_set] * NEVER).astype(np.uint8)

    def score(self, state: Any, rows: Rows) -> ScoreColumn:
        counts = np.array([len(taints) for taints in rows.snapshot.taint_sets] + [0], np.int64)
        return counts[rows.taint_set]

    def normalize(self, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:
        return 100 - 100 * raw // high if high else np.full(raw.shape, 100, np.int64)


class Rank(_Rejecting):
    """Filter: nodeSelector. Score: the label "rank" times the pod's factor, min-max."""

    name = "Rank"
    reads = Log.LABELS
    reason = "not selected"

    def key(self, pod: Pod) -> Hashable | None:
        return tuple(sorted(pod.spec.node_selector.items())), int(pod.metadata.labels.get("factor", "0"))

    def filter(self, state: Any, rows: Rows) -> CodeColumn | None:
        if not state[0]:
            return None
        codes = np.zeros(rows.n, np.uint8)
        for key, value in state[0]:
            number = rows.snapshot.label_value_id(value)
            codes[rows.label(key) != (-2 if number is None else number)] = NEVER
        return codes

    def score(self, state: Any, rows: Rows) -> ScoreColumn | None:
        if not state[1]:
            return None
        ranks, valid = rows.label_int("rank")
        return np.where(valid, ranks, 0) * np.int64(state[1])

    def normalize(self, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:
        return 100 * (raw - low) // (high - low) if high > low else np.zeros(raw.shape, np.int64)


def stretched_rank(raw: int, low: int, high: int) -> int:
    """What `Rank` makes of one raw score."""
    return 100 * (raw - low) // (high - low) if high > low else 0


class Ports(_Rejecting):
    name = "Ports"
    reads = Log.PORTS
    reason = "port in use"

    def key(self, pod: Pod) -> Hashable | None:
        return tuple(port.host_port for port in pod.spec.containers[0].ports) or None

    def filter(self, state: Any, rows: Rows) -> CodeColumn:
        taken = np.zeros(rows.n, np.bool_)
        for port in state:
            for ip in rows.port_ips("TCP", port):
                taken |= rows.port_users("TCP", port, ip) > 0
        return np.where(taken, NO, 0)


class Room(_Rejecting):
    """Filter: cpu, and an extended resource. Score: the share of cpu that stays free."""

    name = "Room"
    reads = Log.USAGE
    reason = "no room"

    def key(self, pod: Pod) -> Hashable | None:
        requests = pod.spec.containers[0].resources.requests
        return int(requests["cpu"].string.removesuffix("m")), int(requests["x/gpu"].string) if "x/gpu" in requests else 0

    def filter(self, state: Any, rows: Rows) -> CodeColumn:
        cpu, gpus = state
        short = cpu > rows.allocatable[0] - rows.requested[0]
        if gpus:
            place = rows.resource("x/gpu")
            short = short | (np.True_ if place is None else gpus > rows.allocatable[place] - rows.requested[place])
        return np.where(short, NO, 0)

    def stack(self, states: Sequence[Any]) -> Any:
        return None if any(gpus for _, gpus in states) else (np.hstack([cpu for cpu, _ in states]), 0)

    def score(self, state: Any, rows: Rows) -> ScoreColumn:
        free = rows.allocatable[0] - rows.non_zero_requested[0] - state[0]
        share: ScoreColumn = np.maximum(free, 0) * 100 // np.maximum(rows.allocatable[0], 1)
        return share


class Crowd(_Rejecting):
    """Score: fewer pods are better, min-max: normalised, and changed by every binding."""

    name = "Crowd"
    reads = Log.USAGE

    def key(self, pod: Pod) -> Hashable | None:
        return () if "shy" in pod.metadata.labels else None

    def score(self, state: Any, rows: Rows) -> ScoreColumn:
        pods: ScoreColumn = rows.requested[3].copy()
        return pods

    def normalize(self, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:
        return 100 * (high - raw) // (high - low) if high > low else np.full(raw.shape, 7, np.int64)


class Images(_Rejecting):
    """Score: 10 for each node that has the image where the node has it, at most 100, minus one for each node there is."""

    name = "Images"
    reads = Log.IMAGES

    def key(self, pod: Pod) -> Hashable | None:
        return pod.spec.containers[0].image or None

    def score(self, state: str, rows: Rows) -> ScoreColumn:
        size, nodes = rows.snapshot.image_state(state)
        value = min(max(10 * nodes + size - rows.snapshot.n_nodes, 0), 100)
        has = np.array([state in names for names in rows.snapshot.image_sets] + [False])
        return np.where(has[rows.image_set], np.int64(value), np.int64(0))


FILTERS = (Cordon(), Taints(), Rank(), Ports(), Room())
SCORES = (Taints(), Rank(), Room(), Crowd(), Images())
WEIGHTS = {"Taints": 3, "Rank": 2, "Room": 1, "Crowd": 2, "Images": 1}


class NoQueueSort:
    name = "NoQueueSort"

    def sort_key(self, pod: Any) -> Any:
        return pod.key


def a_profile(
    *,
    pre_filter: Sequence[Any] = (),
    filters: Sequence[Any] = (),
    scores: Sequence[Any] = (),
    weights: dict[str, int] | None = None,
) -> Profile:
    return Profile(
        scheduler_name="toy",
        queue_sort=NoQueueSort(),
        bind=(),
        pre_filter=tuple(pre_filter),
        filter=tuple(filters),
        score=tuple(scores),
        weights=weights or {plugin.name: 1 for plugin in scores},
    )


def toy_profile() -> Profile:
    return a_profile(pre_filter=(Named(), OddNames()), filters=FILTERS, scores=SCORES, weights=WEIGHTS)


# ------------------------------------------------------------------------------------------------------------ the oracle


@dataclass
class NaiveCluster:
    """Nodes and bound pods as messages; everything is counted anew for each question."""

    nodes: dict[str, Node]
    pods: dict[str, tuple[Pod, str]]
    sizes: dict[str, int]
    """Size of each image, as reported by the node that first had it."""

    def on(self, name: str) -> list[Pod]:
        return [pod for pod, node_name in self.pods.values() if node_name == name]

    def cpu(self, pod: Pod) -> int:
        return int(pod.spec.containers[0].resources.requests["cpu"].string.removesuffix("m"))

    def gpus(self, pod: Pod) -> int:
        return int(dict(pod.spec.containers[0].resources.requests).get("x/gpu", ZERO).string or "0")

    def allocatable(self, node: Node, name: str) -> int:
        return int(node.status.allocatable[name].string) if name in node.status.allocatable else 0

    def rejecting(self, pod: Pod, node: Node) -> tuple[str, int, str] | None:
        """(plugin, code, reason) of the first filter that rejects the node."""
        labels = pod.metadata.labels
        if node.spec.unschedulable:
            return "Cordon", NEVER, "cordoned"
        if "brave" not in labels and "hard" in [taint.key for taint in node.spec.taints]:
            return "Taints", NEVER, "tainted"
        if any(node.metadata.labels.get(key) != value for key, value in pod.spec.node_selector.items()):
            return "Rank", NEVER, "not selected"
        here = self.on(node.metadata.name)
        taken = {port.host_port for other in here for port in other.spec.containers[0].ports}
        if taken & {port.host_port for port in pod.spec.containers[0].ports}:
            return "Ports", NO, "port in use"
        cpu = 1000 * self.allocatable(node, "cpu") - sum(self.cpu(other) for other in here)
        gpus = self.allocatable(node, "x/gpu") - sum(self.gpus(other) for other in here)
        if self.cpu(pod) > cpu or self.gpus(pod) > max(gpus, 0):
            return "Room", NO, "no room"
        return None

    def looked_at(self, pod: Pod) -> list[Node]:
        names = set(self.nodes)
        labels = pod.metadata.labels
        if labels.get("only", "all") != "all":
            names &= set(labels["only"].split("."))
        if "odd" in labels:
            names &= {f"n{number}" for number in range(1, 100, 2)}
        return [node for name, node in self.nodes.items() if name in names]

    def feasible(self, pod: Pod) -> list[Node]:
        return [node for node in self.looked_at(pod) if self.rejecting(pod, node) is None]

    def totals(self, pod: Pod) -> dict[str, int]:
        """The total of each feasible node."""
        nodes = self.feasible(pod)
        labels = pod.metadata.labels
        totals = dict.fromkeys((node.metadata.name for node in nodes), 0)

        def add(weight: int, scores: list[int]) -> None:
            for name, score in zip(totals, scores, strict=True):
                totals[name] += weight * score

        if nodes and "brave" not in labels:
            counts = [len(node.spec.taints) for node in nodes]
            add(3, [100 - 100 * count // max(counts) if max(counts) else 100 for count in counts])
        factor = int(labels.get("factor", "0"))
        if nodes and factor:
            ranks = [factor * self.rank(node) for node in nodes]
            low, high = min(ranks), max(ranks)
            add(2, [stretched_rank(rank, low, high) for rank in ranks])
        for node in nodes:
            here = self.on(node.metadata.name)
            free = 1000 * self.allocatable(node, "cpu") - sum(self.cpu(other) for other in here) - self.cpu(pod)
            totals[node.metadata.name] += max(free, 0) * 100 // max(1000 * self.allocatable(node, "cpu"), 1)
        if nodes and "shy" in labels:
            crowds = [len(self.on(node.metadata.name)) for node in nodes]
            low, high = min(crowds), max(crowds)
            add(2, [100 * (high - crowd) // (high - low) if high > low else 7 for crowd in crowds])
        image = pod.spec.containers[0].image
        having = [name for name, node in self.nodes.items() if image in images_of(node)]
        for node in nodes:
            if node.metadata.name in having:
                value = 10 * len(having) + self.sizes[image] - len(self.nodes)
                totals[node.metadata.name] += min(max(value, 0), 100)
        return totals

    def rank(self, node: Node) -> int:
        text = node.metadata.labels.get("rank", "x")
        return int(text) if text.lstrip("-").isdigit() else 0


def images_of(node: Node) -> set[str]:
    return {name for image in node.status.images for name in image.names}


ZERO = type("Zero", (), {"string": "0"})()
