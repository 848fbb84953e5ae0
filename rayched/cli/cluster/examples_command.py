"""examples: the manifests, plugins and programs that come with rayched, as files of the user's own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Final

import typer

import rayched
from rayched.cli.printing import fail, out, wrong

_NAME: Final = "examples"


def examples_directory() -> Path:
    """In the package, where that was installed from a wheel; else beside it, in the repository."""
    package = Path(rayched.__file__).parent
    inside = package / _NAME
    return inside if inside.is_dir() else package.parent / _NAME


def examples(
    directory: Annotated[Path, typer.Argument(metavar="DIR", hidden=True)] = Path(_NAME),
) -> None:
    """Write rayched's examples to a directory.

    \b
      rayched examples                        into ./examples
      rayched apply -f examples/
      python examples/python/submit_and_wait.py
    """
    if directory.exists():
        wrong(f"{directory} is there already; name another directory")
    try:
        shutil.copytree(examples_directory(), directory, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        fail(f"{directory}: {error.strerror or error}")
    out(f"{directory}/ is written; rayched apply -f {directory}/ submits its manifests")
