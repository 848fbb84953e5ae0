"""A disruption budget, and whether its status comes to be right and preemption keeps it where it is a hard limit.

| rule | what has to hold |
|---|---|
| N4 | some time after the healing the budget's status counts the pods as they are |
| N5 | preemption ends no more pods of a hard budget at one stroke than that allows just then |

It shares no code with the controllers. Only in worlds whose nodes may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Final

from leader.etcd_shim import kv, rpc
from rayched.api import kinds
from rayched.audit.auditor import Auditor
from rayched.store.codec import encode
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored
from rayched.v1.workloads_pb2 import PodDisruptionBudget
from tests.simulation.replica import KEYS
from tests.simulation.world import Violation, World

_KEY: Final = KEYS.object_key(kinds.POD_DISRUPTION_BUDGET, "default", "guard")
_PODS: Final = b"/sim/cluster/pods/"
_LABEL: Final = ("guarded", "yes")


class Budget:
    """One for all pods with a label. Draws from a random source of its own."""

    def __init__(self, world: World, *, allowed: bool) -> None:
        self._random = Random(f"{world.seed}/budgets")
        self.is_on = self._random.random() < 0.7 and allowed
        self._is_hard = self._random.random() < 0.5
        self._least = self._random.randint(0, 3)
        self._world = world

    def start(self) -> None:
        if not self.is_on:
            return
        message = kinds.POD_DISRUPTION_BUDGET.message()
        message.metadata.name, message.metadata.namespace, message.metadata.uid = "guard", "default", "uid-guard"
        message.metadata.generation = 1
        if self._is_hard:
            message.metadata.annotations["rayched.dev/preemption-limit"] = "hard"
        message.spec.min_available.int_value = self._least
        message.spec.selector.match_labels[_LABEL[0]] = _LABEL[1]
        put = rpc.PutRequest(key=_KEY, value=encode(kinds.wrap(message)))
        self._world.serve(lambda: self._world.etcd.put(put))

    def label(self, pod: Pod) -> None:
        if self.is_on and self._random.random() < 0.5:
            pod.metadata.labels[_LABEL[0]] = _LABEL[1]

    def judge(self, revision: int, events: Iterable[Any], auditor: Auditor) -> None:
        """N5, before the auditor has seen this revision. The store has it already."""
        if not self.is_on or not self._is_hard:
            return
        ended = 0
        for event in events:
            if event.type != kv.Event.DELETE and event.kv.key.startswith(_PODS):
                pod = Stored.FromString(event.kv.value).object.pod
                before = auditor.pods.get(pod.metadata.uid)
                if before is None or before.metadata.HasField("deletion_timestamp"):
                    continue
                preempted = any(one.reason == "PreemptionByScheduler" for one in pod.status.conditions)
                ended += preempted and pod.metadata.HasField("deletion_timestamp") and _is_guarded(pod)
        if ended and (allowed := self._allowed_before(revision)) < ended:
            raise Violation("N5", f"revision {revision}: {ended} guarded pods are preempted, allowed were {allowed}")

    def missing(self, auditor: Auditor) -> str | None:
        """What N4 still lacks."""
        if not self.is_on:
            return None
        status = _budget_in(self._world.etcd.get(_KEY).value).status
        pods = [pod for pod in auditor.pods.values() if _is_guarded(pod)]
        gone = {pod.metadata.name for pod in pods if pod.metadata.HasField("deletion_timestamp")} | set(status.disrupted_pods)
        healthy = sum(_is_ready(pod) for pod in pods if pod.metadata.name not in gone)
        wanted = (1, len(pods), healthy, self._least, max(0, healthy - self._least) if pods else 0)
        found = (
            status.observed_generation,
            status.expected_pods,
            status.current_healthy,
            status.desired_healthy,
            status.disruptions_allowed,
        )
        return None if found == wanted else f"the budget's status is {found}, and should be {wanted}"

    def _allowed_before(self, revision: int) -> int:
        for change in reversed(self._world.etcd.history[: revision - 2]):
            for event in change.events:
                if event.kv.key == _KEY:
                    return _budget_in(event.kv.value).status.disruptions_allowed
        return 0


def _budget_in(value: bytes) -> PodDisruptionBudget:
    return Stored.FromString(value).object.pod_disruption_budget


def _is_guarded(pod: Pod) -> bool:
    return pod.metadata.labels.get(_LABEL[0], "") == _LABEL[1]


def _is_ready(pod: Pod) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)
