"""apply --at-plan: what `rayched plan` said is carried out exactly, or not at all.

The plan is made anew on the cluster as it is and compared with the one given; where they differ nothing is created. Then the
pods are created together and watched. Should another pod have come between, so that one of them goes elsewhere, all of them are
deleted again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from rayched.api import kinds
from rayched.api.kinds import POD, AnyObject
from rayched.api.manifest import ReadResult
from rayched.cli.printing import fail_all, note, out, wrong
from rayched.cli.scheduling.plan_command import planned
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.client.submissions import Submitted
from rayched.v1.core_pb2 import Pod

_DECIDED_SECONDS_MAX: Final = 60.0
_NOWHERE: Final = ""
_TOLD_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """What `plan --out` wrote."""

    nodes: Mapping[str, str]
    """By namespace/name; empty: it stays pending."""
    revision: int


def read_plan(file: str) -> SavedPlan:
    """Ends the command where the file holds no plan, or one that cannot be carried out so."""
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
        if found["preemptions"]:
            wrong(f"--at-plan {file}: pods would be preempted; who has to leave is decided only when it happens")
        placed = {one["pod"]: one["node_name"] for one in found["placements"]}
        return SavedPlan({**placed, **{one["pod"]: _NOWHERE for one in found["unplaced"]}}, int(found["revision"]))
    except OSError as error:
        wrong(f"--at-plan {file}: {error.strerror}")
    except (ValueError, KeyError, TypeError):
        wrong(f"--at-plan {file}: holds no plan; want one of `rayched plan --out`")


def apply_at_plan(client: Client, results: Sequence[ReadResult], saved: SavedPlan) -> None:
    """Ends the command where anything is or goes otherwise than planned."""
    others = [result for result in results if kinds.of(result.object) is not POD]
    if others:
        named = f"{kinds.of(others[0].object).name} {kinds.unwrap(others[0].object).metadata.name}"
        wrong(f"--at-plan: {named}: only pods can go exactly as planned; apply all else before")
    now = planned(results, client)
    nodes = {**{one.pod: one.node_name for one in now.placements}, **{one.pod: _NOWHERE for one in now.unplaced}}
    if now.preemptions or nodes != saved.nodes:
        changed = [_difference(pod, saved.nodes.get(pod), nodes.get(pod)) for pod in sorted({*saved.nodes, *nodes})]
        _refuse(f"the plan of revision {saved.revision} does not hold any more; nothing was created", changed)
    outcomes = client.submit_many(result.object for result in results)
    refused = [outcome.error for outcome in outcomes if outcome.error is not None]
    if refused:
        _take_back(client, outcomes)
        fail_all([error.message for error in refused[:_TOLD_MAX]])
    differences = _differences(client, outcomes, saved)
    if differences:
        _take_back(client, outcomes)
        _refuse("the cluster changed while the pods were created, which were deleted again", differences)
    for outcome in outcomes:
        node = saved.nodes[f"{outcome.namespace}/{outcome.name}"]
        out(f"pod/{outcome.name} created{f' on {node}' if node else ', pending as planned'}")


def _differences(client: Client, outcomes: Iterable[Submitted], saved: SavedPlan) -> list[str]:
    """Where pods went otherwise than planned, once all have been decided about."""
    deadline = time.monotonic() + _DECIDED_SECONDS_MAX
    found = []
    for outcome in outcomes:
        name = f"{outcome.namespace}/{outcome.name}"
        planned_node = saved.nodes[name]
        try:
            left = max(deadline - time.monotonic(), 0.001)
            pod = client.wait_for(POD, outcome.name, outcome.namespace, until=_is_decided, timeout_seconds=left)
        except ApiError as error:
            if error.code is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            found.append(f"{name}: nothing was decided within {_DECIDED_SECONDS_MAX:g} s")
            continue
        node = pod.spec.node_name if isinstance(pod, Pod) else None
        if node != planned_node:
            found.append(_difference(name, planned_node, node))
    return [one for one in found if one]


def _is_decided(found: AnyObject | None) -> bool:
    if not isinstance(found, Pod):
        return True
    return bool(found.spec.node_name) or any(one.type == "PodScheduled" for one in found.status.conditions)


def _difference(pod: str, before: str | None, now: str | None) -> str:
    """Empty where there is none."""
    if before == now:
        return ""
    words: dict[Any, str] = {None: "is not planned", _NOWHERE: "stays pending"}
    return f"{pod}: {words.get(now, f'goes to {now}')}; the plan says: {words.get(before, f'goes to {before}')}"


def _refuse(sentence: str, differences: Iterable[str]) -> None:
    told = [one for one in differences if one]
    more = [f"and {len(told) - _TOLD_MAX} more"] if len(told) > _TOLD_MAX else []
    fail_all([sentence, *told[:_TOLD_MAX], *more])


def _take_back(client: Client, outcomes: Iterable[Submitted]) -> None:
    for outcome in outcomes:
        if outcome.error is not None and not outcome.open:
            continue
        try:
            client.delete(POD, outcome.name, outcome.namespace, uid=outcome.uid, grace_period_seconds=0)
        except ApiError as error:
            if error.code not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ABORTED):
                note(f"warning: pod/{outcome.name} was not deleted again: {error.message}")
