"""Kind "queue": plays recorded operations on the SchedulingQueue, with the registrations and hints of the default profile.

Each step gives back what the recorder would have written down after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rayched.api.selectors import LabelSelectorMatcher
from rayched.configuration.profile_building import default_profile
from rayched.framework import names
from rayched.framework.cluster_event import ASSIGNED_POD_ADD
from rayched.plugins.in_tree import IN_TREE
from rayched.queue.changes import pod_change_events
from rayched.queue.hints import HintTable
from rayched.queue.queued_pod import PendingPod, Place, QueuedPodInfo
from rayched.queue.scheduling_queue import SchedulingQueue
from rayched.v1.core_pb2 import Pod
from tests.conformance.cases import Case, pod_of
from tests.conformance.comparisons import Comparison
from tests.conformance.events import occurrence
from tests.conformance.production_hints import SCHEDULER, hint_table

_LISTS: Final = {
    "active": Place.ACTIVE,
    "backoff": Place.BACKOFF,
    "errorBackoff": Place.ERROR_BACKOFF,
    "unschedulable": Place.UNSCHEDULABLE,
    "gated": Place.GATED,
    "inFlight": Place.IN_FLIGHT,
}
_OP_SHOWN_MAX: Final = 300


def compare_queue(case: Case) -> Iterator[Comparison]:
    """Step by step up to the first that differs, as everything after it would; then the order of draining."""
    scenario, expected = case.scenario, case.expected
    player = Player(hint_table(), {one["metadata"]["name"]: one for one in scenario.get("namespaces") or ()}, scenario)
    if len(scenario["ops"]) != len(expected["steps"]):
        yield Comparison("number of steps", len(scenario["ops"]), len(expected["steps"]))
    for number, (op, recorded) in enumerate(zip(scenario["ops"], expected["steps"], strict=False)):
        found = player.play(op)
        keys = [key for key in sorted(found.keys() | recorded.keys()) if found.get(key) != recorded.get(key)]
        what = f"step {number} {json.dumps(op)[:_OP_SHOWN_MAX]}"
        yield Comparison(what, {key: found.get(key) for key in keys}, {key: recorded.get(key) for key in keys})
        if keys:
            return
        yield Comparison(f"faults of the queue after step {number}", player.queue.verify(), [])
    yield Comparison("drainOrder", player.drain(), expected.get("drainOrder") or [])


class Player:
    """Plays the operations of one case."""

    def __init__(self, hints: HintTable, namespaces: Mapping[str, Any], scenario: Mapping[str, Any]) -> None:
        profile = default_profile(IN_TREE)
        self.queue = SchedulingQueue(
            sort_key=profile.queue_sort.sort_key, hints=hints, pre_enqueue={SCHEDULER: profile.pre_enqueue}
        )
        self.now_ms = 0
        self._admission: bool = scenario.get("admission", True)
        self._namespaces = namespaces
        self._known: dict[str, Pod] = {}
        self._uids: dict[str, str] = {}
        self._described: dict[str, dict[str, Any]] = {}

    @property
    def now(self) -> float:
        return self.now_ms / 1000

    def play(self, op: dict[str, Any]) -> dict[str, Any]:
        """Does what the step says; gives back what the recorder would have written down."""
        step = self._do(op)
        step |= {"op": op["op"], "nowMs": self.now_ms}
        pods = list(self.queue.in_order())
        step |= {name: sorted(pod.key for pod in pods if pod.place is place) for name, place in _LISTS.items()}
        described = {pod.key: self._describe(pod) for pod in pods}
        changed = {key: found for key, found in described.items() if self._described.get(key) != found}
        self._described = described
        if changed:
            step["changed"] = changed
        return step

    def drain(self) -> list[str]:
        order = []
        while (pod := self.queue.pop(self.now)) is not None:
            order.append(pod.key)
        return order

    def _describe(self, pod: QueuedPodInfo) -> dict[str, Any]:
        found: dict[str, Any] = {
            "attempts": pod.attempts,
            "unschedulableCount": pod.unschedulable_count,
            "timestampMs": round(pod.timestamp * 1000),
        }
        if pod.consecutive_errors:
            found["consecutiveErrors"] = pod.consecutive_errors
        if pod.place is not Place.IN_FLIGHT and (pod.unschedulable_count or pod.consecutive_errors):
            found["backoffUntilMs"] = round(self.queue.places.backoff.ends(pod) * 1000)
            if self.queue.places.backoff.is_backing_off(pod, self.now):
                found["backingOff"] = True
        if pod.unschedulable_plugins:
            found["unschedulablePlugins"] = sorted(pod.unschedulable_plugins)
        if pod.pending_plugins:
            found["pendingPlugins"] = sorted(pod.pending_plugins)
        if pod.gating_plugin:
            found["gatingPlugin"] = pod.gating_plugin
        return found

    # -------------------------------------------------------------------------------------------------- operations

    def _do(self, op: dict[str, Any]) -> dict[str, Any]:
        match op["op"]:
            case "advance":
                self.now_ms += op["ms"]
            case "add":
                pending = PendingPod.of(pod_of(op["pod"], self._admission))
                self._known[pending.key] = pending.pod
                self.queue.add(pending, self.now)
            case "pop":
                return self._pop()
            case "unschedulable" | "error":
                return self._failed(op)
            case "done":
                self._known.pop(op["name"], None)
                self.queue.done(self._uids[op["name"]])
            case "flushBackoff":
                self.queue.flush_backoff(self.now)
            case "flushUnschedulable":
                self.queue.flush_unschedulable(self.now)
            case "activate":
                self.queue.activate(op["names"], self.now)
            case "update":
                return self._update(op)
            case "delete":
                return self._delete(op)
            case "assignedPodAddedLegacy":
                assigned = pod_of(op["pod"], self._admission)
                self.queue.move_all(
                    ASSIGNED_POD_ADD, self.now, new=assigned, pre_check=lambda pod: self._may_be_helped(pod, assigned)
                )
            case _:
                return self._happened(op)
        return {}

    def _pop(self) -> dict[str, Any]:
        pod = self.queue.pop(self.now)
        if pod is None:
            return {"result": "empty"}
        self._uids[pod.key] = pod.uid
        return {"popped": pod.key}

    def _failed(self, op: dict[str, Any]) -> dict[str, Any]:
        deleted = op["name"] not in self._known
        self.queue.add_unschedulable(
            self._uids[op["name"]],
            self.now,
            unschedulable_plugins=op.get("plugins") or (),
            pending_plugins=op.get("pendingPlugins") or (),
        )
        return {"result": "deleted: Done() only"} if deleted else {}

    def _update(self, op: dict[str, Any]) -> dict[str, Any]:
        pending = PendingPod.of(pod_of(op["pod"], self._admission))
        old = self._known.get(pending.key)
        if old is None:
            return {"result": "unknown pod"}
        self._known[pending.key] = pending.pod
        self.queue.update(pending, self.now)
        return {"events": [event.label for event in pod_change_events(old, pending.pod)]}

    def _delete(self, op: dict[str, Any]) -> dict[str, Any]:
        pod = self._known.pop(op["name"], None)
        if pod is None:
            return {"result": "unknown pod"}
        self.queue.delete(pod.metadata.uid, op["name"])
        return {}

    def _happened(self, op: dict[str, Any]) -> dict[str, Any]:
        happened = occurrence(op, self._admission)
        for event in happened.events:
            self.queue.move_all(event, self.now, old=happened.old, new=happened.new)
        return {"events": [event.label for event in happened.events]} if happened.events else {}

    def _may_be_helped(self, pod: QueuedPodInfo, assigned: Pod) -> bool:
        """What AssignedPodAdded of 1.34 filters unschedulable pods by before it asks their hints."""
        namespace = assigned.metadata.namespace
        if names.POD_TOPOLOGY_SPREAD in pod.rejectors and pod.pod.metadata.namespace == namespace:
            return True
        labels = self._namespaces.get(namespace, {}).get("metadata", {}).get("labels") or {}
        for term in pod.pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution:
            selects = term.HasField("namespace_selector")
            own = not selects and not term.namespaces and pod.pod.metadata.namespace == namespace
            chosen = selects and LabelSelectorMatcher(term.namespace_selector).matches(labels)
            selector = LabelSelectorMatcher(term.label_selector if term.HasField("label_selector") else None)
            if (own or chosen or namespace in term.namespaces) and selector.matches(assigned.metadata.labels):
                return True
        return False
