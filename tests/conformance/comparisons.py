"""What is compared of a recorded scheduling attempt, and a tally of it for each topic.

Plugins are asked directly, one by one, so a case counts also where a plugin takes part that is not there; whole attempts go
through the engine, for the cases that the plugins of the default profile decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np

from rayched.framework import names
from rayched.framework.engine import Engine, PluginError
from rayched.framework.plugin import FilterPlugin, NormalizingPlugin, ScorePlugin
from rayched.framework.profile import Profile
from rayched.framework.status import Code, Status
from rayched.plugins.in_tree import IN_TREE
from rayched.snapshot.rows import Rows
from tests.conformance.cases import Case, Cluster, cluster_of, profile_of, schedule_cases

CODES: Final = {
    "Success": Code.SUCCESS,
    "Unschedulable": Code.UNSCHEDULABLE,
    "UnschedulableAndUnresolvable": Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
}
MISSING: Final = frozenset((names.POD_TOPOLOGY_SPREAD, names.INTER_POD_AFFINITY)) - IN_TREE.keys()
SHOWN: Final = 5

Comparison = tuple[str, object, object]
"""What is compared, what was found, what was recorded."""


@dataclass(slots=True)
class Tally:
    compared: int = 0
    differing: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, case: str, what: str, found: object, recorded: object) -> None:
        self.compared += 1
        if found != recorded:
            self.differing += 1
            if len(self.first) < SHOWN:
                self.first.append(f"{case} {what}: found {found}, recorded {recorded}")

    def __str__(self) -> str:
        return f"{self.differing} of {self.compared} differ:\n" + "\n".join(self.first)


@lru_cache
def tallies(topic: str) -> Mapping[str, Tally]:
    """Every comparison of a topic. Each cluster is built once and let go."""
    found = {name: Tally() for name in COMPARISONS}
    for case in schedule_cases(topic):
        cluster, profile = cluster_of(case), profile_of(case)
        for name, compare in COMPARISONS.items():
            for what, value, recorded in compare(case, cluster, profile):
                found[name].add(case.id, what, value, recorded)
    return found


# -------------------------------------------------------------------------------------------------- plugin by plugin


def _verdicts(case: Case, cluster: Cluster, profile: Profile) -> Iterator[Comparison]:
    if "filter" not in case.expected:
        return
    looked_at = [name for name, status in case.expected["filter"].items() if _was_looked_at(status)]
    recorded = case.expected.get("filterEach", {})
    for plugin in profile.filter:
        found = verdicts(plugin, cluster)
        for node in looked_at:
            status = recorded.get(node, {}).get(plugin.name, {"code": "Success", "reasons": []})
            yield f"{plugin.name} {node}", found[node], (CODES[status["code"]], sorted(status["reasons"]))


def _was_looked_at(status: dict[str, Any]) -> bool:
    """PreFilter takes nodes out before any plugin sees them; their status names no plugin."""
    return status["code"] == "Success" or "plugin" in status


def verdicts(plugin: FilterPlugin, cluster: Cluster) -> dict[str, tuple[Code, list[str]]]:
    """Code and sorted reasons of every node."""
    pod, snapshot = cluster.template.pod, cluster.snapshot
    nodes = [snapshot.name_of(row) for row in range(snapshot.n_rows)]
    passed: tuple[Code, list[str]] = (Code.SUCCESS, [])
    if plugin.key(pod) is None:
        return dict.fromkeys(nodes, passed)
    rows = Rows(snapshot, slice(0, snapshot.n_rows))
    state = plugin.prepare(pod)
    codes = plugin.filter(state, rows)
    if codes is None:
        return dict.fromkeys(nodes, passed)
    reasons = plugin.reasons(state, rows, codes)
    return {
        name: (Code(int(codes[row])), sorted(reason for reason, where in reasons if where[row])) for row, name in enumerate(nodes)
    }


def _scores(case: Case, cluster: Cluster, profile: Profile) -> Iterator[Comparison]:
    recorded = case.expected.get("scores")
    if not recorded:
        return
    skipped = case.expected.get("skipScore") or ()
    for plugin in profile.score:
        found = scores(plugin, cluster, list(recorded))
        yield f"{plugin.name} is skipped", found is None, plugin.name in skipped
        weight = profile.weights[plugin.name]
        for node, (raw, normalized) in (found or {}).items():
            values = {"weight": weight, "raw": raw, "normalized": normalized, "weighted": weight * normalized}
            yield f"{plugin.name} {node}", values, recorded[node].get(plugin.name)


def scores(plugin: ScorePlugin, cluster: Cluster, feasible: list[str]) -> dict[str, tuple[int, int]] | None:
    """Raw and normalised score of each feasible node; None where the plugin is skipped."""
    pod, snapshot = cluster.template.pod, cluster.snapshot
    if plugin.key(pod) is None:
        return None
    rows = Rows(snapshot, np.array([snapshot.rows_by_name[name] for name in feasible], np.intp))
    raw = plugin.score(plugin.prepare(pod), rows)
    if raw is None:
        return None
    normalized = plugin.normalize(raw, int(raw.min()), int(raw.max())) if isinstance(plugin, NormalizingPlugin) else raw
    return dict(zip(feasible, zip(raw.tolist(), normalized.tolist(), strict=True), strict=True))


def _narrowing(case: Case, cluster: Cluster, profile: Profile) -> Iterator[Comparison]:
    if "preFilter" not in case.expected:
        return
    pod = cluster.template.pod
    status: dict[str, Any] = {"code": "Success"}
    remaining: list[str] | None = None
    for plugin in profile.pre_filter:
        if plugin.key(pod) is None:
            continue
        answer = plugin.narrow(plugin.prepare(pod))
        if isinstance(answer, Status):
            status = {"code": "UnschedulableAndUnresolvable", "plugin": answer.plugin, "reasons": list(answer.reasons)}
        elif answer is not None:
            remaining = sorted(answer)
    yield "PreFilter", status, case.expected["preFilter"]
    if "preFilterNodes" in case.expected or remaining is not None:
        recorded = case.expected.get("preFilterNodes")
        yield "nodes left by PreFilter", remaining, recorded and sorted(recorded)


def _gates(case: Case, cluster: Cluster, profile: Profile) -> Iterator[Comparison]:
    found = {}
    for plugin in profile.pre_enqueue:
        status = plugin.pre_enqueue(cluster.pod)
        if not status.ok:
            code = {number: name for name, number in CODES.items()}[status.code]
            found[plugin.name] = {"code": code, "reasons": list(status.reasons)}
    yield "PreEnqueue", found, case.expected.get("preEnqueue", {})


# ---------------------------------------------------------------------------------------------------- whole attempts


def is_decided(case: Case) -> bool:
    """No plugin that is missing takes part, and no nominated pod."""
    expected = case.expected
    if case.scenario.get("nominatedPods") or case.scenario["pod"].get("status", {}).get("nominatedNodeName"):
        return False
    filters = MISSING - set(expected.get("skipFilter") or ()) if "filter" in expected else set()
    scorers = MISSING - set(expected.get("skipScore") or ()) if "scores" in expected else set()
    return not filters and not scorers


def _attempt(case: Case, cluster: Cluster, profile: Profile) -> Iterator[Comparison]:
    if not is_decided(case):
        return
    expected, snapshot = case.expected, cluster.snapshot
    engine = Engine(snapshot, profile)
    try:
        evaluation = engine.evaluate(cluster.template)
    except PluginError:
        yield "error", True, "error" in expected
        return
    yield "error", False, "error" in expected
    rows = evaluation.feasible.nonzero()[0].tolist()
    total = {snapshot.name_of(row): int(evaluation.total[row]) for row in rows}
    best = sorted(snapshot.name_of(row) for row in evaluation.best_rows.tolist())
    yield "feasible", sorted(total), sorted(expected.get("feasible", ()))
    if len(rows) == 1:
        # Nobody scores a single node; the record has its scores nevertheless.
        explained = engine.explain(cluster.template).rows
        total = {
            snapshot.name_of(row): int(explained.total[place])
            for place, row in enumerate(explained.index.tolist())
            if explained.feasible[place]
        }
    yield "total", total, expected.get("total", {})
    yield "best", best, sorted(expected.get("best", ()))
    diagnosis = engine.diagnose(cluster.template)
    yield "message", None if rows else diagnosis.message(), expected.get("message")
    yield "unschedulablePlugins", sorted(diagnosis.unschedulable_plugins), sorted(expected.get("unschedulablePlugins") or ())


COMPARISONS: Final[Mapping[str, Callable[[Case, Cluster, Profile], Iterator[Comparison]]]] = {
    "verdicts": _verdicts,
    "scores": _scores,
    "narrowing": _narrowing,
    "gates": _gates,
    "attempts": _attempt,
}
