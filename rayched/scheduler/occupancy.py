"""Who takes up room in the snapshot: pods seen bound, and pods assumed to become so.

A pod is assumed when its attempt has chosen a node, so that the next pod sees the room gone. The assumption ends when the pod is
seen bound, is forgotten, or is over. What was seen always wins over what was assumed.

```
            assume                    observe (any node)
  absent ──────────▶ assumed ────────────────────────────▶ observed
     ▲                  │ forget                               │
     └──────────────────┴──────────────── remove ◀─────────────┘
```

Owner: the Scheduler. It is the only one that binds pods in the snapshot and unbinds them.
Cost: one binding in the snapshot (2 µs) and a dictionary entry.
"""

from __future__ import annotations

from rayched.snapshot.pod_facts import NO_FACTS, PodFacts
from rayched.snapshot.snapshot import BoundPod, Snapshot
from rayched.snapshot.templates import PodTemplate


class Occupancy:
    """Assumed and observed bindings of pods, by uid."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._assumed: dict[str, str] = {}

    @property
    def n_assumed(self) -> int:
        return len(self._assumed)

    @property
    def n_observed(self) -> int:
        return self._snapshot.n_pods - len(self._assumed)

    def assumed_on(self, uid: str) -> str | None:
        """The node that the pod is assumed on."""
        return self._assumed.get(uid)

    def on(self, uid: str) -> BoundPod | None:
        """Where the pod takes up room, seen or assumed."""
        return self._snapshot.bound(uid)

    def assumed(self) -> list[str]:
        """Uids of all assumed pods, oldest first."""
        return list(self._assumed)

    def assume(self, uid: str, template: PodTemplate, node_name: str, facts: PodFacts = NO_FACTS) -> None:
        """Take up room for a pod that is not bound and not assumed."""
        if self._snapshot.bound(uid) is not None:
            raise ValueError(f"pod {uid} takes up room already: it cannot be assumed on {node_name}")
        self._snapshot.bind(uid, template, node_name, facts=facts)
        self._assumed[uid] = node_name

    def forget(self, uid: str) -> bool:
        """Give the room of an assumption back. False: there is none, or the pod was seen bound."""
        if self._assumed.pop(uid, None) is None:
            return False
        self._snapshot.unbind(uid)
        return True

    def confirm(self, uid: str, template: PodTemplate, node_name: str) -> bool:
        """The pod is seen bound, and nothing but its name is known of it. False: not as it was assumed, so observe it."""
        if self._assumed.get(uid) != node_name or self._snapshot.known(uid).template is not template:
            return False
        del self._assumed[uid]
        return True

    def observe(
        self, uid: str, template: PodTemplate, node_name: str, *, terminating: bool = False, facts: PodFacts = NO_FACTS
    ) -> None:
        """The pod is bound, whatever was assumed of it; `terminating`: its deletion has begun."""
        self._assumed.pop(uid, None)
        self._snapshot.bind(uid, template, node_name, terminating=terminating, facts=facts)

    def remove(self, uid: str) -> None:
        """The pod is deleted or over; it takes up no room, seen or assumed."""
        self._assumed.pop(uid, None)
        self._snapshot.unbind(uid)
