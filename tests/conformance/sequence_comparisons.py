"""Kind "sequence": arrivals, deletions and node changes one after the other; one scheduler lives as long as its cluster.

Victims leave at once, as in the recording; a pod that made room waits with its nomination until it is tried again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rayched.scheduler.attempt import Attempt, AttemptFailure
from rayched.scheduler.candidates import best
from rayched.scheduler.potential_victims import PotentialVictims
from rayched.scheduler.preemption import Evaluator, Preemptor
from rayched.snapshot.pod_facts import PodFacts
from rayched.v1.core_pb2 import Pod
from tests.conformance.cases import Case, node_of, pod_of
from tests.conformance.comparisons import CODES, Comparison
from tests.conformance.preempt_comparisons import ARGS
from tests.conformance.preemption_setting import RecordedCluster, name_of

COMPARED = (
    "best",
    "bestScore",
    "node",
    "message",
    "unschedulablePlugins",
    "error",
    "nominatedNode",
    "acceptableNodes",
    "victims",
    "clearedNominations",
    "preEnqueue",
)


class Player(RecordedCluster):
    """A cluster that follows a sequence."""

    def __init__(self, case: Case, n_shards: int) -> None:
        super().__init__(case, n_shards)
        self.pending: dict[str, Pod] = {}
        self.placed: dict[str, str] = {}

    def play(self, number: int, op: dict[str, Any]) -> dict[str, Any]:
        """What is decided at this step."""
        match op["op"]:
            case "schedule":
                return self._schedule(number, pod_of(op["pod"], self.admission))
            case "retry" if op["name"] in self.pending:
                return self._schedule(number, self.pending.pop(op["name"]))
            case "retry":
                return {"error": "not pending"}
            case "deletePod":
                self.pending.pop(op["name"], None)
                self.scheduler.nominations.forget(op["name"])
                self._leave(op["name"])
            case "addNode" | "updateNode":
                self.snapshot.add_node(node_of(op["node"]))
            case "deleteNode":
                self.snapshot.remove_node(op["name"])
            case other:
                raise ValueError(f"unknown operation {other!r}")
        return {}

    def _schedule(self, number: int, pod: Pod) -> dict[str, Any]:
        name = name_of(pod)
        held = {plugin.name: plugin.pre_enqueue(pod) for plugin in self.profile.pre_enqueue}
        gates = {plugin: status for plugin, status in held.items() if not status.ok}
        if gates:
            self.pending[name] = pod
            codes = {code: text for text, code in CODES.items()}
            return {"preEnqueue": {p: {"code": codes[s.code], "reasons": list(s.reasons)} for p, s in gates.items()}}
        found = self._looked_at(name, pod)
        result = self.scheduler.schedule(self.to_schedule(pod), 0, 0.0)
        if isinstance(result, Attempt):
            self._bind(number, pod, result)
            return {**found, "node": result.node_name}
        self.pending[name] = pod
        return {**found, "message": result.message, **self._made_room(result)}

    def _looked_at(self, name: str, pod: Pod) -> dict[str, Any]:
        """What the attempt finds on its way, asked beforehand."""
        template, nominations = self.template_of(pod), self.scheduler.nominations
        engine = self.scheduler.engine(template.scheduler_name)
        beside = nominations.beside(name, template.priority)
        row = self.snapshot.row_of(nominations.node_of(name))
        if row is not None and engine.fits(template, row, beside):
            return {"feasibleNodes": 1, "best": [self.snapshot.name_of(row)]}
        evaluation = engine.evaluate(template, nominated=beside)
        found: dict[str, Any] = {"feasibleNodes": evaluation.n_feasible}
        if evaluation.is_feasible:
            found["best"] = sorted(map(self.snapshot.name_of, evaluation.best_rows.tolist()))
            if evaluation.n_feasible > 1:
                found["bestScore"] = evaluation.best
        diagnosis = engine.diagnose(template, beside)
        if diagnosis.unschedulable_plugins:
            found["unschedulablePlugins"] = sorted(diagnosis.unschedulable_plugins)
        if not evaluation.is_feasible and diagnosis.n_nodes:
            evaluator = Evaluator(self.snapshot, engine, nominations, self.chance, PotentialVictims(self.snapshot))
            preemptor = Preemptor(name, template, diagnosis, 0, beside, 0.0, evaluator)
            candidates = [] if evaluator.why_not_eligible(preemptor) else evaluator.candidates(preemptor, ARGS)[0]
            if candidates:
                found["acceptableNodes"] = sorted(self.snapshot.name_of(one.row) for one in best(candidates))
        return found

    def _bind(self, number: int, pod: Pod, attempt: Attempt) -> None:
        self.placed[attempt.uid] = attempt.node_name
        self.scheduler.bound(attempt)
        facts = PodFacts(attempt.name, started=float(number))
        self.scheduler.occupancy.observe(attempt.uid, self.templates.intern(pod), attempt.node_name, facts=facts)

    def _made_room(self, failure: AttemptFailure) -> dict[str, Any]:
        if not failure.nominated_node_name:
            return {}
        made: dict[str, Any] = {"nominatedNode": failure.nominated_node_name}
        if failure.preemption is not None:
            made["victims"] = list(failure.preemption.victims)
            if failure.preemption.cleared:
                made["clearedNominations"] = sorted(failure.preemption.cleared)
            for victim in failure.preemption.victims:
                self._leave(victim)
        return made

    def _leave(self, name: str) -> None:
        self.placed.pop(name, None)
        self.scheduler.occupancy.remove(name)


def compare_sequence(case: Case, n_shards: int) -> Iterator[Comparison]:
    player = Player(case, n_shards)
    for number, (op, step) in enumerate(zip(case.scenario["ops"], case.expected["steps"], strict=True)):
        found = player.play(number, op)
        recorded = {key: step[key] for key in COMPARED if key in step}
        for lists in (recorded, found):
            if "clearedNominations" in lists:
                lists["clearedNominations"] = sorted(lists["clearedNominations"])
        yield Comparison(f"step {number}: feasible nodes", found.pop("feasibleNodes", 0), step.get("feasibleNodes", 0))
        yield Comparison(f"step {number}: {op['op']}", found, recorded)
    final = {name: node for name, node in case.expected["final"].items() if node}
    yield Comparison("final", player.placed, final)
