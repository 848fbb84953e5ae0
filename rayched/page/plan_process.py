"""`python -m rayched.page.plan_process OPTIONS` becomes `rayched plan OPTIONS`, with bounded memory and behind all other work."""

from __future__ import annotations

import os
import resource
import sys
from typing import Final

MEMORY_BYTES_MAX: Final = 1 << 30
_NICE: Final = 19


def main() -> None:
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    os.execv(sys.executable, [sys.executable, "-m", "rayched.cli.main", "plan", *sys.argv[1:]])


if __name__ == "__main__":
    main()
