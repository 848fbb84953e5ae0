"""delete: objects by name, selector or manifest, and, if wanted, until they are gone."""

from __future__ import annotations

import time
from typing import Annotated

import grpc
import typer

from rayched.api import kinds
from rayched.cli.connection import ObjectFailures, connected
from rayched.cli.manifests.named_manifests import objects_of
from rayched.cli.options import (
    AllNamespaces,
    DryRunBy,
    DryRunOption,
    FieldSelector,
    IgnoreNotFound,
    Kustomize,
    Namespace,
    OfManifests,
    Recursive,
    Selector,
    Server,
    seconds_of,
)
from rayched.cli.printing import fail, note, out, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, NamedObject, references, targets, type_of
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.services_pb2 import DeleteResponse

_WAIT_SECONDS = 0.1
_CASCADE = "background"


def delete(
    words: Annotated[list[str] | None, typer.Argument(metavar="OBJECT", hidden=True)] = None,
    filename: OfManifests = None,
    kustomize: Kustomize = "",
    namespace: Namespace = "",
    server: Server = None,
    selector: Selector = "",
    field_selector: FieldSelector = "",
    all_namespaces: AllNamespaces = False,
    delete_all: Annotated[bool, typer.Option("--all", help="Select all objects of the type in the namespace.")] = False,
    recursive: Recursive = False,
    grace_period: Annotated[
        int, typer.Option(metavar="SECONDS", min=-1, help="Seconds the pod gets to stop; 0: none, -1: the pod's own value.")
    ] = -1,
    wait: Annotated[bool, typer.Option(help="Return when the objects are gone.")] = True,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait, as in 90s or 5m.")] = "60s",
    ignore_not_found: IgnoreNotFound = False,
    force: Annotated[bool, typer.Option("--force", help="As --grace-period 0.")] = False,
    now: Annotated[bool, typer.Option("--now", help="As --grace-period 1.")] = False,
    cascade: Annotated[
        str, typer.Option("--cascade", metavar=_CASCADE, help="What an object owns goes after it; there is no other way.")
    ] = _CASCADE,
    dry_run: DryRunOption = DryRunBy.none,
) -> None:
    """Delete objects by name, selector or manifest.

    \b
      rayched delete pod web-0 web-1
      rayched delete pods -l app=web --grace-period 0
      rayched delete pods -A --field-selector status.phase=Pending
      rayched delete -f examples/
    """
    if bool(words) == bool(filename or kustomize):
        wrong("name what to delete: TYPE NAME, TYPE/NAME, -f FILE, or -k DIR")
    if not words and (selector or field_selector or delete_all or all_namespaces):
        wrong("-f and -k cannot be combined with a selector, --all or --all-namespaces")
    if dry_run is DryRunBy.server:
        wrong("--dry-run=server: the server judges no deletion beforehand; --dry-run=client looks whether the objects are there")
    if cascade not in (_CASCADE, "true"):
        wrong(f"--cascade {cascade!r}: want {_CASCADE}: what an object owns goes after it; with spec.replicas 0 it goes before")
    if now and grace_period >= 0:
        wrong("--now and --grace-period: only one of them is possible")
    grace_period = 1 if now else 0 if force and grace_period < 0 else grace_period
    named = [] if words else list(objects_of(filename, kustomize, namespace, recursive))
    failures = ObjectFailures()
    deadline = time.monotonic() + seconds_of("--timeout", timeout)
    with connected(server) as client:
        if words:
            where = "" if all_namespaces else namespace or DEFAULT_NAMESPACE
            found = targets(client, references(words), where, selector, delete_all, field_selector)
            named = list(dict.fromkeys(found))
            if not named:
                note("No resources found")
        if dry_run is DryRunBy.client:
            for target in named:
                _would_delete(client, target, ignore_not_found, failures)
            named = []
        for group in _holders_last(named):
            uids = {target: _deleted(client, target, grace_period, ignore_not_found, failures) for target in group}
            for target, uid in uids.items():
                if wait and uid:
                    _wait_until_gone(client, target, uid, deadline)
    failures.end()


def _holders_last(named: list[NamedObject]) -> tuple[list[NamedObject], list[NamedObject]]:
    """A namespace can go only when nothing is in it any more, and the agent of a node has to stop its pods."""
    holders = (kinds.NAMESPACE, kinds.NODE)
    return [target for target in named if target.kind not in holders], [target for target in named if target.kind in holders]


def _deleted(client: Client, target: NamedObject, grace_period: int, ignore_not_found: bool, failures: ObjectFailures) -> str:
    """The uid of what was deleted; empty where there was nothing, or an error, which is told."""
    answer: DeleteResponse | None = None
    with failures.told():
        try:
            grace = None if grace_period < 0 else grace_period
            answer = client.delete(target.kind, target.name, target.namespace, uid=target.uid, grace_period_seconds=grace)
        except ApiError as error:
            if not (ignore_not_found and error.code is grpc.StatusCode.NOT_FOUND):
                raise
    if answer is None:
        return ""
    deleted = answer.object.WhichOneof("kind") is not None
    # Without the object an earlier attempt had no answer: it is gone, and nobody knows by whom.
    verb = "is gone" if not deleted else "force deleted" if grace_period == 0 else "deleted"
    out(f'{type_of(target.kind)} "{target.name}" {verb}{_place(target)}')
    return kinds.unwrap(answer.object).metadata.uid if deleted else ""


def _would_delete(client: Client, target: NamedObject, ignore_not_found: bool, failures: ObjectFailures) -> None:
    with failures.told():
        try:
            client.get(target.kind, target.name, target.namespace)
        except ApiError as error:
            if not (ignore_not_found and error.code is grpc.StatusCode.NOT_FOUND):
                raise
            return
        out(f'{type_of(target.kind)} "{target.name}" deleted{_place(target)}{DryRunBy.client.suffix}')


def _place(target: NamedObject) -> str:
    return f" from {target.namespace} namespace" if target.namespace else ""


def _still_there(target: NamedObject) -> str:
    if target.kind is kinds.POD_GROUP:
        return f"{target} goes once its last member has ended or gone, and is still there"
    return f"{target} has been asked to stop and is still there; --grace-period 0 removes it without its node's answer"


def _wait_until_gone(client: Client, target: NamedObject, uid: str, deadline: float) -> None:
    """Another object of the same name is none of our business."""
    while True:
        try:
            if client.get(target.kind, target.name, target.namespace).metadata.uid != uid:
                return
        except ApiError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:
                return
            raise
        if time.monotonic() > deadline:
            fail(_still_there(target))
        time.sleep(_WAIT_SECONDS)
