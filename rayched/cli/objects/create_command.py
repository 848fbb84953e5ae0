"""create: new objects of manifests, with names that the server makes where they say so, and a few by name alone."""

from __future__ import annotations

from typing import Annotated

import grpc
import typer

from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.cli.connection import ObjectFailures, connected, patience_of
from rayched.cli.manifests.named_manifests import judged_here, named_manifests, namespace_hint
from rayched.cli.options import DryRunBy, DryRunOption, Files, Kustomize, Namespace, Recursive, Server
from rayched.cli.output.output_formats import OutputOption, output_format
from rayched.cli.printing import note, out, wrong
from rayched.cli.references import kind_named, label_of
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Namespace as NamespaceObject
from rayched.v1.workloads_pb2 import Object, PriorityClass

_FORMS = "name what to create: -f FILE, -k DIR, `namespace NAME`, or `priorityclass NAME --value N`"


def create(
    words: Annotated[list[str] | None, typer.Argument(metavar="TYPE NAME", hidden=True)] = None,
    filename: Files = None,
    kustomize: Kustomize = "",
    namespace: Namespace = "",
    server: Server = None,
    recursive: Recursive = False,
    value: Annotated[
        int | None, typer.Option("--value", metavar="N", help="The priority of a PriorityClass.", show_default=False)
    ] = None,
    output: OutputOption = "",
    dry_run: DryRunOption = DryRunBy.none,
) -> None:
    """Create objects; one that is there already is an error.

    \b
      rayched create -f job.yaml   again and again, with metadata.generateName
      rayched create namespace shop
      rayched create priorityclass urgent --value 1000
    """
    form = output_format(output)
    if bool(words) == bool(filename or kustomize) or (words and len(words) != 2):
        wrong(_FORMS)
    if words:
        made = [(_made(words[0], words[1], value), "")]
    else:
        results = named_manifests(filename, kustomize, recursive=recursive, namespace=namespace)
        made = [(result.object, result.source) for result in results]
    failures = ObjectFailures()
    printed: list[AnyObject] = []
    with connected(server, listens_seconds=patience_of(dry_run)) as client:
        for item, source in made:
            with failures.told(_hint, source):
                found = created(client, item, dry_run)
                if output:
                    printed.append(found)
                else:
                    out(f"{label_of(kinds.of_message(found), _name(found))} created{dry_run.suffix}")
    if printed:
        form.print(printed, one=len(made) == 1)
    failures.end()


def created(client: Client, item: Object, dry_run: DryRunBy) -> AnyObject:
    """As it is in the store, or would be. Raises ApiError."""
    if dry_run is DryRunBy.client:
        judged_here(item)
        return kinds.unwrap(item)
    response = client.submit(item, dry_run=dry_run is DryRunBy.server)
    found = kinds.unwrap(response.object)
    for warning in response.warnings:
        note(f"Warning: {label_of(kinds.of_message(found), _name(found))}: {warning}")
    return found


def _name(item: AnyObject) -> str:
    return item.metadata.name or item.metadata.generate_name


def _hint(error: ApiError) -> str:
    if error.code is grpc.StatusCode.ALREADY_EXISTS:
        return "`rayched apply` changes what is there"
    return namespace_hint(error)


def _made(word: str, name: str, value: int | None) -> Object:
    kind = kind_named(word)
    if not ((kind is kinds.NAMESPACE and value is None) or (kind is kinds.PRIORITY_CLASS and value is not None)):
        wrong(f"{word} {name}: {_FORMS}; all else is made of manifests")
    return kinds.wrap(
        NamespaceObject(metadata={"name": name}) if value is None else PriorityClass(metadata={"name": name}, value=value)
    )
