"""Inputs that once reached new code of a parser, kept as text: tests try them again, and a longer search begins with them.

A file for each parser below `corpus/`, one input a line: a string of JSON with a character for each byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from tests.hardening.secrets_in_tree import in_text

DIRECTORY: Final = Path(__file__).parent / "corpus"
KEPT_MAX: Final = 200
"""Of one parser."""
BYTES_MAX: Final = 512
"""Of one input."""


def kept(name: str, directory: Path = DIRECTORY) -> tuple[bytes, ...]:
    """Of the parser of this name; none where nobody has looked for any."""
    file = directory / f"{name}.txt"
    return tuple(json.loads(line).encode("latin-1") for line in file.read_text("ascii").splitlines()) if file.exists() else ()


def keep(name: str, found: Iterable[bytes], outcome: Callable[[bytes], str], directory: Path = DIRECTORY) -> int:
    """Writes the file anew; how many there are. Those with an outcome of their own go first, then the shortest ones.

    What looks like a secret is left out: nobody can tell that it is none.
    """
    short = sorted({data for data in found if _may_be_kept(data)}, key=lambda data: (len(data), data))
    firsts: dict[str, bytes] = {}
    for data in short:
        firsts.setdefault(outcome(data), data)
    rest = [data for data in short if data not in set(firsts.values())]
    chosen = sorted([*firsts.values(), *rest][:KEPT_MAX])
    directory.mkdir(exist_ok=True)
    lines = [json.dumps(data.decode("latin-1")) for data in chosen]
    (directory / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), "ascii")
    return len(chosen)


def _may_be_kept(data: bytes) -> bool:
    return len(data) <= BYTES_MAX and not any(in_text("", json.dumps(data.decode("latin-1"))))
