"""Kind "preempt": one pod that may need others to go; every node's part in it, the choice, and what becomes of everybody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rayched.framework.plugin_args import DefaultPreemptionArgs
from rayched.framework.status import Code, Status
from rayched.scheduler.attempt import AttemptFailure
from rayched.scheduler.candidates import PreemptionCandidate, best
from rayched.scheduler.potential_victims import PotentialVictims
from rayched.scheduler.preemption import Evaluator, Preemptor
from tests.conformance.cases import Case, pod_of
from tests.conformance.comparisons import CODES, Comparison
from tests.conformance.preemption_setting import RecordedCluster, name_of

ARGS = DefaultPreemptionArgs(min_candidate_nodes_percentage=100)


def compare_preemption(case: Case, n_shards: int) -> Iterator[Comparison]:
    cluster = RecordedCluster(case, n_shards)
    expected, snapshot = case.expected, cluster.snapshot
    for body in case.scenario.get("nominatedPods") or ():
        cluster.nominate(pod_of(body, cluster.admission))
    pod = pod_of(case.scenario["pod"], cluster.admission)
    cluster.nominate(pod)
    name, template = name_of(pod), cluster.template_of(pod)
    scheduler, nominations = cluster.scheduler, cluster.scheduler.nominations
    engine = scheduler.engine(template.scheduler_name)
    beside = nominations.beside(name, template.priority)
    row = snapshot.row_of(nominations.node_of(name))
    if row is not None and engine.fits(template, row, beside):
        feasible = [snapshot.name_of(row)]
    else:
        rows = engine.evaluate(template, nominated=beside).feasible.nonzero()[0].tolist()
        feasible = sorted(map(snapshot.name_of, rows))
    yield Comparison("feasible", feasible, sorted(expected["feasible"]))
    if feasible:
        return
    diagnosis = engine.diagnose(template, beside)
    yield Comparison("PreFilter", diagnosis.pre_filter.code, CODES[expected["preFilter"]["code"]])
    yield Comparison("plugins", sorted(diagnosis.unschedulable_plugins), sorted(expected["unschedulablePlugins"]))
    yield Comparison("message without preemption", diagnosis.message(), expected["fitMessage"])

    evaluator = Evaluator(snapshot, engine, nominations, cluster.chance, PotentialVictims(snapshot))
    preemptor = Preemptor(name, template, diagnosis, 0, beside, 0.0, evaluator)
    why_not = evaluator.why_not_eligible(preemptor)
    yield Comparison("eligible", not why_not, expected["eligible"])
    yield Comparison("why it is not", why_not, expected.get("ineligibleReason", ""))
    if not why_not:
        candidates, refused = evaluator.candidates(preemptor, ARGS)[0], evaluator.refusals(preemptor, ARGS)
        yield from _nodes(cluster, preemptor, {one.row: one for one in candidates}, refused)
        acceptable = sorted(snapshot.name_of(one.row) for one in best(candidates)) if candidates else []
        yield Comparison("acceptable nodes", acceptable, sorted(expected["acceptableNodes"]))
        chosen = next((one for one in candidates if snapshot.name_of(one.row) == expected["nominatedNode"]), None)
        victims = [victim.uid for victim in chosen.victims] if chosen is not None else []
        yield Comparison("victims", victims, expected["victims"])
    yield from _outcome(cluster, scheduler.schedule(cluster.to_schedule(pod), 0, 0.0))


def _nodes(
    cluster: RecordedCluster, preemptor: Preemptor, candidates: dict[int, PreemptionCandidate], refused: dict[int, Status]
) -> Iterator[Comparison]:
    diagnosis = preemptor.diagnosis
    for node, recorded in cluster.case.expected["nodes"].items():
        row = cluster.snapshot.rows_by_name[node]
        code, place = Code(int(diagnosis.codes[row])), int(diagnosis.failing[row])
        wanted = recorded["filter"]
        # Where PreFilter turned the pod down as a whole, its word stands for every node.
        first = (code, diagnosis.filters[place] if place >= 0 else diagnosis.pre_filter.plugin)
        yield Comparison(f"filter of {node}", first, (CODES[wanted["code"]], wanted.get("plugin", "")))
        yield Comparison(f"{node} is looked at", row in candidates or row in refused, recorded["potential"])
        found = candidates.get(row)
        yield Comparison(f"{node} is a candidate", found is not None, recorded["candidate"])
        victims = [victim.uid for victim in found.victims] if found is not None else []
        yield Comparison(f"victims on {node}", victims, recorded.get("victims", []))
        violating = found.n_violating if found is not None else 0
        yield Comparison(f"violations on {node}", violating, recorded.get("numPDBViolations", 0))
        status = recorded.get("status")
        if status is not None and row in refused:
            said = refused[row]
            yield Comparison(f"status of {node}", _told(said), _recorded(status))


def _outcome(cluster: RecordedCluster, result: object) -> Iterator[Comparison]:
    expected = cluster.case.expected
    assert isinstance(result, AttemptFailure)
    yield Comparison("message", result.message, expected["message"])
    nominated = result.nominated_node_name
    yield Comparison("a result", nominated is not None, expected["postFilterResultPresent"])
    yield Comparison("nominated node", nominated or "", expected["nominatedNode"])
    preemption = result.preemption
    evicted = sorted(preemption.victims) if preemption is not None else []
    yield Comparison("evicted", evicted, sorted(expected["evicted"]))
    cleared = sorted(preemption.cleared) if preemption is not None else []
    yield Comparison("cleared nominations", cleared, sorted(expected["clearedNominations"]))


def _told(status: Status) -> tuple[Code, str, list[str]]:
    return status.code, status.plugin, sorted(status.reasons)


def _recorded(status: dict[str, Any]) -> tuple[Code, str, list[str]]:
    return CODES[status["code"]], status.get("plugin", ""), sorted(status.get("reasons") or ())
