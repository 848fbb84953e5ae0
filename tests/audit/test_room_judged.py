"""Preemptions of pods that had room: what is broken, what only a tolerance excuses, and what cannot be judged."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from rayched.audit.auditor import Auditor, KeyChange
from rayched.audit.room_judged import NOT_JUDGED, ROOM_BETWEEN, ROOM_BUT_FOR_ASSUMED, SETTLED_SECONDS
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.storage_pb2 import LeaderWrite, Stored


class Full:
    """Two nodes of 4 CPUs; pod low-a takes node a. Every write is one revision and one second."""

    def __init__(self, b_is_full: bool = True) -> None:
        self.auditor = Auditor()
        self.revision = 0
        self._epochs = 0
        self._numbers: Counter[tuple[str, str]] = Counter()
        self.process = "me"
        self.epoch = self.new_epoch()
        for name in "ab":
            node = Node()
            node.metadata.name = name
            node.status.allocatable["cpu"].string, node.status.allocatable["pods"].string = "4", "10"
            stored = Stored()
            stored.object.node.CopyFrom(node)
            self.write((f"nodes/{name}", stored.SerializeToString()))
        self.bind("low-a", "a", "4")
        if b_is_full:
            self.bind("low-b", "b", "4")

    def new_epoch(self) -> int:
        self._epochs += 1
        record = json.dumps({"transitions": self._epochs, "holder": "me"})
        return self.write(("epoch", record.encode()))

    def write(self, *changes: tuple[str, bytes | None]) -> int:
        self.revision += 1
        whole = [KeyChange(f"/rayched/cluster/{key}".encode(), value) for key, value in changes]
        self.auditor.replay(self.revision, whole, float(self.revision))
        return self.revision

    def submit(self, name: str, cpu: str, priority: int = 0, group: str = "") -> int:
        return self.write(self._pod(name, cpu, priority, group=group))

    def bind(self, name: str, node: str, cpu: str, *, decided: int | None = None) -> int:
        self.submit(name, cpu)
        return self.write(self._pod(name, cpu, 0, node=node, write=self._stamp("bind", decided)))

    def delete(self, name: str) -> int:
        return self.write((f"pods/default/{name}", None))

    def preempt(self, name: str, node: str, cpu: str = "4", *, decided: int | None = None) -> None:
        """Of the pod there, by one of a higher priority that is pending."""
        write = self._stamp("preempt", decided)
        victim = self._pod(f"low-{node}", "4", 0, node=node, write=write, ends=True)
        self.write(self._pod(name, cpu, 10, nominated=node, write=write), victim)

    def tell(self, name: str, node: str, cpu: str = "4", *, decided: int | None = None) -> None:
        """The status of a pending pod says where it is nominated, which evicts nobody."""
        self.write(self._pod(name, cpu, 10, nominated=node, write=self._stamp("status", decided)))

    def ask_to_end(self, name: str, node: str, cpu: str) -> None:
        self.write(self._pod(name, cpu, 0, node=node, ends=True))

    def refused(self, op: str = "bind") -> None:
        """A binding, or a preemption, that is decided and never comes to be."""
        self._stamp(op, None)

    def _stamp(self, op: str, decided: int | None) -> LeaderWrite:
        number = self._numbers[self.process, op] = self._numbers[self.process, op] + 1
        attempt = f"{self.process}-{number}" if op == "bind" else f"{self.process}-{op}-{number}"
        return LeaderWrite(op=op, epoch=self.epoch, attempt=attempt, decided_at_revision=decided or self.revision)

    @staticmethod
    def _pod(
        name: str,
        cpu: str,
        priority: int,
        *,
        node: str = "",
        nominated: str = "",
        write: LeaderWrite | None = None,
        ends: bool = False,
        group: str = "",
    ) -> tuple[str, bytes]:
        pod = Pod()
        pod.spec.scheduling_group.pod_group_name = group
        pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = name, "default", f"uid-{name}"
        pod.spec.containers.add(name="main").resources.requests["cpu"].string = cpu
        pod.spec.node_name, pod.spec.priority = node, priority
        pod.status.nominated_node_name = nominated
        if ends:
            pod.metadata.deletion_timestamp.FromSeconds(1)
            pod.status.conditions.add(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
        stored = Stored(leader_write=write)
        stored.object.pod.CopyFrom(pod)
        return f"pods/default/{name}", stored.SerializeToString()

    @property
    def broken(self) -> int:
        self.auditor.settle()
        return self.auditor.findings.wrong_victim

    @property
    def tolerated(self) -> dict[str, int]:
        return dict(self.auditor.findings.tolerated)


def test_a_pod_that_fits_nowhere_may_preempt() -> None:
    full = Full()
    full.submit("high", "4", 10)
    full.preempt("high", "a")
    assert (full.broken, full.tolerated) == (0, {})


def test_a_pod_that_had_room_may_not() -> None:
    full = Full(b_is_full=False)
    full.submit("high", "4", 10)
    full.preempt("high", "a")
    assert full.broken == 1


def test_room_that_came_after_the_decision_excuses() -> None:
    full = Full()
    decided = full.submit("high", "4", 10)
    full.delete("low-b")
    full.preempt("high", "a", decided=decided)
    assert (full.broken, full.tolerated) == (0, {ROOM_BETWEEN: 1})


def test_room_that_had_gone_and_come_again_meanwhile_excuses() -> None:
    full = Full(b_is_full=False)
    decided = full.submit("high", "4", 10)
    full.bind("other", "b", "4")
    full.delete("other")
    full.preempt("high", "a", decided=decided)
    assert (full.broken, full.tolerated) == (0, {ROOM_BETWEEN: 1})


def test_room_that_the_same_process_had_given_away_excuses() -> None:
    full = Full(b_is_full=False)
    decided = full.submit("high", "4", 10)
    full.preempt("high", "a", decided=decided)
    full.bind("other", "b", "4", decided=decided)
    assert (full.broken, full.tolerated) == (0, {ROOM_BUT_FOR_ASSUMED: 1})


def test_where_a_binding_decided_before_came_to_nothing_nobody_can_tell() -> None:
    full = Full(b_is_full=False)
    full.submit("high", "4", 10)
    full.refused()
    full.preempt("high", "a")
    full.bind("small", "a", "100m")
    assert (full.broken, full.tolerated) == (0, {NOT_JUDGED: 1})


@pytest.mark.parametrize(("cpu", "priority", "is_excused"), [("4", 10, True), ("4", 9, False), ("5", 10, False)])
def test_where_a_preemption_before_came_to_nothing_who_waited_may_have_been_in_the_way(
    cpu: str, priority: int, is_excused: bool
) -> None:
    full = Full(b_is_full=False)
    full.submit("rival", cpu, priority)
    full.submit("high", "4", 10)
    full.refused("preempt")
    full.preempt("high", "a")
    assert (full.broken, full.tolerated) == ((0, {NOT_JUDGED: 1}) if is_excused else (1, {}))


@pytest.mark.parametrize(("priority", "group", "is_excused"), [(10, "train", True), (9, "train", False), (10, "", False)])
def test_a_member_of_a_group_may_have_been_nominated_to_no_avail(priority: int, group: str, is_excused: bool) -> None:
    full = Full(b_is_full=False)
    full.submit("rival", "4", priority, group)
    full.submit("high", "4", 10)
    full.preempt("high", "a")
    assert (full.broken, full.tolerated) == ((0, {NOT_JUDGED: 1}) if is_excused else (1, {}))


@pytest.mark.parametrize("process", ["me", "new"], ids=["has bound before", "has not"])
@pytest.mark.parametrize("came_to_be", [True, False])
def test_where_the_first_binding_of_an_epoch_came_to_nothing_nobody_can_tell(process: str, came_to_be: bool) -> None:
    full = Full(b_is_full=False)
    full.epoch, full.process = full.new_epoch(), process
    full.submit("high", "4", 10)
    if came_to_be:
        full.bind("first", "a", "100m")
    else:
        full.refused()
    full.preempt("high", "a")
    full.bind("small", "a", "100m")
    assert (full.broken, full.tolerated) == ((1, {}) if came_to_be else (0, {NOT_JUDGED: 1}))


def test_what_was_decided_later_excuses_nothing() -> None:
    full = Full(b_is_full=False)
    full.submit("high", "4", 10)
    full.preempt("high", "a")
    full.bind("other", "b", "4")
    assert full.broken == 1


def test_doubt_ends_by_time_while_the_epoch_goes_on_and_with_it() -> None:
    full = Full(b_is_full=False)
    full.submit("high", "4", 10)
    full.preempt("high", "a")
    full.delete("low-a")
    for number in range(int(SETTLED_SECONDS)):
        full.bind(f"small-{number}", "a", "100m")
    assert full.auditor.findings.wrong_victim == 1

    full = Full(b_is_full=False)
    full.submit("high", "4", 10)
    full.preempt("high", "a")
    full.new_epoch()
    assert (full.broken, full.tolerated) == (0, {NOT_JUDGED: 1})


def test_room_is_taken_by_who_is_nominated_there_with_no_lower_priority() -> None:
    for priority, allowed in ((10, True), (9, False)):
        full = Full(b_is_full=False)
        full.submit("high", "4", 10)
        full.write(full._pod("rival", "4", priority, nominated="b"))
        full.preempt("high", "a")
        assert (full.broken == 0) is allowed


def half_taken(*, ending: bool = True) -> tuple[Full, int]:
    """Half of node b is free, and the pod in the other half is ending, or not; two pods that want to preempt wait."""
    full = Full(b_is_full=False)
    full.bind("half", "b", "2")
    if ending:
        full.ask_to_end("half", "b", "2")
    full.submit("rival", "4", 10)
    return full, full.submit("high", "2", 10)


def test_room_is_taken_by_who_waits_for_a_pod_that_is_ending_and_is_told_later() -> None:
    full, decided = half_taken()
    full.preempt("high", "a", "2", decided=decided)
    full.tell("rival", "b")
    assert (full.broken, full.tolerated) == (0, {ROOM_BUT_FOR_ASSUMED: 1})

    full, decided = half_taken()
    full.preempt("high", "a", "2", decided=decided)
    full.bind("other", "a", "100m")
    full.tell("rival", "b")
    assert (full.broken, full.tolerated) == (0, {ROOM_BUT_FOR_ASSUMED: 1})


def test_who_waited_for_a_pod_that_was_ending_and_was_deleted_leaves_it_open_whether_there_was_room() -> None:
    full, decided = half_taken()
    full.preempt("high", "a", "2", decided=decided)
    full.delete("rival")
    assert (full.broken, full.tolerated) == (0, {NOT_JUDGED: 1})


def test_a_nomination_that_is_told_later_excuses_nothing_where_nobody_was_ending_or_its_pod_is_less_important() -> None:
    for tells in (lambda full: full.tell("rival", "b"), lambda full: full.delete("rival")):
        full, decided = half_taken(ending=False)
        full.preempt("high", "a", "2", decided=decided)
        tells(full)
        assert full.broken == 1

    full, decided = half_taken()
    full.preempt("high", "a", "2", decided=decided)
    full.write(full._pod("rival", "4", 9, nominated="b", write=full._stamp("status", None)))
    assert full.broken == 1


def test_who_is_gone_can_have_waited_for_one_node_only() -> None:
    full, decided = half_taken()
    node = Node()
    node.metadata.name = "c"
    node.status.allocatable["cpu"].string, node.status.allocatable["pods"].string = "4", "10"
    stored = Stored()
    stored.object.node.CopyFrom(node)
    decided = full.write(("nodes/c", stored.SerializeToString()))
    full.preempt("high", "a", "2", decided=decided)
    full.delete("rival")
    assert full.broken == 1


def test_a_status_that_never_came_leaves_open_whether_one_pod_that_waited_was_assumed() -> None:
    for waiting_cpu, missing, broken in (("4", 1, 0), ("4", 0, 1), ("8", 1, 1)):
        full = Full(b_is_full=False)
        full.tell("told", "", "8")
        full.submit("waits", waiting_cpu)
        full.submit("high", "4", 10)
        for _ in range(missing):
            full._stamp("status", None)
        full.preempt("high", "a")
        full.tell("told", "", "8")
        assert (full.broken, full.tolerated) == (broken, {} if broken else {NOT_JUDGED: 1})


def test_a_later_binding_that_never_came_leaves_open_whether_one_pod_that_waited_was_assumed() -> None:
    for waiting_cpu, missing, broken in (("4", 1, 0), ("4", 0, 1), ("8", 1, 1)):
        full = Full(b_is_full=False)
        full.submit("waits", waiting_cpu)
        full.submit("high", "4", 10)
        full.preempt("high", "a")
        full.bind("small", "a", "100m")
        for _ in range(missing):
            full.refused()
        full.bind("smaller", "a", "100m")
        assert (full.broken, full.tolerated) == (broken, {} if broken else {NOT_JUDGED: 1})


def test_a_status_that_never_came_long_ago_excuses_nothing() -> None:
    full = Full(b_is_full=False)
    full.submit("waits", "4")
    full._stamp("status", None)
    full.tell("told", "", "8")
    for number in range(int(SETTLED_SECONDS)):
        full.submit(f"large-{number}", "8")
    full.submit("high", "4", 10)
    full.preempt("high", "a")
    assert full.broken == 1
