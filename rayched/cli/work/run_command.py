"""run: pods from one line, what they write, and what they end with: `rayched run hello -- echo hello`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import grpc
import typer

from rayched.api.kinds import JOB, AnyObject, Kind, of_message, wrap
from rayched.cli.connection import connected, patience_of
from rayched.cli.objects.create_command import created
from rayched.cli.options import DryRunBy, DryRunOption, NamespaceOfPod, Server, pairs_of, seconds_of
from rayched.cli.output.output_formats import OutputOption, output_format
from rayched.cli.printing import note, out, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, label_of
from rayched.cli.verbosity import words_of
from rayched.cli.work.following import WEEK_SECONDS, code_of, follow_job, follow_pod
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Job, ReplicaSet

HOLD_GATE = "rayched.dev/hold"
"""Of pods that are held from their creation on."""
_RESTARTS = ("Always", "OnFailure", "Never")
_COUNT_MAX = 100_000


def run(
    name: Annotated[str, typer.Argument(metavar="NAME", hidden=True)],
    command: Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND", hidden=True)] = None,
    namespace: NamespaceOfPod = DEFAULT_NAMESPACE,
    server: Server = None,
    count: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=_COUNT_MAX, help="An indexed Job of N pods; with --restart Always a ReplicaSet."),
    ] = 0,
    parallelism: Annotated[int, typer.Option(metavar="N", min=0, help="With --count: run N at a time; 0: all at once.")] = 0,
    restart: Annotated[
        str, typer.Option(metavar="|".join(_RESTARTS), help="When it is started again; Always: it is made and not waited for.")
    ] = "Never",
    image: Annotated[str, typer.Option(metavar="IMAGE", help="Nodes that have it are preferred; processes need none.")] = "",
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set a variable of its environment. May be repeated.")
    ] = None,
    labels: Annotated[str, typer.Option("--labels", "-l", metavar="KEY=VALUE,...", help="Labels besides run=NAME.")] = "",
    requests: Annotated[
        str, typer.Option(metavar="RESOURCE=AMOUNT,...", help="Requested resources, as in cpu=500m,memory=1Gi.")
    ] = "",
    hold: Annotated[bool, typer.Option("--hold", help="Keep it waiting until `rayched release`; implies --detach.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Return when it is made.")] = False,
    remove: Annotated[bool, typer.Option("--rm", help="Delete it when it has ended.")] = False,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="When to give up, as in 90s or 5m; 0s: never.")] = "0s",
    output: OutputOption = "",
    dry_run: DryRunOption = DryRunBy.none,
) -> None:
    """Run a command as pods, and end as it ends.

    \b
      rayched run hello -- echo hello
      rayched run build --requests cpu=2,memory=4Gi --rm -- make all
      rayched run three --count 9 --parallelism 3 -- printenv JOB_COMPLETION_INDEX
      rayched run web --restart Always --count 3 -- python3 -m http.server
      rayched run web --dry-run=client -o yaml -- sleep 60 > web.yaml

    What one pod writes is printed as it comes, of several how many have ended. The exit code is the command's own, of several 0
    when all have succeeded; 1 when a pod could not run or was deleted, or when the time is over.
    """
    seconds = seconds_of("--timeout", timeout) or WEEK_SECONDS
    form = output_format(output)
    is_left = detach or hold or restart == "Always" or dry_run is not DryRunBy.none
    if restart not in _RESTARTS:
        wrong(f"--restart {restart!r}: want one of {', '.join(_RESTARTS)}")
    if not command and not image:
        wrong("name what to run: rayched run NAME -- COMMAND")
    _refuse_combined(parallelism > 0 and not count, remove and is_left, bool(output) and not is_left)
    pod = _pod(name, restart, image, command or (), env or (), pairs_of("--labels", labels), pairs_of("--requests", requests))
    item = _several(pod, namespace, count, parallelism, hold) if count else _single(pod, namespace, hold)
    kind = of_message(item)
    with connected(server, listens_seconds=patience_of(dry_run)) as client:
        made = created(client, wrap(item), dry_run)
        if is_left:
            if output:
                form.print([made], one=True)
            else:
                out(f"{label_of(kind, name)} created{dry_run.suffix}")
            return
        ended = _followed(client, made, seconds)
        if remove:
            _remove(client, kind, name, namespace, made.metadata.uid)
    if code := code_of(ended):
        raise SystemExit(code)


def _followed(client: Client, made: AnyObject, seconds: float) -> Pod | Job:
    """What was made, when it has ended."""
    kind, metadata = of_message(made), made.metadata
    deadline = time.monotonic() + seconds
    follow = follow_job if kind is JOB else follow_pod
    try:
        return follow(client, metadata.name, metadata.namespace, metadata.uid, deadline)
    except KeyboardInterrupt:
        left = _deletion(kind, metadata.name, metadata.namespace)
        note(f"{kind.singular} {metadata.namespace}/{metadata.name} stays; delete it with: {left}")
        raise


def _refuse_combined(parallelism_alone: bool, removes_what_is_left: bool, output_of_what_runs: bool) -> None:
    if parallelism_alone:
        wrong("--parallelism says how many of --count run at a time; name that too")
    if removes_what_is_left:
        wrong("--rm deletes what has ended, so it cannot be combined with --detach, --hold, --dry-run or --restart Always")
    if output_of_what_runs:
        wrong("--output shows what was made; name --detach or --dry-run as well, or else it shows what the command writes")


def _pod(
    name: str,
    restart: str,
    image: str,
    command: Sequence[str],
    env: Sequence[str],
    labels: dict[str, str],
    requests: dict[str, str],
) -> Pod:
    pod = Pod(metadata={"name": name, "labels": {"run": name, **labels}})
    pod.spec.restart_policy = restart
    container = pod.spec.containers.add(name=name, image=image, command=command)
    for variable in env:
        key, equals, text = variable.partition("=")
        if not equals:
            wrong(f"--env {variable!r}: want NAME=VALUE")
        container.env.add(name=key, value=text)
    for resource, amount in requests.items():
        container.resources.requests[resource].string = amount
    return pod


def _single(pod: Pod, namespace: str, hold: bool) -> AnyObject:
    pod.metadata.namespace = namespace
    if hold:
        pod.spec.scheduling_gates.add(name=HOLD_GATE)
    return pod


def _several(pod: Pod, namespace: str, count: int, parallelism: int, hold: bool) -> AnyObject:
    """A ReplicaSet of pods that are always started again, or a Job of pods that end."""
    name = pod.metadata.name
    item: ReplicaSet | Job
    if pod.spec.restart_policy == "Always":
        item = ReplicaSet(metadata={"name": name, "namespace": namespace})
        item.spec.replicas = count
        item.spec.selector.match_labels["run"] = name
        if hold:
            pod.spec.scheduling_gates.add(name=HOLD_GATE)
    else:
        item = Job(metadata={"name": name, "namespace": namespace})
        item.spec.completions, item.spec.parallelism = count, parallelism or count
        item.spec.completion_mode = "Indexed"
        if hold:
            item.spec.suspend = True
    for key, text in pod.metadata.labels.items():
        item.metadata.labels[key] = text
        item.spec.template.metadata.labels[key] = text
    item.spec.template.spec.CopyFrom(pod.spec)
    return item


def _deletion(kind: Kind, name: str, namespace: str) -> str:
    """What to type."""
    place = "" if namespace == DEFAULT_NAMESPACE else f" -n {namespace}"
    return f"rayched delete {kind.singular} {name}{place}"


def _remove(client: Client, kind: Kind, name: str, namespace: str, uid: str) -> None:
    """What the command ended with is told whatever becomes of this."""
    try:
        client.delete(kind, name, namespace, uid=uid)
    except ApiError as error:
        if error.code is not grpc.StatusCode.NOT_FOUND:
            note(f"warning: {label_of(kind, name)} was not deleted: {words_of(error)}")
