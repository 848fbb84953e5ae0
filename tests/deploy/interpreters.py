"""The Pythons of this machine: on $PATH, and where pyenv and uv keep theirs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
OTHER_VERSIONS: Final = tuple(one for one in VERSIONS if one != f"{sys.version_info.major}.{sys.version_info.minor}")
"""Than this Python's."""
_SECONDS_MAX: Final = 60.0
_PROGRAM: Final = "import ensurepip, ssl, sys; print('%d.%d' % sys.version_info[:2])"
"""Debian leaves `ensurepip` to a package of its own, and without it there is no environment with pip."""


def interpreter(version: str) -> str | None:
    """The program of a Python of this version, "3.12" for example, that makes environments; None where there is none."""
    return next((one for one in _candidates(version) if _is_python(one, version)), None)


def _candidates(version: str) -> Iterator[str]:
    name = f"python{version}"
    if found := shutil.which(name):
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for place in (pyenv / "versions", Path.home() / ".local" / "share" / "uv" / "python"):
        yield from (str(one) for one in sorted(place.glob(f"*/bin/{name}")))


def _is_python(program: str, version: str) -> bool:
    """pyenv leaves a program of each name, which may say that it is no Python."""
    done = subprocess.run([program, "-c", _PROGRAM], capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    return done.returncode == 0 and done.stdout.strip() == version
