"""completion: what completes the command in a shell, and its manual page; made of the command's own words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Final

import typer

from rayched.api import kinds
from rayched.cli.printing import out_text
from rayched.cli.shell.command_words import CommandWords, OptionWords, all_commands
from rayched.cli.shell.manual_page import manual_page

_TYPED: Final = ("get", "describe", "delete", "label", "annotate", "patch", "edit", "wait")
"""Commands whose first word is a type of objects, and the next ones names of such objects."""
_OF_KIND: Final = {
    **dict.fromkeys(("logs", "exec", "port-forward", "explain", "queue", "follow"), "pods"),
    **dict.fromkeys(("cordon", "uncordon", "drain", "taint"), "nodes"),
}
"""Commands whose words are names of objects of one type."""
_ASK: Final = "rayched get {kind} -o custom-columns=:.metadata.name --no-headers 2>/dev/null"


class CompletionOf(StrEnum):
    """What `completion` prints."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"
    man = "man"


def completion(
    what: Annotated[CompletionOf, typer.Argument(metavar="{bash|zsh|fish|man}", hidden=True)],
) -> None:
    """Print what completes the command in a shell, or its manual page.

    \b
      rayched completion bash   for ~/.local/share/bash-completion/completions/
      rayched completion zsh    for a file _rayched in a directory of $fpath
      rayched completion fish   for ~/.config/fish/completions/rayched.fish
      rayched completion man    for ~/.local/share/man/man1/rayched.1

    Commands, options and their values are part of it. Names of objects are asked for in the cluster.
    """
    commands = all_commands()
    makers = {CompletionOf.bash: _bash, CompletionOf.zsh: _zsh, CompletionOf.fish: _fish, CompletionOf.man: manual_page}
    out_text("\n".join(makers[what](commands)) + "\n")


def _kinds() -> str:
    return " ".join(sorted(kind.plural for kind in kinds.KINDS))


def _bash(commands: Iterable[CommandWords]) -> Iterator[str]:
    commands = tuple(commands)
    yield "# Completion of rayched for bash: source <(rayched completion bash)"
    yield from _shell_tables(commands)
    yield from _FIND_COMMAND.format(words='"${COMP_WORDS[@]:1:COMP_CWORD-1}"').splitlines()
    yield from _BASH.splitlines()


def _zsh(commands: Iterable[CommandWords]) -> Iterator[str]:
    commands = tuple(commands)
    yield "#compdef rayched"
    yield "# Completion of rayched for zsh: source <(rayched completion zsh)"
    yield from _shell_tables(commands)
    yield "_rayched_described() {"
    yield "    case $1 in"
    for path, rows in _described(commands):
        yield f"        {_quoted(path)}) print -rl -- {' '.join(_quoted(row) for row in rows)} ;;"
    yield "    esac"
    yield "}"
    yield from _FIND_COMMAND.format(words='"${(@)words[2,CURRENT-1]}"').splitlines()
    yield from _ZSH.splitlines()


def _described(commands: tuple[CommandWords, ...]) -> Iterator[tuple[str, list[str]]]:
    """WORD:SENTENCE of all that may follow; a dash before the path stands for its options."""
    outer = [one for one in commands if len(one.path) == 1]
    yield "", [f"{one.path[-1]}:{one.says}" for one in outer]
    for command in commands:
        if command.inner:
            yield command.name, [f"{one.path[-1]}:{one.says}" for one in commands if one.path[:-1] == command.path]
        yield f"-{command.name}", [f"{name}:{option.says}" for option in command.options for name in option.names]


def _shell_tables(commands: tuple[CommandWords, ...]) -> Iterator[str]:
    """Functions that bash and zsh understand: what may follow a command, and what an option takes."""
    yield "_rayched_words() {"
    yield "    case $1 in"
    yield f'        "") echo {_quoted(" ".join(one.path[0] for one in commands if len(one.path) == 1))} ;;'
    for command in commands:
        if command.inner:
            yield f"        {_quoted(command.name)}) echo {_quoted(' '.join(command.inner))} ;;"
    yield f"        {'|'.join(_TYPED)}) echo {_quoted(_kinds())} ;;"
    yield "    esac"
    yield "}"
    yield "_rayched_options() {"
    yield "    case $1 in"
    for command in commands:
        names = " ".join(name for option in command.options for name in option.names)
        yield f"        {_quoted(command.name)}) echo {_quoted(names)} ;;"
    yield "    esac"
    yield "}"
    yield "# What an option takes: its values, @file, or @any; nothing of a flag."
    yield "_rayched_values() {"
    yield '    case "$1 $2" in'
    for command in commands:
        for option in command.options:
            if option.takes:
                patterns = "|".join(_quoted(f"{command.name} {name}") for name in option.names)
                yield f"        {patterns}) echo {_quoted(_values(option))} ;;"
    yield "    esac"
    yield "}"
    yield "_rayched_kind() {"
    yield "    case $1 in"
    for name, kind in _OF_KIND.items():
        yield f"        {name}) echo {kind} ;;"
    yield "    esac"
    yield "}"
    yield "_rayched_typed() {"
    yield f"    case $1 in {'|'.join(_TYPED)}) return 0 ;; *) return 1 ;; esac"
    yield "}"


def _values(option: OptionWords) -> str:
    return " ".join(option.choices) or ("@file" if option.takes_file else "@any")


def _fish(commands: Iterable[CommandWords]) -> Iterator[str]:
    commands = tuple(commands)
    yield "# Completion of rayched for fish: rayched completion fish > ~/.config/fish/completions/rayched.fish"
    yield "complete -c rayched -f"
    valued = {name for one in commands for option in one.options if option.takes for name in option.names}
    flags = {name for one in commands for option in one.options if not option.takes for name in option.names}
    yield f"set -g __rayched_valued {' '.join(sorted(valued - flags))}"
    yield from _FISH.splitlines()
    for command in commands:
        here = _fish_quoted(f"__rayched_at {' '.join(command.path[:-1])}")
        yield f"complete -c rayched -n {here} -a {command.path[-1]} -d {_fish_quoted(command.says)}"
    for command in commands:
        here = _fish_quoted(f"__rayched_in {command.name}")
        for option in command.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            takes = "" if not option.takes else f" -x -a {_fish_quoted(' '.join(option.choices))}" if option.choices else " -r -F"
            yield f"complete -c rayched -n {here} {names}{takes} -d {_fish_quoted(option.says)}"
    for name in _TYPED:
        yield f"complete -c rayched -n {_fish_quoted(f'__rayched_at {name}')} -a {_fish_quoted(_kinds())}"
        here = _fish_quoted(f"__rayched_in {name}; and __rayched_kind")
        yield f"complete -c rayched -n {here} -a '(__rayched_objects (__rayched_kind))'"
    for name, kind in _OF_KIND.items():
        yield f"complete -c rayched -n {_fish_quoted(f'__rayched_in {name}')} -a '(__rayched_objects {kind})'"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_FIND_COMMAND: Final = """\
# Sets command, and nouns: the words behind it that are neither options nor their values.
_rayched_read() {{
    local word before=""
    command="" nouns=()
    for word in {words}; do
        if [[ -n $before && -n $(_rayched_values "$command" "$before") ]]; then
            before=""
            continue
        fi
        before=""
        case $word in
            -*) before=$word ;;
            *)
                if [[ " $(_rayched_words "$command") " == *" $word "* ]] && ! _rayched_typed "$command"; then
                    command="${{command:+$command }}$word" nouns=()
                else
                    nouns+=("$word")
                fi
                ;;
        esac
    done
}}
_rayched_objects() {{
    rayched get "$1" -o custom-columns=:.metadata.name --no-headers 2>/dev/null
}}
# What may stand here.
_rayched_here() {{
    local found
    if [[ $2 == -* ]]; then
        _rayched_options "$command"
        return
    fi
    found=$(_rayched_values "$command" "$1")
    if [[ -n $found ]]; then
        echo "$found"
    elif _rayched_typed "$command" && (( ${{#nouns[@]}} )); then
        _rayched_objects "${{nouns[@]:0:1}}"
    elif [[ -n $(_rayched_kind "$command") ]]; then
        _rayched_objects "$(_rayched_kind "$command")"
    else
        _rayched_words "$command"
    fi
}}"""
_BASH: Final = """\
_rayched() {
    local command found current=${COMP_WORDS[COMP_CWORD]} nouns=()
    _rayched_read
    found=$(_rayched_here "${COMP_WORDS[COMP_CWORD-1]}" "$current")
    case $found in
        @any) COMPREPLY=() ;;
        @file) COMPREPLY=($(compgen -f -- "$current")) ;;
        *) COMPREPLY=($(compgen -W "$found" -- "$current")) ;;
    esac
}
complete -o filenames -F _rayched rayched"""
_ZSH: Final = """\
_rayched() {
    local command found current=${words[CURRENT]}
    local -a nouns rows
    _rayched_read
    found=$(_rayched_here "${words[CURRENT-1]}" "$current")
    case $found in
        @any) return 1 ;;
        @file) _files; return ;;
    esac
    [[ $current == -* ]] && command="-$command"
    rows=("${(@f)$(_rayched_described "$command")}")
    if [[ -n ${rows[1]} ]]; then
        _describe 'rayched' rows
    else
        compadd -- ${=found}
    fi
}
# Loaded by compinit, or sourced.
if [[ ${funcstack[1]} == _rayched ]]; then _rayched "$@"; else compdef _rayched rayched; fi"""
_FISH: Final = """\
# Words that are neither options nor their values, from the command on.
function __rayched_words
    set -l words (commandline -opc)
    set -l before ""
    for word in $words[2..-1]
        if not contains -- "$before" $__rayched_valued; and not string match -q -- '-*' $word
            echo $word
        end
        set before $word
    end
end
# Whether the commands typed so far are exactly these.
function __rayched_at
    set -l words (__rayched_words)
    test "$words" = "$argv"
end
# Whether they begin so.
function __rayched_in
    set -l words (__rayched_words)
    set -l count (count $argv)
    test (count $words) -ge $count; and test "$words[1..$count]" = "$argv"
end
function __rayched_kind
    set -l words (__rayched_words)
    test (count $words) -ge 2; and echo $words[2]
end
function __rayched_objects
    rayched get $argv[1] -o custom-columns=:.metadata.name --no-headers 2>/dev/null
end"""
