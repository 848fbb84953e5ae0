"""The status that the agent reports of a pod, from its life. Pure.

DisruptionTarget is told together with the terminal phase. PodScheduled is the scheduler's and is left out.

Source: kubelet's status/generate.go, Kubernetes 1.34.
"""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from rayched.nodes.agent.container_life import ContainerExit, ContainerLife, ContainerStep
from rayched.nodes.agent.phases import ContainerRole, is_restarted
from rayched.nodes.agent.pod_life import PodLife
from rayched.v1.core_pb2 import ContainerState, ContainerStatus, PodStatus

_TERMINATED_BY_NODE = "TerminationByKubelet"
MESSAGE_MAX = 1024
"""Characters."""


def status_of(life: PodLife, address: str, now: float) -> PodStatus:
    """`address`: of the node, which is the pod's as well."""
    status = PodStatus(phase=life.phase, host_ip=address, pod_ip=address)
    status.start_time.CopyFrom(moment(life.accepted_at))
    if life.ending is not None and life.has_ended:
        status.reason, status.message = life.ending.reason, life.ending.message
    elif life.prepare_message:
        status.message = life.prepare_message
    _conditions(status, life)
    for one in life.containers:
        statuses = status.container_statuses if one.role is ContainerRole.REGULAR else status.init_container_statuses
        statuses.append(_container_status(one, life, now))
    _cut_messages(status)
    return status


def _cut_messages(status: PodStatus) -> None:
    """Output of probes and arguments get into messages, and a status that is too long would be refused for good."""
    status.message = status.message[:MESSAGE_MAX]
    for condition in status.conditions:
        condition.message = condition.message[:MESSAGE_MAX]
    for one in (*status.container_statuses, *status.init_container_statuses):
        for state in (one.state, one.last_state):
            if state.HasField("waiting"):
                state.waiting.message = state.waiting.message[:MESSAGE_MAX]
            if state.HasField("terminated"):
                state.terminated.message = state.terminated.message[:MESSAGE_MAX]


def moment(seconds: float) -> Timestamp:
    """Whole seconds, as in Kubernetes' objects."""
    return Timestamp(seconds=int(seconds))


def _conditions(status: PodStatus, life: PodLife) -> None:
    prepared = life.prepared_at is not None or any(one.attempts for one in life.containers)
    _condition(status, "PodReadyToStartContainers", prepared and not life.has_ended, "" if not life.has_ended else "PodCompleted")
    waiting = [one.name for one in life.containers if one.role is not ContainerRole.REGULAR and not _is_through(one)]
    text = f"containers with incomplete status: [{' '.join(waiting)}]"
    _condition(status, "Initialized", life.initialized, "ContainersNotInitialized", text)
    unready = [one.name for one in life.containers if one.role is not ContainerRole.INIT and not one.is_ready]
    ended = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(status.phase, "")
    reason = ended or "ContainersNotReady"
    text = "" if ended else f"containers with unready status: [{' '.join(unready)}]"
    ready = life.initialized and not unready and not ended
    _condition(status, "ContainersReady", ready, reason, text)
    _condition(status, "Ready", ready, reason, text)
    if life.has_ended and life.ending is not None and life.ending.disruption:
        status.conditions.add(type="DisruptionTarget", status="True", reason=_TERMINATED_BY_NODE, message=life.ending.message)


def _is_through(one: ContainerLife) -> bool:
    if one.role is ContainerRole.SIDECAR:
        return one.is_started
    return one.step is ContainerStep.ENDED and one.exit is not None and one.exit.code == 0


def _condition(status: PodStatus, kind: str, holds: bool, reason: str = "", message: str = "") -> None:
    found = status.conditions.add(type=kind, status="True" if holds else "False")
    if not holds:
        found.reason, found.message = reason, message


def _container_status(one: ContainerLife, life: PodLife, now: float) -> ContainerStatus:
    status = ContainerStatus(
        name=one.name,
        image=one.spec.image,
        ready=one.is_ready if one.role is not ContainerRole.INIT else _is_through(one),
        restart_count=max(one.attempts - 1, 0),
        started=one.is_started,
    )
    last = None
    if one.step is ContainerStep.RUNNING:
        status.state.running.started_at.CopyFrom(moment(one.started_at))
        last = one.exit
    elif one.step is ContainerStep.ENDED and one.exit is not None:
        last = _ended(status, one, one.exit, life, now)
    else:
        last = one.exit
        status.state.waiting.reason, status.state.waiting.message = _waiting(one, life)
    if one.attempts:
        status.container_id = f"{life.runtime}://{life.uid}/{one.name}/{one.attempt}"
    if last is not None:
        _terminated(status.last_state, last)
    return status


def _ended(status: ContainerStatus, one: ContainerLife, found: ContainerExit, life: PodLife, now: float) -> ContainerExit | None:
    """Fills in the state of a container whose last attempt ended; gives what its last state is."""
    goes_on = life.ending is None and is_restarted(one.role, found.code, life.pod.spec.restart_policy)
    waiting = status.state.waiting
    if goes_on and one.reason:
        waiting.reason, waiting.message = one.reason, one.message
        return found
    if goes_on and now < one.not_before:
        seconds = one.not_before - found.finished_at
        waiting.reason = "CrashLoopBackOff"
        waiting.message = f"back-off {_duration(seconds)} restarting failed container={one.name} pod={life.full_name()}"
        return found
    _terminated(status.state, found)
    return one.earlier_exit


def _waiting(one: ContainerLife, life: PodLife) -> tuple[str, str]:
    if one.message or one.role is not ContainerRole.REGULAR or life.initialized:
        return one.reason, one.message
    return "PodInitializing", ""


def _terminated(state: ContainerState, found: ContainerExit) -> None:
    ended = state.terminated
    ended.exit_code, ended.signal, ended.reason, ended.message = found.code, found.signal, found.reason, found.message
    if found.started_at:
        ended.started_at.CopyFrom(moment(found.started_at))
    ended.finished_at.CopyFrom(moment(found.finished_at))


def _duration(seconds: float) -> str:
    """As Go writes it: 10s, 1m20s, 5m0s."""
    whole = round(seconds)
    return f"{whole}s" if whole < 60 else f"{whole // 60}m{whole % 60}s"
