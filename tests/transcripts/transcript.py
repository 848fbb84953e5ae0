"""Transcripts: commands and what came back, as text that documents a state machine and fails when it behaves differently.

    # Prose: what happens next, and why.

    command argument name=value
    another command
    ----
    what the commands printed

Blocks are separated by empty lines; a line that begins with # is prose. `pytest tests/transcripts --rewrite-transcripts` writes
what the commands print now into the files: read the difference before you commit it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

RULE: Final = "----"


class TranscriptError(ValueError):
    """A file that is not a transcript, or a command that does not exist: names the line and what is allowed."""


@dataclass(frozen=True, slots=True)
class Command:
    """One line: a verb, arguments, and settings."""

    verb: str
    arguments: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, line: str) -> Command:
        verb, *words = line.split()
        settings = dict(word.split("=", 1) for word in words if "=" in word)
        return cls(verb, tuple(word for word in words if "=" not in word), settings)

    def number(self, name: str, default: float = 0.0) -> float:
        return float(self.settings.get(name, default))

    def names(self, name: str) -> list[str]:
        """A setting that is a list, separated by commas."""
        return [one for one in self.settings.get(name, "").split(",") if one]


class Machine(Protocol):
    """Carries out the commands of one transcript."""

    def run(self, command: Command) -> Iterator[str]:
        """The lines that it prints. Raises TranscriptError for a command that it does not have."""


def replay(text: str, new_machine: Callable[[], Machine]) -> str:
    """The transcript as it would be now: the same prose and commands, and what they print."""
    machine, printed = new_machine(), list[str]()
    commands: list[str] | None = None
    """Of the block that is being read; None between two blocks, and behind the rule of one."""
    in_output = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            if commands is not None:
                raise TranscriptError(f"line {number}: a block ends without {RULE}")
            printed.append("")
            in_output = False
        elif in_output:
            continue
        elif line.startswith("#"):
            printed.append(line)
        elif line == RULE:
            if commands is None:
                raise TranscriptError(f"line {number}: {RULE} without a command before it")
            printed += [RULE, *(output for command in commands for output in machine.run(Command.of(command)))]
            commands, in_output = None, True
        else:
            printed.append(line)
            commands = [*(commands or ()), line]
    if commands is not None:
        raise TranscriptError(f"the last block ends without {RULE}")
    return "\n".join(printed).rstrip() + "\n"


def unknown(command: Command, known: str) -> TranscriptError:
    return TranscriptError(f'"{command.verb}" is no command here: want {known}')
