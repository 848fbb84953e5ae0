"""docs/command.md, made of what the command says of itself: `python -m tests.docs.command_page [--write]`.

Without --write it only compares. Exit code 1 when the page is not what `--help` gives.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from rayched.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "command.md"
WIDTH = 110
INTRODUCTION = """# The command

`rayched` has kubectl's verbs, forms and looks where kubectl has them. Results go to standard output, everything else to
standard error.

* **Where it asks.** `--server`, else `$RAYCHED_SERVER`, else the servers of the current context, else 127.0.0.1:7420 to 7422. Any
  replica will do; name several, and the next one is asked when one is lost.
* **With what.** A context names servers and a certificate, in `~/.config/rayched/contexts/NAME.yaml`. `--context`, else
  `$RAYCHED_CONTEXT`, else the one that lists the servers that are named, else the current one. Without one there is no TLS.
* **Exit codes.** 0 done, 1 failed, 2 called with wrong options; those of `plan` are its own. Each error is one line, with
  the object, the field, and what is allowed. `RAYCHED_TRACEBACK=1` shows the traceback of what should not have happened.

What follows is what `rayched COMMAND --help` says. `make docs` writes it.
"""


def page() -> str:
    """What it has to be."""
    group: Any = get_command(app)
    context = group.context_class(group, info_name="rayched", terminal_width=WIDTH, max_content_width=WIDTH)
    return "\n".join([INTRODUCTION, *_sections(group, context)])


def _sections(group: Any, context: Any) -> Iterator[str]:
    """One for each command, and for each command of a command."""
    for name, command in group.commands.items():
        inner = command.context_class(command, info_name=name, parent=context, terminal_width=WIDTH, max_content_width=WIDTH)
        text = "\n".join(line.rstrip() for line in command.get_help(inner).splitlines())
        yield f"## {inner.command_path}\n\n```text\n{text}\n```\n"
        if hasattr(command, "commands"):
            yield from _sections(command, inner)


def main(arguments: list[str]) -> int:
    text = page()
    if "--write" in arguments:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        print("docs/command.md is not what rayched --help says: run make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
