"""Judges each binding by the hard constraints of the pod: S8.

A binding's transaction compares its pod and its node, so what the constraints say of the node has to hold at the commit. Other
pods are not compared; there a binding is right when its constraints hold at some moment between its decision and its commit. It
is counted as tolerated when they hold

* at such a moment, but not at the commit; or
* only with what its scheduler assumed when it decided: bindings decided before it that were committed later. The attempt ids of
  one process end with a rising number, which tells their order. Until the epoch is over such bindings may still come, so a
  binding that nothing excuses yet is only doubtful until then.

Where the past does not reach back to the decision, a doubtful binding is counted as not judged.

Cost: O(pods) for each pod with constraints on others, and while others have constraints on it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from rayched.audit.constraints import against_node, against_pods
from rayched.audit.findings import Findings
from rayched.audit.view import AuditView, Past, Resident, resident
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite

HELD_BETWEEN: Final = "constraint held between decision and commit"
HELD_WITH_ASSUMED: Final = "constraint held with what was assumed"
NOT_JUDGED: Final = "constraint not judged: decided too long ago"

_RECENT_MAX: Final = 5_000
_DOUBTFUL_MAX: Final = 1_000


@dataclass(slots=True)
class _DoubtfulBinding:
    pod: Pod
    write: LeaderWrite
    seen: AuditView
    """What the scheduler can have seen, as far as it is known."""
    words: str


class BindingJudge:
    """Told of every binding before the pod takes its place in the view, and of every new epoch."""

    def __init__(self, past: Past, findings: Findings) -> None:
        self._past = past
        self._findings = findings
        self._recent: deque[tuple[int, str, Resident]] = deque(maxlen=_RECENT_MAX)
        """Bindings of this epoch: revision, attempt, pod."""
        self._doubtful: list[_DoubtfulBinding] = []

    def bound(self, pod: Pod, write: LeaderWrite, revision: int, name: str) -> None:
        view = self._past.now
        taken = resident(pod)
        node = view.nodes.get(taken.node)
        if node is None:
            return  # told elsewhere
        if words := against_node(pod, node):
            self._findings.add("constraint_broken", f"revision {revision}: pod {name} was bound to {taken.node}: {words}")
        elif words := _against_pods(pod, view):
            self._doubt(pod, write, f"revision {revision}: pod {name} was bound to {taken.node}: {words}")
        self._clear_up(pod.metadata.uid, taken, write.attempt)
        self._recent.append((revision, write.attempt, taken))

    def epoch_over(self) -> None:
        """Nothing more will be committed that was decided under it."""
        for doubtful in self._doubtful:
            self._findings.add("constraint_broken", doubtful.words)
        self._doubtful.clear()
        self._recent.clear()

    @property
    def doubtful(self) -> int:
        return len(self._doubtful)

    def _doubt(self, pod: Pod, write: LeaderWrite, words: str) -> None:
        decided = write.decided_at_revision
        if any(_against_pods(pod, view) is None for view in self._past.views_since(decided)):
            self._findings.tolerated[HELD_BETWEEN] += 1
            return
        seen = self._past.view_at(decided)
        for revision, attempt, other in self._recent:
            if revision > decided and _was_decided_before(attempt, write.attempt):
                seen.put("residents", other.pod.metadata.uid, other)
        if _against_pods(pod, seen) is None:
            self._findings.tolerated[HELD_WITH_ASSUMED] += 1
        elif not self._past.reaches_back_to(decided):
            self._findings.tolerated[NOT_JUDGED] += 1
        else:
            self._doubtful.append(_DoubtfulBinding(pod, write, seen, words))
            if len(self._doubtful) > _DOUBTFUL_MAX:
                self._findings.add("constraint_broken", self._doubtful.pop(0).words)

    def _clear_up(self, uid: str, taken: Resident, attempt: str) -> None:
        """A binding came that a doubtful one may have been decided on."""
        for doubtful in list(self._doubtful):
            if not _was_decided_before(attempt, doubtful.write.attempt):
                continue
            doubtful.seen.put("residents", uid, taken)
            if _against_pods(doubtful.pod, doubtful.seen) is None:
                self._findings.tolerated[HELD_WITH_ASSUMED] += 1
                self._doubtful.remove(doubtful)


def _against_pods(pod: Pod, view: AuditView) -> str | None:
    node = view.nodes.get(pod.spec.node_name)
    return "its node is not there" if node is None else against_pods(pod, node, view)


def _was_decided_before(attempt: str, other: str) -> bool:
    """By the same process, and earlier."""
    process, _, number = attempt.rpartition("-")
    other_process, _, other_number = other.rpartition("-")
    return process == other_process and number.isdecimal() and other_number.isdecimal() and int(number) < int(other_number)
