"""SchedulingGates: hold a pod back for as long as its spec names scheduling gates.

PreEnqueue: a pod with gates does not enter activeQ. It is looked at again when the pod itself changes, which is the only way to
remove a gate.

Source: pod.spec.schedulingGates (core/v1), kube-scheduler 1.34.
Cost: one look at the pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rayched.framework import names
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.plugin import PreEnqueuePlugin, RegisteringPlugin
from rayched.framework.queueing_hints import Hint, Registration, is_itself, queue_if
from rayched.framework.status import SUCCESS, Status, unresolvable
from rayched.v1.core_pb2 import Pod


class SchedulingGates(PreEnqueuePlugin, RegisteringPlugin):
    name: Final = names.SCHEDULING_GATES

    def pre_enqueue(self, pod: Pod) -> Status:
        """The reason lists the gates in the pod's order."""
        if not pod.spec.scheduling_gates:
            return SUCCESS
        gates = " ".join(gate.name for gate in pod.spec.scheduling_gates)
        return unresolvable(f"waiting for scheduling gates: [{gates}]").by(self.name)

    def registrations(self) -> Sequence[Registration]:
        event = ClusterEvent(Resource.POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
        return (Registration(event, _after_last_gate),)


def _after_last_gate(pod: Pod, old: Pod, new: Pod) -> Hint:  # noqa: ARG001 - the event says that the gates are gone
    return queue_if(is_itself(pod, new))
