"""Commands of docs/operations.md, executed as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rayched.replica.etcd.etcd_binary import EtcdBinary

_PAGE: Final = Path(__file__).parents[1] / "docs" / "operations.md"


def steps(heading: str) -> str:
    """The console lines below a heading of the third level, as a script. Raises ValueError where there are none."""
    section = _section(heading)
    block = section.partition("```console\n")[2].partition("```")[0]
    if not block:
        raise ValueError(f"{_PAGE.name} has no commands below {heading}")
    return "\n".join(line.removeprefix("$ ") for line in block.splitlines())


def look(heading: str) -> str:
    """The first command within the text below a heading. Raises ValueError where there is none."""
    found = re.search(r"`(etcdctl [^`]+)`", _section(heading))
    if found is None:
        raise ValueError(f"{_PAGE.name} has no command in the text below {heading}")
    return found[1]


def execute(script: str, binary: EtcdBinary, endpoint: str, more: Mapping[str, str] | None = None) -> str:
    """What the script prints, run by bash with etcd's own programs. `more`: of its environment.

    Raises subprocess.CalledProcessError, TimeoutExpired.
    """
    environment = {
        **os.environ,
        "PATH": f"{binary.path.parent}:{os.environ['PATH']}",
        "ETCDCTL_API": "3",
        "ETCDCTL_ENDPOINTS": endpoint,
        **(more or {}),
    }
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(command, env=environment, check=True, timeout=120, capture_output=True, text=True).stdout


def _section(heading: str) -> str:
    return _PAGE.read_text().partition(f"### {heading}\n")[2].partition("\n### ")[0]
