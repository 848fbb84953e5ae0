"""Help at a terminal of 80 columns: no line is longer, and no word is broken."""

from __future__ import annotations

import pytest

from rayched.cli.shell.command_words import all_commands
from tests.cli.cluster import run_here
from tests.deploy.commands import COMMANDS

COLUMNS = 80
PATHS = [(), *(command.path for command in all_commands())]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: " ".join(path) or "rayched")
def test_no_line_of_a_help_is_longer_than_the_terminal(path: tuple[str, ...]) -> None:
    result = run_here([*path, "--help"], None, {"COLUMNS": str(COLUMNS)})
    assert result.code == 0
    assert [line for line in result.lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if not hasattr(command, "commands")])
def test_no_word_of_a_help_is_broken(name: str) -> None:
    command = COMMANDS[name]
    narrow, wide = (
        command.get_help(command.context_class(command, info_name=name, terminal_width=width)).split()
        for width in (COLUMNS - 2, 4000)
    )
    assert [word for word in narrow if word not in wide] == []
