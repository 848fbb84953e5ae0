"""token: bearer tokens for programs that have no certificate. The secret is printed once, alone, or written to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rayched.access.tokens import DAY
from rayched.api.moments import moment_text
from rayched.cli.access.access_commands import subject_uri
from rayched.cli.connection import acting, connected
from rayched.cli.context_option import with_context_option
from rayched.cli.options import Server
from rayched.cli.printing import fail, note, out, plain_table
from rayched.cli.short_options import KubectlCommand, KubectlGroup
from rayched.pki import private_files
from rayched.pki.errors import PkiError
from rayched.v1.access_pb2 import IssueTokenResponse, Token

token = typer.Typer(cls=KubectlGroup, help="Make, show and revoke bearer tokens.", no_args_is_help=True, rich_markup_mode=None)

For = Annotated[str, typer.Option("--for", metavar="SUBJECT", help="Whom it stands for; none: who asks.", show_default=False)]
OutFile = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="A new file for it, which others cannot read.", show_default=False)
]
"""Of a token."""


@token.command("create", cls=KubectlCommand)
@with_context_option
def create(
    subject: For = "",
    days: Annotated[int, typer.Option(metavar="N", help="How long it counts.", min=1, max=365)] = 30,
    words: Annotated[str, typer.Option("--note", metavar="TEXT", help="What it is for.", show_default=False)] = "",
    file: OutFile = None,
    server: Server = None,
) -> None:
    """Make a token, and print it: it cannot be shown again.

    It lets what the identity may that it stands for, and whoever made it. Who calls with a token makes none.

    \b
      rayched token create --days 7 --note 'nightly build' --out nightly.token
      rayched token create --for ci
    """
    with connected(server) as client:
        issued = client.issue_token(subject_uri(client, subject) if subject else "", days * DAY, words)
    hand_out(issued, file)


def hand_out(issued: IssueTokenResponse, file: Path | None) -> None:
    """The one time that it can be seen: printed, or written to a new file. Ends the command where that cannot be written."""
    found = issued.token
    if file is None:
        out(issued.secret)
    else:
        try:
            private_files.create(file, f"{issued.secret}\n".encode())
        except PkiError as error:
            fail(f"--out {error}; the token is lost: `rayched token revoke {found.id} --for {found.subject}`")
    note(f"token/{found.id} stands for {found.subject} until {moment_text(found.expires_at_ms / 1e3)}")


@token.command("list", cls=KubectlCommand)
@with_context_option
def list_tokens(
    subject: For = "",
    everybody: Annotated[bool, typer.Option("--all", help="Those of all identities.")] = False,
    server: Server = None,
) -> None:
    """Show tokens, your own, or somebody's.

    \b
      rayched token list
      rayched token list --all
    """
    with connected(server) as client:
        uri = subject_uri(client, subject) if subject else client.who_am_i().identity
        found = client.tokens("" if everybody else uri)
    if not found:
        note("No tokens found")
        return
    plain_table(["ID", "SUBJECT", "MADE BY", "MADE", "EXPIRES", "NOTE"], [_row(one) for one in found])


@token.command("revoke", cls=KubectlCommand)
@with_context_option
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID", hidden=True)],
    subject: For = "",
    server: Server = None,
) -> None:
    """End tokens, by the ids that the list shows.

    \b
      rayched token revoke k3v9x2pq
      rayched token revoke k3v9x2pq --for ci
    """
    with acting(server) as (client, failures):
        uri = subject_uri(client, subject) if subject else ""
        for id in ids:
            with failures.told():
                client.revoke_token(id.removeprefix("token/"), uri)
                out(f"token/{id.removeprefix('token/')} revoked")


def _row(one: Token) -> list[str]:
    times = [moment_text(one.made_at_ms / 1e3), moment_text(one.expires_at_ms / 1e3)]
    return [one.id, one.subject, one.maker, *times, one.note or "<none>"]
