"""port-forward: ports of a pod as ports of this host."""

from __future__ import annotations

import contextlib
import re
from typing import Annotated, Final

import typer

from rayched.cli.connection import connected, tell
from rayched.cli.options import NamespaceOfPod, Server
from rayched.cli.printing import fail, out, wrong
from rayched.cli.references import DEFAULT_NAMESPACE
from rayched.cli.work.pod_references import pod_name, pod_of
from rayched.cli.work.stream_token import TokenFile, stream_token

_PORTS: Final = re.compile(r"(?:(\d{0,5}):)?(\d{1,5})")


def port_forward(
    name: Annotated[str, typer.Argument(metavar="POD", hidden=True)],
    ports: Annotated[list[str], typer.Argument(metavar="[LOCAL:]REMOTE", hidden=True)],
    namespace: NamespaceOfPod = DEFAULT_NAMESPACE,
    address: Annotated[str, typer.Option("--address", metavar="IP", help="Of this host, to listen at.")] = "127.0.0.1",
    token_file: TokenFile = None,
    server: Server = None,
) -> None:
    """Make ports of a pod ports of this host.

    \b
      rayched port-forward web 8080:80   what connects to 8080 here reaches 80
      rayched port-forward web 80        the same port here
      rayched port-forward web :80 :443  ports that are free here

    It goes on until Ctrl-C. Pods have their host's network, so a port is one of the pod's host. Whoever forwards has to know the
    token of the pod's node.
    """
    wanted = [_pair(text) for text in ports]
    pod, token = pod_name(name, "have ports"), stream_token("--token-file", token_file)
    with connected(server) as client, contextlib.ExitStack() as open_ports:
        found = pod_of(client, pod, namespace)
        if found.status.phase != "Running":
            fail(f"unable to forward port because pod is not running. Current status={found.status.phase or 'Pending'}")
        forwarders = []
        for local, remote in wanted:
            try:
                forwarder = client.port_forward(
                    pod,
                    remote,
                    namespace,
                    local_port=local,
                    address=address,
                    token=token,
                    failed=tell,
                    accepted=_handling,
                )
            except OSError as error:
                fail(f"cannot listen on {address}:{local}: {error.strerror or error}")
            forwarders.append(open_ports.enter_context(forwarder))
            out(f"Forwarding from {address}:{forwarder.port} -> {remote}")
        forwarders[0].wait()


def _handling(port: int) -> None:
    out(f"Handling connection for {port}")


def _pair(text: str) -> tuple[int, int]:
    """(port here, 0: one that is free; port of the pod)."""
    found = _PORTS.fullmatch(text)
    remote = int(found[2]) if found else 0
    local = (int(found[1] or 0) if found[1] is not None else remote) if found else 0
    if not 0 < remote < 1 << 16 or not local < 1 << 16:
        wrong(f"port {text!r}: want [LOCAL:]REMOTE, each of 1 to 65535")
    return local, remote
