"""What the command has: commands, their options, what these take, and the sentences that say so.

Completion scripts and the manual page are written from it, so that they say what `--help` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from typer.main import get_command

_WIDTH: Final = 78
_CHOICE: Final = re.compile(r"(?=.*[a-z])[A-Za-z-]+")
"""Of what stands behind an option: a word to be typed as it is; others, as FILE, are names."""


@dataclass(frozen=True, slots=True)
class OptionWords:
    """One option: `-o, --output`."""

    names: tuple[str, ...]
    """Short ones first."""
    takes: str
    """What stands behind it, as in FILE; empty: nothing, it is a flag."""
    choices: tuple[str, ...]
    says: str

    @property
    def takes_file(self) -> bool:
        return "FILE" in self.takes or "DIR" in self.takes


@dataclass(frozen=True, slots=True)
class CommandWords:
    """One command, or one of another's commands: then `path` has both words."""

    path: tuple[str, ...]
    usage: str
    says: str
    """One sentence."""
    text: str
    """All of it, in lines as `--help` has them."""
    options: tuple[OptionWords, ...]
    inner: tuple[str, ...]
    """Its own commands."""

    @property
    def name(self) -> str:
        return " ".join(self.path)


def all_commands() -> tuple[CommandWords, ...]:
    """In the order of the help; each command that has commands before them."""
    # Not at the top: the table of commands names the modules that use this one.
    from rayched.cli.main import app

    group: Any = get_command(app)
    context = group.context_class(group, info_name="rayched", terminal_width=_WIDTH, max_content_width=_WIDTH)
    return tuple(_below(group, context, ()))


def _below(group: Any, context: Any, path: tuple[str, ...]) -> Iterator[CommandWords]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        inner = command.context_class(command, info_name=name, parent=context, terminal_width=_WIDTH, max_content_width=_WIDTH)
        own = (*path, name)
        commands = tuple(getattr(command, "commands", ()))
        usage = " ".join(command.get_usage(inner).removeprefix("Usage: ").split())
        options = tuple(_options(command, inner))
        yield CommandWords(own, usage, command.get_short_help_str(200), command.help or "", options, commands)
        if commands:
            yield from _below(command, inner, own)


def _options(command: Any, context: Any) -> Iterator[OptionWords]:
    for one in command.get_params(context):
        record = one.get_help_record(context) if one.param_type_name == "option" else None
        if record is None:
            continue
        names = sorted((*one.opts, *one.secondary_opts), key=lambda name: (name.startswith("--"), name in one.secondary_opts))
        takes = "" if one.is_flag else record[0].rpartition(" ")[2].strip("[<>]")
        choices = tuple(part for part in takes.split("|") if "|" in takes and _CHOICE.fullmatch(part))
        yield OptionWords(tuple(names), takes, choices, " ".join(record[1].split()))
