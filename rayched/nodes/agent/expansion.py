"""`$(NAME)` in commands, arguments and environment variables, as kubelet expands it. Pure.

`$(NAME)` is the variable's value, `$$` is a single `$` that begins nothing, and a name that is not known stays as it is written.
"""

from __future__ import annotations

from collections.abc import Mapping


def expanded(text: str, variables: Mapping[str, str]) -> str:
    if "$" not in text:
        return text
    found: list[str] = []
    place = 0
    while place < len(text):
        character = text[place]
        following = text[place + 1 : place + 2]
        if character != "$" or not following:
            found.append(character)
            place += 1
        elif following == "$":
            found.append("$")
            place += 2
        elif following == "(" and (end := text.find(")", place)) > 0:
            name = text[place + 2 : end]
            found.append(variables.get(name, text[place : end + 1]))
            place = end + 1
        else:
            found.append("$" + following)
            place += 2
    return "".join(found)
