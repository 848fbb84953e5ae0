"""With what a replica serves its API, and where it writes down who called: names after kube-apiserver's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rayched.pki.tls_files import TlsFiles
from rayched.replica.settings import SettingsError


def file_option(flag: str, help_text: str) -> Any:
    return typer.Option(flag, metavar="FILE", help=help_text, show_default=False)


@dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """As they were given."""

    tls_cert_file: Annotated[
        Path | None,
        file_option("--tls-cert-file", "The replica's certificate: with it, its key and --client-ca-file, mutual TLS."),
    ] = None
    tls_private_key_file: Annotated[Path | None, file_option("--tls-private-key-file", "Its key.")] = None
    client_ca_file: Annotated[Path | None, file_option("--client-ca-file", "Authorities of callers and of other replicas.")] = (
        None
    )
    client_deny_list_file: Annotated[
        Path | None, file_option("--client-deny-list-file", "Serial numbers of revoked certificates.")
    ] = None

    token_listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="A second port of the API, where callers show tokens in place of certificates; 7421 is usual.",
            show_default=False,
        ),
    ] = ""

    signer: Annotated[
        Path | None,
        typer.Option(
            "--signer",
            metavar="DIR",
            help="The authority's directory, with its ca.key: sign for join tokens and renewals; none: sign nothing.",
            show_default=False,
        ),
    ] = None

    insecure_loopback: Annotated[
        bool, typer.Option("--insecure-loopback", help="No certificates: whoever is on this host may do everything.")
    ] = False

    insecure_bind: Annotated[bool, typer.Option("--insecure-bind", hidden=True)] = False

    audit_log: Annotated[
        str,
        typer.Option(
            "--audit-log",
            metavar="FILE|-|off",
            help="Where each call is written down; -: the standard output; none: audit.jsonl in the data directory.",
            show_default=False,
        ),
    ] = ""

    audit_strict: Annotated[
        bool, typer.Option("--audit-strict", help="Refuse calls that change something while they cannot be written down.")
    ] = False

    def settings(self) -> dict[str, Any]:
        """As ReplicaSettings takes them. Raises SettingsError."""
        if self.insecure_bind:
            raise SettingsError(
                "--insecure-bind: is gone, as whoever reached the replica could do everything; beyond loopback it wants"
                " --tls-cert-file, --tls-private-key-file and --client-ca-file, which `rayched pki init` and `rayched pki issue"
                " replica NAME --san HOST --out DIR` make"
            )
        return {
            "tls": tls_files(self.tls_cert_file, self.tls_private_key_file, self.client_ca_file),
            "token_listen": self.token_listen,
            "signer": self.signer,
            "client_deny_list": self.client_deny_list_file,
            "insecure_loopback": self.insecure_loopback,
            "audit_log": self.audit_log,
            "audit_strict": self.audit_strict,
        }


def tls_files(certificate: Path | None, key: Path | None, ca: Path | None) -> TlsFiles | None:
    """None: there is no TLS. Raises SettingsError where some of them are missing."""
    if certificate is not None and key is not None and ca is not None:
        return TlsFiles(ca, certificate, key)
    given = {"--tls-cert-file": certificate, "--tls-private-key-file": key, "--client-ca-file": ca}
    missing = [flag for flag, path in given.items() if path is None]
    if len(missing) < len(given):
        there = " and ".join(flag for flag in given if flag not in missing)
        raise SettingsError(f"{there}: TLS needs {' and '.join(missing)} as well")
    return None
