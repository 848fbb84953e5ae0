"""label and annotate: pairs of texts on objects, set and removed as kubectl does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import typer

from rayched.cli.connection import acting, overwrite_hint
from rayched.cli.manifests.named_manifests import objects_of
from rayched.cli.objects.dry_runs import would_change
from rayched.cli.options import (
    All,
    DryRunBy,
    DryRunOption,
    ListPairs,
    Namespace,
    OfManifests,
    Overwrite,
    Recursive,
    Selector,
    Server,
)
from rayched.cli.printing import out, shown, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, NamedObject, named_and_changes, some, targets
from rayched.client.client import Client
from rayched.client.edits import annotation_edit, label_edit


def label(
    words: Annotated[list[str] | None, typer.Argument(metavar="OBJECT|LABEL", hidden=True)] = None,
    filename: OfManifests = None,
    recursive: Recursive = False,
    namespace: Namespace = "",
    server: Server = None,
    overwrite: Overwrite = False,
    selector: Selector = "",
    every: All = False,
    list_labels: ListPairs = False,
    dry_run: DryRunOption = DryRunBy.none,
) -> None:
    """Set and remove labels of objects.

    \b
      rayched label node node-001 disktype=ssd
      rayched label pods web-0 web-1 tier=db --overwrite
      rayched label pods -l app=web tier-
      rayched label -f pod.yaml tier=db
      rayched label pod web-0 --list
    """
    texts, found = _chosen(words or (), filename, recursive, namespace, selector, every)
    add, remove = ({}, list[str]()) if list_labels and not texts else labels(texts)
    with acting(server) as (client, failures):
        if list_labels:
            print_pairs(client, found(client), "labels")
            if not texts:
                return
        for target in some(found(client)):
            with failures.told(overwrite_hint):
                if dry_run is DryRunBy.none:
                    changed = client.label(
                        target.kind, target.name, target.namespace, add=add, remove=remove, overwrite=overwrite
                    ).changed
                else:
                    changed = would_change(client, target, label_edit(add, remove, overwrite), dry_run)
                out(f"{target} {('labeled' if add else 'unlabeled') if changed else 'not labeled'}{dry_run.suffix}")


def annotate(
    words: Annotated[list[str] | None, typer.Argument(metavar="OBJECT|ANNOTATION", hidden=True)] = None,
    filename: OfManifests = None,
    recursive: Recursive = False,
    namespace: Namespace = "",
    server: Server = None,
    overwrite: Overwrite = False,
    selector: Selector = "",
    every: All = False,
    list_annotations: ListPairs = False,
    dry_run: DryRunOption = DryRunBy.none,
) -> None:
    """Set and remove annotations of objects.

    \b
      rayched annotate pod web-0 note='do not move'
      rayched annotate pods -l app=web note- --overwrite
      rayched annotate -f web.yaml owner=ada
    """
    texts, found = _chosen(words or (), filename, recursive, namespace, selector, every)
    add, remove = ({}, list[str]()) if list_annotations and not texts else labels(texts, "annotation")
    with acting(server) as (client, failures):
        if list_annotations:
            print_pairs(client, found(client), "annotations")
            if not texts:
                return
        for target in some(found(client)):
            with failures.told(overwrite_hint):
                if dry_run is DryRunBy.none:
                    client.annotate(target.kind, target.name, target.namespace, add=add, remove=remove, overwrite=overwrite)
                else:
                    would_change(client, target, annotation_edit(add, remove, overwrite), dry_run)
                out(f"{target} annotated{dry_run.suffix}")


def _chosen(
    words: Sequence[str], filename: list[str] | None, recursive: bool, namespace: str, selector: str, every: bool
) -> tuple[Sequence[str], Callable[[Client], Iterable[NamedObject]]]:
    """The texts of the changes, and what finds the objects that they are for."""
    if not words and not filename:
        wrong("name what to change: TYPE NAME, TYPE/NAME, or -f FILE")
    wanted, texts = named_and_changes(words, named_elsewhere=bool(filename))
    if not filename:
        place = namespace or DEFAULT_NAMESPACE
        return texts, lambda client: targets(client, wanted, place, selector, every)
    if selector or every:
        wrong("-f cannot be combined with a selector or --all")
    named = list(objects_of(filename, "", namespace, recursive))
    return texts, lambda _: named


def labels(texts: Sequence[str], what: str = "label") -> tuple[dict[str, str], list[str]]:
    """The labels, or annotations, to set and those to remove."""
    add: dict[str, str] = {}
    remove: list[str] = []
    for text in texts:
        key, equals, found = text.partition("=")
        if equals and key:
            if add.get(key, found) != found:
                wrong(f"{text!r}: {what} {key} has another value on the same command line")
            add[key] = found
        elif not equals and len(text) > 1 and text.endswith("-"):
            remove.append(text[:-1])
        else:
            wrong(f"{text!r} is neither KEY=VALUE nor KEY-")
    for key in remove:
        if key in add:
            wrong(f"{what} {key} cannot be set and removed at once")
    if not texts:
        wrong(f"name at least one {what}: KEY=VALUE, or KEY- to remove it")
    return add, remove


def print_pairs(client: Client, found: Iterable[NamedObject], what: str) -> None:
    """Labels or annotations of objects, as KEY=VALUE; where there are several objects each below its name."""
    named = list(some(found))
    for target in named:
        if len(named) > 1:
            out(f"Listing {what} for {target}:")
        metadata = client.get(target.kind, target.name, target.namespace).metadata
        for key, text in sorted(getattr(metadata, what).items()):
            out(shown(f"{' ' if len(named) > 1 else ''}{key}={text}"))
