"""Lock files: what they pin, by which hashes, and a bill of materials made from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_PINNED: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*==\s*([^\s;\\]+)")
_HASH: Final = re.compile(r"--hash=(\w+):([0-9a-f]+)")
_SHA256_DIGITS: Final = 64


@dataclass(frozen=True)
class PinnedPackage:
    """One version of a package in a lock file; it may have several, for different versions of Python."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of its files, hexadecimal."""
    file: str


@dataclass(frozen=True)
class LockFile:
    """What a file pins, and what is wrong with it line by line."""

    packages: tuple[PinnedPackage, ...]
    faults: tuple[str, ...]


def read_lock(path: Path) -> LockFile:
    """Every requirement is one version exactly, and has the hash of each file that may be installed for it."""
    packages: list[PinnedPackage] = []
    faults: list[str] = []
    for number, line in _statements(path.read_text()):
        found = _PINNED.match(line)
        if found is None:
            faults.append(f"{path.name}:{number}: pins nothing: {line[:80]}")
            continue
        kinds = {kind for kind, _ in _HASH.findall(line)}
        hashes = tuple(digest for kind, digest in _HASH.findall(line) if kind == "sha256" and len(digest) == _SHA256_DIGITS)
        if not hashes or kinds != {"sha256"}:
            faults.append(f"{path.name}:{number}: {found[1]}=={found[2]}: has no hashes of SHA-256, or others too")
        packages.append(PinnedPackage(normalised(found[1]), found[2], hashes, path.name))
    if not packages:
        faults.append(f"{path.name}: pins no package")
    return LockFile(tuple(packages), tuple(faults))


def normalised(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def disagreements(packages: Iterable[PinnedPackage], whole: Sequence[PinnedPackage]) -> list[str]:
    """Versions that the project's own lock does not have, which is where they are looked at."""
    known = {(one.name, one.version): set(one.hashes) for one in whole}
    faults = []
    for one in packages:
        hashes = known.get((one.name, one.version))
        if hashes is None:
            faults.append(f"{one.file}: {one.name}=={one.version} is not what the project's lock has")
        elif not set(one.hashes) <= hashes:
            faults.append(f"{one.file}: {one.name}=={one.version} has hashes that the project's lock does not have")
    return faults


def bill_of_materials(packages: Sequence[PinnedPackage], version: str) -> dict[str, Any]:
    """CycloneDX 1.5, as JSON has it: each version once, in the order of names."""
    first = {(one.name, one.version): one for one in reversed(packages)}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "rayched", "version": version}},
        "components": [
            {
                "type": "library",
                "name": one.name,
                "version": one.version,
                "purl": f"pkg:pypi/{one.name}@{one.version}",
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in one.hashes],
            }
            for _, one in sorted(first.items())
        ],
    }


def _statements(text: str) -> list[tuple[int, str]]:
    """Requirements with the number of their first line; continued lines are one."""
    found: list[tuple[int, str]] = []
    held, began = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.split(" #")[0].strip()
        if not bare or bare.startswith("#"):
            continue
        began = began or number
        held += f" {bare.removesuffix(chr(92)).strip()}"
        if not bare.endswith("\\"):
            found.append((began, held.strip()))
            held, began = "", 0
    return found
