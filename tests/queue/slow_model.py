"""The scheduling queue as plainly as it can be said: one list of pods, milliseconds, no heap, no index, a full record of events.

Shares nothing with the product. Plugins of the modelled world, by name and by what they want to know:

    Colour   NODE_ADD of a node whose colour is the pod's         (a hint that looks)
    Space    ASSIGNED_POD_DELETE                                   (always)
    Broken   ASSIGNED_POD_ADD                                      (a hint that raises, which counts as yes)
    Labels   the pod's own change of labels                        (always)
    Gate     the removal of the pod's gates; refuses pods with gates at PreEnqueue
"""

from __future__ import annotations

from dataclasses import dataclass, field

NODE = "node"
SPACE = "space"
TAINT = "taint"
BROKEN = "broken"
UNKNOWN = "unknown"


@dataclass
class ModelPod:
    uid: str
    name: str
    priority: int
    colour: str
    gated: bool
    since_ms: int
    where: str = "nowhere"
    attempts: int = 0
    rejections: int = 0
    errors: int = 0
    rejected_by: set[str] = field(default_factory=set)
    pending_for: set[str] = field(default_factory=set)
    held_at_gate: bool = False
    deleted: bool = False
    popped_at: int = 0
    kicked: bool = False

    @property
    def holders(self) -> set[str]:
        return self.rejected_by | self.pending_for

    def wait_ends_second(self) -> int | None:
        failures = self.errors if self.errors > 0 else self.rejections
        if failures == 0:
            return None
        seconds = [1, 2, 4, 8][failures - 1] if failures <= 4 else 10
        return (self.since_ms + seconds * 1000) // 1000


@dataclass
class Happening:
    position: int
    kind: str
    colour: str = ""
    uid: str = ""


class SlowQueue:
    """Answers the same questions as the product; `where` of each pod is a text."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.pods: list[ModelPod] = []
        self.record: list[Happening] = []
        self.position = 0

    # -------------------------------------------------------------------------------------------------------- questions

    def named(self, name: str) -> ModelPod | None:
        return next((pod for pod in self.pods if pod.name == name and not pod.deleted), None)

    def in_place(self, where: str) -> list[ModelPod]:
        return [pod for pod in self.pods if pod.where == where]

    def waits(self, pod: ModelPod) -> bool:
        ends = pod.wait_ends_second()
        return ends is not None and ends >= self.now_ms // 1000

    def would_flush(self, at_ms: int) -> bool:
        """Whether any pod's timer has run out by then."""
        backoff = any(
            (pod.wait_ends_second() or 0) < at_ms // 1000 for pod in self.in_place("backoff") + self.in_place("error_backoff")
        )
        return backoff or any(at_ms - pod.since_ms > 300_000 for pod in self.in_place("unschedulable"))

    # ------------------------------------------------------------------------------------------------------- operations

    def add(self, uid: str, name: str, priority: int, colour: str, gated: bool) -> None:
        pod = ModelPod(uid, name, priority, colour, gated, self.now_ms)
        old = self.named(name)
        if old is not None and old.uid == uid:
            if old.where == "in_flight":
                self.change(name, priority=priority, colour=colour, gated=gated)
                return
            if gated:
                self.position += 1
                return
        self.position += 1
        if old is not None:
            self.delete(name)
        self.pods.append(pod)
        self.admit(pod, "active")

    def delete(self, name: str) -> None:
        pod = self.named(name)
        if pod is None:
            return
        if pod.where == "in_flight":
            pod.deleted = True
        else:
            self.pods.remove(pod)

    def change(self, name: str, *, priority: int | None = None, colour: str | None = None, gated: bool | None = None) -> None:
        pod = self.named(name)
        assert pod is not None
        self.position += 1
        kinds = []
        if colour is not None and colour != pod.colour:
            kinds.append("own labels")
        if gated is False and pod.gated:
            kinds.append("own gates")
        pod.priority = pod.priority if priority is None else priority
        pod.colour = pod.colour if colour is None else colour
        pod.gated = pod.gated if gated is None else gated
        if pod.where == "in_flight":
            self.record += [Happening(self.position, kind, uid=pod.uid) for kind in kinds]
        elif pod.where in ("unschedulable", "gated"):
            for kind in kinds:
                if pod.where in ("unschedulable", "gated"):
                    self.wake(pod, Happening(self.position, kind, uid=pod.uid))

    def pop(self) -> ModelPod | None:
        active, backoff = self.in_place("active"), self.in_place("backoff")
        if active:
            pod = min(active, key=lambda pod: (-pod.priority, pod.since_ms))
        elif backoff:
            pod = min(backoff, key=lambda pod: (pod.wait_ends_second(), -pod.priority, pod.since_ms))
        else:
            return None
        pod.where = "in_flight"
        pod.attempts += 1
        pod.rejected_by, pod.pending_for = set(), set()
        pod.popped_at, pod.kicked = self.position, False
        return pod

    def fail(self, pod: ModelPod, rejected_by: set[str], pending_for: set[str], cycle_began: int) -> None:
        if pod.deleted:
            self.pods.remove(pod)
            return
        pod.rejected_by, pod.pending_for, pod.since_ms = rejected_by, pending_for, self.now_ms
        if pod.holders:
            pod.rejections += 1
            pod.errors = 0
        else:
            pod.errors += 1
        answers = {self.answer(pod, one) for one in self.record if one.position > max(cycle_began, pod.popped_at)}
        if not pod.holders or pod.kicked:
            answers.add("later")
        self.settle(pod, "now" if "now" in answers else "later" if "later" in answers else "no")

    def done(self, pod: ModelPod) -> None:
        self.pods.remove(pod)

    def give_back(self, pod: ModelPod) -> None:
        if pod.deleted:
            self.pods.remove(pod)
            return
        pod.attempts -= 1
        self.admit(pod, "active")

    def happen(self, kind: str, colour: str = "") -> None:
        self.position += 1
        if kind == UNKNOWN:
            return
        for pod in self.in_place("unschedulable"):
            self.wake(pod, Happening(self.position, kind, colour))
        self.record.append(Happening(self.position, kind, colour))

    def shake(self) -> None:
        """An event that is for everybody."""
        self.position += 1
        for pod in self.in_place("unschedulable"):
            self.settle(pod, "later")
        for pod in self.in_place("in_flight"):
            pod.kicked = True

    def activate(self, name: str) -> None:
        pod = self.named(name)
        if pod is None:
            return
        if pod.where == "in_flight":
            pod.kicked = True
        elif pod.where != "active":
            self.admit(pod, "active")

    def flush(self) -> None:
        for pod in self.in_place("backoff") + self.in_place("error_backoff"):
            if not self.waits(pod):
                pod.where = "active"
        late = [pod for pod in self.in_place("unschedulable") if self.now_ms - pod.since_ms > 300_000]
        for pod in late:
            self.settle(pod, "later")
        if late:
            for pod in self.in_place("in_flight"):
                pod.kicked = True

    # ------------------------------------------------------------------------------------------------------------ rules

    def answer(self, pod: ModelPod, happening: Happening) -> str:
        if happening.uid not in ("", pod.uid):
            return "no"
        interested = {
            NODE: {"Colour"} if happening.colour == pod.colour else set(),
            TAINT: {"Colour"},
            SPACE: {"Space"},
            BROKEN: {"Broken"},
            "own labels": {"Labels"},
            "own gates": {"Gate"},
        }[happening.kind]
        if interested & pod.pending_for:
            return "now"
        return "later" if interested & pod.holders else "no"

    def wake(self, pod: ModelPod, happening: Happening) -> None:
        answer = self.answer(pod, happening)
        if answer != "no":
            self.settle(pod, answer)

    def settle(self, pod: ModelPod, answer: str) -> None:
        if answer == "no":
            pod.where = "unschedulable"
        elif answer == "later" and self.waits(pod):
            self.admit(pod, "backoff" if pod.holders else "error_backoff")
        else:
            self.admit(pod, "active")

    def admit(self, pod: ModelPod, where: str) -> None:
        pod.held_at_gate = pod.gated
        pod.where = where
        if pod.gated:
            pod.where = "gated"
            pod.rejected_by = pod.rejected_by | {"Gate"}
