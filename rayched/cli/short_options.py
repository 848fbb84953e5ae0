"""Command lines as kubectl takes them.

* `-n=x`: an equals sign between a short option and its value.
* `--all=true`, `-w=false`: a value for what is a flag.
* `--dry-run`: without a value the server's judgement is meant.
* `rayched -n x get pods`: options before the verb.
* `-v LEVEL` anywhere.
* A command or an option that others have, and rayched not: what to do in its place (foreign_commands.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from rayched.cli.foreign_commands import advice, option_advice
from rayched.cli.verbosity import set_verbosity

_SHORT_WITH_EQUALS: Final = re.compile(r"-([A-Za-z]*)([A-Za-z])=(.*)", re.DOTALL)
_VERBOSITY: Final = re.compile(r"(?:-v|--v)(?:=(.*)|(\d+))?")
_DRY_RUN: Final = "--dry-run"
_EXTRA: Final = re.compile(r"Got unexpected extra argument(?:\(s\)|s)? \(([^ )]+)")
"""What the parser says of words that nothing takes; the first of them."""
_FILENAME: Final = "--filename"
_TRUTH: Final = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}
"""Go's words for it, of which case does not count here."""


class KubectlCommand(TyperCommand):
    """A command whose words may be written as kubectl's. Words after `--` are as they are."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        self._refuse_foreign(ctx, args[:end])
        try:
            return super().parse_args(ctx, [*self._plain(_without_verbosity(args[:end])), *args[end:]])
        except typer.TyperException as error:
            if _FILENAME in _names_of([self])[1] and (found := _EXTRA.match(error.message)):
                error.message += f"; files are named with -f: -f {found[1]}"
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Under headings, where options have some: those without one come first."""
        sections: dict[str, list[Any]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or "Options", []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def _refuse_foreign(self, ctx: Any, words: Iterable[str]) -> None:
        own = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for word in words:
            if word.partition("=")[0] not in own and (text := option_advice(word)):
                ctx.fail(text)

    def _plain(self, words: Iterable[str]) -> list[str]:
        flags, valued = _names_of([self])
        found: list[str] = []
        for word in words:
            short = _SHORT_WITH_EQUALS.fullmatch(word)
            name, equals, text = word.partition("=")
            if short and {f"-{one}" for one in short[1]} <= flags and f"-{short[2]}" in valued:
                found += [f"-{short[1]}{short[2]}", short[3]]
            elif equals and name in flags and text.lower() in _TRUTH:
                found = self._with_flag(found, name, _TRUTH[text.lower()])
            elif word == _DRY_RUN and _DRY_RUN in valued:
                found.append(f"{_DRY_RUN}=server")
            else:
                found.append(word)
        return found

    def _with_flag(self, words: list[str], name: str, value: bool) -> list[str]:
        """The words, with what says that the flag of this name has this value; as of any option the last one counts."""
        if value:
            return [*words, name]
        for parameter in self.params:
            if name in parameter.opts:
                return [*(word for word in words if word not in parameter.opts), *parameter.secondary_opts[:1]]
        return words


class KubectlGroup(TyperGroup):
    """The commands, before whose names options may stand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        set_verbosity(0)
        args = self.verb_first(args)
        return super().parse_args(ctx, args if args and args[0] in self.commands else _without_verbosity(args))

    def verb_first(self, args: list[str]) -> list[str]:
        """The words with the options that stand before the verb behind it."""
        own = {"--", "--help"} | _names_of([self])[0]
        if not args or not args[0].startswith("-") or args[0] in own:
            return args
        # Only now, as it imports all commands.
        flags, _ = _names_of(self.commands.values())
        place = 0
        while place < len(args) and args[place].startswith("-") and args[place] not in own:
            verbosity = _VERBOSITY.fullmatch(args[place])
            takes_next = not any(verbosity.groups()) if verbosity else "=" not in args[place] and args[place] not in flags
            place += 2 if takes_next else 1
        return [args[place], *args[:place], *args[place + 1 :]] if place < len(args) else args

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and (text := advice(args[0])):
            ctx.fail(text)
        return super().resolve_command(ctx, args)


def _names_of(commands: Iterable[Any]) -> tuple[set[str], set[str]]:
    """Of flags, and of options with a value."""
    flags: set[str] = set()
    valued: set[str] = set()
    for command in commands:
        for parameter in command.params:
            if parameter.param_type_name == "option":
                (flags if parameter.is_flag else valued).update((*parameter.opts, *parameter.secondary_opts))
    return flags - valued, valued


def _without_verbosity(words: list[str]) -> list[str]:
    """The other words; the level is set."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        match = _VERBOSITY.fullmatch(word)
        if match is None:
            found.append(word)
            continue
        level = match[1] or match[2] or next(rest, "")
        if not level.isdecimal():
            raise typer.BadParameter(f"{level!r} is no level; want a number, as in -v=1", param_hint="-v")
        set_verbosity(int(level))
    return found
