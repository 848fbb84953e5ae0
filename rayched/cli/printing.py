"""What the command prints: tables that adapt to what is in them, errors in one line, progress where something takes long.

Standard output carries results, standard error everything else, so that a pipe gets results alone.

Nothing that is printed here reaches a terminal raw, but for what programs in containers wrote (`raw`): what is not printable is
escaped (api/printable.py). Line breaks are the command's own, except in the cells of tables and in notes, which are one line each
whatever text they show. So whoever puts text of an object into lines of its own passes it through `shown`.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn, TextIO

from rayched.api import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

GAP = 3
"""Blanks between columns, as kubectl has."""

_BELOW = "    "
_FOLDED_MIN = 16
"""Characters that a last column has on the terminal, at least, to be folded there: most names of plugins have no more."""

_CLEAR = "\x1b[H\x1b[J"

_bars: list[Console] = []
"""Of the progress bars that are on the terminal: what is said meanwhile stands above them."""

shown = printable.one_line
"""Text of an object, or any other that came from outside, as part of a line."""


def out(text: str) -> None:
    """A result, of one line or several."""
    _write(printable.lines(text if text.endswith("\n") else text + "\n"))


def out_text(text: str) -> None:
    """A result as it is, without a line break of the command's own; as with kubectl's templates, which write tabs."""
    _write(printable.tabbed_lines(text))


def out_json(text: str) -> None:
    """A JSON document."""
    _write(printable.json_text(text if text.endswith("\n") else text + "\n"))


def raw(data: bytes) -> None:
    """What a program of the user's own wrote, as it is, also to a terminal."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def raw_error(data: bytes) -> None:
    """The same, of its standard error."""
    sys.stderr.flush()
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def clear_screen() -> None:
    _write(_CLEAR)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def note(text: str) -> None:
    """Something a person may want to know, in one line; not part of the result.

    One that is longer than the terminal is broken between words, so that names stay whole.
    """
    _say(broken_between_words(shown(text), sys.stderr))


def out_sentence(text: str, indent: str = "") -> None:
    """A result in words, in one line; one that is longer than the terminal is broken between words."""
    out(broken_between_words(shown(text), sys.stdout, indent))


def broken_between_words(line: str, stream: TextIO, indent: str = "") -> str:
    """`line` behind `indent`, in lines as wide as the terminal that `stream` is; as it is where that is none."""
    return _filled(line, _columns(stream), indent, indent) if stream.isatty() else indent + line


def folded(line: str, start: int) -> str:
    """A line of a table whose last column begins at `start`, for a terminal that is narrower.

    Where the other columns fit, the last one is folded in itself, or stands below where there is too little room for that. A
    table that is wider still stays as it is, as kubectl's do.
    """
    if len(line) <= start or not sys.stdout.isatty():
        return line
    columns = _columns(sys.stdout)
    if len(line) <= columns or start - GAP > columns:
        return line
    if columns - start >= _FOLDED_MIN:
        return _filled(line[start:], columns, line[:start], " " * start)
    return f"{line[:start].rstrip()}\n{_filled(line[start:], columns, _BELOW, _BELOW)}"


def _columns(stream: TextIO) -> int:
    # Not at the top: most commands break nothing.
    import shutil

    columns = shutil.get_terminal_size().columns
    if not os.environ.get("COLUMNS"):
        # Where results go into a pipe, only standard error knows how wide the terminal is.
        with suppress(OSError, ValueError):
            columns = os.get_terminal_size(stream.fileno()).columns or columns
    return columns


def _filled(text: str, columns: int, first: str, others: str) -> str:
    import textwrap

    return textwrap.fill(
        text, columns, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def _say(text: str) -> None:
    """Without rich where no bar is: most commands say little, and its import takes longer than that."""
    if _bars:
        _bars[-1].print(text, markup=False)
        return
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def fail(text: str, code: int = 1) -> NoReturn:
    """Ends the command with one line on standard error."""
    note(f"error: {' '.join(text.split())}")
    raise SystemExit(code)


@contextmanager
def failing_with(code: int) -> Iterator[None]:
    """Whatever fails inside ends the command with this code, where 1 has a meaning of its own."""
    try:
        yield
    except SystemExit:
        raise SystemExit(code) from None


def wrong(text: str) -> NoReturn:
    """Ends the command, whose options are wrong, alone or together, with one line on standard error."""
    fail(text, code=2)


def fail_all(texts: Iterable[str], raised: Iterable[BaseException] = ()) -> NoReturn:
    """Ends the command with one line for each of several errors; RAYCHED_TRACEBACK shows what was `raised` before them."""
    if os.environ.get("RAYCHED_TRACEBACK"):
        for problem in raised:
            _say(printable.lines("".join(traceback.format_exception(problem))))
    for text in texts:
        note(f"error: {' '.join(text.split())}")
    raise SystemExit(1)


def widths(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[int]:
    """Of cells as they are `shown`."""
    found = [len(heading) for heading in headings]
    for row in rows:
        found = [max(width, len(shown(cell))) for width, cell in zip(found, row, strict=True)]
    return found


def line(row: Sequence[str], column_widths: Sequence[int], indent: str = "") -> str:
    """One row of a plain table; the last column is not padded, and folded on a terminal."""
    cells = [shown(cell) for cell in row]
    padded = [cell.ljust(width + GAP) for cell, width in zip(cells, column_widths, strict=True)]
    before = "".join([indent, *padded[:-1]])
    return folded(before + cells[-1], len(before))


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, show_headings: bool = True) -> None:
    """A table in kubectl's looks, without lines."""
    table = [headings, *rows] if show_headings else rows
    column_widths = widths(["" for _ in headings], table)
    if table:
        out("\n".join(line(row, column_widths) for row in table))


class GrowingTable:
    """A table whose rows come one by one: a column widens with what comes and never shrinks, so no two cells ever touch."""

    def __init__(self, columns: int) -> None:
        self._widths = [0] * columns

    def print(self, rows: Sequence[Sequence[str]]) -> None:
        """Rows that are known together are measured together."""
        for row in rows:
            self._widths = [max(width, len(shown(cell))) for width, cell in zip(self._widths, row, strict=True)]
        if rows:
            out("\n".join(line(row, self._widths) for row in rows))


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def figures(title: str, rows: Iterable[tuple[str, str]]) -> None:
    """A table of names and values, as the demo and the benchmarks end with."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, show_header=False, title_justify="left", min_width=len(title))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(shown(name), shown(value))
    Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 120).print(table)


class Bar:
    """A progress bar on standard error, or none, where that is no terminal."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar

    def advance(self, by: float = 1) -> None:
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], by)

    def reach(self, done: float) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)


@contextmanager
def progress(text: str, total: int) -> Iterator[Bar]:
    if not sys.stderr.isatty():
        yield Bar(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    # Results are printed above the bar where both share a terminal; where results go to a file, they must still go there.
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        bar.add_task(text, total=total)
        _bars.append(console)
        try:
            yield Bar(bar)
        finally:
            _bars.remove(console)


def nothing_found(namespace: str) -> None:
    note(f"No resources found in {namespace} namespace." if namespace else "No resources found")
