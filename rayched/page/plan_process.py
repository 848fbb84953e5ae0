"""`python -m rayched.page.plan_process OPTIONS` becomes `rayched plan OPTIONS`, with bounded memory and a low priority."""

from __future__ import annotations

import os
import resource
import sys
from typing import Final

MEMORY_BYTES_MAX: Final = 1 << 30
_NICE: Final = 10
"""A tenth of what others get: what is nicer still comes to no end within its time on a host that has work for all processors."""


def main() -> None:
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    os.execv(sys.executable, [sys.executable, "-m", "rayched.cli.main", "plan", *sys.argv[1:]])


if __name__ == "__main__":
    main()
