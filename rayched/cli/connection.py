"""How the command reaches a cluster: the --server option, and failures as one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from rayched.api.kinds import Kind, UnknownKind, by_word
from rayched.cli.printing import fail, fail_all
from rayched.client.client import Client
from rayched.client.errors import ApiError

Server = Annotated[
    str | None,
    typer.Option(
        "--server", "-s", envvar="RAYCHED_SERVER", help="Replicas to ask, host:port, comma separated.", show_default=False
    ),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the objects.")]


@contextmanager
def connected(server: str | None, timeout_seconds: float = 10.0) -> Iterator[Client]:
    """A client; whatever call fails inside ends the command with one line for each defect."""
    try:
        client = Client(server, timeout_seconds=timeout_seconds)
    except ValueError as error:
        fail(str(error))
    try:
        with client:
            yield client
    except ApiError as error:
        report(error)


def report(error: ApiError, subject: str = "") -> None:
    """Ends the command, naming what it was about and each field that is wrong."""
    prefix = f"{subject}: " if subject else ""
    if error.violations:
        fail_all(f"{violation.object or prefix.rstrip(': ')}: {violation}" for violation in error.violations)
    fail(f"{prefix}{error}")


def kind_named(word: str) -> Kind:
    try:
        return by_word(word)
    except UnknownKind as error:
        fail(str(error))
