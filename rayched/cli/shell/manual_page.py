"""The manual page rayched(1), as groff's macros `man` read it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator
from typing import Final

from rayched.cli.shell.command_words import CommandWords

_FILES: Final = (
    ("~/.config/rayched/contexts/NAME.yaml", "What a cluster is reached with: servers and a certificate."),
    ("~/.local/state/rayched", "What `rayched up` keeps: etcd's data, certificates, logs. RAYCHED_HOME names another place."),
)
_VARIABLES: Final = (
    ("RAYCHED_SERVER", "Replicas to ask, HOST:PORT,..."),
    ("RAYCHED_CONTEXT", "The context to reach them with, or `none`."),
    ("RAYCHED_NAMESPACE", "The namespace where none is named; else `default`."),
    ("RAYCHED_HOME", "Directory of etcd's data and of logs."),
    ("RAYCHED_ETCD", "The etcd binary to start where no endpoints are given."),
    ("RAYCHED_ETCD_ENDPOINTS", "An etcd to use in place of one of its own."),
    ("RAYCHED_TRACEBACK", "Not empty: show the traceback of what should not have happened."),
)
_CODES: Final = (("0", "Done."), ("1", "Failed; of `plan`: something would be placed."), ("2", "Called with wrong options."))


def manual_page(commands: Iterable[CommandWords]) -> Iterator[str]:
    """Lines of the page."""
    yield f'.TH RAYCHED 1 "" "rayched {importlib.metadata.version("rayched")}" "User Commands"'
    yield ".SH NAME"
    yield _text("rayched - a pod scheduler with kube-scheduler's semantics, without Kubernetes")
    yield ".SH SYNOPSIS"
    yield r".B rayched"
    yield r".I COMMAND"
    yield _text("[OPTIONS] [ARGS]...")
    yield ".SH DESCRIPTION"
    yield _text(
        "Verbs, forms and looks are kubectl's where kubectl has them. "
        "Results go to standard output, everything else to standard error."
    )
    yield ".SH COMMANDS"
    for command in commands:
        yield f".SS {_text(command.usage)}"
        yield from _paragraphs(command.text)
        for option in command.options:
            if option.names != ("--help",):
                names = ", ".join(option.names) + (f" {option.takes}" if option.takes else "")
                yield from (".TP", f".B {_text(names)}", _text(option.says))
    for title, rows in (("ENVIRONMENT", _VARIABLES), ("FILES", _FILES), ("EXIT STATUS", _CODES)):
        yield f".SH {title}"
        for name, says in rows:
            yield from (".TP", f".B {_text(name)}", _text(says))


def _paragraphs(text: str) -> Iterator[str]:
    """A help text: paragraphs are filled, those that begin with \\b stay as they are."""
    for paragraph in text.split("\n\n"):
        yield ".PP"
        if paragraph.startswith("\b"):
            yield from (".nf", *(_text(line) for line in paragraph.splitlines()[1:]), ".fi")
        else:
            yield _text(" ".join(paragraph.split()))


def _text(line: str) -> str:
    """As groff shows it again."""
    shown = line.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{shown}" if shown.startswith((".", "'")) else shown
