"""One attempt to schedule one pod, and how an attempt fails.

```
  schedule ──▶ WAITING ──▶ READY ──▶ BINDING ──▶ bound
      │   └───────────────▲ │          │
      │ (nobody waits)      │          │ conflict, refusal, a plugin's word
      ▼           rejected, ▼ timeout  ▼
   Failure ◀───────────────────────── rolled back: Unreserve, room given back
```

An attempt holds room from its assumption until it is rolled back or the pod is seen bound.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from rayched.framework.cycle_state import CycleState
from rayched.framework.lifecycle import Lifecycle
from rayched.framework.status import Code, Status
from rayched.snapshot.templates import PodTemplate
from rayched.v1.core_pb2 import Pod

NO_PLUGINS: frozenset[str] = frozenset()


class HasPod(Protocol):
    """A pod that is decoded at the first look: if no plugin looks at it, never."""

    @property
    def pod(self) -> Pod:
        """Not to be changed."""


class AttemptPhase(enum.Enum):
    WAITING = "waiting"
    """A Permit plugin asked to wait."""
    READY = "ready"
    """Nothing is in the way of the binding cycle."""
    BINDING = "binding"
    """PreBind and Bind succeeded; the store decides."""


READY: Final = AttemptPhase.READY
BINDING: Final = AttemptPhase.BINDING
"""For what happens with each attempt: to look a member up in its class takes 0.1 µs."""


@dataclass(slots=True)
class Attempt:
    """Owned by the Scheduler, which alone changes it."""

    uid: str
    name: str
    """namespace/name."""
    number: int
    """The decision's number in this scheduler's life; the draw between ties depends on it."""
    began: int
    """Position in the log to the queue at which the cycle began."""
    template: PodTemplate
    given: Pod | HasPod
    lifecycle: Lifecycle
    started: float = 0.0
    """When its cycle began; seconds of the caller's clock."""
    node_name: str = ""
    id: str = ""
    """Goes with the binding into the store; "" before its binding cycle."""
    phase: AttemptPhase = AttemptPhase.READY
    _state: CycleState | None = None

    @property
    def pod(self) -> Pod:
        """Not to be changed."""
        given = self.given
        return given if isinstance(given, Pod) else given.pod

    @property
    def state(self) -> CycleState:
        """What plugins leave for each other; made when the first one is asked."""
        if self._state is None:
            self._state = CycleState()
        return self._state


@dataclass(frozen=True, slots=True)
class Preemption:
    """Room that is made for a pod: all of it happens, or the pod is to be tried again."""

    node_name: str
    victims: tuple[str, ...]
    """uids of bound pods that have to end, the most important first."""
    cleared: tuple[str, ...]
    """uids of pending pods of lower priority that lose their nomination to the node."""


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """Why an attempt did not lead to a binding. Without any plugin it failed with an error."""

    status: Status
    message: str
    """For people; the text of the pod's condition."""
    unschedulable_plugins: frozenset[str] = NO_PLUGINS
    pending_plugins: frozenset[str] = NO_PLUGINS
    nominated_node_name: str | None = None
    """What becomes of the pod's nomination: the node PostFilter made room on, "" for none; None: nothing changes."""
    preemption: Preemption | None = None
    """What has to happen for the nomination to be worth something."""

    @property
    def rejected(self) -> bool:
        """The pod was turned down; else something is broken."""
        return self.status.rejected


def failed_on_node(status: Status) -> AttemptFailure:
    """Reserve, Permit, PreBind or Bind turned the pod down, or broke, after a node was chosen. A nomination ends with it.

    Source: the FitError of one node that kube-scheduler 1.34 makes of it.
    """
    if not status.rejected:
        return AttemptFailure(status, status.message(), nominated_node_name="")
    plugins = frozenset({status.plugin} - {""})
    pending = plugins if status.code is Code.PENDING else NO_PLUGINS
    return AttemptFailure(status, _none_of_one_node(status.reasons), plugins - pending, pending, nominated_node_name="")


def _none_of_one_node(reasons: Iterable[str]) -> str:
    counted = ", ".join(sorted(f"1 {reason}" for reason in reasons))
    return f"0/1 nodes are available: {counted}." if counted else "0/1 nodes are available:"
