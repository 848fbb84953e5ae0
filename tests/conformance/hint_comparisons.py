"""Kind "hint": for each event of one change, the answer of every plugin that is registered for it."""

from __future__ import annotations

from collections.abc import Iterator

from rayched.framework.cluster_event import ClusterEvent
from rayched.framework.queueing_hints import Hint
from rayched.queue.hints import HintTable
from rayched.v1.core_pb2 import Pod
from tests.conformance.cases import Case, pod_of
from tests.conformance.comparisons import Comparison
from tests.conformance.events import Occurrence, occurrence
from tests.conformance.production_hints import SCHEDULER, registrations

HINT = "hint"


def compare_hints(case: Case) -> Iterator[Comparison]:
    scenario = case.scenario
    admission = scenario.get("admission", True)
    pod = pod_of(scenario["pod"], admission)
    table = HintTable({SCHEDULER: registrations()})
    happened = [occurrence(op, admission) for op in scenario["ops"]]
    found = [(event, one) for one in happened for event in one.events]
    recorded = case.expected["events"]
    yield Comparison("events", [event.label for event, _ in found], [one["event"] for one in recorded])
    for (event, one), expected in zip(found, recorded, strict=False):
        answers = _answers(table, pod, event, one)
        wanted = expected["hints"]
        for plugin in sorted(answers.keys() | wanted.keys()):
            yield Comparison(f"{event.label} {plugin}", answers.get(plugin), wanted.get(plugin), plugin, HINT)


def _answers(table: HintTable, pod: Pod, event: ClusterEvent, happened: Occurrence) -> dict[str, str]:
    """By plugin; one that is registered twice queues the pod if either says so."""
    found: dict[str, str] = {}
    for plugin, hint in table.asked(SCHEDULER, event, frozenset(registrations())):
        answer = Hint.QUEUE if hint is None else hint(pod, happened.old, happened.new)
        if found.get(plugin) != Hint.QUEUE.value:
            found[plugin] = answer.value
    return found
