"""Where processes listen, as the kernel says."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

_LISTEN = "0A"


def listening(pids: Collection[int]) -> list[tuple[str, int]]:
    """Address and port of each TCP socket at which one of these processes listens; addresses as in /proc/net/tcp."""
    inodes = set()
    for pid in pids:
        for descriptor in Path("/proc", str(pid), "fd").iterdir():
            target = os.readlink(descriptor) if descriptor.is_symlink() else ""
            if target.startswith("socket:["):
                inodes.add(target[len("socket:[") : -1])
    found = []
    for table in ("tcp", "tcp6"):
        for row in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == _LISTEN and fields[9] in inodes:
                address, _, port = fields[1].partition(":")
                found.append((address, int(port, 16)))
    return found
