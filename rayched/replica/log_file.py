"""A log file that a process of ours appends to and never closes, kept within a size while it does.

What lies in it is copied to a second file beside it, which replaces the last one, and it is cut to nothing: the process has
opened it for appending, so its next line comes at the beginning. Lines that are written between the last look and the cut are
lost, and all of them where there is no room for a copy: the log must not be what keeps a disk full.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

LOG_BYTES_MAX: Final = 8 << 20


def former(path: Path) -> Path:
    """Where the part that was cut off last lies."""
    return path.with_name(path.name + ".1")


def cut(path: Path, bytes_max: int = LOG_BYTES_MAX) -> bool:
    """Cuts a log that is larger; whether it was. Raises OSError."""
    if not path.exists() or path.stat().st_size <= bytes_max:
        return False
    unfinished = path.with_name(path.name + ".new")
    try:
        with path.open("rb") as source, unfinished.open("wb") as copy:
            shutil.copyfileobj(source, copy)
        unfinished.replace(former(path))
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    finally:
        os.truncate(path, 0)
    return True
