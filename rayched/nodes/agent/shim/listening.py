"""The socket that a shim is spoken to by."""

from __future__ import annotations

import os
import socket


def listening(directory: str) -> socket.socket:
    """At `sock` of the directory, whose path may be longer than a socket's address can be."""
    there = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    path = f"/proc/self/fd/{there}/sock"
    try:
        if os.path.lexists(path):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
    finally:
        os.close(there)
    os.chmod(os.path.join(directory, "sock"), 0o600)
    listener.listen(16)
    return listener
