"""logs: what a container of a pod wrote, from the node that runs it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from rayched.cli.connection import connected
from rayched.cli.options import NamespaceOfPod, Server, seconds_of
from rayched.cli.printing import note, raw, wrong
from rayched.cli.references import DEFAULT_NAMESPACE
from rayched.cli.work.pod_references import container_names, container_of, pod_name, pod_of
from rayched.client.client import Client
from rayched.client.streaming import LogStream

_CONTAINERS_MAX = 16
"""Followed at a time."""


def logs(
    name: Annotated[str, typer.Argument(metavar="POD", hidden=True)],
    container: Annotated[str, typer.Option("--container", "-c", metavar="NAME", help="The container.")] = "",
    namespace: NamespaceOfPod = DEFAULT_NAMESPACE,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the container ends.")] = False,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Print the log of the previous attempt.")] = False,
    tail: Annotated[int, typer.Option("--tail", metavar="N", help="Print the last N lines; -1: all.")] = -1,
    since: Annotated[str, typer.Option("--since", metavar="DURATION", help="Print lines newer than 5s, 2m or 3h.")] = "",
    since_time: Annotated[str, typer.Option("--since-time", metavar="TIME", help="Print lines after a time in RFC 3339.")] = "",
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Begin each line with its time.")] = False,
    limit_bytes: Annotated[int, typer.Option("--limit-bytes", metavar="N", help="Print at most N bytes; 0: all.")] = 0,
    all_containers: Annotated[
        bool, typer.Option("--all-containers", help="Print the logs of all containers of the pod.")
    ] = False,
    server: Server = None,
) -> None:
    """Print what a container of a pod wrote.

    \b
      rayched logs web                    of its only container
      rayched logs web -c main -f         keep printing what comes
      rayched logs web -p --tail 20       the last lines of the attempt before
      rayched logs pod/web --since 5m --timestamps

    The text goes to standard output as it is. Logs lie on the pod's node, 50 MiB a container at most, until the pod is deleted;
    -f continues over a restart of the node's agent.
    """
    options = _options(tail, since, since_time, limit_bytes)
    if all_containers and container:
        wrong("--all-containers and --container: only one of them is possible")
    pod = pod_name(name, "have logs")
    with connected(server) as client:
        found = pod_of(client, pod, namespace)
        names = container_names(found) if all_containers else [container_of(found, container)]
        options |= {"follow": follow, "previous": previous, "timestamps": timestamps}
        printing = _Printing(client, pod, namespace, options)
        if follow and len(names) > 1:
            _all_at_once(printing, names)
        else:
            for one in names:
                printing.print(one)


class _Printing:
    """Prints whole entries, whichever container they are of."""

    def __init__(self, client: Client, pod: str, namespace: str, options: dict[str, Any]) -> None:
        self._client = client
        self._pod = pod
        self._namespace = namespace
        self._options = options
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._open: list[LogStream] = []
        self._is_closed = False

    def close(self) -> None:
        """Ends what is printed, in other threads as well."""
        with self._lock:
            self._is_closed = True
            for chunks in self._open:
                chunks.close()

    def print(self, container: str) -> None:
        """To the end of it, or until all are closed."""
        with self._client.logs(self._pod, self._namespace, container=container, **self._options) as chunks:
            with self._lock:
                if self._is_closed:
                    return
                self._open.append(chunks)
            for chunk in chunks:
                with self._turn:
                    if chunk.lost:
                        note(f"warning: lines of container {container} were removed by rotation before they could be read")
                    raw(chunk.data)


def _all_at_once(printing: _Printing, names: list[str]) -> None:
    if len(names) > _CONTAINERS_MAX:
        wrong(f"--all-containers: the pod has {len(names)} containers, at most {_CONTAINERS_MAX} can be followed")
    with ThreadPoolExecutor(len(names)) as threads:
        try:
            for done in as_completed([threads.submit(printing.print, one) for one in names]):
                done.result()
        finally:
            # Whatever ends one of them, or the command, ends all: a thread that follows would be waited for otherwise.
            printing.close()


def _options(tail: int, since: str, since_time: str, limit_bytes: int) -> dict[str, Any]:
    if tail < -1:
        wrong("--tail must be greater than or equal to -1")
    if limit_bytes < 0:
        wrong("--limit-bytes must be greater than 0")
    if since and since_time:
        wrong("at most one of --since and --since-time may be specified")
    found: dict[str, Any] = {}
    if tail >= 0:
        found["tail_lines"] = tail
    if limit_bytes:
        found["limit_bytes"] = limit_bytes
    if since:
        found["since_seconds"] = seconds_of("--since", since)
        if not found["since_seconds"]:
            wrong("--since must be greater than 0")
    if since_time:
        found["since_time"] = _moment(since_time)
    return found


def _moment(text: str) -> datetime:
    """In UTC, without a zone of its own, as protobuf takes it."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        wrong(f"--since-time {text!r}: want a time of RFC 3339, such as 2026-11-23T06:39:40Z")
    return found.astimezone(UTC).replace(tzinfo=None)
