"""Runs commands of podman for the agent, which waits for each of them, or ends it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_LOOK_SECONDS: Final = 0.1
_ENVIRONMENT: Final = (
    *("PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF", "REGISTRY_AUTH_FILE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
"""What podman itself has of the agent's environment; containers have none of it."""


@dataclass(frozen=True, slots=True)
class PodmanAnswer:
    """`text`: what it printed; `fault`: the last line of its errors."""

    code: int
    text: str
    fault: str


class PodmanCancelled(Exception):
    """Nobody waits for it any more; it was killed."""


def never() -> bool:
    return False


class PodmanClient:
    """`binary`: the path of podman, or of what speaks as it does."""

    def __init__(self, binary: str, environ: Mapping[str, str] = os.environ) -> None:
        self.binary = binary
        self.environment = {name: environ[name] for name in _ENVIRONMENT if name in environ}

    def run(self, *arguments: str, seconds: float, is_cancelled: Callable[[], bool] = never) -> PodmanAnswer:
        """Blocks. After so many seconds it is killed, which is a fault like others. Raises PodmanCancelled."""
        command, ends_at = [self.binary, *arguments], time.monotonic() + seconds
        try:
            process = subprocess.Popen(
                command,
                env=self.environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            return PodmanAnswer(127, "", f"{self.binary}: {error.strerror}")
        with process:
            while True:
                try:
                    text, errors = process.communicate(timeout=_LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    if is_cancelled():
                        process.kill()
                        raise PodmanCancelled from None
                    if time.monotonic() >= ends_at:
                        process.kill()
                        return PodmanAnswer(124, "", f"podman {arguments[0]} did not end within {seconds:g} s")
                else:
                    return PodmanAnswer(process.returncode, text, _fault(errors))


def _fault(errors: Sequence[str] | str) -> str:
    lines = [line.strip() for line in str(errors).splitlines() if line.strip()]
    return lines[-1].removeprefix("Error: ") if lines else ""
