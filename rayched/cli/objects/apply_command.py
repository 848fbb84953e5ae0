"""apply: objects created or changed as manifests say; others deleted with --prune; pods where a plan says with --at-plan."""

from __future__ import annotations

from typing import Annotated

import grpc
import typer

from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.api.manifest import ReadResult
from rayched.cli import printing
from rayched.cli.connection import ObjectFailures, acting, connected
from rayched.cli.manifests.named_manifests import judged_here, named_manifests, namespace_hint
from rayched.cli.manifests.pruning import pruning, selected
from rayched.cli.objects.planned_apply import apply_at_plan, read_plan
from rayched.cli.options import All, DryRunBy, DryRunOption, Files, Kustomize, Namespace, Recursive, Selector, Server
from rayched.cli.output.output_formats import OutputOption, output_format
from rayched.cli.printing import fail, note, out, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, label_of
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.services_pb2 import ApplyResponse
from rayched.v1.workloads_pb2 import Object

_ACTIONS = {ApplyResponse.CREATED: "created", ApplyResponse.CONFIGURED: "configured", ApplyResponse.UNCHANGED: "unchanged"}


def apply(
    filename: Files = None,
    kustomize: Kustomize = "",
    namespace: Namespace = "",
    server: Server = None,
    recursive: Recursive = False,
    selector: Selector = "",
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete what was applied before and is in the manifests no more; with -l or --all.")
    ] = False,
    every: All = False,
    prune_allowlist: Annotated[
        list[str] | None,
        typer.Option(
            "--prune-allowlist",
            metavar="GROUP/VERSION/KIND",
            help="Prune only this kind; none: those of `get all`. May be repeated.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = "",
    dry_run: DryRunOption = DryRunBy.none,
    at_plan: Annotated[
        str,
        typer.Option("--at-plan", metavar="FILE", help="Place pods as this plan says, or change nothing.", show_default=False),
    ] = "",
) -> None:
    """Create or change objects as manifests say.

    \b
      rayched apply -f web.yaml -f examples/
      rayched get pods -o yaml | rayched apply -f -
      rayched apply -k overlays/test                  what its kustomization makes
      rayched apply -f shop/ -l app=shop --prune      what is gone from shop/ goes
      rayched apply -f web.yaml --dry-run -o yaml     what would be there then
      rayched apply -f web.yaml --at-plan plan.json   as `plan --out` wrote it
    """
    form = output_format(output)
    if at_plan and (dry_run is not DryRunBy.none or prune or output):
        wrong("--at-plan cannot be combined with --dry-run, --prune or --output; rayched plan changes nothing")
    pruned = pruning(prune, selector, every, prune_allowlist or ())
    saved = read_plan(at_plan) if at_plan else None
    results = named_manifests(filename, kustomize, recursive=recursive, namespace=namespace)
    if selector and not (results := selected(results, selector)):
        fail(f"--selector {selector}: no object of the manifests has these labels")
    if saved is not None:
        with connected(server) as client:
            apply_at_plan(client, results, saved)
        return
    applied: list[AnyObject] = []
    with acting(server) as (client, failures):
        with printing.progress("applying", len(results)) as bar:
            for result in results:
                bar.advance()
                applied += _apply(client, result, dry_run, failures, told=not output)
        if output and applied:
            form.print(applied, one=len(results) == 1)
        failures.end()
        if pruned is not None:
            pruned.prune(client, results, dry_run, failures)


def _apply(client: Client, result: ReadResult, dry_run: DryRunBy, failures: ObjectFailures, *, told: bool) -> list[AnyObject]:
    """The object as it is now, or would be; none where it failed. `told`: what was done is printed."""
    kind, metadata = kinds.of(result.object), kinds.unwrap(result.object).metadata
    if metadata.generate_name and not metadata.name:
        fail(
            f"{kind.name} {metadata.generate_name}: metadata.generateName: apply needs a metadata.name instead; "
            "`rayched create -f` makes a name"
        )
    applied: list[AnyObject] = []
    with failures.told(namespace_hint, result.source):
        if dry_run is DryRunBy.client:
            response = _applied_here(client, result.object)
        else:
            response = client.apply(result.object, dry_run=dry_run is DryRunBy.server)
        for warning in response.warnings:
            note(f"Warning: {label_of(kind, metadata.name)}: {warning}")
        if told:
            out(f"{label_of(kind, metadata.name)} {_ACTIONS[response.action]}{dry_run.suffix}")
        applied.append(kinds.unwrap(response.object))
    return applied


def _applied_here(client: Client, item: Object) -> ApplyResponse:
    """What the server would say, as far as that can be known here."""
    judged_here(item)
    metadata = kinds.unwrap(item).metadata
    action = ApplyResponse.CONFIGURED
    try:
        client.get(kinds.of(item), metadata.name, metadata.namespace or DEFAULT_NAMESPACE)
    except ApiError as error:
        if error.code is not grpc.StatusCode.NOT_FOUND:
            raise
        action = ApplyResponse.CREATED
    return ApplyResponse(action=action, object=item)
