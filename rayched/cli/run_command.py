"""run: a pod from one line, what it writes, and what it ends with: `rayched run hello -- echo hello`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import grpc
import typer

from rayched.api.kinds import POD, AnyObject
from rayched.api.termination import FINAL_PHASES
from rayched.cli.connection import connected
from rayched.cli.followed_logs import FollowedLogs
from rayched.cli.options import Server, seconds_of
from rayched.cli.printing import fail, note, out, wrong
from rayched.cli.references import DEFAULT_NAMESPACE
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Pod

_WEEK_SECONDS = 7 * 24 * 3600.0
_RESTARTS = ("Always", "OnFailure", "Never")


def run(
    name: Annotated[str, typer.Argument(metavar="NAME", hidden=True)],
    command: Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND", hidden=True)] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", metavar="NAME", help="The pod's.")] = DEFAULT_NAMESPACE,
    server: Server = None,
    restart: Annotated[
        str, typer.Option(metavar="|".join(_RESTARTS), help="When it is started again; Always: it is made and not waited for.")
    ] = "Never",
    image: Annotated[str, typer.Option(metavar="IMAGE", help="Nodes that have it are preferred; processes need none.")] = "",
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A variable of its environment.")] = None,
    labels: Annotated[str, typer.Option("--labels", "-l", metavar="KEY=VALUE,...", help="Besides run=NAME.")] = "",
    requests: Annotated[str, typer.Option(metavar="RESOURCE=AMOUNT,...", help="As in cpu=500m,memory=1Gi.")] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Return when the pod is made.")] = False,
    remove: Annotated[bool, typer.Option("--rm", help="Delete the pod when it has ended.")] = False,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="When to give up, as in 90s or 5m; 0s: never.")] = "0s",
) -> None:
    """Run a command as a pod, and end as it ends.

    \b
      rayched run hello -- echo hello
      rayched run build --requests cpu=2,memory=4Gi --rm -- make all
      rayched run web --restart Always -- python3 -m http.server

    What it writes is printed as it comes. The exit code is the command's own; 1 when the pod could not run or was
    deleted, or when the time is over.
    """
    if restart not in _RESTARTS:
        wrong(f"--restart {restart!r}: want one of {', '.join(_RESTARTS)}")
    if not command and not image:
        wrong("name what to run: rayched run NAME -- COMMAND")
    seconds = seconds_of("--timeout", timeout) or _WEEK_SECONDS
    if remove and (detach or restart == "Always"):
        wrong("--rm deletes a pod that has ended, so it cannot be combined with --detach or --restart Always")
    pod = Pod(metadata={"name": name, "namespace": namespace, "labels": {"run": name, **_pairs("--labels", labels)}})
    pod.spec.restart_policy = restart
    container = pod.spec.containers.add(name=name, image=image, command=command or ())
    for variable in env or ():
        key, equals, text = variable.partition("=")
        if not equals:
            wrong(f"--env {variable!r}: want NAME=VALUE")
        container.env.add(name=key, value=text)
    for resource, amount in _pairs("--requests", requests).items():
        container.resources.requests[resource].string = amount
    with connected(server) as client:
        uid = client.submit(pod).uid
        if detach or restart == "Always":
            out(f"pod/{name} created")
            return
        ended = _follow(client, name, namespace, uid, time.monotonic() + seconds)
        if remove:
            _remove(client, name, namespace, uid)
    code = _code_of(ended)
    if code:
        raise SystemExit(code)


def _pairs(option: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in text.split(",") if text else ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            wrong(f"{option} {pair!r}: want KEY=VALUE")
        found[key] = value
    return found


def _follow(client: Client, name: str, namespace: str, uid: str, deadline: float) -> Pod:
    """Prints what the command writes until the pod has ended; the pod. Fails where it goes, or the time is over."""
    told = ""
    logs = FollowedLogs(client, name, namespace)

    def has_ended(found: AnyObject | None) -> bool:
        nonlocal told
        if not _is_there(found, uid) or not isinstance(found, Pod):
            return True
        for condition in found.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False" and condition.message != told:
                told = condition.message
                note(f"pod/{name} waits for a node: {told}")
        for status in found.status.container_statuses:
            if status.state.HasField("running") or status.state.HasField("terminated"):
                logs.begun(status.restart_count)
        return found.status.phase in FINAL_PHASES

    ended = _waited(client, name, namespace, has_ended, deadline)
    if not isinstance(ended, Pod) or not _is_there(ended, uid):
        fail(f"pod/{name} was deleted before it had ended")
    logs.end()
    return ended


def _waited(
    client: Client, name: str, namespace: str, until: Callable[[AnyObject | None], bool], deadline: float
) -> AnyObject | None:
    try:
        left = max(deadline - time.monotonic(), 0.001)
        return client.wait_for(POD, name, namespace, until=until, timeout_seconds=left)
    except ApiError as error:
        if error.code is not grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
        fail(f"timed out waiting for the condition on pods/{name}; it goes on")


def _is_there(found: AnyObject | None, uid: str) -> bool:
    return found is not None and found.metadata.uid == uid


def _code_of(pod: Pod) -> int:
    """The command's own; fails where that says nothing of why the pod did."""
    statuses = pod.status.container_statuses
    code = next((one.state.terminated.exit_code for one in statuses if one.state.HasField("terminated")), 0)
    if not code and pod.status.phase != "Succeeded":
        # As one that was evicted, or whose deadline was over: the command may have ended well when it was told to.
        reason = ": ".join(part for part in (pod.status.reason, pod.status.message) if part)
        fail(f"pod/{pod.metadata.name} failed{f': {reason}' if reason else ''}")
    return code


def _remove(client: Client, name: str, namespace: str, uid: str) -> None:
    """What the command ended with is told whatever becomes of this."""
    try:
        client.delete(POD, name, namespace, uid=uid)
    except ApiError as error:
        if error.code is not grpc.StatusCode.NOT_FOUND:
            note(f"warning: pod/{name} was not deleted: {error}")
