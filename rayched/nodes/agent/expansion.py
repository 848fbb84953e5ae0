"""`$(NAME)` in commands, arguments and environment variables, as kubelet expands it. Pure.

`$(NAME)` is the variable's value, `$$` is a single `$` that begins nothing, and a name that is not known stays as it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LENGTH_MAX: Final = 128 << 10
"""Characters of one text; Linux takes no longer one in an environment or among arguments."""


class ExpansionFault(Exception):
    """A text would grow beyond what a process can be given; one line."""


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Raises ExpansionFault where that is longer than LENGTH_MAX."""
    found: list[str] = []
    length = place = 0
    # What is too long as it stands is not read through.
    while place < len(text) <= LENGTH_MAX and length <= LENGTH_MAX:
        piece, place = _piece(text, place, variables)
        found.append(piece)
        length += len(piece)
    if len(text) > LENGTH_MAX or length > LENGTH_MAX:
        raise ExpansionFault(f"is longer than {LENGTH_MAX} characters when its variables are filled in")
    return "".join(found)


def _piece(text: str, place: int, variables: Mapping[str, str]) -> tuple[str, int]:
    """What stands for the text from there on, up to the place after it."""
    if text[place] != "$":
        end = text.find("$", place)
        end = len(text) if end < 0 else end
        return text[place:end], end
    following = text[place + 1 : place + 2]
    if following in ("", "$"):
        return "$", place + 2
    if following == "(" and (end := text.find(")", place)) > 0:
        return variables.get(text[place + 2 : end], text[place : end + 1]), end + 1
    return "$" + following, place + 2
