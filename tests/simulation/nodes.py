"""Agents of nodes that speak, fall silent and come back; and whether what leaders do about it is right.

| rule | what has to hold |
|---|---|
| N1 | a node is called lost only after it has been silent for the grace period, or etcd took no heartbeats in time |
| N2 | a pod is ended for its node's sake only when that is gone, or has a taint that evicts it, and not before its time |
| N3 | some time after the healing a node is tainted as lost if it is silent, and no pod is where it has no reason to stay |

N1 and N2 are judged at each revision. They share no code with the controllers, and know no more than the objects and who spoke.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final

from leader.etcd_shim import kv, rpc
from rayched.audit.auditor import Auditor
from rayched.v1.core_pb2 import Node, Pod, Taint
from rayched.v1.storage_pb2 import Stored
from tests.simulation.budgets import Budget
from tests.simulation.node_caring import SETTINGS
from tests.simulation.replica import CARE, KEYS, Replica
from tests.simulation.users import Users
from tests.simulation.world import MS, SECOND, Violation, World

_BEAT_NS: Final = 250 * MS
_PREFIX: Final = "node.kubernetes.io/"
_LOST: Final = (f"{_PREFIX}not-ready", f"{_PREFIX}unreachable")
_PODS: Final = "/sim/cluster/pods/"
_NODES: Final = "/sim/cluster/nodes/"
_ENDED: Final = ("Succeeded", "Failed")
_BY_SCHEDULERS: Final = ("PreemptionByScheduler", "GroupIncomplete")
"""Reasons to end a pod that are not its node's."""


class Nodes:
    """Not in every world: `is_on` says whether. Draws from a random source of its own."""

    def __init__(self, world: World, users: Users, counts: Counter[str], until: int) -> None:
        self._world, self._users, self._counts, self._until = world, users, counts, until
        self._random = Random(f"{world.seed}/nodes")
        self.is_on = self._random.random() < 0.15
        self.clocks_agree = self._random.random() < 0.5
        """Wall clocks of all replicas, always. What is demanded is the same without."""
        self.fastest = 1.0
        """Of the rates of the replicas' clocks."""
        self.budget = Budget(world, allowed=self.is_on)
        self._last_spoke: dict[str, int] = {}
        self._tainted: dict[str, dict[tuple[str, int], int]] = {}
        """By node: since when it has which NoExecute taint, told by its key and timeAdded."""
        self._placed: dict[str, int] = {}
        """By uid: since when the pod has its node."""
        self._replicas: list[Replica] = []
        self._rested = False
        self._ended_by_leaders: set[str] = set()

    # --------------------------------------------------------------------------------------------------------------- agents

    def start(self, replicas: list[Replica]) -> None:
        self._replicas = replicas
        if self.is_on:
            self._users.adorn, self._users.agents_tell_ready = self._adorn, True
            self.budget.start()
            self._world.after(0, self._beat)
            self._world.after(self._gap(), self._fall_silent)

    def _adorn(self, pod: Pod) -> None:
        _bear_lost_nodes(pod, self._random)
        self.budget.label(pod)

    def heal(self, auditor: Auditor) -> None:
        """All speak but one, which stays dead where others are left."""
        silent = sorted(self._users.silent & auditor.nodes.keys())
        self._rested = True
        self._users.silent = {silent[0]} if silent and len(auditor.nodes) > 2 and self._random.random() < 0.7 else set()

    def _gap(self) -> int:
        return int(self._random.expovariate(1.0 / 1.5) * SECOND)

    def _beat(self) -> None:
        world, etcd = self._world, self._world.etcd
        for key in [pair.key for pair in etcd.under(_NODES.encode())]:
            name = key[len(_NODES) :].decode()
            if name in self._users.silent or not world.etcd_up:
                continue
            self._last_spoke[name] = world.now
            world.serve(lambda name=name: etcd.put(rpc.PutRequest(key=KEYS.heartbeat(name), value=b"")))  # type: ignore[misc]
            stored = Stored.FromString(etcd.get(key).value)
            if _ready(stored.object.node) != "True":
                conditions = stored.object.node.status.conditions
                del conditions[:]
                conditions.add(type="Ready", status="True")
                put = rpc.PutRequest(key=key, value=stored.SerializeToString())
                world.serve(lambda put=put: etcd.put(put))  # type: ignore[misc]
        world.after(_BEAT_NS, self._beat)

    def _fall_silent(self) -> None:
        if self._rested or self._world.now >= self._until:
            return
        names = sorted(pair.key[len(_NODES) :].decode() for pair in self._world.etcd.under(_NODES.encode()))
        if names:
            name = self._random.choice(names)
            self._counts["silence of a node"] += 1
            self._world.trace("silent", name)
            self._world.tell(f"-- {name} falls silent")
            self._users.silent.add(name)
            if self._random.random() < 0.7:
                lasts_ns = int(self._random.uniform(0.3, 4.0) * SECOND)
                self._world.after(lasts_ns, lambda: self._rested or self._users.silent.discard(name))
            if self._random.random() < 0.4:
                self._world.after(int(self._random.uniform(0.3, 1.2) * SECOND), self._begin_new_term_blindly)
        self._world.after(self._gap(), self._fall_silent)

    def _begin_new_term_blindly(self) -> None:
        """While a node is about to be called lost, the leader's scheduler dies, and its care for nodes hears nothing."""
        leader = next((replica for replica in self._replicas if replica.is_up and replica.candidate.believes()), None)
        if self._rested or leader is None:
            return
        self._counts["new term of who hears nothing"] += 1
        self._world.tell(f"-- {leader.name} hears nothing of nodes, and begins a new term")
        for stream in self._world.streams:
            if stream.link is leader.links[CARE]:
                stream.stall(int(self._random.uniform(0.2, 1.5) * SECOND))
        leader.scheduler_crashes(200 * MS)

    # --------------------------------------------------------------------------------------------------------------- safety

    def judge(self, revision: int, events: Sequence[Any], auditor: Auditor, asked: set[str]) -> None:
        """Before the auditor has seen this revision."""
        if not self.is_on:
            return
        self.budget.judge(revision, events, auditor)
        for event in events:
            key = event.kv.key.decode()
            if not key.startswith((_NODES, _PODS)):
                continue
            stored = None if event.type == kv.Event.DELETE else Stored.FromString(event.kv.value)
            if key.startswith(_NODES):
                self._note_taints(key[len(_NODES) :], stored)
                if stored is not None:
                    self._judge_node(revision, stored, auditor.nodes.get(key[len(_NODES) :]))
                continue
            if stored is not None and stored.object.pod.spec.node_name:
                self._placed.setdefault(stored.object.pod.metadata.uid, self._world.now)
            before = next((pod for pod in auditor.pods.values() if pod.metadata.name == key.rpartition("/")[2]), None)
            if before is not None and before.metadata.uid not in asked:
                self._judge_pod(revision, before, None if stored is None else stored.object.pod, auditor)

    def spared(self, uids: Iterable[str]) -> set[str]:
        """Those of the pods that no leader had reason to end."""
        return set(uids) - self._ended_by_leaders

    def _note_taints(self, name: str, stored: Stored | None) -> None:
        taints = () if stored is None else stored.object.node.spec.taints
        known = self._tainted.pop(name, {})
        present = [_identity(taint) for taint in taints if taint.effect == "NoExecute"]
        self._tainted[name] = {one: known.get(one, self._world.now) for one in present}

    def _judge_node(self, revision: int, stored: Stored, before: Node | None) -> None:
        node = stored.object.node
        if before is None or _ready(before) == "Unknown" or _ready(node) != "Unknown":
            return
        self._counts["lost nodes"] += 1
        name = node.metadata.name
        silent = (self._world.now - self._last_spoke.get(name, 0)) / SECOND
        if silent * self.fastest >= SETTINGS.node_monitor_grace_period:
            return
        if self._world.now < self._world.unheard_until:
            self._counts["tolerated: lost while etcd heard no agent"] += 1
        else:
            raise Violation("N1", f"revision {revision}: {name} spoke {silent:.2f} s ago and is called lost")

    def _judge_pod(self, revision: int, before: Pod, after: Pod | None, auditor: Auditor) -> None:
        uid = before.metadata.uid
        ends = after is None or (_is_ending(after) and not _is_ending(before)) or _failed(after) > _failed(before)
        if not ends or not before.spec.node_name or uid in self._ended_by_leaders:
            return
        if after is not None and any(one.reason in _BY_SCHEDULERS for one in after.status.conditions):
            return
        if after is None and _is_ending(before):
            return
        self._counts["pods ended for their node's sake"] += 1
        self._ended_by_leaders.add(uid)
        node = auditor.nodes.get(before.spec.node_name)
        if node is None:
            return
        due, now = self._leaves_at(before, node), self._world.now / SECOND
        if due is None or now < due:
            words = "does not evict it" if due is None else f"evicts it {due - now:.1f} s later"
            raise Violation("N2", f"revision {revision}: pod {uid} is ended, and {node.metadata.name} {words}")

    # ------------------------------------------------------------------------------------------------------------- liveness

    def missing(self, auditor: Auditor) -> str | None:
        """What N3 still lacks."""
        if not self.is_on:
            return None
        for name, node in auditor.nodes.items():
            is_tainted = any(taint.key in _LOST for taint in node.spec.taints)
            if is_tainted != (name in self._users.silent):
                return f"{name} is {'' if is_tainted else 'not '}tainted as lost"
        for uid, pod in auditor.pods.items():
            if pod.spec.node_name and (words := self._overdue(pod, auditor.nodes.get(pod.spec.node_name))):
                return f"pod {uid} {words}"
        return None

    def _overdue(self, pod: Pod, node: Node | None) -> str:
        """Why the pod should not be there any more; empty: it may."""
        if node is None:
            return f"is on {pod.spec.node_name}, which is gone"
        if _is_ending(pod):
            return "is to end and does not"
        return f"is on {node.metadata.name}, which is lost" if self._leaves_at(pod, node) is not None else ""

    def _leaves_at(self, pod: Pod, node: Node) -> float | None:
        """When the node's taints evict the pod at the earliest, in seconds of the world; 0: at once; None: never."""
        due: list[float] = []
        for taint in node.spec.taints:
            if taint.effect != "NoExecute":
                continue
            covering = [one for one in pod.spec.tolerations if one.key == taint.key and one.effect in ("", "NoExecute")]
            if not covering or (covering[0].HasField("toleration_seconds") and covering[0].toleration_seconds <= 0):
                due.append(0.0)
            elif covering[0].HasField("toleration_seconds"):
                since = max(self._tainted[node.metadata.name][_identity(taint)], self._placed[pod.metadata.uid])
                # Whoever measures may have the fastest clock.
                due.append(since / SECOND + covering[0].toleration_seconds / self.fastest)
        return min(due, default=None)


def _bear_lost_nodes(pod: Pod, random: Random) -> None:
    """Not at all, for a moment, or for ever."""
    seconds = random.choice((0, 0, 1, 2, None))
    for name in ("not-ready", "unreachable"):
        toleration = pod.spec.tolerations.add(key=f"node.kubernetes.io/{name}", operator="Exists", effect="NoExecute")
        if seconds is not None:
            toleration.toleration_seconds = seconds
    pod.spec.termination_grace_period_seconds = random.choice((0, 0, 1))


def _identity(taint: Taint) -> tuple[str, int]:
    """One of a lost node is swapped for another with the same time."""
    return "lost" if taint.key in _LOST else taint.key, taint.time_added.seconds


def _ready(node: Node) -> str:
    return next((one.status for one in node.status.conditions if one.type == "Ready"), "")


def _is_ending(pod: Pod) -> bool:
    return pod.metadata.HasField("deletion_timestamp")


def _failed(pod: Pod) -> bool:
    return pod.status.phase == "Failed"
