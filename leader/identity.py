"""Names for candidates, unique to a process as an election demands."""

from __future__ import annotations

import socket
import uuid


def unique_identity() -> str:
    """hostname_uuid, as kube-scheduler makes it: two processes of one host never share it."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def new_instance() -> str:
    """Tells this run from any other run of the same identity."""
    return uuid.uuid4().hex
