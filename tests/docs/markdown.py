"""The fenced blocks of a page, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "deploy" / "README.md",
    ROOT / "leader" / "README.md",
    *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "behaviour.md"),
    *sorted((ROOT / "docs" / "adr").glob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
]
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`((?:rayched|make) [^`\n]+)`")
_EXAMPLE = re.compile(r"^ +(?:\$ )?(rayched .+?)(?: {2,}.*)?$", re.MULTILINE)
_PROMPT = re.compile(r"^\s*\$ ")


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    page: Path
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text.splitlines()[0]}"


def blocks(page: Path, *languages: str) -> list[Block]:
    return [Block(page, language, text) for language, text in _FENCE.findall(page.read_text()) if language in languages]


def commands(block: Block) -> Iterator[list[str]]:
    """The command lines of a block as words: comments and prompts off, continued lines joined, pipes apart."""
    lines = re.sub(r"\\\n", " ", block.text).splitlines()
    if any(map(_PROMPT.match, lines)):
        lines = [line for line in lines if _PROMPT.match(line)]
    for line in lines:
        words = shlex.split(_PROMPT.sub("", line), comments=True)
        while "|" in words:
            yield words[: words.index("|")]
            words = words[words.index("|") + 1 :]
        if words:
            yield words


def prose(page: Path) -> str:
    """The page without its blocks."""
    return _FENCE.sub("", page.read_text())


def commands_in_prose(page: Path) -> Iterator[list[str]]:
    """Commands of rayched and make that the text names in passing, as words."""
    for line in _INLINE.findall(prose(page)):
        yield shlex.split(line)


def examples_of_help(block: Block) -> Iterator[list[str]]:
    """The commands that a help text shows, as words; what stands behind two blanks explains them."""
    for line in _EXAMPLE.findall(block.text):
        for part in line.split(" | "):
            yield shlex.split(part)
