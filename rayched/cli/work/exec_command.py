"""exec: a program in a container that runs, with the terminal's or a pipe's input and output."""

from __future__ import annotations

import os
import signal
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from tty import setraw
from typing import Annotated

import typer

from rayched.cli.connection import connected
from rayched.cli.options import NamespaceOfPod, Server
from rayched.cli.printing import note, raw, raw_error, wrong
from rayched.cli.references import DEFAULT_NAMESPACE
from rayched.cli.work.pod_references import container_of, pod_name, pod_of
from rayched.cli.work.stream_token import TokenFile, stream_token
from rayched.client.executing import ExecStream

_READ_BYTES = 32 << 10


def execute(
    name: Annotated[str, typer.Argument(metavar="POD", hidden=True)],
    command: Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND [ARG...]", hidden=True)] = None,
    container: Annotated[str, typer.Option("--container", "-c", metavar="NAME", help="The container.")] = "",
    namespace: NamespaceOfPod = DEFAULT_NAMESPACE,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass standard input on.")] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Allocate a terminal.")] = False,
    token_file: TokenFile = None,
    server: Server = None,
) -> None:
    """Run a program in a container.

    \b
      rayched exec web -- ls -l
      rayched exec web -c main -i -t -- sh
      tar c dir | rayched exec web -i -- tar x

    It runs as the container's own user, with its environment, and dies when this command ends. The exit code is the program's.
    Whoever executes has to know the token of the pod's node.
    """
    if not command:
        wrong("you must specify at least one command for the container")
    if tty and stdin and not os.isatty(0):
        note("Unable to use a TTY - input is not a terminal or the right kind of file")
        tty = False
    pod, token = pod_name(name, "have containers"), stream_token("--token-file", token_file)
    with connected(server) as client:
        found = container_of(pod_of(client, pod, namespace), container)
        size = _size() if tty else None
        with (
            client.exec(pod, command, namespace, container=found, stdin=stdin, tty=tty, size=size, token=token) as stream,
            _terminal(stream) if tty and stdin else nullcontext(),
        ):
            if stdin:
                threading.Thread(target=_pass_on, args=(stream,), name="stdin", daemon=True).start()
            for output in stream:
                (raw if output.stream == "stdout" else raw_error)(output.data)
    if stream.exit_code:
        note(f"command terminated with exit code {stream.exit_code}")
        raise SystemExit(stream.exit_code)


def _pass_on(stream: ExecStream) -> None:
    """Standard input, to its end."""
    while data := os.read(0, _READ_BYTES):
        stream.write(data)
    stream.end_input()


def _size() -> tuple[int, int] | None:
    """Columns and rows of the terminal; None where there is none."""
    for fd in (0, 1, 2):
        try:
            found = os.get_terminal_size(fd)
        except OSError:
            continue
        return found.columns, found.lines
    return None


@contextmanager
def _terminal(stream: ExecStream) -> Iterator[None]:
    """Keys go to the program as they are, and so does the size; all is as it was afterwards."""
    before = termios.tcgetattr(0)
    changed = threading.Event()
    ended = threading.Event()

    def pass_sizes_on() -> None:
        while changed.wait() and not ended.is_set():
            changed.clear()
            size = _size()
            if size is not None:
                stream.resize(*size)

    earlier = signal.signal(signal.SIGWINCH, lambda *_: changed.set())
    threading.Thread(target=pass_sizes_on, name="sizes", daemon=True).start()
    # What was typed before stays.
    setraw(0, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, earlier)
        ended.set()
        changed.set()
