"""Following a pod or a job to its end: what it writes or how far it is, and the exit code that tells how it went."""

from __future__ import annotations

import time
from collections.abc import Callable

import grpc

from rayched.api.kinds import JOB, POD, AnyObject, Kind
from rayched.api.termination import FINAL_PHASES, START_ERROR
from rayched.cli.printing import fail, note
from rayched.cli.work.followed_logs import FollowedLogs
from rayched.cli.work.pod_patience import PodPatience
from rayched.cli.work.pod_references import container_of
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Job

WEEK_SECONDS = 7 * 24 * 3600.0


def follow_pod(client: Client, name: str, namespace: str, uid: str, deadline: float) -> Pod:
    """Prints what the command writes until the pod has ended; the pod. Fails where it goes, or the time is over."""
    logs: FollowedLogs | None = None
    patience = PodPatience(client, namespace, name)

    def has_ended(found: AnyObject | None) -> bool:
        nonlocal logs
        if not _is_there(found, uid) or not isinstance(found, Pod):
            return True
        if logs is None:
            logs = FollowedLogs(client, name, namespace, container_of(found, ""))
        patience.see(found)
        for status in found.status.container_statuses:
            if status.state.HasField("running") or status.state.HasField("terminated"):
                logs.begun(status.restart_count)
        return found.status.phase in FINAL_PHASES

    with patience:
        ended = _waited(client, POD, name, namespace, has_ended, deadline)
    if not isinstance(ended, Pod) or not _is_there(ended, uid):
        fail(f"pod/{name} was deleted before it had ended")
    if logs is not None:
        logs.end()
    return ended


def _waited(
    client: Client, kind: Kind, name: str, namespace: str, until: Callable[[AnyObject | None], bool], deadline: float
) -> AnyObject | None:
    try:
        left = max(deadline - time.monotonic(), 0.001)
        return client.wait_for(kind, name, namespace, until=until, timeout_seconds=left)
    except ApiError as error:
        if error.code is not grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
        fail(f"timed out waiting for the condition on {kind.plural}/{name}; it goes on")


def _is_there(found: AnyObject | None, uid: str) -> bool:
    return found is not None and found.metadata.uid == uid


def code_of(ended: Pod | Job) -> int:
    """The command's own, of a job 0; fails where that says nothing of why it failed."""
    if isinstance(ended, Pod):
        return _code_of_pod(ended)
    failure = next((one for one in ended.status.conditions if one.type == "Failed" and one.status == "True"), None)
    if failure is not None:
        reason = ": ".join(part for part in (failure.reason, failure.message) if part)
        fail(f"job.batch/{ended.metadata.name} failed{f': {reason}' if reason else ''}")
    return 0


def _code_of_pod(pod: Pod) -> int:
    ended = [one.state.terminated for one in pod.status.container_statuses if one.state.HasField("terminated")]
    code = next((one.exit_code for one in ended), 0)
    for one in ended:
        if one.reason == START_ERROR:
            # It never began, so it has written nothing that says so.
            note(f"error: {one.message}")
    if not code and pod.status.phase != "Succeeded":
        # As one that was evicted, or whose deadline was over: the command may have ended well when it was told to.
        reason = ": ".join(part for part in (pod.status.reason, pod.status.message) if part)
        fail(f"pod/{pod.metadata.name} failed{f': {reason}' if reason else ''}")
    return code


def follow_job(client: Client, name: str, namespace: str, uid: str, deadline: float) -> Job:
    """Tells how far the job is until it has ended; the job. Fails where it goes, or the time is over."""
    told = ""

    def has_ended(found: AnyObject | None) -> bool:
        nonlocal told
        if not _is_there(found, uid) or not isinstance(found, Job):
            return True
        if (line := job_progress(found)) != told:
            told = line
            note(f"job.batch/{name}: {line}")
        return _end_of(found) != ""

    ended = _waited(client, JOB, name, namespace, has_ended, deadline)
    if not isinstance(ended, Job) or not _is_there(ended, uid):
        fail(f"job.batch/{name} was deleted before it had ended")
    return ended


def job_progress(job: Job) -> str:
    """`3 of 10 succeeded, 2 running, 1 failed`."""
    wanted = job.spec.completions if job.spec.HasField("completions") else max(job.spec.parallelism, 1)
    parts = [f"{job.status.succeeded} of {wanted} succeeded", f"{job.status.active} running"]
    return ", ".join([*parts, *([f"{job.status.failed} failed"] if job.status.failed else [])])


def _end_of(job: Job) -> str:
    """Complete or Failed; empty: neither yet."""
    true = [one.type for one in job.status.conditions if one.status == "True"]
    return next((end for end in ("Complete", "Failed") if end in true), "")
