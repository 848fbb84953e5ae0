"""login: from a token to a certificate of half a day, so that the secret is in no file of this user and in no shell's history."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from rayched.api.moments import moment_text
from rayched.cli.context_option import chosen_context
from rayched.cli.options import Server
from rayched.cli.printing import fail, out, wrong
from rayched.client.contexts import (
    NO_CONTEXT,
    ChosenServers,
    ClientContext,
    choose,
    contexts_directory,
    use_context,
    write_context,
)
from rayched.client.endpoints import API_PORT, TOKEN_PORT
from rayched.pki import private_files
from rayched.pki.client_token import TokenFiles
from rayched.pki.errors import PkiError

_TOKEN_CHARACTERS_MAX: Final = 1_024


def login(
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="A bearer token; none: that of the context, or it is asked for, and read from standard input.",
            show_default=False,
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", metavar="FILE", help="The cluster's ca.crt; none: that of the context.", show_default=False),
    ] = None,
    token_server: Annotated[
        str,
        typer.Option(
            "--token-server",
            metavar="HOST:PORT,...",
            help=f"Where replicas take tokens (--token-listen); none: port {TOKEN_PORT} at the hosts of --server.",
            show_default=False,
        ),
    ] = "",
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Of the context; none: TRUST-DOMAIN-USER.", show_default=False)
    ] = "",
    server: Server = None,
) -> None:
    """Get a certificate with a token.

    A context with it is current from then on. It counts for 12 hours, and no longer than the token: when that is revoked it ends
    too. Its key is made here. It needs a replica that signs (`rayched replica --signer`).

    \b
      rayched login --server 10.0.0.11:7420 --ca-file ca.crt
      rayched login --token-file n.token --ca-file ca.crt --server 10.0.0.11:7420
    """
    from rayched.client.signing import NotCertified

    try:
        chosen = choose(server, chosen_context())
        by_context = chosen.files if isinstance(chosen.files, TokenFiles) and not server else None
        places = _places(chosen, token_server, by_context)
        servers = chosen.endpoints if by_context is None else _at_port(chosen.endpoints, API_PORT)
        ca = ca_file or (None if chosen.files is None else chosen.files.ca)
        if ca is None:
            wrong("--ca-file: is missing, and no context names the cluster's ca.crt: else anybody could say to be it")
        with _shown(ca, token_file, by_context) as files:
            _write(files, places, servers, name)
    except NotCertified as error:
        fail(f"no replica has signed: {error}")
    except PkiError as error:
        fail(str(error))
    except ValueError as error:
        wrong(str(error))


def _places(chosen: ChosenServers, token_server: str, by_context: TokenFiles | None) -> tuple[str, ...]:
    """Where tokens are taken."""
    if token_server:
        return choose(token_server, NO_CONTEXT).endpoints
    return chosen.endpoints if by_context is not None else _at_port(chosen.endpoints, TOKEN_PORT)


def _at_port(servers: tuple[str, ...], port: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{server.rpartition(':')[0]}:{port}" for server in servers))


@contextmanager
def _shown(ca: Path, token_file: Path | None, by_context: TokenFiles | None) -> Iterator[TokenFiles]:
    """The token in a file, which is gone afterwards where it was asked for."""
    if token_file is not None:
        yield TokenFiles(ca, token_file)
    elif by_context is not None:
        yield TokenFiles(ca, by_context.token)
    else:
        with tempfile.TemporaryDirectory(prefix="rayched-login-") as directory:
            path = Path(directory, "token")
            private_files.create(path, _asked().encode())
            yield TokenFiles(ca, path)


def _asked() -> str:
    """Not shown while it is typed."""
    if sys.stdin.isatty():
        return str(typer.prompt("Token", hide_input=True, err=True)).strip()
    return sys.stdin.readline(_TOKEN_CHARACTERS_MAX).strip()


def _write(files: TokenFiles, places: tuple[str, ...], servers: tuple[str, ...], name: str) -> None:
    """Key, certificate and context. Raises NotCertified, PkiError, ValueError."""
    # Not at the top: the other commands shall not wait for cryptography.
    from rayched.client.signing import certified
    from rayched.pki.held_certificate import HeldCertificate

    with tempfile.TemporaryDirectory(prefix="rayched-login-") as directory:
        # Whose it is, and so where it belongs, is known once it is there.
        held = HeldCertificate(Path(directory, "tls"))
        identity, until = certified(held, places, files)
        name = name or f"{identity.trust_domain}-{identity.name}"
        made = [private_files.read(one) for one in (held.files.ca, held.files.key, held.files.certificate)]
    place = contexts_directory().parent / "certificates" / name
    own = HeldCertificate(place).files
    # First, as it looks at the name.
    written = write_context(ClientContext(name, servers, own), make_current=False)
    for path in (place.parent, place):
        private_files.make_directory(path)
    for path, data in zip((own.ca, own.key, own.certificate), made, strict=True):
        private_files.replace(path, data)
    use_context(name)
    out(f"{identity} until {moment_text(until)}; context {name} in {written}, current from now on")
