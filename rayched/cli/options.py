"""Options and arguments that several commands have, with their help texts."""

from __future__ import annotations

import enum
from typing import Annotated

import typer


class Output(enum.StrEnum):
    """What `get` prints."""

    wide = "wide"
    yaml = "yaml"
    json = "json"
    name = "name"


Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        "-s",
        metavar="HOST:PORT,...",
        envvar="RAYCHED_SERVER",
        help="Replicas to ask; any one will do.",
        show_default=False,
    ),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of the objects.")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Objects of all namespaces.")]
Words = Annotated[list[str], typer.Argument(metavar="OBJECT", hidden=True)]
"""TYPE[,TYPE...], TYPE NAME... or TYPE/NAME...; each command's own text shows the forms by example, as kubectl's does."""

Selector = Annotated[
    str,
    typer.Option(
        "--selector", "-l", metavar="LABELS", help="By labels, as in app=web,tier!=db,env in (a,b).", show_default=False
    ),
]
FieldSelector = Annotated[
    str,
    typer.Option(
        "--field-selector",
        metavar="FIELDS",
        help="By fields, as in spec.nodeName=node-001,status.phase!=Running.",
        show_default=False,
    ),
]
Recursive = Annotated[bool, typer.Option("--recursive", "-R", help="Directories with all that is below them.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a value that is there already.")]
NodeNames = Annotated[list[str] | None, typer.Argument(metavar="NODE", hidden=True)]
