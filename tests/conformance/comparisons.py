"""What is compared of a recorded scheduling attempt: values found beside values recorded.

Filter plugins are asked one by one, as is PreFilter; scores and whole attempts go through the engine. An engine is asked several
times, before, while and after another pod takes up room, so that kept columns are what is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rayched.engine.engine import Engine
from rayched.engine.evaluation import Evaluation
from rayched.engine.prepared import PluginHalf
from rayched.engine.shards import ColumnRequest
from rayched.framework.plugin import CountingPlugin, FilterPlugin
from rayched.framework.plugin_error import PluginError
from rayched.framework.profile import Profile
from rayched.framework.status import Code, Status
from rayched.snapshot.columns import CodeColumn
from rayched.snapshot.rows import Rows
from rayched.whatif.explain import BESIDE_NOMINATED, NodeVerdict, explain
from tests.conformance.cases import Case, Cluster, cluster_of, profile_of
from tests.conformance.sharded import Shards

CODES: Final = {
    "Success": Code.SUCCESS,
    "Unschedulable": Code.UNSCHEDULABLE,
    "UnschedulableAndUnresolvable": Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
}
_NAMES: Final = {code: name for name, code in CODES.items()}

FILTER, RAW, NORMALIZED, WEIGHTED = "filter", "raw", "normalized", "weighted"
ASPECTS: Final = (FILTER, RAW, NORMALIZED, WEIGHTED)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One value; `plugin` and `aspect` where it is one plugin's answer about one node."""

    what: str
    found: object
    recorded: object
    plugin: str = ""
    aspect: str = ""

    @property
    def agrees(self) -> bool:
        return self.found == self.recorded


@dataclass(frozen=True, slots=True)
class Setting:
    """A case ready to be compared."""

    case: Case
    cluster: Cluster
    profile: Profile
    engine: Engine
    shards: Shards | None
    """Where every column comes from, if workers are forced on."""


def setting_of(case: Case, n_shards: int) -> Setting:
    cluster, profile = cluster_of(case), profile_of(case)
    shards = Shards(cluster.snapshot, profile, n_shards) if n_shards else None
    return Setting(case, cluster, profile, Engine(cluster.snapshot, profile, shards), shards)


# -------------------------------------------------------------------------------------------------- plugin by plugin


def _verdicts(setting: Setting) -> Iterator[Comparison]:
    expected = setting.case.expected
    if "filter" not in expected:
        return
    looked_at = [name for name, status in expected["filter"].items() if _was_looked_at(status)]
    recorded = expected.get("filterEach", {})
    for plugin in setting.profile.filter:
        found = _verdicts_of(plugin, setting)
        for node in looked_at:
            status = recorded.get(node, {}).get(plugin.name, {"code": "Success", "reasons": []})
            wanted = (CODES[status["code"]], sorted(status["reasons"]))
            yield Comparison(f"{plugin.name} {node}", found[node], wanted, plugin.name, FILTER)


def _was_looked_at(status: dict[str, Any]) -> bool:
    """PreFilter takes nodes out before any plugin sees them; their status names no plugin."""
    return status["code"] == "Success" or "plugin" in status


def _verdicts_of(plugin: FilterPlugin, setting: Setting) -> dict[str, tuple[Code, list[str]]]:
    """Code and sorted reasons of every node."""
    pod, snapshot = setting.cluster.template.pod, setting.cluster.snapshot
    nodes = [snapshot.name_of(row) for row in range(snapshot.n_rows)]
    passed: tuple[Code, list[str]] = (Code.SUCCESS, [])
    if plugin.key(pod) is None:
        return dict.fromkeys(nodes, passed)
    rows = Rows(snapshot, slice(0, snapshot.n_rows))
    state = plugin.prepare(pod)
    if isinstance(plugin, CountingPlugin):
        state = plugin.count(state, snapshot, None)
    codes = _codes(plugin, state, rows, setting)
    if codes is None:
        return dict.fromkeys(nodes, passed)
    reasons = plugin.reasons(state, rows, codes)
    return {
        name: (Code(int(codes[row])), sorted(reason for reason, where in reasons if where[row])) for row, name in enumerate(nodes)
    }


def _codes(plugin: FilterPlugin, state: Any, rows: Rows, setting: Setting) -> CodeColumn | None:
    # What is counted over all nodes is never asked of a worker.
    if setting.shards is None or not rows.n or isinstance(plugin, CountingPlugin):
        return plugin.filter(state, rows)
    request = ColumnRequest(plugin.name, PluginHalf.FILTER, setting.cluster.template.content)
    answers = setting.shards.begin([request], rows.n, 0.0, ahead=False).take()
    # A plugin that raised raises here as well.
    return plugin.filter(state, rows) if answers is None else answers[0]


def _narrowing(setting: Setting) -> Iterator[Comparison]:
    expected = setting.case.expected
    if "preFilter" not in expected:
        return
    pod = setting.cluster.template.pod
    status: dict[str, Any] = {"code": "Success"}
    remaining: list[str] | None = None
    for plugin in setting.profile.pre_filter:
        if plugin.key(pod) is None:
            continue
        answer = plugin.narrow(plugin.prepare(pod))
        if isinstance(answer, Status):
            status = {"code": _NAMES[answer.code], "plugin": answer.plugin, "reasons": list(answer.reasons)}
        elif answer is not None:
            remaining = sorted(answer)
    yield Comparison("PreFilter", status, expected["preFilter"])
    if "preFilterNodes" in expected or remaining is not None:
        recorded = expected.get("preFilterNodes")
        yield Comparison("nodes left by PreFilter", remaining, recorded and sorted(recorded))


def _gates(setting: Setting) -> Iterator[Comparison]:
    found = {}
    for plugin in setting.profile.pre_enqueue:
        status = plugin.pre_enqueue(setting.cluster.pod)
        if not status.ok:
            found[plugin.name] = {"code": _NAMES[status.code], "reasons": list(status.reasons)}
    yield Comparison("PreEnqueue", found, setting.case.expected.get("preEnqueue", {}))


# ------------------------------------------------------------------------------------------------------------ scores


def _scores(setting: Setting) -> Iterator[Comparison]:
    recorded = setting.case.expected.get("scores")
    if not recorded:
        return
    rows = setting.engine.explain(setting.cluster.template, setting.cluster.nominated).rows
    table, profile = setting.cluster.snapshot, setting.profile
    skipped = setting.case.expected.get("skipScore") or ()
    places = {table.name_of(row): place for place, row in enumerate(rows.index.tolist()) if rows.feasible[place]}
    columns = {column.plugin: column for column in rows.scores}
    for plugin in profile.score:
        name = plugin.name
        column = columns.get(name)
        yield Comparison(f"{name} is skipped", column is None, name in skipped)
        if column is None:
            continue
        weight = profile.weights[name]
        for node, scores in recorded.items():
            place, wanted = places.get(node), scores.get(name, {})
            yield Comparison(f"{name} {node} weight", weight, wanted.get("weight"))
            for aspect, values in ((RAW, column.raw), (NORMALIZED, column.normalized), (WEIGHTED, column.weighted)):
                found = None if values is None or place is None else int(values[place])
                yield Comparison(f"{name} {node} {aspect}", found, wanted.get(aspect), name, aspect)


# ---------------------------------------------------------------------------------------------------- whole attempts


def _attempt(setting: Setting) -> Iterator[Comparison]:
    expected, cluster, engine = setting.case.expected, setting.cluster, setting.engine
    try:
        evaluation = engine.evaluate(cluster.template, nominated=cluster.nominated)
    except PluginError:
        yield Comparison("error", True, "error" in expected)
        return
    yield Comparison("error", False, "error" in expected)
    yield from _outcome("", evaluation, setting)
    # With a pod more on the best node, and then without it, only what that pod touched is evaluated again.
    for row in evaluation.best_rows[:1].tolist():
        cluster.snapshot.bind("another", cluster.template, cluster.snapshot.name_of(row))
        engine.evaluate(cluster.template, nominated=cluster.nominated)
        cluster.snapshot.unbind("another")
    yield from _outcome(", evaluated again", engine.evaluate(cluster.template, nominated=cluster.nominated), setting)
    yield from _diagnosis(setting, evaluation)


def _outcome(again: str, evaluation: Evaluation, setting: Setting) -> Iterator[Comparison]:
    expected, snapshot = setting.case.expected, setting.cluster.snapshot
    rows = evaluation.feasible.nonzero()[0].tolist()
    total = {snapshot.name_of(row): int(evaluation.total[row]) for row in rows}
    best = sorted(snapshot.name_of(row) for row in evaluation.best_rows.tolist())
    takes_nominated = _takes_nominated(setting)
    yield Comparison(f"takes the nominated node{again}", takes_nominated, expected.get("nominatedShortcut", False))
    feasible = [setting.cluster.pod.status.nominated_node_name] if takes_nominated else sorted(total)
    yield Comparison(f"feasible{again}", feasible, sorted(expected.get("feasible") or ()))
    if len(rows) == 1:
        # Nobody scores a single node; the record has its scores nevertheless.
        explained = setting.engine.explain(setting.cluster.template, setting.cluster.nominated).rows
        total = {
            snapshot.name_of(row): int(explained.total[place])
            for place, row in enumerate(explained.index.tolist())
            if explained.feasible[place]
        }
    yield Comparison(f"total{again}", total, expected.get("total") or {})
    yield Comparison(f"best{again}", best, sorted(expected.get("best") or ()))


def _takes_nominated(setting: Setting) -> bool:
    """Whether the pod goes where it was nominated to without a look at other nodes."""
    cluster = setting.cluster
    row = cluster.snapshot.row_of(cluster.pod.status.nominated_node_name)
    return row is not None and setting.engine.fits(cluster.template, row, cluster.nominated)


def _diagnosis(setting: Setting, evaluation: Evaluation) -> Iterator[Comparison]:
    expected, table = setting.case.expected, setting.cluster.snapshot
    diagnosis = setting.engine.diagnose(setting.cluster.template, setting.cluster.nominated)
    yield Comparison("message", None if evaluation.is_feasible else diagnosis.message(), expected.get("message"))
    # An attempt that takes the nominated node has looked at no other.
    rejecting = [] if _takes_nominated(setting) else sorted(diagnosis.unschedulable_plugins)
    yield Comparison("unschedulablePlugins", rejecting, sorted(expected.get("unschedulablePlugins") or ()))
    for node, status in (expected.get("filter") or {}).items():
        row = table.rows_by_name[node]
        place = int(diagnosis.failing[row])
        found = (Code(int(diagnosis.codes[row])), diagnosis.filters[place] if place >= 0 else "")
        yield Comparison(f"first failing filter of {node}", found, (CODES[status["code"]], status.get("plugin", "")))


# ------------------------------------------------------------------------------------------------------- explanations


def _explanation(setting: Setting) -> Iterator[Comparison]:
    """What `rayched explain` shows of it, node by node."""
    expected, cluster = setting.case.expected, setting.cluster
    weights = setting.profile.weights
    try:
        found = explain(setting.engine, cluster.snapshot, weights, cluster.template, cluster.nominated)
    except PluginError:
        yield Comparison("explained: error", True, "error" in expected)
        return
    feasible = {node.node_name: node for node in found.nodes if node.feasible}
    scores = {
        name: {
            one.plugin: {"weight": one.weight, RAW: one.raw, NORMALIZED: one.normalized, WEIGHTED: one.weighted}
            for one in node.scores
        }
        for name, node in feasible.items()
    }
    yield Comparison("explained: scores", scores, expected.get("scores") or {})
    yield Comparison("explained: total", {name: one.total for name, one in feasible.items()}, expected.get("total") or {})
    yield Comparison("explained: best", sorted(found.best), sorted(expected.get("best") or ()))
    if found.rejected:
        yield Comparison("explained: rejected", "preFilter" in expected and expected["preFilter"]["code"] != "Success", True)
        return
    nodes = {node.node_name: node for node in found.nodes}
    for name, status in (expected.get("filter") or {}).items():
        yield from _explained_verdict(nodes[name], status)


def _explained_verdict(node: NodeVerdict, status: Mapping[str, Any]) -> Iterator[Comparison]:
    passes = status["code"] == "Success"
    yield Comparison(f"explained: {node.node_name} is feasible", node.feasible, passes)
    if passes or node.feasible:
        return
    rejection = node.rejections[0]
    plugin = status.get("plugin", rejection.plugin)
    yield Comparison(f"explained: first to reject {node.node_name}", rejection.plugin, plugin)
    resolvable = CODES[status["code"]] is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    yield Comparison(f"explained: {plugin} {node.node_name} is resolvable", rejection.resolvable, resolvable)
    reasons = [reason.removesuffix(BESIDE_NOMINATED) for reason in rejection.reasons]
    yield Comparison(f"explained: {plugin} {node.node_name}", reasons, sorted(status["reasons"]))


COMPARISONS: Final[Mapping[str, Callable[[Setting], Iterator[Comparison]]]] = {
    "verdicts": _verdicts,
    "scores": _scores,
    "narrowing": _narrowing,
    "gates": _gates,
    "attempts": _attempt,
    "explanations": _explanation,
}
"""By the group that a report counts them in."""


def compare_schedule(case: Case, n_shards: int) -> Iterator[Comparison]:
    """Everything about one attempt."""
    setting = setting_of(case, n_shards)
    for compare in COMPARISONS.values():
        yield from compare(setting)
