"""Recorded sequences of arrivals, deletions and node changes, each pod decided by one engine that lives as long as its cluster.

What preemption decides (nomination, victims) is taken over from the record, so that all that the engine decides is compared, with
nominated pods about: feasible nodes, best nodes, best score, the message up to what preemption adds, and the plugins that reject.
"""

from __future__ import annotations

from typing import Any

import pytest

from rayched.framework.engine import Engine
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Pod
from tests.conformance.cases import Case, load, node_of, pod_of, profile_of, set_surroundings

pytestmark = pytest.mark.slow

PIECES = 4
"""The cases are dealt out to so many tests."""


class Player:
    """A cluster that follows a sequence."""

    def __init__(self, case: Case) -> None:
        self.snapshot, self.templates = Snapshot(), TemplateTable()
        self.profile = profile_of(case)
        self.engine = Engine(self.snapshot, self.profile)
        self.pending: dict[str, Pod] = {}
        set_surroundings(self.snapshot, case.scenario)
        for body in case.scenario.get("nodes") or ():
            self.snapshot.add_node(node_of(body))

    def play(self, op: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
        """What the engine decides at this step."""
        match op["op"]:
            case "schedule":
                pod = pod_of(op["pod"])
                return self._schedule(_name(pod), pod, step)
            case "retry" if op["name"] in self.pending:
                return self._schedule(op["name"], self.pending.pop(op["name"]), step)
            case "retry":
                return {"error": "not pending"}
            case "deletePod":
                self.pending.pop(op["name"], None)
                self.snapshot.unbind(op["name"])
            case "addNode" | "updateNode":
                self.snapshot.add_node(node_of(op["node"]))
            case "deleteNode":
                self.snapshot.remove_node(op["name"])
        return {}

    def _schedule(self, name: str, pod: Pod, step: dict[str, Any]) -> dict[str, Any]:
        if any(not plugin.pre_enqueue(pod).ok for plugin in self.profile.pre_enqueue):
            self.pending[name] = pod
            return {}
        template = self.templates.intern(pod, with_node_name=True)
        nominated = [
            (self.templates.intern(other), row)
            for other in self.pending.values()
            if other.spec.priority >= pod.spec.priority
            if (row := self.snapshot.row_of(other.status.nominated_node_name)) is not None
        ]
        row = self.snapshot.row_of(pod.status.nominated_node_name)
        if row is not None and self.engine.fits(template, row, nominated):
            return self._bind(name, pod, [pod.status.nominated_node_name], {"feasibleNodes": 1})
        evaluation = self.engine.evaluate(template, nominated=nominated)
        diagnosis = self.engine.diagnose(template, nominated)
        found: dict[str, Any] = {"feasibleNodes": evaluation.n_feasible}
        if diagnosis.unschedulable_plugins:
            found["unschedulablePlugins"] = sorted(diagnosis.unschedulable_plugins)
        if not evaluation.is_feasible:
            self._keep(name, pod, step)
            return {**found, "message": diagnosis.message()}
        if evaluation.n_feasible > 1:
            found["bestScore"] = evaluation.best
        return self._bind(name, pod, sorted(self.snapshot.name_of(row) for row in evaluation.best_rows.tolist()), found)

    def _bind(self, name: str, pod: Pod, best: list[str], found: dict[str, Any]) -> dict[str, Any]:
        self.snapshot.bind(name, self.templates.intern(pod), best[0])
        return {**found, "best": best, "node": best[0]}

    def _keep(self, name: str, pod: Pod, step: dict[str, Any]) -> None:
        """Take over what preemption decided."""
        for victim in step.get("victims") or ():
            self.snapshot.unbind(victim)
        for other in step.get("clearedNominations") or ():
            self.pending[other].status.nominated_node_name = ""
        if "nominatedNode" in step:
            pod.status.nominated_node_name = step["nominatedNode"]
        self.pending[name] = pod


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


COMPARED = ("feasibleNodes", "best", "bestScore", "node", "message", "unschedulablePlugins", "error")


@pytest.mark.row("F23")
@pytest.mark.parametrize("piece", range(PIECES))
def test_one_engine_decides_every_pod_of_a_recorded_sequence(piece: int) -> None:
    differing = []
    for case in load("sequence")[piece::PIECES]:
        player = Player(case)
        for number, (op, step) in enumerate(zip(case.scenario["ops"], case.expected["steps"], strict=True)):
            found = player.play(op, step)
            recorded = {key: step[key] for key in COMPARED if key in step}
            if "message" in recorded:
                recorded["message"] = recorded["message"].partition(" preemption: ")[0]
            if found.get("feasibleNodes", 0) != recorded.pop("feasibleNodes", 0) or recorded != {
                key: value for key, value in found.items() if key != "feasibleNodes"
            }:
                differing.append(f"{case.id} step {number}: found {found}, recorded {step}")
    assert not differing, "\n".join([f"{len(differing)} steps differ", *differing[:5]])
