"""What `ray start` has no flag for. It calls the function named in RAY_START_HOOK with its parameters before all else."""

from __future__ import annotations

from typing import Any, Final

HOOK: Final = "rayched.replica.ray_start_hook.without_client_server"


def without_client_server(parameters: Any, _head: bool) -> None:
    """The server for drivers from elsewhere: 45 MB and a second of CPU, for nobody."""
    parameters.ray_client_server_port = None
