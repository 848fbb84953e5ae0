"""What must come to hold once the world has healed, as one question: what is still missing?

| rule | what has to come true |
|---|---|
| L1 | no pod waits that fits a node, and no group whose members fit together (`groups.py`) |
| P8 | no plan of a group is left |
| L2 | one candidate believes to lead, under the epoch in the store, and no other does |
| L3 | no attempt is under way: nothing is assumed, in flight, or waits for an answer |
| L4 | buffers are empty: the window of writes, the log to the queue, what a watch holds back |
| N3 | lost nodes are tainted and emptied, the others are not (`nodes.py`) |
| N4 | the status of the disruption budget counts the pods as they are (`budgets.py`) |
| S7 | every scheduler's cache is at the store's revision and shows what is in it |

Shares no code with the scheduler but the questions that it puts to it.
"""

from __future__ import annotations

from typing import Final

from rayched.audit.auditor import Auditor
from rayched.v1.core_pb2 import Pod
from tests.simulation.groups import Groups, group_of
from tests.simulation.nodes import Nodes
from tests.simulation.replica import KEYS, Replica
from tests.simulation.world import World

_ENDED: Final = ("Succeeded", "Failed")


def missing(world: World, auditor: Auditor, replicas: list[Replica], nodes: Nodes) -> tuple[str, str] | None:
    """The first rule that does not hold yet, and what is wrong; None: all is well."""
    leaders = [replica for replica in replicas if replica.candidate.believes()]
    epoch = world.etcd.get(KEYS.epoch)
    if len(leaders) != 1 or epoch is None or leaders[0].candidate.believes() != epoch.mod_revision:
        return "L2", f"believers: {[replica.process.name for replica in leaders]}"
    leader = leaders[0].scheduling.core
    if not leader.term.leads or leader.term.epoch != epoch.mod_revision:
        return "L2", f"the scheduler of {leaders[0].process.name} does not work"
    if words := nodes.missing(auditor):
        return "N3", words
    if words := nodes.budget.missing(auditor):
        return "N4", words
    waiting = [pod for pod in auditor.pods.values() if _waits(pod) and not group_of(pod)]
    if found := Groups.missing(auditor):
        return found
    for pod, _ in auditor.pending():
        if not group_of(pod) and (node := auditor.node_for(pod)):
            return "L1", f"pod {pod.metadata.uid} waits and fits {node}"
    counts = leader.link.counts if leader.link is not None else {}
    if leader.scheduler.occupancy.n_assumed or counts.get("in_flight") or not leader.window.quiet:
        return "L3", f"{leader.scheduler.occupancy.n_assumed} assumed, {counts.get('in_flight')} in flight"
    if leader.link is None or leader.link.backlog or leader.bindings.n_unsent:
        return "L4", "the log to the queue or the bindings have a backlog"
    queued = sum(counts.get(place, 0) for place in ("active", "backoff", "unschedulable", "gated"))
    if queued != len(waiting) + (n_groups := Groups.queued(auditor)):
        return "L1", f"{len(waiting)} pods and {n_groups} groups wait and {queued} are queued"
    return _not_converged(world, auditor, replicas)


def _not_converged(world: World, auditor: Auditor, replicas: list[Replica]) -> tuple[str, str] | None:
    on_nodes = {pod.metadata.uid: pod.spec.node_name for pod in auditor.pods.values() if _is_placed(pod)}
    for replica in replicas:
        core = replica.scheduling.core
        if not replica.scheduling.watch.following or core.cache.revision < auditor.revision:
            return "S7", f"{replica.process.name} is at revision {core.cache.revision} of {auditor.revision}"
        if replica.scheduling.core.term.leads and not replica.candidate.believes():
            return "L2", f"{replica.process.name} leads without a belief"
        seen = {uid: bound.node_name for uid in on_nodes if (bound := core.snapshot.bound(uid)) is not None}
        if seen != on_nodes or core.scheduler.occupancy.n_observed != len(on_nodes):
            return "S7", f"{replica.process.name} sees other pods on nodes than there are"
        if core.snapshot.n_nodes != len(auditor.nodes):
            return "S7", f"{replica.process.name} sees {core.snapshot.n_nodes} nodes of {len(auditor.nodes)}"
    return None


def _waits(pod: Pod) -> bool:
    return not pod.spec.node_name and pod.status.phase not in _ENDED and not pod.metadata.HasField("deletion_timestamp")


def _is_placed(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and pod.status.phase not in _ENDED
