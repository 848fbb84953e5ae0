"""Secrets that lie in the tree: keys in PEM, tokens of known forms, and long random texts that are given a name of a secret."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_FORMS: Final = {
    "a private key": re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s*\n[A-Za-z0-9+/=\s]{40,}"),
    "a token of rayched": re.compile(r"\brt_[A-Za-z0-9_-]{8}_[A-Za-z0-9_-]{43}\b"),
    "an access key of AWS": re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    "a token of GitHub": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60,})\b"),
    "a token of Slack": re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{20,}\b"),
    "a key of Google": re.compile(r"\bAIza[A-Za-z0-9_-]{35}\b"),
    "a JSON web token": re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\b"),
}
_NAMED: Final = re.compile(
    r"(?i)\b[\w-]*(?:secret|token|password|passwd|api_?key|credential)[\w-]*[\"']?\s*[:=]\s*[bfr]?[\"']([A-Za-z0-9+/=_-]{24,})[\"']"
)
_BITS_MIN: Final = 3.2
"""Of entropy a character, as far as so short a text shows it: random hexadecimal digits have nearly 4."""
_DIGITS_MIN: Final = 4
"""Words of a language have none."""
_BYTES_MAX: Final = 2 << 20
_LOCKS: Final = (".lock",)
"""Their hashes are no secrets, and have no names of such."""


def in_text(name: str, text: str) -> Iterator[str]:
    """A line for each; the secret itself is not shown."""
    for what, form in _FORMS.items():
        for found in form.finditer(text):
            yield f"{name}:{text.count(chr(10), 0, found.start()) + 1}: has {what}"
    for found in _NAMED.finditer(text):
        if entropy(found[1]) >= _BITS_MIN and sum(map(str.isdigit, found[1])) >= _DIGITS_MIN:
            yield f"{name}:{text.count(chr(10), 0, found.start()) + 1}: gives a long random text the name of a secret"


def entropy(text: str) -> float:
    """Bits a character, by how often each is in it."""
    counts = Counter(text)
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())


def in_files(root: Path, names: Iterable[str]) -> list[str]:
    """What is in files of text; names of files of keys count by themselves."""
    found = []
    for name in names:
        path = root / name
        if path.suffix in (".key", ".p12", ".pfx", ".jks") or path.name in (".netrc", ".pypirc", "id_rsa", "id_ed25519"):
            found.append(f"{name}: is a file of keys or passwords")
        if path.suffix in _LOCKS or not path.is_file() or path.stat().st_size > _BYTES_MAX:
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            found += in_text(name, data.decode(errors="replace"))
    return found
