"""The queue against the recorded cases of kube-scheduler 1.34.1: every step of every case, and the final draining order."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rayched.framework.status import SUCCESS, Status, unresolvable
from rayched.queue.changes import node_change_events, pod_change_events
from rayched.queue.cluster_event import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    Action,
    ClusterEvent,
    Resource,
)
from rayched.queue.hints import HintFunction
from rayched.queue.queued_pod import PendingPod, Place, QueuedPod
from rayched.queue.scheduling_queue import SchedulingQueue
from rayched.v1.core_pb2 import Pod
from tests.queue import recorded_hints
from tests.queue.manifests import node_of, pod_of

CASES = Path(__file__).parents[1] / "conformance" / "queue.jsonl.gz"
_LISTS = {
    "active": Place.ACTIVE,
    "backoff": Place.BACKOFF,
    "errorBackoff": Place.ERROR_BACKOFF,
    "unschedulable": Place.UNSCHEDULABLE,
    "gated": Place.GATED,
    "inFlight": Place.IN_FLIGHT,
}
_ACTIONS = {"All": Action.ALL, "Add": Action.ADD, "UpdateNodeCondition": Action.UPDATE_NODE_CONDITION}


class SchedulingGates:
    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Status:
        return unresolvable("waiting for scheduling gates") if pod.spec.scheduling_gates else SUCCESS


class Player:
    """Plays the operations of one case."""

    def __init__(self, hints: Mapping[str, HintFunction]) -> None:
        self.missing: set[str] = set()
        self.queue = SchedulingQueue(
            sort_key=lambda pod: (-pod.priority, pod.timestamp),
            hints=recorded_hints.hint_table(hints, self.missing),
            pre_enqueue={"default-scheduler": [SchedulingGates()]},
        )
        self.now_ms = 0
        self.known: dict[str, Pod] = {}
        self.uids: dict[str, str] = {}
        self._described: dict[str, dict[str, Any]] = {}

    @property
    def now(self) -> float:
        return self.now_ms / 1000

    def play(self, op: dict[str, Any]) -> dict[str, Any]:
        """Does what the step says; gives back what the recorder would have written down."""
        step = getattr(self, "_" + op["op"])(op) or {}
        step |= {"op": op["op"], "nowMs": self.now_ms}
        pods = list(self.queue.in_order())
        step |= {name: sorted(pod.key for pod in pods if pod.place is place) for name, place in _LISTS.items()}
        described = {pod.key: self._describe(pod) for pod in pods}
        changed = {key: found for key, found in described.items() if self._described.get(key) != found}
        self._described = described
        if changed:
            step["changed"] = changed
        assert self.queue.verify() == []
        return step

    def _describe(self, pod: QueuedPod) -> dict[str, Any]:
        found: dict[str, Any] = {
            "attempts": pod.attempts,
            "unschedulableCount": pod.unschedulable_count,
            "timestampMs": round(pod.timestamp * 1000),
        }
        if pod.consecutive_errors:
            found["consecutiveErrors"] = pod.consecutive_errors
        if pod.place is not Place.IN_FLIGHT and (pod.unschedulable_count or pod.consecutive_errors):
            found["backoffUntilMs"] = round(self.queue._places.backoff.ends(pod) * 1000)
            if self.queue._places.backoff.is_backing_off(pod, self.now):
                found["backingOff"] = True
        if pod.unschedulable_plugins:
            found["unschedulablePlugins"] = sorted(pod.unschedulable_plugins)
        if pod.pending_plugins:
            found["pendingPlugins"] = sorted(pod.pending_plugins)
        if pod.gating_plugin:
            found["gatingPlugin"] = pod.gating_plugin
        return found

    # -------------------------------------------------------------------------------------------------- operations

    def _advance(self, op: dict[str, Any]) -> None:
        self.now_ms += op["ms"]

    def _add(self, op: dict[str, Any]) -> None:
        pod = pod_of(op["pod"])
        pending = PendingPod.of(pod)
        self.known[pending.key] = pod
        self.queue.add(pending, self.now)

    def _pop(self, op: dict[str, Any]) -> dict[str, Any]:
        pod = self.queue.pop(self.now)
        if pod is None:
            return {"result": "empty"}
        self.uids[pod.key] = pod.uid
        return {"popped": pod.key}

    def _unschedulable(self, op: dict[str, Any]) -> dict[str, Any]:
        deleted = op["name"] not in self.known
        self.queue.add_unschedulable(
            self.uids[op["name"]],
            self.now,
            unschedulable_plugins=op.get("plugins") or (),
            pending_plugins=op.get("pendingPlugins") or (),
        )
        return {"result": "deleted: Done() only"} if deleted else {}

    _error = _unschedulable

    def _done(self, op: dict[str, Any]) -> None:
        self.known.pop(op["name"], None)
        self.queue.done(self.uids[op["name"]])

    def _flushBackoff(self, op: dict[str, Any]) -> None:
        self.queue.flush_backoff(self.now)

    def _flushUnschedulable(self, op: dict[str, Any]) -> None:
        self.queue.flush_unschedulable(self.now)

    def _activate(self, op: dict[str, Any]) -> None:
        self.queue.activate(op["names"], self.now)

    def _update(self, op: dict[str, Any]) -> dict[str, Any]:
        new = pod_of(op["pod"])
        pending = PendingPod.of(new)
        old = self.known.get(pending.key)
        if old is None:
            return {"result": "unknown pod"}
        self.known[pending.key] = new
        self.queue.update(pending, self.now)
        return {"events": [event.label for event in pod_change_events(old, new)]}

    def _delete(self, op: dict[str, Any]) -> dict[str, Any]:
        pod = self.known.pop(op["name"], None)
        if pod is None:
            return {"result": "unknown pod"}
        self.queue.delete(pod.metadata.uid, op["name"])
        return {}

    def _happened(self, *events: ClusterEvent, old: object = None, new: object = None) -> dict[str, Any]:
        for event in events:
            self.queue.move_all(event, self.now, old=old, new=new)
        return {"events": [event.label for event in events]} if events else {}

    def _nodeAdd(self, op: dict[str, Any]) -> dict[str, Any]:
        return self._happened(NODE_ADD, new=node_of(op["node"]))

    def _nodeUpdate(self, op: dict[str, Any]) -> dict[str, Any]:
        old, new = node_of(op["oldNode"]), node_of(op["node"])
        return self._happened(*node_change_events(old, new), old=old, new=new)

    def _nodeDelete(self, op: dict[str, Any]) -> dict[str, Any]:
        return self._happened(NODE_DELETE, old=node_of(op["node"]))

    def _assignedPodAdd(self, op: dict[str, Any]) -> dict[str, Any]:
        return self._happened(ASSIGNED_POD_ADD, new=pod_of(op["pod"]))

    def _assignedPodUpdate(self, op: dict[str, Any]) -> dict[str, Any]:
        old, new = pod_of(op["oldPod"]), pod_of(op["pod"])
        return self._happened(*pod_change_events(old, new), old=old, new=new)

    def _assignedPodDelete(self, op: dict[str, Any]) -> dict[str, Any]:
        return self._happened(ASSIGNED_POD_DELETE, old=pod_of(op["pod"]))

    def _assignedPodAddedLegacy(self, op: dict[str, Any]) -> None:
        assigned = pod_of(op["pod"])
        self.queue.move_all(
            ASSIGNED_POD_ADD,
            self.now,
            new=assigned,
            pre_check=lambda pod: recorded_hints.required_terms_or_spread_match(pod.pod, pod.rejectors, assigned),
        )

    def _event(self, op: dict[str, Any]) -> dict[str, Any]:
        event = ClusterEvent(Resource(op["resource"]), _ACTIONS[op["actionType"]], op.get("customLabel", ""))
        node, old = op.get("node"), op.get("oldNode")
        return self._happened(event, old=old and node_of(old), new=node and node_of(node))

    def drain(self) -> list[str]:
        order = []
        while (pod := self.queue.pop(self.now)) is not None:
            order.append(pod.key)
        return order


def read_cases() -> list[dict[str, Any]]:
    with gzip.open(CASES, "rt") as lines:
        return [json.loads(line) for line in lines]


def first_difference(case: dict[str, Any], hints: Mapping[str, HintFunction]) -> tuple[str | None, set[str]]:
    """What differs first between the recording and the queue, and the hints that the case asked for and that are not there."""
    player = Player(hints)
    for i, (op, expected) in enumerate(zip(case["scenario"]["ops"], case["expected"]["steps"], strict=True)):
        step = player.play(op)
        if player.missing:
            return None, player.missing
        if step != expected:
            keys = [key for key in sorted(step.keys() | expected.keys()) if step.get(key) != expected.get(key)]
            differing = {key: {"expected": expected.get(key), "found": step.get(key)} for key in keys}
            return f"{case['scenario']['id']} step {i} {json.dumps(op)[:300]}: {json.dumps(differing)}", set()
    drained = player.drain()
    if drained != case["expected"]["drainOrder"]:
        return f"{case['scenario']['id']} drains as {drained}, not as {case['expected']['drainOrder']}", set()
    return None, set()


def play_all(hints: Mapping[str, HintFunction]) -> tuple[int, list[str], dict[str, set[str]]]:
    """(cases that agree, differences, cases that were not run for want of a hint)."""
    agree, differences, not_run = 0, [], {}
    for case in read_cases():
        difference, missing = first_difference(case, hints)
        if missing:
            not_run[case["scenario"]["id"]] = missing
        elif difference is not None:
            differences.append(difference)
        else:
            agree += 1
    return agree, differences, not_run


@pytest.mark.row("Q29", "Q42")
def test_the_queue_does_what_was_recorded_step_by_step() -> None:
    agree, differences, not_run = play_all(recorded_hints.HINTS)
    print(f"recorded queue cases: {agree} agree, {len(differences)} differ, {len(not_run)} not run for want of a hint")
    assert not differences, f"{len(differences)} differ, first ones: " + "\n".join(differences[:5])
    assert not_run == {}
    assert agree == 165


def test_a_case_that_needs_a_missing_hint_is_counted_and_not_judged() -> None:
    without_spread = {plugin: hint for plugin, hint in recorded_hints.HINTS.items() if plugin != "PodTopologySpread"}
    agree, differences, not_run = play_all(without_spread)
    print(f"without PodTopologySpread's hint: {agree} agree, {len(not_run)} not run")
    assert differences == []
    assert agree + len(not_run) == 165
    assert not_run and set().union(*not_run.values()) == {"PodTopologySpread"}
