"""The commit that this package was made of, as far as somebody knows it.

In this order: the checkout that it runs from, asked by git, with `-dirty` where files differ from the commit; what pip noted when
it installed from a repository; `$RAYCHED_COMMIT`, which whoever builds an image sets. Else `unknown`: nothing is guessed.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
from pathlib import Path
from typing import Final

import rayched

UNKNOWN: Final = "unknown"
VARIABLE: Final = "RAYCHED_COMMIT"
_GIT: Final = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
_GIT_SECONDS_MAX: Final = 5.0


def source_commit() -> str:
    """40 hexadecimal digits, with or without `-dirty`; what the variable says; or `unknown`."""
    root = Path(rayched.__file__).parents[1]
    return of_checkout(root) or of_installation(_noted_by_pip()) or os.environ.get(VARIABLE, "").strip() or UNKNOWN


def of_checkout(root: Path) -> str:
    """ "" where `root` is not the top of a checkout, as in site-packages, or git is not there."""
    if not (root / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            _GIT, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_GIT_SECONDS_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def of_installation(direct_url: str) -> str:
    """The commit in a text of direct_url.json (PEP 610); "" where it has none."""
    found = json.loads(direct_url or "{}")
    return str(found.get("vcs_info", {}).get("commit_id", ""))


def _noted_by_pip() -> str:
    return importlib.metadata.distribution("rayched").read_text("direct_url.json") or ""
