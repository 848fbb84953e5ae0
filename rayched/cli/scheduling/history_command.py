"""history: pods and jobs that have ended and are still kept, the latest last."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api import kinds
from rayched.api.columns import age
from rayched.api.termination import FINAL_PHASES
from rayched.cli.connection import connected
from rayched.cli.options import AllNamespaces, Namespace, Selector, Server, seconds_of
from rayched.cli.output.output_formats import OutputOption, output_format
from rayched.cli.printing import nothing_found, plain_table
from rayched.cli.references import DEFAULT_NAMESPACE, label_of
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Job

_NONE = "<none>"


@dataclass(frozen=True, slots=True)
class _Ended:
    item: Pod | Job
    status: str
    code: str
    node: str
    began: int
    ended: int
    """Unix seconds; 0: not known."""

    def row(self, now: float, *, with_namespace: bool) -> list[str]:
        metadata = self.item.metadata
        ran = age(Timestamp(seconds=self.began), self.ended) if self.began and self.ended else _NONE
        since = age(Timestamp(seconds=self.ended), now) if self.ended else _NONE
        cells = [label_of(kinds.of_message(self.item), metadata.name), self.status, self.code, ran, since, self.node]
        return [metadata.namespace, *cells] if with_namespace else cells


def history(
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    since: Annotated[
        str, typer.Option("--since", metavar="DURATION", help="Show only what ended within this time, as in 5m or 1h.")
    ] = "",
    failed: Annotated[bool, typer.Option("--failed", help="Show only what failed.")] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Do not print headings.")] = False,
    output: OutputOption = "",
) -> None:
    """Show pods and jobs that have ended, the latest last.

    \b
      rayched history
      rayched history -A --failed --since 1h
      rayched history -l run=a -o custom-columns=N:.metadata.name,P:.status.phase

    The leader keeps the last 12,500 ended pods (--terminated-pod-gc-threshold); deleted ones are gone. Events of an hour:
    `rayched events`.
    """
    form = output_format(output)
    where = "" if all_namespaces else namespace
    limit = seconds_of("--since", since) if since else 0.0
    now = time.time()
    with connected(server) as client:
        pods = [
            pod
            for phase in FINAL_PHASES
            for pod in client.list(kinds.POD, namespace=where, label_selector=selector, field_selector=f"status.phase={phase}")
            if isinstance(pod, Pod)
        ]
        jobs = [job for job in client.list(kinds.JOB, namespace=where, label_selector=selector) if isinstance(job, Job)]
    found = [*map(_of_pod, pods), *(ended for job in jobs if (ended := _of_job(job)) is not None)]
    found = [one for one in found if not failed or one.status not in ("Complete", "Succeeded")]
    found = sorted((one for one in found if not limit or one.ended >= now - limit), key=lambda one: one.ended)
    if not form.is_table:
        form.print([one.item for one in found], one=False, show_headings=not no_headers)
        return
    if not found:
        nothing_found(where)
        return
    headings = ["NAME", "STATUS", "EXIT CODE", "RAN", "ENDED AGO", "NODE"]
    rows = [one.row(now, with_namespace=all_namespaces) for one in found]
    plain_table(["NAMESPACE", *headings] if all_namespaces else headings, rows, show_headings=not no_headers)


def _of_pod(pod: Pod) -> _Ended:
    states = [one.state.terminated for one in pod.status.container_statuses if one.state.HasField("terminated")]
    ends = [state.finished_at.seconds for state in states if state.HasField("finished_at")]
    begins = [state.started_at.seconds for state in states if state.HasField("started_at")]
    code = _codes([state.exit_code for state in states])
    status = pod.status.reason or pod.status.phase
    began = min(begins, default=pod.status.start_time.seconds)
    return _Ended(pod, status, code, pod.spec.node_name or _NONE, began, max(ends, default=0) or _condition_time(pod))


def _codes(codes: Sequence[int]) -> str:
    """The first that tells of a failure."""
    return str(next((code for code in codes if code), 0)) if codes else _NONE


def _condition_time(pod: Pod) -> int:
    """Of a pod whose containers say nothing: when its conditions changed last."""
    return max((one.last_transition_time.seconds for one in pod.status.conditions), default=0)


def _of_job(job: Job) -> _Ended | None:
    for condition in job.status.conditions:
        if condition.type in ("Complete", "Failed") and condition.status == "True":
            ended = job.status.completion_time.seconds or condition.last_transition_time.seconds
            return _Ended(job, condition.type, _NONE, _NONE, job.status.start_time.seconds, ended)
    return None
