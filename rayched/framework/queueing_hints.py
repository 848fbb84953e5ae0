"""What a plugin says of the events after which a pod that it rejected is worth another attempt.

A plugin registers for cluster events; for each it may give a hint function, which is asked whether this very occurrence can help
this very pod. Without one the answer is always QUEUE. A pod is woken only by plugins that hold it.

What a hint function may rely on:

* It is given the pending pod and the object before and after; None stands for the missing one of an addition or a deletion.
* It reads the pending pod's spec, labels and namespace only, so that one answer serves all pods of a template: name, uid and
  status may be missing, in the pods before and after as well.
* For an event of UNSCHEDULABLE_POD it is asked about that pod alone, with the pod before and after its update. A pod before or
  after that has no node is therefore the pending pod itself (`is_itself`).
* It depends on nothing else, and SKIP is a promise: this occurrence does not change the plugin's mind about this pod.

Source: fwk.QueueingHintFn, fwk.ClusterEventWithHint of kube-scheduler 1.34.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rayched.framework.cluster_event import ClusterEvent
from rayched.v1.core_pb2 import Pod


class Hint(enum.Enum):
    """What a hint function answers."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"


HintFunction = Callable[[Pod, Any, Any], Hint]
"""(pending pod, object before, object after)."""


@dataclass(frozen=True, slots=True)
class Registration:
    """Events that a plugin wants to know of; without a hint function each of them is worth an attempt."""

    event: ClusterEvent
    hint: HintFunction | None = None


def queue_if(helps: bool) -> Hint:
    return Hint.QUEUE if helps else Hint.SKIP


def is_itself(pod: Pod, other: Pod) -> bool:
    """Whether `other`, a pod before or after an event, is the pending pod that the hint is asked about."""
    return not other.spec.node_name and other.metadata.uid == pod.metadata.uid
