"""What the leader has to do about nodes and the pods on them, decided from a view and the time. No I/O.

    heartbeats ──▶ judge ──▶ lost nodes: conditions Unknown ──▶ taints NoSchedule
                     │                                      └─▶ taints NoExecute, as fast as the zone's limit allows
                     └──▶ zones: how much is lost                       │
    view: nodes, pods ──▶ edits_of_nodes                                ▼
                     └──▶ ends_of_pods: evicted, failed, removed ◀── tolerationSeconds

Every decision names the revisions that it was made on; the carrier makes them conditions of the write, so that a node that spoke
meanwhile is not tainted and a pod whose node lost its taint meanwhile is not evicted. What was refused is decided again: nothing
here has to be remembered, and a new leader comes to the same decisions from what is in etcd and from when it saw which revision
of it, except that limits begin with their token.

`now` is a monotonic clock's, and alone decides when something is due. `wall` is the wall clock's, and is only written. Seconds.

Owner: the NodeController's thread. Cost: 1 µs a node and look at the heartbeats; else only what changed or is due.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from rayched.api.agents import runs_processes
from rayched.api.disconnection import has_stopped_after
from rayched.controllers.cluster_view import ClusterView, NodeFacts, PodView
from rayched.controllers.heartbeat_ages import HeartbeatAges
from rayched.controllers.measured_ends import MeasuredEnds
from rayched.controllers.measured_taints import MeasuredTaints
from rayched.controllers.node_settings import NodeSettings
from rayched.controllers.node_taints import (
    EXCLUDED_LABEL,
    NoExecute,
    has_lost_taint,
    is_out_of_service,
    lost_taint,
    reconciled,
    zone_of,
)
from rayched.controllers.pod_garbage import Circumstances, Fate, fate_of
from rayched.controllers.taint_eviction import NEVER, leaves_at, no_execute_taints
from rayched.controllers.zones import Census, ZoneChange, ZoneLimits
from rayched.store.revision_clock import RevisionClock
from rayched.v1.core_pb2 import Node

PODS_AT_ONCE_MAX: Final = 500
"""Decisions on pods in one answer; the rest follows in the next."""


@dataclass(frozen=True, slots=True)
class NodeEdit:
    """The node is to become this. `heartbeat`: only if its heartbeat is still at this revision (0: there is none)."""

    name: str
    facts: NodeFacts
    node: Node
    heartbeat: int | None


class EndKind(enum.Enum):
    """What is to be done with a pod."""

    EVICT = "a taint of its node"
    NOT_READY = "its node is not ready, so neither is the pod"
    FAIL = "its node is gone"
    REMOVE = "nobody else did"


@dataclass(frozen=True, slots=True)
class PodEnd:
    """`node_revision`: only if its node is still at this revision (0: not there); None: whatever became of the node. `heartbeat`:
    only if its node has not been heard of since that revision; None: whether or not."""

    facts: PodView
    end: EndKind
    node_revision: int | None
    taints: str = ""
    heartbeat: int | None = None


class NodeLifecycle:
    """`judge` after each reading of the heartbeats; the two lists of decisions whenever something may be due."""

    def __init__(self, settings: NodeSettings, view: ClusterView, ages: HeartbeatAges, revisions: RevisionClock) -> None:
        """`revisions` has seen those of the heartbeats' readings, and sees those of the view here."""
        self._settings = settings
        self._view = view
        self._ages = ages
        self._revisions = revisions
        self._limits = ZoneLimits(settings)
        self._lost: set[str] = set()
        """Judged since the last edits."""
        self._waiting: dict[str, None] = {}
        """Nodes that deserve a NoExecute taint, in the order in which they came."""
        self._granted: set[str] = set()
        """Those of them that may have it, until it is seen on them."""
        self._unscanned: set[str] = set()
        """Nodes whose pods have to be looked at."""
        self._due: dict[str, float] = {}
        """By node with NoExecute taints: when the first of its pods has to leave."""
        self._to_judge: dict[bytes, None] = {}
        """Pods whose fate is to be found out, or is known and not seen yet."""
        self._too_many: set[bytes] = set()
        """Those of them that have ended, beyond the number that is kept."""
        self._stops: dict[bytes, float] = {}
        """Pods that are ending and that their nodes stop when they are cut off: when that is looked at again."""
        self._ends = MeasuredEnds(settings.termination_margin, revisions)
        self._taints = MeasuredTaints(revisions)
        self._gone_since: dict[str, float] = {}
        """Names of nodes that pods are on and that are not there."""
        self._decided: dict[bytes, int] = {}
        """By key: the revision of an object on which a write was decided that is not seen yet."""

    @property
    def limits(self) -> ZoneLimits:
        return self._limits

    # ------------------------------------------------------------------------------------------------------------- nodes

    def judge(self, now: float) -> ZoneChange:
        """Who is lost, by the heartbeats last read, and how much of each zone."""
        settings, counts = self._settings, dict[str, list[int]]()
        self._lost.clear()
        for name, facts in self._view.nodes.items():
            grace = settings.node_monitor_grace_period if facts.ready else settings.node_startup_grace_period
            silent = self._ages.silent_seconds(name) > grace
            if silent and facts.ready != "Unknown":
                self._lost.add(name)
            if EXCLUDED_LABEL not in facts.node.metadata.labels:
                counts.setdefault(zone_of(facts.node), [0, 0])[silent or facts.ready != "True"] += 1
        self._forget()
        turn = self._limits.census({zone: Census(*found) for zone, found in counts.items()}, now)
        if turn is ZoneChange.FOUND_AGAIN:
            self._ages.forgive()
            self._lost.clear()
        if turn is not ZoneChange.NONE:
            self._view.nodes_to_look_at.update(self._view.nodes)
        return turn

    def edits_of_nodes(self, now: float, wall: float) -> list[NodeEdit]:
        """Conditions of lost nodes, and all taints that follow from conditions."""
        view = self._view
        changed, view.nodes_to_look_at = view.nodes_to_look_at, set()
        self._unscanned |= changed
        self._see_revision(now)
        self._taints.seen(((name, view.nodes[name]) for name in changed if name in view.nodes), view.histories, now)
        # In order of names, so that the same happens each time.
        for name in sorted(changed):
            self._queue(name)
        for name in sorted(self._lost):
            self._waiting.setdefault(name)
        self._grant(now)
        lost, self._lost = self._lost, set()
        edits = []
        for name in sorted({*changed, *lost, *self._granted}):
            facts = view.nodes.get(name)
            if facts is not None and not self._is_decided(facts):
                node = reconciled(facts.node, self._no_execute(name), int(wall), lost=name in lost)
                if node is not None:
                    self._decided[facts.key] = facts.mod_revision
                    edits.append(NodeEdit(name, facts, node, self._ages.revision(name) if name in lost else None))
        return edits

    def _see_revision(self, now: float) -> None:
        # The watch may be behind a reading; that etcd went back is for the readings to say.
        if self._view.revision > self._revisions.revision:
            self._revisions.observed(self._view.revision, now)

    def _queue(self, name: str) -> None:
        """Into the line of those that get a NoExecute taint, or out of it."""
        facts = self._view.nodes.get(name)
        if facts is not None and lost_taint(facts.node) and not has_lost_taint(facts.node):
            self._waiting.setdefault(name)
        else:
            self._waiting.pop(name, None)
            self._granted.discard(name)

    def _grant(self, now: float) -> None:
        if self._limits.all_lost:
            self._granted.clear()
            return
        for name in self._waiting:
            facts = self._view.nodes.get(name)
            if name not in self._granted and facts is not None and self._limits.may_empty(zone_of(facts.node), now):
                self._granted.add(name)

    def _no_execute(self, name: str) -> NoExecute:
        if self._limits.all_lost:
            return NoExecute.WITHDRAW
        return NoExecute.ALLOW if name in self._granted else NoExecute.HOLD

    # -------------------------------------------------------------------------------------------------------------- pods

    def ends_of_pods(self, now: float) -> list[PodEnd]:
        """What is due of evictions and garbage, each pod once."""
        self._see_revision(now)
        ends: dict[bytes, PodEnd] = {}
        for end in chain(self._garbage(now), self._evictions(now)):
            if len(ends) >= PODS_AT_ONCE_MAX:
                self._unscanned.add(end.facts.node_name)
            elif end.facts.key not in ends and not self._is_decided(end.facts):
                ends[end.facts.key] = end
                self._decided[end.facts.key] = end.facts.mod_revision
        return list(ends.values())

    def _evictions(self, now: float) -> Iterator[PodEnd]:
        due = [name for name, when in self._due.items() if when <= now]
        names, self._unscanned = {*self._unscanned, *due}, set()
        for name in sorted(names):
            self._due.pop(name, None)
            node = self._view.nodes.get(name)
            if node is None:
                continue
            pods = list(self._view.pods_on.get(name, {}).values())
            if node.evicts:
                yield from self._evictions_on(name, node, pods, now)
            if node.ready in ("False", "Unknown"):
                yield from (PodEnd(pod, EndKind.NOT_READY, node.mod_revision) for pod in pods if pod.ready and not pod.ended)

    def _evictions_on(self, name: str, node: NodeFacts, pods: Collection[PodView], now: float) -> Iterator[PodEnd]:
        taints, first = no_execute_taints(node.node), NEVER
        for pod in pods:
            if pod.deletion_timestamp is not None:
                continue
            together = [(taint, self._taints.since(name, taint, pod, now)) for taint in taints]
            when = leaves_at(together, pod.tolerations)
            if when > now:
                first = min(first, when)
            else:
                yield PodEnd(pod, EndKind.EVICT, node.mod_revision, ", ".join(sorted({taint.key for taint in taints})))
        if first != NEVER:
            self._due[name] = first

    def _garbage(self, now: float) -> Iterator[PodEnd]:
        nodes, pods_on = self._view.nodes, self._view.pods_on
        for name in sorted(self._unscanned):
            if name in pods_on and name not in nodes:
                self._gone_since.setdefault(name, now)
        for name in [name for name in self._gone_since if name in nodes or name not in pods_on]:
            del self._gone_since[name]
        self._gather(now)
        pods = self._view.pods
        for key in list(self._to_judge):
            end = self._fate(pods[key], now) if key in pods else None
            if end is None:
                del self._to_judge[key]
                self._too_many.discard(key)
            else:
                yield end

    def _gather(self, now: float) -> None:
        """Pods whose fate may have become another: they changed, their node did, their time is up, or there are too many."""
        view, to_judge = self._view, self._to_judge
        to_judge.update(dict.fromkeys(view.pods_to_look_at))
        self._ends.seen((view.pods[key] for key in view.pods_to_look_at if key in view.pods), now)
        view.pods_to_look_at.clear()
        to_judge.update(dict.fromkeys(self._ends.due(now)))
        for key in [key for key, when in self._stops.items() if when <= now]:
            del self._stops[key]
            to_judge[key] = None
        for name, since in self._gone_since.items():
            if now - since >= self._settings.orphan_quarantine:
                to_judge.update(dict.fromkeys(view.pods_on[name]))
        for name in sorted(self._unscanned):
            node = view.nodes.get(name)
            if node is not None and is_out_of_service(node.node):
                to_judge.update(dict.fromkeys(view.pods_on.get(name, ())))
        kept = self._settings.terminated_pod_gc_threshold
        while kept and len(view.ended) > kept:
            key = view.ended.pop().key
            self._too_many.add(key)
            to_judge[key] = None

    def _fate(self, pod: PodView, now: float) -> PodEnd | None:
        node = self._view.nodes.get(pod.node_name)
        gone_since = self._gone_since.get(pod.node_name)
        ends_at = self._ends.ends_at(pod)
        runs = node is not None and runs_processes(node.node)
        stopped = node is not None and runs and ends_at is not None and self._has_been_stopped(pod, node.node, now)
        found = Circumstances(
            bound=bool(pod.node_name),
            ended=pod.ended,
            ends_at=ends_at,
            too_many=pod.key in self._too_many,
            tracked=pod.tracked,
            node_gone_seconds=None if gone_since is None else now - gone_since,
            node_out_of_service=node is not None and is_out_of_service(node.node),
            node_runs_processes=runs,
            has_been_stopped=stopped,
        )
        match fate_of(found, self._settings, now):
            case Fate.FAIL:
                return PodEnd(pod, EndKind.FAIL, 0)
            case Fate.REMOVE:
                heard = self._ages.revision(pod.node_name) if stopped else None
                return PodEnd(pod, EndKind.REMOVE, None if gone_since is None else 0, heartbeat=heard)
            case Fate.STAY:
                return None

    def _has_been_stopped(self, pod: PodView, node: Node, now: float) -> bool:
        """Whether its node must have stopped it, for want of a connection; else it is judged again when that may be so. Without
        the word of its agent that something will, it stays; with it, the pod has changed and is judged again."""
        after = pod.stop_after_seconds
        if after is None or not self._ages.revision(pod.node_name) or not pod.fence_is_armed(node):
            return False
        left = has_stopped_after(after) - self._ages.silent_seconds(pod.node_name)
        if left > 0:
            # Silence is measured at readings, and grows with them.
            self._stops[pod.key] = now + max(left, self._settings.node_monitor_period)
        return left <= 0

    # ---------------------------------------------------------------------------------------------------------- outcomes

    def not_done(self, key: bytes, node_name: str) -> None:
        """A write that was decided was refused, or nobody knows: it is decided again on what is there then."""
        self._decided.pop(key, None)
        self._unscanned.add(node_name)
        self._view.nodes_to_look_at.add(node_name)

    def _forget(self) -> None:
        """What the view no longer has."""
        view = self._view
        self._ages.keep(view.nodes)
        self._ends.keep(view.pods)
        self._stops = {key: when for key, when in self._stops.items() if key in view.pods}
        self._taints.keep(view.nodes, view.pods)
        present = {facts.key: facts.mod_revision for facts in view.nodes.values()}
        self._decided = {
            key: revision
            for key, revision in self._decided.items()
            if revision == (view.pods[key].mod_revision if key in view.pods else present.get(key))
        }

    def _is_decided(self, facts: NodeFacts | PodView) -> bool:
        """On this very state of the object; what was decided on an older one is forgotten."""
        revision = self._decided.get(facts.key)
        if revision == facts.mod_revision:
            return True
        if revision is not None:
            del self._decided[facts.key]
        return False
