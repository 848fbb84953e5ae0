"""The report of a run: everything as JSON, one page of Markdown, one histogram.

Figures come with how often a fault really took effect. What is demanded of a run stands beside what it has shown; whether it was
met is said, and is no violation: seconds count on a machine that has nothing else to do, invariants everywhere.
"""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rayched.audit.findings import INVARIANTS
from tests.chaos.histogram import draw_histograms, quantile
from tests.chaos.plan import LEADER_KILLS, PAUSES, Plan

JUDGED: Final = (
    *sorted({*INVARIANTS.values(), "S6", "S7"} - {"the store"}, key=lambda name: int(name[1:])),
    "L1",
    "L2",
    "L3",
    "L4",
)
_OF_SUBMISSIONS: Final = ("acknowledged", "deleted", "bindings", "epochs", "repeated submissions", "unanswered", "refused")
_OF_STREAMS: Final = ("events of a stream", "cut off for slowness", "seconds of faults")
KILLS: Final = "leader kills together"
RELEASES: Final = "stop-replica, after the release"
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    KILLS: (2.3, 3.0),
    RELEASES: (0.5, 0.5),
    "kill-both-leaders": (4.0, 4.0),
}
"""p50 and p99 in seconds."""
_WORDS_MAX: Final = 200
NEVER: Final[Mapping[str, str]] = {
    "lost": "lost",
    "bound_twice": "bound twice",
    "over_capacity": "over capacity",
    "stale": "stale writes committed",
}
"""What a session has found, and how the report calls it."""


def write_report(directory: Path, plan: Plan, sessions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Writes report.json, report.md and latencies.png; returns what the first of them holds."""
    classes = latencies(sessions)
    summary = summarize(plan, sessions, classes)
    (directory / "report.json").write_text(
        json.dumps(summary | {"plan": asdict(plan), "sessions": list(sessions)}, indent=1) + "\n"
    )
    label = "seconds from the fault to the first binding under a later epoch"
    draw_histograms(classes, label, directory / "latencies.png")
    (directory / "report.md").write_text(as_markdown(summary))
    return summary


def latencies(sessions: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """By class, seconds from the fault to the first binding under a later epoch, where there was one."""
    classes: dict[str, list[float]] = {}
    # Where nodes are full a binding waits for room, whoever leads.
    for effect in _effects([session for session in sessions if not session["crowded"]]):
        if effect["later_epoch"] is not None:
            classes.setdefault(effect["kind"], []).append(effect["later_epoch"])
            if effect["kind"] in LEADER_KILLS:
                classes.setdefault(KILLS, []).append(effect["later_epoch"])
        if effect["kind"] == "stop-replica" and effect["after_release"] is not None:
            classes.setdefault(RELEASES, []).append(effect["after_release"])
    return dict(sorted(classes.items()))


def summarize(plan: Plan, sessions: Sequence[Mapping[str, Any]], classes: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    violations: dict[str, list[str]] = {}
    tolerated: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for session in sessions:
        for invariant, words in session["violations"].items():
            violations.setdefault(invariant, []).extend(words)
        tolerated.update(session["tolerated"])
        refused.update(session["figures"].get("refused writes", {}))
        for name in (*_OF_SUBMISSIONS, *_OF_STREAMS):
            totals[name] += session["figures"].get(name, 0)
        found.update(session["figures"].get("found", {}))
    effects = list(_effects(sessions))
    unbelieving = [effect for session in sessions if session["broken_rules"] for effect in session["effects"]]
    return {
        "commit": ", ".join(sorted({session["commit"] for session in sessions})),
        "seed": plan.seed,
        "etcd": sorted({session["etcd_version"] for session in sessions}),
        "etcd members": sorted({session["members"] for session in sessions}),
        "machine": f"{os.cpu_count()} CPUs, {platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "load of the machine": [round(one, 1) for one in os.getloadavg()],
        "rate": plan.rate,
        "sessions": f"{len(sessions)} of {len(plan.sessions)}",
        "left out": plan.left_out,
        "faults": dict(sorted(Counter(effect["kind"] for effect in effects if effect["took_effect"]).items())),
        "faults without effect": dict(sorted(Counter(effect["kind"] for effect in effects if not effect["took_effect"]).items())),
        "totals": dict(totals),
        "demands": [
            *demands(plan, effects, classes, found, totals, sum(effect["refused"] for effect in unbelieving)),
            *(one | {"what": f"{one['play']}: {one['what']}"} for session in sessions for one in session.get("demands", ())),
        ],
        "latencies": {name: _figures(name, values) for name, values in classes.items()},
        "gaps": _gaps(effects),
        "refused writes": dict(refused),
        "refused writes in pauses without the belief check": sum(effect["refused"] for effect in unbelieving),
        "pauses without the belief check": sum(effect["took_effect"] for effect in unbelieving),
        "violations": violations,
        "verdicts": {name: "broken" if name in violations else "holds" for name in JUDGED},
        "tolerated": dict(tolerated),
    }


def _figures(name: str, values: Sequence[float]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "n": len(values),
        "p50": quantile(values, 0.5),
        "p99": quantile(values, 0.99),
        "longest": max(values),
    }
    if name in BOUNDS:
        p50, p99 = BOUNDS[name]
        found |= {"p50 allowed": p50, "p99 allowed": p99, "kept": found["p50"] <= p50 and found["p99"] <= p99}
    return found


def demands(
    plan: Plan,
    effects: Sequence[Mapping[str, Any]],
    classes: Mapping[str, Sequence[float]],
    found: Mapping[str, int],
    totals: Mapping[str, float],
    refused: int,
) -> list[dict[str, Any]]:
    """What is demanded of the run, what it has shown, and whether that is enough. `seconds`: a matter of the machine as well."""
    took = [effect for effect in effects if effect["took_effect"]]
    pauses = [effect["seconds"] for effect in took if effect["kind"] in {"pause-tree", *PAUSES}]
    wanted = sum(fault.kind in LEADER_KILLS for session in plan.sessions for fault in session.faults)
    rows = [
        _demand("leader kills", wanted, sum(effect["kind"] in LEADER_KILLS for effect in took), at_least=True),
        _demand("pauses", plan.numbers.pauses, len(pauses), at_least=True),
        *(_demand(words, 0, found.get(kind, 0)) for kind, words in NEVER.items()),
        _demand("late writes refused in pauses without the belief check", plan.numbers.pauses // 2, refused, at_least=True),
    ]
    for name, (p50, p99) in BOUNDS.items():
        if values := classes.get(name):
            rows.append(_demand(f"{name}: p50 of {len(values)}", p50, round(quantile(values, 0.5), 2), seconds=True))
            rows.append(_demand(f"{name}: p99 of {len(values)}", p99, round(quantile(values, 0.99), 2), seconds=True))
    if plan.numbers.events:
        rate = totals["events of a stream"] / max(totals["seconds of faults"], 1.0)
        rows.append(
            _demand("events a second of a watch, each once", plan.numbers.events, round(rate), at_least=True, seconds=True)
        )
        cut = int(totals["cut off for slowness"])
        rows.append(_demand("times that a slow watch was cut off and went on", 1, cut, at_least=True, seconds=True))
    return rows


def _demand(words: str, demanded: float, shown: float, *, at_least: bool = False, seconds: bool = False) -> dict[str, Any]:
    met = shown >= demanded if at_least else shown <= demanded
    bound = "at least" if at_least else "at most"
    return {"what": words, "demanded": f"{bound} {demanded:g}", "shown": shown, "met": met, "seconds": seconds}


def shown(demand: Mapping[str, Any]) -> str:
    """A number as people write it, and words without what would end a table's cell."""
    found = demand["shown"]
    return found.replace("\n", " ").replace("|", "/")[:_WORDS_MAX] if isinstance(found, str) else f"{found:g}"


def _gaps(effects: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Of the faults that do not end a term by themselves: the longest time without a binding, beyond what the fault lasted."""
    kinds: dict[str, list[float]] = {}
    for effect in effects:
        if effect["took_effect"]:
            kinds.setdefault(effect["kind"], []).append(effect["longest_gap"])
    return {kind: {"n": len(found), "p50": quantile(found, 0.5), "longest": max(found)} for kind, found in sorted(kinds.items())}


def as_markdown(summary: Mapping[str, Any]) -> str:
    """One page."""
    totals = summary["totals"]
    lines = [
        "# Chaos report",
        "",
        f"Commit {summary['commit']}, seed {summary['seed']}, etcd {', '.join(summary['etcd'])} with "
        f"{', '.join(map(str, summary['etcd members']))} members, {summary['machine']}, load average "
        f"{' '.join(map(str, summary['load of the machine']))}. Sessions: {summary['sessions']}, "
        f"{summary['rate']:g} submissions a second.",
        "",
        f"{totals['acknowledged']} submissions acknowledged, {totals['repeated submissions']} of them sent repeatedly, "
        f"{totals['deleted']} deleted, {totals['bindings']} bindings, {totals['epochs']} epochs.",
        "",
    ]
    if summary["left out"]:
        lines += [f"**Left out:** {summary['left out']}.", ""]
    lines += ["## Demands", "", "| | demanded | shown | met |", "|---|---|---|---|"]
    lines += [
        f"| {one['what']} | {one['demanded']} | {shown(one)} | {'yes' if one['met'] else '**no**'} |"
        for one in summary["demands"]
    ]
    lines += ["", "## Invariants", "", "| " + " | ".join(summary["verdicts"]) + " |", "|" + "---|" * len(summary["verdicts"])]
    lines += ["| " + " | ".join(summary["verdicts"].values()) + " |", ""]
    for invariant, words in summary["violations"].items():
        lines += [f"* **{invariant}**: {one}" for one in words[:5]]
    tolerated = ", ".join(f"{words}: {count}" for words, count in summary["tolerated"].items()) or "nothing"
    lines += [
        "",
        f"Tolerated: {tolerated}.",
        "",
        f"Late writes that the guard refused: {totals['refused']}, of them "
        f"{summary['refused writes in pauses without the belief check']} in {summary['pauses without the belief check']} pauses "
        "of the whole tree without the belief check. The auditor counts them: a link to etcd held the write until there was a "
        "later epoch, then handed it over, and its attempt never came to be in the history. The replicas counted by themselves "
        "(rayched_fenced_writes_total, from their logs): "
        + (", ".join(f"{op} {count}" for op, count in sorted(summary["refused writes"].items())) or "none")
        + ".",
        "",
        "## Seconds from the fault to the first binding under a later epoch",
        "",
        "| fault | n | p50 | p99 | longest | allowed p50, p99 | kept |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, one in summary["latencies"].items():
        allowed = f"{one['p50 allowed']}, {one['p99 allowed']}" if "kept" in one else ""
        kept = {True: "yes", False: "no"}.get(one.get("kept"), "")
        lines.append(f"| {name} | {one['n']} | {one['p50']:.2f} | {one['p99']:.2f} | {one['longest']:.2f} | {allowed} | {kept} |")
    lines += [
        "",
        "![latencies](latencies.png)",
        "",
        "## Longest time without a binding, in seconds, the fault's own time included",
        "",
    ]
    lines += ["| fault | n | p50 | longest |", "|---|---|---|---|"]
    lines += [f"| {kind} | {one['n']} | {one['p50']:.2f} | {one['longest']:.2f} |" for kind, one in summary["gaps"].items()]
    if summary["faults without effect"]:
        lines += ["", f"Did not take effect: {summary['faults without effect']}."]
    return "\n".join(lines) + "\n"


def _effects(sessions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [effect for session in sessions for effect in session["effects"]]
