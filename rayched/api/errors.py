"""What is wrong with one field of an object: a path and a sentence, as a value.

Reading, defaulting and validating never stop at the first fault; they collect FieldErrors. A path is written as in
`spec.containers[0].resources.requests["cpu"]`; fields have their JSON names, keys of maps are quoted.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rayched.api.printable import one_line

MAX_SHOWN_CHARACTERS = 80
"""A value in a message is cut down to this length, so that an error about a large value stays one line."""

MAX_LINE_CHARACTERS: Final = 1_000
"""The same of a whole message."""

NEAR: Final = 0.75
"""Of 1: how much alike a name is that may have been meant."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """A field's path and what is wrong with its value; the path "" means the object as a whole."""

    path: str
    message: str
    raised: BaseException | None = field(default=None, compare=False)
    """What somebody else's code raised, for the log; the message has it in words."""
    unknown: bool = field(default=False, compare=False)
    """There is no such field; what is said of it is not about its value."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ManifestErrors(ValueError):
    """All that is wrong with a manifest: never empty."""

    def __init__(self, errors: Sequence[FieldError], source: str = "") -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = tuple(errors)
        self.source = source


def join(path: str, field: str) -> str:
    """The path of a field of the message at `path`."""
    return f"{path}.{field}" if path else field


def key_of(path: str, key: str) -> str:
    """The path of a map's entry."""
    return f"{path}[{quoted(key)}]"


def quoted(text: str) -> str:
    """Text in double quotes, on one line, cut down when it is long."""
    if len(text) > MAX_SHOWN_CHARACTERS:
        text = text[:MAX_SHOWN_CHARACTERS] + "..."
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in escaped) + '"'


def bounded_line(text: str) -> str:
    """A message with text of others in it as one printable line, cut down when it is long."""
    line = one_line(text[: MAX_LINE_CHARACTERS + 1])
    return line if len(line) <= MAX_LINE_CHARACTERS else f"{line[:MAX_LINE_CHARACTERS]}..."


def one_of(allowed: Sequence[str]) -> str:
    """A list of what is allowed, for messages: `"A", "B" or "C"`."""
    names = [f'"{name}"' for name in allowed]
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]


def nearest(name: str, known: Iterable[str]) -> str:
    """The one that may have been meant by a name that nobody knows; empty where none is like it."""
    close = difflib.get_close_matches(name[:MAX_SHOWN_CHARACTERS], list(known), n=1, cutoff=NEAR)
    return close[0] if close else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What follows upon a name that nobody knows: the nearest one; empty where there is none."""
    close = nearest(name, known)
    return f"; did you mean {quoted(close)}?" if close else ""
