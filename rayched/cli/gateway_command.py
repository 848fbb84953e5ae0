"""gateway, kubeconfig: kubectl and other clients of Kubernetes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from rayched.cli.options import Namespace, Server
from rayched.cli.printing import fail, note, out, wrong

_DEFAULT_LISTEN = "127.0.0.1:7620"

GatewayAddress = Annotated[str, typer.Option("--gateway", metavar="URL", help="Where the gateway listens.")]


def gateway(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen, on loopback; port 0: any.")
    ] = _DEFAULT_LISTEN,
    server: Server = None,
) -> None:
    """Serve the Kubernetes API to kubectl and others.

    It runs in the foreground, and what ends it ends nothing else. There is no TLS, and nobody is asked who they are: it is on
    loopback only, and every user of this host can do with the cluster what `rayched` can.
    """
    # Not at the top: the other commands shall not wait for the import of an HTTP server.
    import asyncio

    from rayched.gateway.gateway import GatewayError, run, settings_of

    try:
        settings = settings_of(listen, server)
    except GatewayError as error:
        wrong(str(error))
    try:
        asyncio.run(run(settings, lambda address: out(f"the Kubernetes API is served at http://{address}")))
    except GatewayError as error:
        fail(str(error))


def kubeconfig(
    gateway_address: GatewayAddress = f"http://{_DEFAULT_LISTEN}",
    namespace: Namespace = "default",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a new file; none: print it.", show_default=False),
    ] = None,
) -> None:
    """Print a kubeconfig for the gateway.

    rayched kubeconfig -o rayched.kubeconfig

    kubectl takes it by its option of that name, or by $KUBECONFIG.
    """
    from rayched.gateway.kubeconfig import kubeconfig as text_of

    found = urlsplit(gateway_address)
    if found.scheme not in ("http", "https") or not found.hostname or found.path not in ("", "/"):
        wrong(f"--gateway {gateway_address!r}: want a URL such as http://{_DEFAULT_LISTEN}")
    text = text_of(gateway_address.rstrip("/"), namespace)
    if output is None:
        out(text.rstrip("\n"))
        return
    try:
        # A file that is there may name other clusters.
        with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        wrong(f"--output {output}: is there already; name a new file, and $KUBECONFIG can list both")
    except OSError as error:
        fail(f"--output {output}: cannot be written ({error.strerror or error})")
    note(f"wrote {output}; use it with: kubectl --kubeconfig {output} get pods")
