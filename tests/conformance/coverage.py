"""What a record may hold: the fields of scenarios and of expectations that somebody here reads, by kind.

A record with more than that may mean something that nobody compares. The run says so: what is not understood is not agreed to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tests.conformance.cases import Case

_ALWAYS: Final = frozenset({"id", "topic", "kind", "note"})
_CLUSTER: Final = frozenset({"namespaces", "services", "replicaSets", "statefulSets", "replicationControllers"})

SCENARIO: Final[Mapping[str, frozenset[str]]] = {
    "schedule": _CLUSTER | {"nodes", "boundPods", "nominatedPods", "pod", "config", "admission"},
    "hint": _CLUSTER | {"pod", "ops", "admission"},
    "parse": frozenset({"parse"}),
    "queue": _CLUSTER | {"ops"},
    "preempt": _CLUSTER | {"nodes", "boundPods", "nominatedPods", "pod", "pdbs", "config", "admission"},
    "sequence": _CLUSTER | {"nodes", "boundPods", "ops", "pdbs", "config", "admission"},
}
EXPECTED: Final[Mapping[str, frozenset[str]]] = {
    "schedule": frozenset(
        [
            "preEnqueue",
            "preFilter",
            "preFilterNodes",
            "skipFilter",
            "skipScore",
            "filter",
            "filterEach",
            "feasible",
            "unschedulablePlugins",
            "nominatedShortcut",
            "scores",
            "total",
            "best",
            "message",
            "error",
        ]
    ),
    "hint": frozenset({"events"}),
    "parse": frozenset(
        [
            "accounted",
            "empty",
            "error",
            "filter",
            "firstUntolerated",
            "lazyErrors",
            "lazyMatches",
            "limits",
            "matches",
            "nonZero",
            "numFeasibleNodes",
            "order",
            "quantities",
            "requests",
            "scoreRequests",
            "tolerated",
            "tolerates",
        ]
    ),
    "queue": frozenset({"drainOrder", "features", "steps"}),
    "preempt": frozenset(
        [
            "acceptableNodes",
            "clearedNominations",
            "eligible",
            "evicted",
            "feasible",
            "fitMessage",
            "ineligibleReason",
            "message",
            "nodes",
            "nominatedNode",
            "postFilter",
            "postFilterResultPresent",
            "preFilter",
            "unschedulablePlugins",
            "victims",
            "error",
        ]
    ),
    "sequence": frozenset({"final", "steps"}),
}


def unknown_fields(case: Case) -> Iterator[str]:
    """Fields of a case of a known kind that nobody reads."""
    parts = (("scenario", case.scenario, SCENARIO), ("expected", case.expected, EXPECTED))
    for part, found, known in parts:
        for name in sorted(found.keys() - known.get(case.kind, found.keys()) - _ALWAYS):
            yield f"{part}.{name}"
