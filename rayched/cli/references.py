"""What a command line names: `pods`, `pods web-0 web-1`, `pod/web-0 node/node-001`, `pods,nodes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rayched.api.kinds import Kind
from rayched.cli.connection import kind_named
from rayched.cli.printing import fail


@dataclass(frozen=True, slots=True)
class Reference:
    """Objects of one kind; without a name all of them."""

    kind: Kind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind.singular}/{self.name}" if self.name else self.kind.plural


def references(words: Sequence[str]) -> list[Reference]:
    """kubectl's forms: TYPE[,TYPE], TYPE NAME..., TYPE/NAME...; they cannot be mixed."""
    if any("/" in word for word in words):
        return [_slashed(word) for word in words]
    kinds = [kind_named(word) for word in words[0].split(",") if word]
    names = words[1:]
    if not kinds:
        fail(f"{words[0]!r} names no type of object")
    return [Reference(kind, name) for kind in kinds for name in names] if names else [Reference(kind) for kind in kinds]


def one_reference(words: Sequence[str]) -> Reference:
    """Exactly one named object."""
    found = references(words)
    if len(found) != 1 or not found[0].name:
        fail(f"{' '.join(words)!r} does not name one object; name it as TYPE NAME or TYPE/NAME")
    return found[0]


def _slashed(word: str) -> Reference:
    kind, slash, name = word.partition("/")
    if not slash or not kind or not name or "/" in name:
        fail(f"{word!r} is not TYPE/NAME; types with and without names cannot be mixed")
    return Reference(kind_named(kind), name)
