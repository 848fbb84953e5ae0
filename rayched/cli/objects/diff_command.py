"""diff: what `apply` would change, as lines; and replace: objects put in the place of those that are there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Annotated, Any, Final

import grpc
import typer

from rayched.api import kinds
from rayched.api.kinds import AnyObject, Kind
from rayched.api.manifest import write_text
from rayched.cli.connection import acting
from rayched.cli.manifests.named_manifests import judged_here, named_manifests, namespace_hint
from rayched.cli.options import DryRunBy, DryRunOption, Files, Kustomize, Namespace, Recursive, Server
from rayched.cli.printing import failing_with, note, out
from rayched.cli.references import DEFAULT_NAMESPACE, label_of
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.workloads_pb2 import Object

_DIFFERS: Final = 1
_FAILED: Final = 2


def diff(
    filename: Files = None,
    kustomize: Kustomize = "",
    namespace: Namespace = "",
    server: Server = None,
    recursive: Recursive = False,
) -> None:
    """Show what `apply` would change, changing nothing.

    \b
      rayched diff -f web.yaml
      rayched diff -R -f examples/

    Exit codes: 0 nothing would change, 1 something would, 2 an error. Where pods would go: `rayched plan`.
    """
    differs = False
    with failing_with(_FAILED):
        results = named_manifests(filename, kustomize, recursive=recursive, namespace=namespace)
        with acting(server) as (client, failures):
            for result in results:
                with failures.told(namespace_hint, result.source):
                    lines = list(_lines(client, result.object))
                    differs = differs or bool(lines)
                    if lines:
                        out("".join(lines))
    if differs:
        raise SystemExit(_DIFFERS)


def _lines(client: Client, item: Object) -> Iterator[str]:
    kind, metadata = kinds.of(item), kinds.unwrap(item).metadata
    if metadata.generate_name and not metadata.name:
        # Nobody can say what it will be compared with: each one is new.
        before, after = None, kinds.unwrap(client.submit(item, dry_run=True).object)
    else:
        before = _live(client, kind, metadata.name, metadata.namespace or DEFAULT_NAMESPACE)
        after = kinds.unwrap(client.apply(item, dry_run=True).object)
    name = label_of(kind, metadata.name or metadata.generate_name)
    old, new = ("" if before is None else _text(before)), _text(after)
    return difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"live/{name}" if old else "/dev/null", f"applied/{name}"
    )


def _live(client: Client, kind: Kind, name: str, namespace: str) -> AnyObject | None:
    try:
        return client.get(kind, name, namespace)
    except ApiError as error:
        if error.code is not grpc.StatusCode.NOT_FOUND:
            raise
        return None


def _text(item: AnyObject) -> str:
    """Without what every write changes, and what an object has that is not there yet."""
    copy = kinds.wrap(item)
    metadata: Any = kinds.unwrap(copy).metadata
    for field in ("resource_version", "uid", "creation_timestamp", "generation"):
        metadata.ClearField(field)
    return write_text([copy])


def replace(
    filename: Files = None,
    kustomize: Kustomize = "",
    namespace: Namespace = "",
    server: Server = None,
    recursive: Recursive = False,
    force: Annotated[bool, typer.Option("--force", help="Delete what is there, at once, and create it anew.")] = False,
    dry_run: DryRunOption = DryRunBy.none,
) -> None:
    """Put objects in the place of those that are there, whole.

    \b
      rayched replace -f web.yaml           keeps nothing that it does not say
      rayched replace --force -f pod.yaml   for what cannot be changed

    A manifest with metadata.resourceVersion is refused where somebody else has changed the object since. Of a pod give what
    `rayched get -o yaml` prints: what the server has filled in is part of it.
    """
    results = named_manifests(filename, kustomize, recursive=recursive, namespace=namespace)
    with acting(server) as (client, failures):
        for result in results:
            kind, metadata = kinds.of(result.object), kinds.unwrap(result.object).metadata
            with failures.told(_hint, result.source):
                if force:
                    _anew(client, result.object, dry_run)
                elif dry_run is DryRunBy.client:
                    judged_here(result.object)
                    client.get(kind, metadata.name, metadata.namespace or DEFAULT_NAMESPACE)
                else:
                    answer = client.update(result.object, dry_run=dry_run is DryRunBy.server)
                    for warning in answer.warnings:
                        note(f"Warning: {label_of(kind, metadata.name)}: {warning}")
                out(f"{label_of(kind, metadata.name)} replaced{dry_run.suffix}")


def _anew(client: Client, item: Object, dry_run: DryRunBy) -> None:
    kind, metadata = kinds.of(item), kinds.unwrap(item).metadata
    where = metadata.namespace or DEFAULT_NAMESPACE
    judged_here(item)
    if _live(client, kind, metadata.name, where) is not None and dry_run is DryRunBy.none:
        client.delete(kind, metadata.name, where, grace_period_seconds=0 if kind is kinds.POD else None)
        client.wait_deleted(kind, metadata.name, where)
    if dry_run is DryRunBy.none:
        made = kinds.wrap(kinds.unwrap(item))
        # Of the object that was there; this is another one.
        kinds.unwrap(made).metadata.ClearField("uid")
        kinds.unwrap(made).metadata.ClearField("resource_version")
        client.submit(made)


def _hint(error: ApiError) -> str:
    if error.code is grpc.StatusCode.NOT_FOUND:
        return namespace_hint(error) or "`rayched create -f` makes what is not there"
    return namespace_hint(error)
