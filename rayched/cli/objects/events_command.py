"""events: what happened lately to objects, as kubectl's command of that name shows it."""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from rayched.api import kinds
from rayched.api.columns import event_interval, event_time
from rayched.cli import printing
from rayched.cli.connection import connected
from rayched.cli.options import AllNamespaces, Namespace, Server
from rayched.cli.output.output_formats import OutputOption, output_format
from rayched.cli.printing import wrong
from rayched.cli.references import DEFAULT_NAMESPACE, NoReference, named
from rayched.client import EventType
from rayched.v1.core_pb2 import Event

_TYPES: Final = ("Normal", "Warning")
_HEADINGS: Final = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]


def events(
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
    all_namespaces: AllNamespaces = False,
    about: Annotated[
        str, typer.Option("--for", metavar="TYPE/NAME", help="Show only events about this object.", show_default=False)
    ] = "",
    types: Annotated[
        str, typer.Option("--types", metavar="Normal|Warning,...", help="Show only these types.", show_default=False)
    ] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep watching, and print new events.")] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Do not print headings.")] = False,
    output: OutputOption = "",
) -> None:
    """Show what happened, the latest last. Events are kept for an hour.

    \b
      rayched events                   what happened to the pods of a namespace
      rayched events --for pod/web-0   why it is where it is, or why it is not
      rayched events -A --types Warning -w      all that goes wrong, as it comes
      rayched events -o jsonpath='{.items[*].reason}'
    """
    form = output_format(output)
    if watch and not form.is_table:
        wrong("--output cannot be combined with --watch; `rayched get events -w -o json` does that")
    wanted = _wanted_types(types)
    field_selector = _about(about)
    if about and all_namespaces:
        wrong("--for names an object of one namespace, and cannot be combined with --all-namespaces")
    where = "" if all_namespaces else namespace
    table = printing.GrowingTable(len(_HEADINGS) + all_namespaces)

    def row(event: Event) -> list[str]:
        about = event.involved_object
        cells = [
            event_interval(event, time.time()),
            event.type,
            event.reason,
            f"{about.kind}/{about.name}",
            event.message.strip(),
        ]
        return [event.metadata.namespace, *cells] if all_namespaces else cells

    with connected(server) as client:
        listing = client.list_all(kinds.EVENT, namespace=where, field_selector=field_selector)
        found = sorted((item for item in listing.objects if isinstance(item, Event) and item.type in wanted), key=event_time)
        if not form.is_table:
            form.print(found, one=False, show_headings=not no_headers)
            return
        headings = [] if no_headers or not (found or watch) else [["NAMESPACE", *_HEADINGS] if all_namespaces else _HEADINGS]
        table.print([*headings, *map(row, found)])
        if not watch:
            if not found:
                # kubectl's words.
                printing.note("No events found." if not where else f"No events found in {where} namespace.")
            return
        first = listing.revision + 1
        with client.watch(kinds.EVENT, namespace=where, field_selector=field_selector, start_revision=first) as stream:
            for change in stream:
                item = change.object
                if isinstance(item, Event) and change.type is not EventType.DELETED and item.type in wanted:
                    table.print([row(item)])


def _wanted_types(text: str) -> frozenset[str]:
    names = {name.lower(): name for name in _TYPES}
    words = [word.strip().lower() for word in text.split(",")] if text else list(names)
    for word in words:
        if word not in names:
            wrong(f"--types: found {word!r}, allowed are {', '.join(_TYPES)}")
    return frozenset(names[word] for word in words)


def _about(text: str) -> str:
    """The field selector that finds the events about an object."""
    if not text:
        return ""
    if "/" not in text:
        wrong(f"--for: {text!r} is not TYPE/NAME, for example pod/{text}")
    try:
        reference = named(text)
    except NoReference as error:
        wrong(str(error))
    return f"involvedObject.kind={reference.kind.name},involvedObject.name={reference.name}"
