"""The `rayched` command. Each verb lives in a module with its like; this one puts them together.

A result goes to standard output, everything else to standard error. Exit codes: 0 done, 1 failed (one line for each error,
never a traceback), 2 called with wrong options.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

import typer

from rayched.cli import cluster_commands, demo_command, node_commands, object_commands
from rayched.cli.printing import note

app = typer.Typer(
    name="rayched",
    help="A pod scheduler with kube-scheduler's semantics, without Kubernetes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_COMMANDS: dict[str, Callable[..., None]] = {
    "apply": object_commands.apply,
    "get": object_commands.get,
    "describe": object_commands.describe,
    "delete": object_commands.delete,
    "cordon": node_commands.cordon,
    "uncordon": node_commands.uncordon,
    "taint": node_commands.taint,
    "label": node_commands.label,
    "leader": cluster_commands.leader,
    "hollow-nodes": node_commands.hollow,
    "up": cluster_commands.up,
    "demo": demo_command.demo,
    "replica": cluster_commands.replica,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    try:
        app()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except Exception as error:
        if os.environ.get("RAYCHED_TRACEBACK"):
            raise
        note(f"error: {type(error).__name__}: {' '.join(str(error).split())} (RAYCHED_TRACEBACK=1 shows where)")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
