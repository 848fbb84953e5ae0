"""The unschedulable pods and the gated pods: those that wait for an event.

A pod lies in a class: profile, plugins that rejected it, plugins it is pending for. An event that none of a class's plugins
registered for costs one look-up for the whole class. Within its class a pod lies by template, as a plain hint is asked once for
all pods of one, and in an index for each prepared hint (`queue.hint_index`); so thousands of unschedulable pods cost a stream of
irrelevant events next to nothing. Gated pods lie apart, by the plugin that gates them.

Invariant: a pod's plugins, template, profile and gate do not change while it lies here; who changes them takes it out first.
`_timeouts` holds exactly the pods that have a `flush_due`.

Owner: SchedulingQueue. Source: unschedulablePods of kube-scheduler 1.34. Cost: O(1) to add and remove, O(log n) for the timer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rayched.queue.heap import KeyedHeap
from rayched.queue.hint_index import HintIndex, Indexes, TemplateHints
from rayched.queue.hints import HintTable
from rayched.queue.queued_pod import Place, QueuedPodInfo

RejectionClass = tuple[str, frozenset[str], frozenset[str]]
"""(scheduler name, unschedulable plugins, pending plugins)."""
Gate = tuple[str, str]
"""(scheduler name, gating plugin)."""

FLUSH_PERIOD_SECONDS: Final = 30.0
"""A gated pod that every flush asks about is asked no more often than this; kube-scheduler's period of that flush."""


class UnschedulablePods:
    """Pods that wait for an event, and gated pods."""

    __slots__ = ("_classes", "_gated", "_gates", "_hints", "_indexes", "_pods", "_timeouts", "questions", "version")

    def __init__(self, hints: HintTable) -> None:
        self._hints = hints
        self.questions = TemplateHints()
        self._pods: dict[str, QueuedPodInfo] = {}
        self._classes: dict[RejectionClass, dict[object, dict[str, QueuedPodInfo]]] = {}
        self._indexes: dict[RejectionClass, Indexes] = {}
        self._gates: dict[Gate, dict[str, QueuedPodInfo]] = {}
        self._gated = 0
        self.version = 0
        """Changes with each class or gate that comes."""
        self._timeouts: KeyedHeap[QueuedPodInfo] = KeyedHeap(lambda pod: pod.key, lambda pod: pod.flush_due)

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        return iter(self._pods.values())

    @property
    def n_unschedulable(self) -> int:
        return len(self._pods) - self._gated

    @property
    def n_gated(self) -> int:
        return self._gated

    def get(self, key: str) -> QueuedPodInfo | None:
        return self._pods.get(key)

    def add(self, pod: QueuedPodInfo, flush_due: float | None) -> None:
        """A pod that is not here. `flush_due`: when it is to be tried again without any event; None for never."""
        self._pods[pod.key] = pod
        pod.flush_due = flush_due
        if flush_due is not None:
            self._timeouts.add(pod)
        if pod.gated:
            pod.place = Place.GATED
            self._gated += 1
            gate = _gate(pod)
            if gate not in self._gates:
                self._gates[gate] = {}
                self.version += 1
            self._gates[gate][pod.key] = pod
        else:
            pod.place = Place.UNSCHEDULABLE
            found = _class(pod)
            if found not in self._classes:
                self._classes[found] = {}
                prepared = self._hints.prepared(pod.scheduler_name, pod.rejectors)
                self._indexes[found] = {hint: HintIndex() for hint in prepared}
                self.version += 1
            self._classes[found].setdefault(_sharing(pod), {})[pod.key] = pod
            indexes = self._indexes[found].items()
            pod.askings = tuple(index.add(pod, self.questions.of(pod, hint)) for hint, index in indexes)

    def remove(self, pod: QueuedPodInfo) -> None:
        del self._pods[pod.key]
        if pod.flush_due is not None:
            self._timeouts.delete(pod.key)
            pod.flush_due = None
        if pod.place is Place.GATED:
            self._gated -= 1
            gate = self._gates[_gate(pod)]
            del gate[pod.key]
            if not gate:
                del self._gates[_gate(pod)]
            return
        for index, asking in zip(self._indexes[_class(pod)].values(), pod.askings, strict=True):
            index.remove(pod, asking)
        pod.askings = ()
        templates = self._classes[_class(pod)]
        sharing = templates[_sharing(pod)]
        del sharing[pod.key]
        if not sharing:
            del templates[_sharing(pod)]
            if not templates:
                del self._classes[_class(pod)], self._indexes[_class(pod)]

    def take_out(self, pod: QueuedPodInfo) -> None:
        """Whatever is left of the pod here, wherever it was filed. O(classes)."""
        self._pods.pop(pod.key, None)
        if pod.key in self._timeouts:
            self._timeouts.delete(pod.key)
        pod.flush_due = None
        for gate in [gate for gate, pods in self._gates.items() if pods.pop(pod.key, None) is not None]:
            self._gated -= 1
            if not self._gates[gate]:
                del self._gates[gate]
        for found, templates in list(self._classes.items()):
            for index in self._indexes[found].values():
                for asking in [one for one in index.askings() if one.pods.get(pod.key) is pod]:
                    index.remove(pod, asking)
            for sharing in [one for one, pods in templates.items() if pods.pop(pod.key, None) is not None and not pods]:
                del templates[sharing]
            if not templates:
                del self._classes[found], self._indexes[found]
        pod.askings = ()

    def misfilings(self, pod: QueuedPodInfo) -> list[str]:
        """Why no event would find a pod that lies here."""
        if pod.gated != (pod.place is Place.GATED):
            return ["is filed where no event would find it"]
        if not pod.gated and pod.key not in self._classes.get(_class(pod), {}).get(_sharing(pod), {}):
            return ["is filed under plugins that do not hold it"]
        if not pod.gated and not self._is_indexed(pod):
            return ["is filed where no hint would find it"]
        if pod.gated and pod.key not in self._gates.get(_gate(pod), {}):
            return ["is filed under a plugin that does not gate it"]
        return []

    def _is_indexed(self, pod: QueuedPodInfo) -> bool:
        """By everything that is to be asked about it."""
        indexes = self._indexes[_class(pod)]
        if len(pod.askings) != len(indexes):
            return False
        return all(index.holds(pod, asking) for index, asking in zip(indexes.values(), pod.askings, strict=True))

    def wrong_timers(self, pod: QueuedPodInfo) -> list[str]:
        """Why a pod that lies here might wait for ever."""
        wrong: list[str] = []
        if (pod.flush_due is not None) != (pod.key in self._timeouts):
            wrong.append("has a timer that would not ring")
        if not pod.gated and pod.flush_due is None:
            wrong.append("would wait for an event for ever")
        return wrong

    def classes(self) -> Iterable[RejectionClass]:
        """Those that hold pods."""
        return self._classes.keys()

    def pods_of(self, rejection: RejectionClass) -> Iterable[Mapping[str, QueuedPodInfo]]:
        """The pods of a class, those of one template together, never none. Views: no pod may be moved meanwhile."""
        return self._classes.get(rejection, {}).values()

    def indexes_of(self, rejection: RejectionClass) -> Indexes:
        """The pods of a class by what its prepared hints ask. No pod may be put in while they are gone through."""
        return self._indexes.get(rejection, {})

    def gated_by(self, gate: Gate) -> Mapping[str, QueuedPodInfo]:
        """A view: no pod may be moved meanwhile."""
        return self._gates.get(gate, {})

    def gates(self) -> Iterator[tuple[Gate, Mapping[str, QueuedPodInfo]]]:
        """Each gate with the pods it holds. Views: no pod may be moved meanwhile."""
        yield from self._gates.items()

    def overdue(self, now: float) -> list[QueuedPodInfo]:
        """The pods whose time here has passed `flush_due`. They stay."""
        over: list[QueuedPodInfo] = []
        while (first := self._timeouts.peek()) is not None and first.flush_due is not None and now > first.flush_due:
            over.append(self._timeouts.pop())
        for pod in over:
            self._timeouts.add(pod)
        return over

    def next_due(self) -> float | None:
        first = self._timeouts.peek()
        return None if first is None else first.flush_due

    def clear(self) -> None:
        self._pods.clear()
        self._classes.clear()
        self._indexes.clear()
        self._gates.clear()
        self._gated = 0
        self._timeouts.clear()

    def verify(self) -> list[str]:
        wrong = self._timeouts.verify()
        filed = {key for templates in self._classes.values() for pods in templates.values() for key in pods}
        filed_gated = {key for pods in self._gates.values() for key in pods}
        for key, pod in self._pods.items():
            if pod.place not in (Place.UNSCHEDULABLE, Place.GATED):
                wrong.append(f"{key} lies among the unschedulable pods, but its place is {pod.place}")
            elif (key in filed, key in filed_gated) != (not pod.gated, pod.gated):
                wrong.append(f"{key} is filed where no event would find it")
            else:
                wrong += [f"{key} {what}" for what in self.misfilings(pod)]
            wrong += [f"{key} {what}" for what in self.wrong_timers(pod)]
        if len(filed) + len(filed_gated) != len(self._pods):
            wrong.append("pods are filed that are not here")
        if len(filed_gated) != self._gated:
            wrong.append(f"{len(filed_gated)} pods are gated and {self._gated} are counted")
        return wrong


def _class(pod: QueuedPodInfo) -> RejectionClass:
    return pod.scheduler_name, pod.unschedulable_plugins, pod.pending_plugins


def _gate(pod: QueuedPodInfo) -> Gate:
    return pod.scheduler_name, pod.gating_plugin


def _sharing(pod: QueuedPodInfo) -> object:
    """What pods have in common whose hints agree; a pod without a template shares with none."""
    return pod if pod.template is None else ("template", pod.template)
