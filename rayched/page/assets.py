"""The page's files, as they lie in the package; read once.

All have one version in their address, a hash over all of them: modules name each other by relative addresses, and a page that
is open while rayched is replaced finds out by it that there is another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

INDEX: Final = "index.html"
_VERSION_MARK: Final = b"{{version}}"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
_VERSION_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class PageAsset:
    body: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class PageAssets:
    """By the path below static/."""

    version: str
    files: Mapping[str, PageAsset]

    @property
    def index(self) -> PageAsset:
        return self.files[INDEX]


def read_assets() -> PageAssets:
    found = dict(_below(resources.files("rayched.page") / "static", ""))
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(f"{name} {len(found[name])} ".encode() + found[name])
    version = digest.hexdigest()[:_VERSION_DIGITS]
    files = {}
    for name, body in found.items():
        body = body.replace(_VERSION_MARK, version.encode()) if name == INDEX else body
        files[name] = PageAsset(body, _TYPES[name.rpartition(".")[2]])
    return PageAssets(version, files)


def _below(folder: Traversable, place: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        name = f"{place}{entry.name}"
        if entry.is_dir():
            found += _below(entry, f"{name}/")
        elif entry.name.rpartition(".")[2] in _TYPES:
            found.append((name, entry.read_bytes()))
    return found
