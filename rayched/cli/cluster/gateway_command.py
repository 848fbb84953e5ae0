"""gateway, kubeconfig: kubectl and other clients of Kubernetes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from rayched.cli.cluster.serving_options import file_option, tls_files
from rayched.cli.context_option import chosen_context
from rayched.cli.options import Namespace, Server
from rayched.cli.printing import fail, note, out, wrong
from rayched.client.contexts import choose
from rayched.pki import private_files
from rayched.pki.client_token import TokenFiles
from rayched.pki.errors import PkiError
from rayched.replica.settings import GATEWAY_PORT_DISTANCE, SettingsError

_DEFAULT_LISTEN = "127.0.0.1:7620"
_LISTENS_SECONDS_MAX: Final = 1.0
_CONNECTIONS_PER_ADDRESS = 256
"""As GatewayLimits has it."""


def gateway(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; without certificates on loopback. Port 0: any.")
    ] = _DEFAULT_LISTEN,
    server: Server = None,
    tls_cert_file: Annotated[
        Path | None,
        file_option("--tls-cert-file", "The gateway's certificate, of kind web: with it, its key and --client-ca-file, TLS."),
    ] = None,
    tls_private_key_file: Annotated[Path | None, file_option("--tls-private-key-file", "Its key.")] = None,
    client_ca_file: Annotated[Path | None, file_option("--client-ca-file", "Authorities of callers and of replicas.")] = None,
    client_deny_list_file: Annotated[
        Path | None, file_option("--client-deny-list-file", "Serial numbers of revoked certificates.")
    ] = None,
    connections_per_address: Annotated[
        int, typer.Option(metavar="NUMBER", help="Of one address at a time; a watch has one of its own.", min=1)
    ] = _CONNECTIONS_PER_ADDRESS,
) -> None:
    """Serve the Kubernetes API, and a page to look at.

    It runs in the foreground, and what ends it ends nothing else. With a certificate of its own it asks the replicas in the name
    of whoever calls it, by the certificate that they show. Without one nobody is asked who they are: it is on loopback only, for
    replicas without certificates, and every user of this host can do with the cluster what `rayched` can.

    `rayched up` and `rayched demo` start one beside each replica.
    """
    # Not at the top: the other commands shall not wait for the import of an HTTP server.
    import asyncio

    from rayched.gateway.gateway import GatewayError, run, settings_of
    from rayched.gateway.limits import GatewayLimits

    try:
        tls = tls_files(tls_cert_file, tls_private_key_file, client_ca_file)
    except SettingsError as error:
        wrong(str(error))
    if client_deny_list_file is not None and tls is None:
        wrong(f"--client-deny-list-file {client_deny_list_file}: goes with --tls-cert-file alone")
    try:
        limits = GatewayLimits(connections_an_address=connections_per_address)
        settings = settings_of(listen, server, chosen_context(), tls, client_deny_list_file, limits)
    except GatewayError as error:
        wrong(str(error))
    try:
        asyncio.run(run(settings, _tell))
    except GatewayError as error:
        fail(str(error))


def _tell(url: str) -> None:
    out(f"the Kubernetes API is served at {url}")
    out(f"the page is at {url}/ui/")


def kubeconfig(
    gateway_addresses: Annotated[
        str | None,
        typer.Option(
            "--gateway",
            metavar="URL,...",
            help=f"Where gateways listen; none: beside the replicas, {GATEWAY_PORT_DISTANCE} ports on.",
            show_default=False,
        ),
    ] = None,
    namespace: Namespace = "default",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write this file, new or an earlier one of rayched's; none: print it.",
            show_default=False,
        ),
    ] = None,
    server: Server = None,
) -> None:
    """Print a kubeconfig for gateways.

    rayched kubeconfig -o rayched.kubeconfig

    kubectl takes it by its option of that name, or by $KUBECONFIG. It names the certificate or the token of the context that
    counts here, and has a context for each gateway: rayched, rayched-1 and so on. Current is the first one that listens.
    """
    from rayched.gateway.kubeconfig import context_name
    from rayched.gateway.kubeconfig import kubeconfig as text_of

    try:
        chosen = choose(server, chosen_context())
    except ValueError as error:
        wrong(str(error))
    if gateway_addresses is None and isinstance(chosen.files, TokenFiles):
        wrong(f"--gateway: is needed, as context {chosen.context} has a token, and its servers say where that is shown alone")
    if gateway_addresses is None:
        urls = [gateway_beside(endpoint, "http" if chosen.files is None else "https") for endpoint in chosen.endpoints]
    else:
        urls = [part.strip().rstrip("/") for part in gateway_addresses.split(",")]
    for url in urls:
        check_gateway(url)
    current = _first_that_listens(urls)
    text = text_of(urls, namespace, chosen.files if urls[0].startswith("https") else None, current or 0)
    if output is None:
        out(text.rstrip("\n"))
        return
    _write(output, text)
    note(f"wrote {output}; use it with")
    note(f"  kubectl --kubeconfig {output} get pods")
    if current is None:
        note(f"warning: no gateway listens at {', '.join(urls)} now")
    elif len(urls) > 1:
        other = context_name((current + 1) % len(urls))
        note("kubectl asks one replica; when that is lost")
        note(f"  kubectl --kubeconfig {output} config use-context {other}")


def _write(output: Path, text: str) -> None:
    """In place of an earlier one of rayched's alone: another file that is there may name other clusters."""
    from rayched.gateway.kubeconfig import is_own

    try:
        if not output.exists():
            private_files.create(output, text.encode())
        elif is_own(private_files.read(output).decode(errors="replace")):
            private_files.replace(output, text.encode())
        else:
            wrong(f"--output {output}: is there already, and not rayched's; name a new file, and $KUBECONFIG can list both")
    except PkiError as error:
        fail(f"--output {error}")


def _first_that_listens(urls: list[str]) -> int | None:
    for number, url in enumerate(urls):
        found = urlsplit(url)
        port = found.port or (443 if found.scheme == "https" else 80)
        try:
            socket.create_connection((found.hostname or "", port), _LISTENS_SECONDS_MAX).close()
        except OSError:
            continue
        return number
    return None


def gateway_beside(endpoint: str, scheme: str) -> str:
    """The URL of the gateway beside a replica."""
    host, _, port = endpoint.rpartition(":")
    return f"{scheme}://{host}:{int(port) + GATEWAY_PORT_DISTANCE}"


def check_gateway(url: str) -> None:
    """Ends the command where it is no place of a gateway."""
    try:
        found = urlsplit(url)
        has_place = bool(found.hostname) and (found.port is None or found.port > 0)
    except ValueError:
        has_place = False
    if not has_place or found.scheme not in ("http", "https") or found.path:
        wrong(f"--gateway {url!r}: want a URL such as https://{_DEFAULT_LISTEN}")
