"""The wheel in an environment of its own: built from the repository's files, installed beside what its metadata asks for.

No registry is needed: the packages that the metadata names are linked from this environment, and no others. As people
install it, `wheel_trial.py` does.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ("pyproject.toml", "setup.py", "MANIFEST.in", "LICENSE", "docs/installing.md", "rayched", "leader", "examples")
"""What the wheel is made of. The build works in a copy, as it leaves files beside its sources."""
_SECONDS_MAX: Final = 240.0
_OWN: Final = "rayched"


def built_wheel(directory: Path) -> Path:
    """Of the files as they are."""
    source = directory / "source"
    for name in SOURCES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(source))
    (found,) = directory.glob("rayched-*.whl")
    return found


@dataclass(frozen=True, slots=True)
class Installation:
    """An environment with the wheel."""

    directory: Path

    @property
    def python(self) -> str:
        return str(self.directory / "bin" / "python")

    @property
    def command(self) -> str:
        return str(self.directory / "bin" / "rayched")

    @property
    def packages(self) -> Path:
        (found,) = (self.directory / "lib").glob("python3.*/site-packages")
        return found

    def run(self, *words: str, where: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        """A program in an empty directory, that knows nothing of the repository."""
        done = subprocess.run(
            words, cwd=where, env=outside(where), capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done


def installed(wheel: Path, directory: Path, extras: tuple[str, ...] = ()) -> Installation:
    """The wheel with what it asks for, and with these extras."""
    venv.create(directory, with_pip=False, symlinks=True)
    _pip("--python", str(directory / "bin" / "python"), "install", "--no-deps", str(wheel))
    found = Installation(directory)
    (metadata,) = (importlib.metadata.Distribution.at(path) for path in found.packages.glob("rayched-*.dist-info"))
    names: set[str] = set()
    for requirement in _wanted(metadata, extras):
        _add(requirement, names)
    for name in names:
        _link(importlib.metadata.distribution(name), found.packages)
    return found


def outside(where: Path) -> dict[str, str]:
    """Variables of somebody who has no repository, with a home of their own."""
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR", "OPENBLAS_CORETYPE") if name in os.environ}
    return kept | {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(where), "COLUMNS": "80"}


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", *words, "--quiet", "--disable-pip-version-check", "--no-index"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)


def _wanted(distribution: importlib.metadata.Distribution, extras: tuple[str, ...]) -> Iterator[str]:
    for text in distribution.requires or ():
        name, _, condition = text.partition(";")
        wants_extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", condition)
        if wants_extra is None or wants_extra[1] in extras:
            yield name.strip()


def _add(requirement: str, names: set[str]) -> None:
    """The package and all that it asks for. One that is not here is for another platform or Python."""
    matched = re.match(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?", requirement)
    assert matched is not None, requirement
    name = re.sub(r"[-_.]+", "-", matched[1]).lower()
    if name in names:
        return
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return
    names.add(name)
    for one in _wanted(found, tuple((matched[2] or "").split(","))):
        _add(one, names)


def _link(distribution: importlib.metadata.Distribution, packages: Path) -> None:
    for file in distribution.files or ():
        if file.parts[0] == ".." or "__pycache__" in file.parts:
            continue
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(Path(str(distribution.locate_file(file))).resolve())
