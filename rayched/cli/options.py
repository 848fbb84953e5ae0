"""Options and arguments that several commands have, with their help texts."""

from __future__ import annotations

import enum
import re
from typing import Annotated, Final

import typer

from rayched.api.durations import duration_seconds
from rayched.cli.printing import wrong

_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


class DryRunBy(enum.StrEnum):
    """Who judges a change that is not made; as kubectl's."""

    none = "none"
    client = "client"
    server = "server"

    @property
    def suffix(self) -> str:
        """Behind what a command says it has done."""
        return {"none": "", "client": " (dry run)", "server": " (server dry run)"}[self.value]


class Output(enum.StrEnum):
    """What `get` prints."""

    wide = "wide"
    yaml = "yaml"
    json = "json"
    name = "name"


DryRunOption = Annotated[
    DryRunBy,
    typer.Option(
        "--dry-run",
        metavar="none|client|server",
        help="Change nothing: judged here or by the server; without a value by the server.",
        show_default=False,
    ),
]
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
NAMESPACE_VARIABLE: Final = "RAYCHED_NAMESPACE"
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", envvar=NAMESPACE_VARIABLE, help="Namespace of the objects.")
]
NamespaceOfPod = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", envvar=NAMESPACE_VARIABLE, help="Namespace of the pod.")
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Select objects of all namespaces.")]
Words = Annotated[list[str], typer.Argument(metavar="OBJECT", hidden=True)]
"""TYPE[,TYPE...], TYPE NAME... or TYPE/NAME...; each command's own text shows the forms by example, as kubectl's does."""

Selector = Annotated[
    str,
    typer.Option(
        "--selector", "-l", metavar="LABELS", help="Select by labels, as in app=web,tier!=db,env in (a,b).", show_default=False
    ),
]
FieldSelector = Annotated[
    str,
    typer.Option(
        "--field-selector",
        metavar="FIELDS",
        help="Select by fields, as in status.phase!=Running.",
        show_default=False,
    ),
]
OfManifests = Annotated[
    list[str] | None,
    typer.Option("--filename", "-f", metavar="FILE|DIR|URL|-", help="Select the objects of these manifests.", show_default=False),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--filename", "-f", metavar="FILE|DIR|URL|-", help="Manifests; - is standard input. May be repeated.", show_default=False
    ),
]
Kustomize = Annotated[
    str,
    typer.Option(
        "--kustomize", "-k", metavar="DIR", help="In place of -f: what the kustomization in there makes.", show_default=False
    ),
]
Recursive = Annotated[bool, typer.Option("--recursive", "-R", help="Include subdirectories.")]
All = Annotated[bool, typer.Option("--all", help="Select all objects of the type.")]
IgnoreNotFound = Annotated[bool, typer.Option("--ignore-not-found", help="Treat a missing object as success.")]
ListPairs = Annotated[bool, typer.Option("--list", help="Print what is set.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a value that is there already.")]
NodeNames = Annotated[list[str] | None, typer.Argument(metavar="NODE", hidden=True)]


def seconds_of(option: str, text: str) -> float:
    """A duration as kubectl takes it: 90s, 5m, 1h30m; a number alone is of seconds. Ends the command where it is none."""
    found = duration_seconds(f"{text}s" if _NUMBER.fullmatch(text) else text)
    if found is None or found < 0:
        wrong(f"{option} {text!r}: is no duration; want one such as 90s, 5m or 1h30m")
    return found


def pairs_of(option: str, text: str) -> dict[str, str]:
    """KEY=VALUE,KEY=VALUE. Ends the command where it is something else."""
    found: dict[str, str] = {}
    for pair in text.split(",") if text else ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            wrong(f"{option} {pair!r}: want KEY=VALUE")
        found[key] = value
    return found
