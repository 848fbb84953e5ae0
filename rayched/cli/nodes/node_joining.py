"""How the agent of a node gets its certificate from the cluster itself: by a join token once, and over its own one then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rayched.cli.printing import fail, note, wrong
from rayched.client.contexts import NO_CONTEXT, choose
from rayched.client.endpoints import TOKEN_PORT
from rayched.pki.client_token import TokenFiles
from rayched.pki.errors import PkiError

if TYPE_CHECKING:
    from rayched.nodes.agent.own_certificate import NodeCertificate


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """As they were given."""

    join_token_file: Annotated[
        Path | None,
        typer.Option(
            "--join-token-file",
            metavar="FILE",
            help="Of `rayched pki join-token`: get a certificate with it, and renew that; not read where there is one already.",
            show_default=False,
        ),
    ] = None
    join_ca_file: Annotated[
        Path | None,
        typer.Option(
            "--join-ca-file", metavar="FILE", help="The cluster's ca.crt, which is trusted to join.", show_default=False
        ),
    ] = None
    join_server: Annotated[
        str,
        typer.Option(
            "--join-server",
            metavar="HOST:PORT,...",
            help=f"Where replicas take tokens (--token-listen); none: port {TOKEN_PORT} at the hosts of --server.",
            show_default=False,
        ),
    ] = ""

    def certificate(self, node: str, root: Path, server: str | None) -> NodeCertificate | None:
        """What the agent shows, once it is there; None: nobody asked for it. Ends the command where it is not to be had."""
        if self.join_token_file is None:
            if self.join_ca_file is not None or self.join_server:
                wrong("--join-ca-file and --join-server: go with --join-token-file alone")
            return None
        # Not at the top: agents that are told their certificate shall not wait for cryptography.
        from rayched.nodes.agent.own_certificate import JoinFault, NodeCertificate
        from rayched.pki import private_files

        found = NodeCertificate(root, node)
        try:
            servers = choose(server, NO_CONTEXT).endpoints
            if not found.is_there():
                if self.join_ca_file is None:
                    wrong(
                        "--join-token-file: needs --join-ca-file, the cluster's ca.crt: else anybody could say to be the cluster"
                    )
                private_files.make_directory(root)
                places = choose(self.join_server or _token_places(servers), NO_CONTEXT).endpoints
                found.join(places, TokenFiles(self.join_ca_file, self.join_token_file))
                note(f"node {node} has joined: its certificate is in {Path(found.context).parent}")
            found.write_context(servers)
        except (JoinFault, PkiError) as error:
            fail(str(error))
        except ValueError as error:
            wrong(str(error))
        return found


@contextmanager
def renewed(certificate: NodeCertificate | None, endpoints: tuple[str, ...]) -> Iterator[None]:
    """While inside, it is asked for anew before it expires."""
    if certificate is None:
        yield
        return
    certificate.start(endpoints)
    try:
        yield
    finally:
        certificate.stop()


def _token_places(servers: tuple[str, ...]) -> str:
    return ",".join(dict.fromkeys(f"{server.rpartition(':')[0]}:{TOKEN_PORT}" for server in servers))
