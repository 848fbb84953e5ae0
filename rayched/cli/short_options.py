"""Commands that take kubectl's `-n=x`, where an equals sign stands between a short option and its value."""

from __future__ import annotations

import re
from typing import Any, Final

from typer.core import TyperCommand

_SHORT_WITH_EQUALS: Final = re.compile(r"-([A-Za-z]*)([A-Za-z])=(.*)", re.DOTALL)


class KubectlCommand(TyperCommand):
    """A command whose short options may have `=` before their value, as long ones do; `-n=` gives an empty one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._without_equals(args))

    def _without_equals(self, words: list[str]) -> list[str]:
        """Words after `--` are no options."""
        flags: set[str] = set()
        valued: set[str] = set()
        for parameter in self.params:
            names = {name[1] for name in parameter.opts if len(name) == 2}
            (flags if getattr(parameter, "is_flag", False) else valued).update(names)
        end = words.index("--") if "--" in words else len(words)
        found: list[str] = []
        for word in words[:end]:
            match = _SHORT_WITH_EQUALS.fullmatch(word)
            if match and set(match[1]) <= flags and match[2] in valued:
                found += [f"-{match[1]}{match[2]}", match[3]]
            else:
                found.append(word)
        return found + words[end:]
