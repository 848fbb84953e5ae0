"""Judges each preemption by whether the pod had room without it: the second half of S9.

A preemptor has room on a node that could take it as it is, by the auditor's own rules: with all that is bound there, what is
ending included, and, as kube-scheduler has it, both with and without the other pods of its priority or a higher one that are
nominated there. A preemption was right when at some moment between its decision and its commit no node had room. It is counted as
tolerated when that holds

* at such a moment, but not at the commit; or
* only with what its scheduler assumed: what the same process had decided by then and committed later. Such writes come within
  moments, so a preemption that nothing excuses yet is only doubtful for SETTLED_SECONDS. When its epoch is over before, nobody
  can know what was still to come, and it is counted as not judged. Neither can anybody where an attempt that was under way at
  the decision never came to be: it was assumed somewhere, and refused.

Where all victims are ending already, a nomination evicts nobody. It holds at once in its scheduler, is told with the pod's next
status, which may be seconds later, and not at all when the pod is bound or deleted before. So a node with a pod that was ending
at the decision counts as taken by each pod of no lower priority than the preemptor's, and of a higher one than the ending pod's,
that the same process nominated or bound there later (tolerated), or that was deleted while it waited (not judged).

A binding waits for an answer about its pod's status, and has no number until then. So for each status that the process wrote in
the last SETTLED_SECONDS before the preemption, and that never came, one of the pods that waited may have been assumed where there
was room; where that leaves no room, the preemption is not judged. The same holds for each number that is missing among the
bindings that came later: who waited for the answer was assumed before the preemption, and refused after it. And for each number
that is missing among the preemptions before this one: who waited for that answer was nominated, and refused after this one.
Members of a group are nominated before anything is written for it, so any that waited, of no lower priority, may have been so.

Cost: O(bound pods) for each preemption, a few times that where the pod had room at the commit.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from rayched.audit.capacity import collide
from rayched.audit.constraints import against_node, against_pods
from rayched.audit.findings import Findings
from rayched.audit.requests import Amounts, amounts, host_ports, taken_by
from rayched.audit.view import AuditView, Past, Resident, resident
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite

ROOM_BETWEEN: Final = "preemptor had room at its commit, and not before"
ROOM_BUT_FOR_ASSUMED: Final = "preemptor had room but for what was assumed"
NOT_JUDGED: Final = "preemptor's room not judged: the decision is too old, its epoch over, or what was assumed came to nothing"

SETTLED_SECONDS: Final = 5.0
_RECENT_MAX: Final = 5_000
_GONE_MAX: Final = 1_000
_UNDER_WAY_MAX: Final = 100
"""Bindings of a process that may wait for an answer at a time, more or less."""
_VIEWS_MAX: Final = 50
"""Looked at between decision and commit, where neither of them excuses."""


@dataclass(slots=True)
class _DoubtfulCapacity:
    pod: Pod
    write: LeaderWrite
    seen: AuditView
    since: float
    words: str
    waiting: list[Pod]
    """Pods without a node at the commit."""


class RoomJudge:
    """Told of each preemption that evicts somebody, of each other decision of a leader, and of every new epoch."""

    def __init__(self, past: Past, findings: Findings) -> None:
        self._past = past
        self._findings = findings
        self._doubtful: list[_DoubtfulCapacity] = []
        self._recent: deque[tuple[int, LeaderWrite, str, Resident]] = deque(maxlen=_RECENT_MAX)
        """Bindings and nominations of this epoch: revision, write, table of the view, pod."""
        self._bound_before: dict[str, int] = {}
        """The highest number of a binding in earlier epochs, by process."""
        self._gone: deque[tuple[int, Pod]] = deque(maxlen=_GONE_MAX)
        """Pods of this epoch that were deleted while they waited for a node, and when."""
        self._statuses: deque[tuple[int, LeaderWrite, float]] = deque(maxlen=_RECENT_MAX)
        """Statuses of this epoch: number, write, when it was seen."""

    def decided(self, revision: int, write: LeaderWrite, table: str, other: Resident, seconds: float) -> None:
        """A pod was bound (table "residents") or nominated (table "nominated")."""
        self._recent.append((revision, write, table, other))
        for doubtful in list(self._doubtful):
            if seconds > doubtful.since + SETTLED_SECONDS:
                self._judge(doubtful)
                self._doubtful.remove(doubtful)
            elif (
                _assume(doubtful.seen, write, table, other, doubtful.pod, doubtful.write)
                and node_with_room(doubtful.pod, doubtful.seen) is None
            ):
                self._findings.tolerated[ROOM_BUT_FOR_ASSUMED] += 1
                self._doubtful.remove(doubtful)

    def told(self, write: LeaderWrite, seconds: float) -> None:
        """A pod's status was written."""
        number = write.attempt.rpartition("-")[2]
        if number.isdigit():
            self._statuses.append((int(number), write, seconds))

    def gone(self, revision: int, pod: Pod) -> None:
        """A pod was deleted while it waited for a node."""
        self._gone.append((revision, pod))

    def preempted(self, pod: Pod, write: LeaderWrite, revision: int, seconds: float, pods: Iterable[Pod]) -> None:
        """The pod made somebody go. `pods` are all that there are."""
        node = node_with_room(pod, self._past.now)
        if node is None:
            return
        decided = write.decided_at_revision
        seen = self._past.view_at(decided)
        if node_with_room(pod, seen) is None:
            self._findings.tolerated[ROOM_BETWEEN] += 1
            return
        for committed, earlier, table, other in self._recent:
            if committed > decided:
                _assume(seen, earlier, table, other, pod, write)
        if node_with_room(pod, seen) is None:
            self._findings.tolerated[ROOM_BUT_FOR_ASSUMED] += 1
        elif any(node_with_room(pod, view) is None for view in itertools.islice(self._past.views_since(decided), _VIEWS_MAX)):
            self._findings.tolerated[ROOM_BETWEEN] += 1
        elif not self._past.reaches_back_to(decided):
            self._findings.tolerated[NOT_JUDGED] += 1
        else:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            words = f"revision {revision}: pod {name} preempted on {pod.status.nominated_node_name} and had room on {node}"
            waiting = [one for one in pods if not one.spec.node_name and not one.spec.scheduling_gates]
            self._doubtful.append(_DoubtfulCapacity(pod, write, seen, seconds, words, waiting))

    def epoch_over(self) -> None:
        if self._doubtful:
            self._findings.tolerated[NOT_JUDGED] += len(self._doubtful)
        self._doubtful.clear()
        for process, number, _ in self._bindings():
            self._bound_before[process] = max(number, self._bound_before.get(process, 0))
        self._recent.clear()
        self._gone.clear()
        self._statuses.clear()

    def settle(self) -> None:
        """Nothing more will come: whoever decided had time to commit it."""
        for doubtful in self._doubtful:
            self._judge(doubtful)
        self._doubtful.clear()

    def _judge(self, doubtful: _DoubtfulCapacity) -> None:
        if (
            self._something_came_to_nothing(doubtful.write)
            or self._may_have_been_for_who_is_gone(doubtful)
            or self._may_have_been_for_who_was_refused(doubtful)
        ):
            self._findings.tolerated[NOT_JUDGED] += 1
        else:
            self._findings.add("wrong_victim", doubtful.words)

    def _something_came_to_nothing(self, write: LeaderWrite) -> bool:
        """Whether a number is missing among the last bindings of the same process up to the first that it decided after this."""
        process, decided = write.attempt.partition("-preempt-")[0], write.decided_at_revision
        bindings = self._bindings_of(process)
        first_later = next((place for place, (_, one) in enumerate(bindings) if one > decided), len(bindings))
        last = bindings[max(first_later - _UNDER_WAY_MAX, 0) : first_later + 1]
        return bool(last) and last[-1][0] - last[0][0] >= len(last)

    def _bindings_of(self, of: str) -> list[tuple[int, int]]:
        """Number and revision of the decision, by number; the last of earlier epochs, or 0, stands before them."""
        bindings = sorted((number, decided) for process, number, decided in self._bindings() if process == of)
        return bindings if len(self._recent) == _RECENT_MAX else [(self._bound_before.get(of, 0), 0), *bindings]

    def _bindings(self) -> Iterator[tuple[str, int, int]]:
        """Process, number, and revision of the decision of each binding of this epoch."""
        for _, write, table, _ in self._recent:
            process, _, number = write.attempt.rpartition("-")
            if table == "residents" and number.isdigit():
                yield process, int(number), write.decided_at_revision

    def _may_have_been_for_who_is_gone(self, doubtful: _DoubtfulCapacity) -> bool:
        """Whether pods that were deleted since the decision can have been nominated to all nodes that had room."""
        pod, seen, decided = doubtful.pod, doubtful.seen, doubtful.write.decided_at_revision
        left = [gone for revision, gone in self._gone if revision > decided]
        while (node := node_with_room(pod, seen)) is not None:
            rival = next((gone for gone in left if _may_wait_for_ending(gone, node, seen, pod)), None)
            if rival is None:
                return False
            left.remove(rival)
            seen.put("nominated", rival.metadata.uid, resident(rival, node))
        return True

    def _may_have_been_for_who_was_refused(self, doubtful: _DoubtfulCapacity) -> bool:
        """Whether pods that waited can have been assumed on all nodes that had room: one for each status, later binding or
        earlier preemption that never came, and members of groups, whose nominations come to nothing without a number."""
        pod, seen = doubtful.pod, doubtful.seen.copy()
        left = [one for one in doubtful.waiting if one.metadata.uid != pod.metadata.uid]
        # Of those who were nominated to no avail only the important ones were in the way.
        n_missing, came = self._earlier_preemptions(doubtful)
        rivals = [one for one in left if one.spec.priority >= pod.spec.priority and one.metadata.uid not in came]
        members = [one for one in rivals if one.spec.scheduling_group.pod_group_name]
        _take(rivals, n_missing, pod, seen)
        _take(members, len(members), pod, seen)
        _take(left, self._statuses_missing(doubtful) + self._later_bindings_missing(doubtful), pod, seen)
        return node_with_room(pod, seen) is None

    def _earlier_preemptions(self, doubtful: _DoubtfulCapacity) -> tuple[int, set[str]]:
        """How many never came of those that the same process may have had under way when it decided this one, and whose came."""
        process, _, number = doubtful.write.attempt.partition("-preempt-")
        if not number.isdigit():
            return 0, set()
        earlier = {f"{process}-preempt-{one}" for one in range(max(1, int(number) - _UNDER_WAY_MAX), int(number))}
        came = {write.attempt: other.pod.metadata.uid for _, write, _, other in self._recent if write.attempt in earlier}
        return len(earlier) - len(came), set(came.values())

    def _later_bindings_missing(self, doubtful: _DoubtfulCapacity) -> int:
        """Of those with a number behind the first one that the same process decided after the preemption."""
        process, decided = doubtful.write.attempt.partition("-preempt-")[0], doubtful.write.decided_at_revision
        bindings = self._bindings_of(process)
        later = [
            number for number, _ in bindings[next((n for n, (_, at) in enumerate(bindings) if at > decided), len(bindings)) :]
        ]
        return later[-1] - later[0] + 1 - len(later) if later else 0

    def _statuses_missing(self, doubtful: _DoubtfulCapacity) -> int:
        """Of those that the same process wrote up to the first one that it decided after the preemption."""
        process, decided = doubtful.write.attempt.partition("-preempt-")[0], doubtful.write.decided_at_revision
        told = sorted(
            (number, write.decided_at_revision, seconds)
            for number, write, seconds in self._statuses
            if write.attempt.partition("-status-")[0] == process
        )
        missing = before = 0
        for number, decided_at, seconds in told:
            if seconds >= doubtful.since - SETTLED_SECONDS:
                missing += number - before - 1
            before = number
            if decided_at > decided:
                break
        return missing


def _take(among: Iterable[Pod], count: int, pod: Pod, view: AuditView) -> None:
    """Puts so many of these, at most, where `pod` has room, each where it fits itself. Who is on a node already stays there."""
    left = [one for one in among if one.metadata.uid not in view.residents]
    for _ in range(count):
        node = node_with_room(pod, view)
        taker = next((one for one in left if node in _free_nodes(one, view) and not _is_against(one, node, view)), None)
        if node is None or taker is None:
            return
        left.remove(taker)
        view.put("residents", taker.metadata.uid, resident(taker, node))


def node_with_room(pod: Pod, view: AuditView) -> str | None:
    """A node that could take the pod in this view. O(pods)."""
    uid, priority = pod.metadata.uid, pod.spec.priority
    rivals = {
        other: one
        for other, one in view.nominated.items()
        if other != uid and other not in view.residents and one.pod.spec.priority >= priority
    }
    with_rivals = view
    if rivals:
        with_rivals = view.copy()
        for other, one in rivals.items():
            with_rivals.put("residents", other, one)
    free = _free_nodes(pod, with_rivals)
    for name in free:
        node = view.nodes[name]
        if against_node(pod, node) or against_pods(pod, node, view):
            continue
        if not rivals or not against_pods(pod, node, with_rivals):
            return name
    return None


def _free_nodes(pod: Pod, view: AuditView) -> list[str]:
    """Nodes whose resources and ports suffice."""
    wanted, ports = taken_by(pod), host_ports(pod)
    used: dict[str, Amounts] = {name: {} for name in view.nodes}
    blocked: set[str] = set()
    for uid, one in view.residents.items():
        if uid == pod.metadata.uid or (taken := used.get(one.node)) is None:
            continue
        for resource, value in one.takes.items():
            if resource in wanted:
                taken[resource] = taken.get(resource, Fraction(0)) + value
        if ports and any(collide(port, other) for port in ports for other in one.ports):
            blocked.add(one.node)
    free: list[str] = []
    for name, node in view.nodes.items():
        offer = amounts(node.status.allocatable)
        fits = all(
            not value or used[name].get(resource, Fraction(0)) + value <= offer.get(resource, Fraction(0))
            for resource, value in wanted.items()
        )
        if fits and name not in blocked:
            free.append(name)
    return free


def _is_against(pod: Pod, name: str, view: AuditView) -> bool:
    node = view.nodes[name]
    return bool(against_node(pod, node) or against_pods(pod, node, view))


def _assume(seen: AuditView, write: LeaderWrite, table: str, other: Resident, pod: Pod, by: LeaderWrite) -> bool:
    """Puts another decision's pod where the decision on `pod` may have assumed it; whether it may."""
    if _may_have_been_assumed(write, by):
        seen.put(table, other.pod.metadata.uid, other)
        return True
    if _is_same_process(write, by) and _may_wait_for_ending(other.pod, other.node, seen, pod):
        seen.put("nominated", other.pod.metadata.uid, other)
        return True
    return False


def _may_wait_for_ending(other: Pod, node: str, view: AuditView, pod: Pod) -> bool:
    """Whether the other pod can have been nominated to the node with nobody to evict, in the way of `pod`."""
    priority = other.spec.priority
    if other.metadata.uid == pod.metadata.uid or priority < pod.spec.priority:
        return False
    return any(one.node == node and one.deleting and one.pod.spec.priority < priority for one in view.residents.values())


def _may_have_been_assumed(write: LeaderWrite, by: LeaderWrite) -> bool:
    """The same process decided it no later, as far as revisions tell."""
    return _is_same_process(write, by) and write.decided_at_revision <= by.decided_at_revision


def _is_same_process(write: LeaderWrite, by: LeaderWrite) -> bool:
    """Two attempts of one process."""
    return write.attempt != by.attempt and write.attempt.partition("-")[0] == by.attempt.partition("-")[0]
