"""Pods that take long to decide, and pods in whose cycle a scheduler died: when it is their turn.

Pods are tried in the order of the queue, which knows nothing of what an attempt costs. One that asks for much (hundreds of
conditions on other pods and on nodes) takes a hundred times as long as others, and nothing says that there are not thousands of
them. So a pod that costs much, or may, steps aside:

    ordinary   in the order of the queue
    costly     the oldest first; while ordinary pods come they have SHARE of the scheduler's time
    suspect    a scheduler died in its cycle: when nobody else is there, one in SUSPECT_PAUSE_SECONDS, with less budget; and
               after SUSPECT_WAIT_SECONDS also beside others, as that pod need not have had a part in it

Whether a pod is costly is told by the last attempt of one that asks the same, else by how much it asks for. Pods that differ in
labels, containers and volumes alone ask the same.

No I/O. Owner: the SchedulerCore. Memory: ASKED_MAX parts of pods. Cost: 0.1 µs for a small pod, else 0.5 µs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from rayched.scheduler.scheduler import ATTEMPT_SECONDS
from rayched.snapshot.templates import PodTemplate
from rayched.v1.core_pb2 import Affinity, NodeSelectorTerm, Pod, PodAffinityTerm
from rayched.v1.meta_pb2 import LabelSelector

COSTLY_SECONDS: Final = 0.02
"""An attempt that takes as long is costly."""
SHARE: Final = 0.25
"""Of the scheduler's time, for costly attempts while others come."""
OTHERS_COME_SECONDS: Final = 1.0
"""Since an ordinary pod was decided: so long others are expected."""
SMALL_BYTES: Final = 512
"""A template of so many bytes cannot ask for much."""
CONDITIONS_MAX: Final = 48
"""A pod with more terms, conditions and constraints is taken for costly until an attempt has shown that it is not."""
ASKED_MAX: Final = 4_096
ASIDE_MAX: Final = 512
"""Pods aside: whoever comes then fails and comes again, as the queue keeps events for each pod that it handed out."""
SUSPECT_SECONDS: Final = 0.1
"""What an attempt of a suspect may take."""
SUSPECT_PAUSE_SECONDS: Final = 10.0
SUSPECT_WAIT_SECONDS: Final = 60.0
DEATHS_MAX: Final = 3
"""A pod in whose cycles so many schedulers died is not tried any more, until its record expires."""


class CostlyPods:
    """Pods that stepped aside. Times in seconds."""

    def __init__(self) -> None:
        self._aside: deque[str] = deque()
        self._suspects: deque[tuple[str, float]] = deque()
        """With the time since when each waits."""
        self._known: OrderedDict[bytes, bool] = OrderedDict()
        """Whether pods that ask so are costly, by what they ask."""
        self._next_at = 0.0
        self._next_suspect_at = 0.0
        self._ordinary_at = 0.0
        """When an ordinary pod was decided last."""

    def __len__(self) -> int:
        return len(self._aside) + len(self._suspects)

    def clear(self) -> None:
        """Nobody waits any more."""
        self._aside.clear()
        self._suspects.clear()

    def steps_aside(self, uid: str, template: PodTemplate, deaths: int, now: float) -> bool:
        """Whether the pod waits for `take`. `deaths`: schedulers that died in its cycles."""
        if deaths:
            self._suspects.append((uid, now))
        elif self.is_costly(template):
            self._aside.append(uid)
        else:
            return False
        return True

    def is_costly(self, template: PodTemplate) -> bool:
        """Whether attempts for such pods take long, as far as is known."""
        if len(template.content) <= SMALL_BYTES:
            return False
        part = template.bare[-1]
        costly = self._known.get(part)
        if costly is None:
            costly = conditions_of(template.pod) > CONDITIONS_MAX
            self._note(part, costly)
        return costly

    def ordinary(self, now: float) -> None:
        """Ordinary pods were decided."""
        self._ordinary_at = now

    def take(self, now: float, *, alone: bool) -> tuple[str, float] | None:
        """Whose turn it is, and what the attempt may take. `alone`: no ordinary pod is there."""
        if self._aside:
            if (alone and now - self._ordinary_at >= OTHERS_COME_SECONDS) or now >= self._next_at:
                return self._aside.popleft(), ATTEMPT_SECONDS
        elif self._suspects and now >= self._next_suspect_at:
            uid, since = self._suspects[0]
            if alone or now - since >= SUSPECT_WAIT_SECONDS:
                self._suspects.popleft()
                self._next_suspect_at = now + SUSPECT_PAUSE_SECONDS
                return uid, SUSPECT_SECONDS
        return None

    def due(self) -> float | None:
        """When to look again, where nothing else happens."""
        if self._aside:
            return min(self._next_at, self._ordinary_at + OTHERS_COME_SECONDS)
        return self._next_suspect_at if self._suspects else None

    def took(self, template: PodTemplate, seconds: float) -> None:
        """So much of the thread's time: to be told of attempts for pods that were aside, and of all that took COSTLY_SECONDS."""
        if len(template.content) > SMALL_BYTES:
            self._note(template.bare[-1], seconds >= COSTLY_SECONDS)

    def was_aside(self, began: float, now: float) -> None:
        """An attempt of a pod that was aside has ended. Others wait for as long as it lasted, whatever it computed."""
        self._next_at = now + (now - began) * (1.0 / SHARE - 1.0)

    def _note(self, part: bytes, costly: bool) -> None:
        self._known[part] = costly
        self._known.move_to_end(part)
        if len(self._known) > ASKED_MAX:
            self._known.popitem(last=False)


def conditions_of(pod: Pod) -> int:
    """How much the pod asks of nodes and of other pods: its terms, conditions and constraints."""
    spec = pod.spec
    found = len(spec.tolerations) + len(spec.node_selector)
    for constraint in spec.topology_spread_constraints:
        found += 4 + _conditions(constraint.label_selector)
    return found + _of_affinity(spec.affinity) if spec.HasField("affinity") else found


def _of_affinity(affinity: Affinity) -> int:
    node, pods, apart = affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity
    found = sum(map(_of_node_term, node.required_during_scheduling_ignored_during_execution.node_selector_terms))
    found += sum(_of_node_term(one.preference) for one in node.preferred_during_scheduling_ignored_during_execution)
    for side in (pods, apart):
        found += sum(map(_of_term, side.required_during_scheduling_ignored_during_execution))
        found += sum(_of_term(one.pod_affinity_term) for one in side.preferred_during_scheduling_ignored_during_execution)
    return found


def _of_node_term(term: NodeSelectorTerm) -> int:
    return 1 + len(term.match_expressions) + len(term.match_fields)


def _of_term(term: PodAffinityTerm) -> int:
    return 2 + _conditions(term.label_selector) + _conditions(term.namespace_selector)


def _conditions(selector: LabelSelector) -> int:
    return len(selector.match_labels) + len(selector.match_expressions)
