"""Text of clients as text for a terminal or a line of a log: what is not printable is written as its escape.

Not printable are control characters, among them the escape character and line breaks, and format characters, among them those
that turn the direction of writing around (`str.isprintable`). In an object's text they would clear a screen, set a window's
title, hide what follows or forge a line that somebody else seems to have written.

The escapes are those that JSON has in strings and YAML has in double quotes, so a document of either stays what it was as long as
its strings are quoted. Characters beyond the first 65,536 are the exception: JSON writes them as a pair. Pure.

Cost: one look at a text where nothing has to be done, which is nearly always.
"""

from __future__ import annotations


def one_line(text: str) -> str:
    r"""The text as part of one line: `\u001b` for an escape character, `\n` for a line break."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def lines(text: str) -> str:
    """The text with its line breaks: each line printable."""
    return text if text.isprintable() else "\n".join(map(one_line, text.split("\n")))


def tabbed_lines(text: str) -> str:
    """As `lines`, with tabs, which move to the next column and do nothing else."""
    return text if text.isprintable() else "\t".join(map(lines, text.split("\t")))


def json_text(text: str) -> str:
    """A JSON document with its line breaks, still the same document."""
    return text if text.isprintable() else "".join(c if c == "\n" or c.isprintable() else _units(c) for c in text)


_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    number = ord(character)
    return _SHORT.get(character) or (f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}")


def _units(character: str) -> str:
    """The UTF-16 units of a character, each as JSON's escape."""
    code = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))
