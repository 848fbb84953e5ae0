"""label and annotate: pairs of texts on objects, set and removed as kubectl does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from rayched.cli.connection import acting, overwrite_hint
from rayched.cli.manifests.named_manifests import objects_of
from rayched.cli.objects.dry_runs import would_change
from rayched.cli.option_groups import with_option_groups
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


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """What both commands take."""

    filename: OfManifests = None
    recursive: Recursive = False
    namespace: Namespace = ""
    server: Server = None
    overwrite: Overwrite = False
    selector: Selector = ""
    every: All = False
    list_pairs: ListPairs = False
    dry_run: DryRunOption = DryRunBy.none


Change = Callable[[Client, NamedObject, dict[str, str], list[str]], str]
"""Sets and removes pairs of an object, or judges that; what to say of it."""


@with_option_groups({"options": PairOptions})
def label(
    words: Annotated[list[str] | None, typer.Argument(metavar="OBJECT|LABEL", hidden=True)] = None, *, options: PairOptions
) -> None:
    """Set and remove labels of objects.

    \b
      rayched label node node-001 disktype=ssd
      rayched label pods web-0 web-1 tier=db --overwrite
      rayched label pods -l app=web tier-
      rayched label -f pod.yaml tier=db
      rayched label pod web-0 --list
    """

    def change(client: Client, target: NamedObject, add: dict[str, str], remove: list[str]) -> str:
        if options.dry_run is DryRunBy.none:
            place = (target.kind, target.name, target.namespace)
            changed = client.label(*place, add=add, remove=remove, overwrite=options.overwrite).changed
        else:
            changed = would_change(client, target, label_edit(add, remove, options.overwrite), options.dry_run)
        return ("labeled" if add else "unlabeled") if changed else "not labeled"

    _change("label", words or (), options, change)


@with_option_groups({"options": PairOptions})
def annotate(
    words: Annotated[list[str] | None, typer.Argument(metavar="OBJECT|ANNOTATION", hidden=True)] = None, *, options: PairOptions
) -> None:
    """Set and remove annotations of objects.

    \b
      rayched annotate pod web-0 note='do not move'
      rayched annotate pods -l app=web note- --overwrite
      rayched annotate -f web.yaml owner=ada
    """

    def change(client: Client, target: NamedObject, add: dict[str, str], remove: list[str]) -> str:
        if options.dry_run is DryRunBy.none:
            place = (target.kind, target.name, target.namespace)
            client.annotate(*place, add=add, remove=remove, overwrite=options.overwrite)
        else:
            would_change(client, target, annotation_edit(add, remove, options.overwrite), options.dry_run)
        return "annotated"

    _change("annotation", words or (), options, change)


def _change(what: str, words: Sequence[str], options: PairOptions, change: Change) -> None:
    texts, found = _chosen(words, options)
    add, remove = ({}, list[str]()) if options.list_pairs and not texts else labels(texts, what)
    with acting(options.server) as (client, failures):
        if options.list_pairs:
            print_pairs(client, found(client), f"{what}s")
            if not texts:
                return
        for target in some(found(client)):
            with failures.told(overwrite_hint):
                out(f"{target} {change(client, target, add, remove)}{options.dry_run.suffix}")


def _chosen(words: Sequence[str], options: PairOptions) -> tuple[Sequence[str], Callable[[Client], Iterable[NamedObject]]]:
    """The texts of the changes, and what finds the objects that they are for."""
    if not words and not options.filename:
        wrong("name what to change: TYPE NAME, TYPE/NAME, or -f FILE")
    wanted, texts = named_and_changes(words, named_elsewhere=bool(options.filename))
    if not options.filename:
        place = options.namespace or DEFAULT_NAMESPACE
        return texts, lambda client: targets(client, wanted, place, options.selector, options.every)
    if options.selector or options.every:
        wrong("-f cannot be combined with a selector or --all")
    named = list(objects_of(options.filename, "", options.namespace, options.recursive))
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
