"""hold, release and follow: work kept from starting, let go, and followed to its end."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from rayched.api.kinds import JOB, POD
from rayched.cli.connection import acting, connected
from rayched.cli.options import All, Namespace, Selector, Server, Words, seconds_of
from rayched.cli.printing import fail, out, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, NamedObject, references, some, targets
from rayched.cli.work.following import WEEK_SECONDS, code_of, follow_job, follow_pod
from rayched.client.client import Client
from rayched.v1.core_pb2 import Pod
from rayched.v1.services_pb2 import ApplyResponse
from rayched.v1.workloads_pb2 import Job


def hold(
    words: Words,
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
    selector: Selector = "",
    every: All = False,
) -> None:
    """Suspend jobs: their pods end, and no new ones are made.

    \b
      rayched hold job/count
      rayched hold jobs -l team=research

    A pod can be held from its creation on alone: `rayched run --hold`, or spec.schedulingGates in its manifest.
    """
    with acting(server) as (client, failures):
        for target in some(targets(client, references(words), namespace, selector, every)):
            if target.kind is not JOB:
                wrong(f"{target}: only jobs can be held; a pod is held from its creation on, with `rayched run --hold`")
            with failures.told():
                out(f"{target} {'held' if _suspended(client, target, True) else 'already held'}")


def release(
    words: Words,
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
    selector: Selector = "",
    every: All = False,
) -> None:
    """Let held jobs and pods go.

    Jobs are resumed; of pods all scheduling gates are lifted.

    \b
      rayched release job/count
      rayched release pods -l run=web
    """
    with acting(server) as (client, failures):
        for target in some(targets(client, references(words), namespace, selector, every)):
            if target.kind not in (JOB, POD):
                wrong(f"{target}: only jobs and pods can be held and released")
            with failures.told():
                changed = _suspended(client, target, False) if target.kind is JOB else _ungated(client, target)
                out(f"{target} {'released' if changed else 'not held'}")


def _suspended(client: Client, target: NamedObject, suspend: bool) -> bool:
    """Whether that changed anything."""
    job = client.get(JOB, target.name, target.namespace)
    assert isinstance(job, Job)
    if job.spec.suspend == suspend:
        return False
    patch = {"spec": {"suspend": suspend}}
    answer = client.patch(JOB, target.name, target.namespace, patch=patch, patch_type="merge")
    return answer.action == ApplyResponse.CONFIGURED


def _ungated(client: Client, target: NamedObject) -> bool:
    patch = {"spec": {"schedulingGates": None}}
    answer = client.patch(POD, target.name, target.namespace, patch=patch, patch_type="merge")
    return answer.action == ApplyResponse.CONFIGURED


def follow(
    words: Words,
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="When to give up, as in 90s or 5m; 0s: never.")] = "0s",
) -> None:
    """Follow a pod or a job to its end, and end as it ended.

    \b
      rayched follow pod/hello
      rayched follow job/count --timeout 5m

    Of a pod it prints what the pod writes, of a job how many of its pods have ended. The exit code is that of the pod's command,
    or 0 of a complete job; 1 when it failed otherwise, was deleted, or when the time is over.
    """
    wanted = references(words)
    if len(wanted) != 1 or not wanted[0].name or wanted[0].kind not in (POD, JOB):
        wrong("name one pod or job, as in pod/hello or job/count")
    deadline = time.monotonic() + (seconds_of("--timeout", timeout) or WEEK_SECONDS)
    kind, name = wanted[0].kind, wanted[0].name
    with connected(server) as client:
        found = client.get(kind, name, namespace)
        ended: Pod | Job
        if isinstance(found, Pod):
            ended = follow_pod(client, name, namespace, found.metadata.uid, deadline)
        elif isinstance(found, Job):
            ended = follow_job(client, name, namespace, found.metadata.uid, deadline)
        else:
            fail(f"{wanted[0]}: only pods and jobs end")
    code = code_of(ended)
    if code:
        raise SystemExit(code)
