"""How this replica is, as it tells by GetLeader: what it has seen, its memory, its certificate, its writes that were fenced."""

from __future__ import annotations

import os
from pathlib import Path

from rayched.server.peers import ServerTls
from rayched.store.refusals import fenced_writes
from rayched.v1.services_pb2 import ReplicaState


def replica_state(revision: int, tls: ServerTls | None, now: float) -> ReplicaState:
    """`revision`: what it has seen. `now`: seconds since 1970."""
    state = ReplicaState(revision=revision, memory_bytes=_resident_bytes(), fenced_writes=fenced_writes())
    if tls is not None:
        state.certificate_seconds_left = tls.certificate.facts.not_after - now
    return state


def _resident_bytes() -> int:
    """Of this process; 0 where the kernel does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
