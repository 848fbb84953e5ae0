"""The token that exec and port-forward need: in a file that its owner alone may read, the same for the node's agent and for
whoever reaches into its pods."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Annotated, Final

import typer

from rayched.cli.printing import wrong

_LENGTH_MIN: Final = 16
_LENGTH_MAX: Final = 4096

TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        envvar="RAYCHED_TOKEN_FILE",
        help="The token of the pod's node (`rayched node --stream-token-file`).",
        show_default=False,
    ),
]


def stream_token(option: str, path: Path | None) -> str:
    """Empty without a file. Ends the command where the file is not what it has to be."""
    if path is None:
        return ""
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8").strip() if stat.S_ISREG(mode) else ""
    except (OSError, UnicodeDecodeError) as error:
        wrong(f"{option} {path}: cannot be read ({getattr(error, 'strerror', None) or 'it is no text'})")
    if stat.S_IMODE(mode) & 0o077:
        wrong(f"{option} {path}: has mode {stat.S_IMODE(mode):04o}, want 0600: its owner alone may read it")
    if not _LENGTH_MIN <= len(text) <= _LENGTH_MAX or not text.isprintable():
        wrong(f"{option} {path}: found {len(text)} characters, want a token of {_LENGTH_MIN} to {_LENGTH_MAX} printable ones")
    return text
