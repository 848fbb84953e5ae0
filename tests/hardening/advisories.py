"""Holes of dependencies that are known here, by version: a table in the tree, so that no network is needed.

It says what was known when it was written. Where pip-audit is installed `make audit` asks that as well (`__main__.py`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.hardening.locks import PinnedPackage, normalised

FILE: Final = Path(__file__).with_name("advisories.toml")
Version = tuple[int, ...]


@dataclass(frozen=True)
class KnownHole:
    """Of a package, in versions before `fixed`; empty: in all."""

    id: str
    package: str
    fixed: str
    what: str
    accepted: str = ""
    """Why it is lived with; empty: it is not."""

    def is_in(self, package: PinnedPackage) -> bool:
        return package.name == self.package and (not self.fixed or version_of(package.version) < version_of(self.fixed))


def read_holes(text: str | None = None) -> list[KnownHole]:
    """Raises ValueError for an entry that is none."""
    table: dict[str, Any] = tomllib.loads(FILE.read_text() if text is None else text)
    found = []
    for entry in table["hole"]:
        if set(entry) - {"accepted"} != {"id", "package", "fixed", "what"}:
            raise ValueError(f"{FILE.name}: {entry.get('id', '?')}: want id, package, fixed, what, and perhaps accepted")
        found.append(KnownHole(**entry | {"package": normalised(entry["package"])}))
    return found


def version_of(text: str) -> Version:
    """As far as it is numbers: 1.2.3rc1 is 1.2.3."""
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    if numbers is None:
        raise ValueError(f"version {text!r}: want one that begins with a number")
    found = [int(part) for part in numbers[0].split(".")]
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def open_holes(packages: Iterable[PinnedPackage], holes: Iterable[KnownHole]) -> tuple[list[str], list[str]]:
    """Faults, and what is accepted with the reason; a line each."""
    known, faults, accepted = list(holes), [], []
    for package in packages:
        for hole in known:
            if hole.is_in(package):
                line = f"{package.file}: {package.name}=={package.version}: {hole.id}: {hole.what}"
                if hole.accepted:
                    accepted.append(f"{line}; accepted: {hole.accepted}")
                else:
                    faults.append(f"{line}; {f'fixed in {hole.fixed}' if hole.fixed else 'in every version'}")
    return faults, accepted
