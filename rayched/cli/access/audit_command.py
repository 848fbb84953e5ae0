"""audit verify: whether an audit log is as it was written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from rayched.access.audit_line import BEGINNING, LINE_BYTES_MAX, ChainEnd, end_of, verified
from rayched.cli.printing import fail, fail_all, out, wrong
from rayched.cli.short_options import KubectlCommand

audit = typer.Typer(help="Read a replica's audit log.", no_args_is_help=True, rich_markup_mode=None)
_FAULTS_TOLD = 20


@audit.callback()
def _about() -> None:
    """A group, though there is one command."""


@audit.command(cls=KubectlCommand)
def verify(
    path: Annotated[Path, typer.Argument(metavar="FILE", hidden=True)],
    since: Annotated[
        str, typer.Option(metavar="NUMBER:HASH", help="A line as it was printed here before: it has to be there still.")
    ] = "",
) -> None:
    """Tell whether a line was changed, moved or taken out.

    \b
      rayched audit verify /var/lib/rayched/audit.jsonl

    FILE is the log that is written to; the older ones beside it (FILE.1, FILE.2, ...) are read first. Printed is how many lines
    there are, and number and hash of the last one: keep it elsewhere and name it with --since, and a log that was written
    anew, or that was cut at its end, shows as well.
    """
    wanted = _line(since) if since else None
    files = [*reversed(_older(path)), path]
    faults: list[str] = []
    counted = _Lines(files, wanted)
    end = ChainEnd()
    try:
        for found in verified(counted):
            if isinstance(found, ChainEnd):
                end = found
            else:
                faults.append(f"{found.place}: {found.words}")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    if wanted is not None and not counted.has_met:
        faults.append(f"--since {since}: no such line is there")
    if faults:
        more = [f"and {len(faults) - _FAULTS_TOLD} more"] if len(faults) > _FAULTS_TOLD else []
        fail_all([*faults[:_FAULTS_TOLD], *more])
    out(f"{counted.count} lines in {len(files)} files, the last one is {end.number}:{end.digest}")


class _Lines:
    """The whole lines of the files with their places; what is being written has no line break yet, and is left out."""

    def __init__(self, files: Sequence[Path], wanted: ChainEnd | None) -> None:
        self._files = files
        self._wanted = wanted
        self.count = 0
        self.has_met = False
        """The line that is wanted."""

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        for path in self._files:
            with open(path, "rb") as file:
                number = 0
                while line := file.readline(LINE_BYTES_MAX + 2):
                    number += 1
                    if not line.endswith(b"\n") and len(line) <= LINE_BYTES_MAX:
                        break
                    whole = line.removesuffix(b"\n")
                    self.count += 1
                    self.has_met = self.has_met or (self._wanted is not None and end_of(whole) == self._wanted)
                    yield f"{path}:{number}", whole


def _older(path: Path) -> list[Path]:
    """Those that were turned over, the youngest first."""
    found: list[Path] = []
    while (older := path.with_name(f"{path.name}.{len(found) + 1}")).exists():
        found.append(older)
    return found


def _line(text: str) -> ChainEnd:
    number, _, digest = text.partition(":")
    if not number.isdecimal() or len(digest) != len(BEGINNING) or set(digest) - set("0123456789abcdef"):
        wrong(f"--since {text!r}: want NUMBER:HASH, as rayched audit verify prints it")
    return ChainEnd(int(number), digest)
