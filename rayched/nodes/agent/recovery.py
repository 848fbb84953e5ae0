"""A pod's life put together again from what is on disk and what its shim says, after the agent was away.

| shim | last attempt | it |
|---|---|---|
| any | has an exit | ended so |
| lives, and has the attempt | - | runs, or ended, or is being started, as the shim says |
| lives, and does not have it | - | was never begun: it begins under the same number |
| gone | has no exit | is lost: exit 137, ContainerStatusUnknown |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rayched.nodes.agent.container_life import ContainerExit, ContainerLife, ContainerStep
from rayched.nodes.agent.disk import PodDirectory
from rayched.nodes.agent.pod_life import PodLife
from rayched.nodes.agent.probing import ProbeKind
from rayched.nodes.agent.restarts import failures_after, restart_delay

LOST_CODE: Final = 137
LOST_REASON: Final = "ContainerStatusUnknown"
LOST_MESSAGE: Final = "The container could not be located when the pod was terminated"


def lost_exit(started_at: float, now: float) -> dict[str, Any]:
    """What is known of an attempt whose shim died with it."""
    return {
        "code": LOST_CODE,
        "signal": 0,
        "reason": LOST_REASON,
        "message": LOST_MESSAGE,
        "started_at": started_at,
        "finished_at": now,
    }


def exit_of(values: Mapping[str, Any]) -> ContainerExit:
    """From an exit.json."""
    code = int(values["code"])
    reason = values.get("reason") or ("OOMKilled" if values.get("oom") else "Error" if code else "Completed")
    return ContainerExit(
        code,
        int(values["signal"]),
        reason,
        float(values["started_at"]),
        float(values["finished_at"]),
        values.get("message", ""),
    )


def has_begun(state: Mapping[str, Any]) -> bool:
    """Of an attempt as its shim tells of it: one of an engine has no process before its program runs."""
    return state.get("pid") != 0


def restore(life: PodLife, directory: PodDirectory, states: list[dict[str, Any]] | None, now: float, probe_delay: float) -> int:
    """`states`: what the shim says of its containers; None: it is gone, and nothing of the pod lives any more. Gives how many of
    them are lost."""
    lost = 0
    by_key = None if states is None else {(one["container"], one["attempt"]): one for one in states}
    memory = directory.load("memory") or {}
    for one in life.containers:
        attempts = directory.attempts(one.name)
        if not attempts:
            continue
        for attempt in attempts:
            lost += _take_attempt(one, directory, attempt, by_key, now)
        if one.step is ContainerStep.RUNNING:
            _remember(one, memory.get(one.name, {}), now, probe_delay)
    return lost


def presumed_running(life: PodLife, directory: PodDirectory) -> list[dict[str, Any]]:
    """States as of a shim, of attempts whose end nobody knows while something of the pod does not die."""
    found = []
    for one in life.containers:
        for attempt in directory.attempts(one.name)[-1:]:
            spec = directory.load(f"containers/{one.name}/{attempt}/spec")
            if spec is not None and directory.exit_of(one.name, attempt) is None:
                state = {"container": one.name, "attempt": attempt, "started_at": float(spec["at"]), "exit": None}
                found.append(state)
    return found


def _take_attempt(
    one: ContainerLife,
    directory: PodDirectory,
    attempt: int,
    states: Mapping[tuple[str, int], dict[str, Any]] | None,
    now: float,
) -> bool:
    """Whether nobody knows how it ended."""
    spec = directory.load(f"containers/{one.name}/{attempt}/spec")
    one.failures = int(spec["failures"]) if spec is not None else one.failures
    values = directory.exit_of(one.name, attempt)
    state = None if states is None else states.get((one.name, attempt))
    if values is None and state is not None:
        values = state["exit"]
    if values is None and state is not None:
        one.attempts = attempt
        one.begins()
        if has_begun(state):
            one.runs(float(state["started_at"]))
        return False
    if values is None and states is not None:
        return False
    is_lost = values is None
    if values is None:
        values = lost_exit(float(spec["at"]) if spec is not None else now, now)
        directory.write_exit(one.name, attempt, values)
    one.attempts = attempt
    one.begins()
    one.ends(exit_of(values))
    return is_lost


def _remember(one: ContainerLife, memory: Mapping[str, Any], now: float, probe_delay: float) -> None:
    """What probes and hooks said of an attempt that ran on while the agent was away: Ready stays Ready."""
    if memory.get("attempt") != one.attempt:
        return
    one.post_start_done = one.post_start_done or bool(memory["post_start_done"])
    for kind, probe in one.probes.items():
        if kind.value in memory["passed"]:
            probe.passed = bool(memory["passed"][kind.value])
        probe.next_at = max(probe.next_at, now + probe_delay * probe.period)


def memory_of(life: PodLife) -> dict[str, Any]:
    """What `_remember` reads."""
    return {
        one.name: {
            "attempt": one.attempt,
            "post_start_done": one.post_start_done,
            "passed": {ProbeKind(kind).value: probe.passed for kind, probe in one.probes.items()},
        }
        for one in life.containers
        if one.step is ContainerStep.RUNNING
    }


def presumed_lost(life: PodLife, now: float) -> None:
    """Of a pod that ran here by its status, and of which the disk knows nothing: its containers have ended, nobody knows how."""
    for status in (*life.pod.status.container_statuses, *life.pod.status.init_container_statuses):
        one = next((one for one in life.containers if one.name == status.name), None)
        if one is None or not (status.state.HasField("running") or status.state.HasField("terminated")):
            continue
        one.attempts = status.restart_count
        one.begins()
        ended = status.state.terminated
        found = exit_of(lost_exit(0.0, now))
        if status.state.HasField("terminated"):
            began, finished = ended.started_at.seconds, ended.finished_at.seconds
            found = ContainerExit(ended.exit_code, ended.signal, ended.reason, began, finished)
        one.ends(found)
        one.failures = failures_after(0, 0.0)
        one.not_before = now + restart_delay(one.failures)
