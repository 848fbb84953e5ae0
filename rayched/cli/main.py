"""The `rayched` command. Each verb lives in a module with its like; this one puts them together.

A result goes to standard output, everything else to standard error. Exit codes: 0 done, 1 failed, 2 called with wrong options;
each error is one line, never a traceback.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
from collections.abc import Callable
from typing import Annotated, Final

import typer

from rayched.cli import (
    access_commands,
    audit_command,
    cluster_commands,
    create_command,
    delete_command,
    demo_command,
    drain_command,
    etcd_command,
    events_command,
    exec_command,
    explain_command,
    gateway_command,
    get_command,
    history_command,
    hold_commands,
    logs_command,
    node_command,
    node_commands,
    object_commands,
    patch_command,
    pki_commands,
    plan_command,
    port_forward_command,
    queue_command,
    run_command,
    scale_command,
    status_command,
    top_command,
    wait_command,
)
from rayched.cli.context_option import with_context_option
from rayched.cli.printing import note, out
from rayched.cli.short_options import KubectlCommand, KubectlGroup
from rayched.replica.log_lines import TextLine

app = typer.Typer(
    name="rayched",
    cls=KubectlGroup,
    help="A pod scheduler with kube-scheduler's semantics, without Kubernetes.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_COMMANDS: dict[str, Callable[..., None]] = {
    "apply": object_commands.apply,
    "create": create_command.create,
    "get": get_command.get,
    "describe": object_commands.describe,
    "events": events_command.events,
    "logs": logs_command.logs,
    "exec": exec_command.execute,
    "port-forward": port_forward_command.port_forward,
    "top": top_command.top,
    "delete": delete_command.delete,
    "run": run_command.run,
    "scale": scale_command.scale,
    "wait": wait_command.wait,
    "cordon": node_commands.cordon,
    "uncordon": node_commands.uncordon,
    "drain": drain_command.drain,
    "taint": node_commands.taint,
    "label": node_commands.label,
    "annotate": patch_command.annotate,
    "patch": patch_command.patch,
    "edit": patch_command.edit,
    "hold": hold_commands.hold,
    "release": hold_commands.release,
    "follow": hold_commands.follow,
    "history": history_command.history,
    "status": status_command.status,
    "api-resources": object_commands.api_resources,
    "explain": explain_command.explain,
    "plan": plan_command.plan,
    "queue": queue_command.queue,
    "leader": cluster_commands.leader,
    "whoami": access_commands.whoami,
    "can-i": access_commands.can_i,
    "node": node_command.node,
    "hollow-nodes": node_commands.hollow,
    "up": cluster_commands.up,
    "demo": demo_command.demo,
    "replica": cluster_commands.replica,
    "gateway": gateway_command.gateway,
    "kubeconfig": gateway_command.kubeconfig,
}
_IN_SHORT = {"demo": "Show it all in a minute."}
"""For the list of commands, where the first sentence of the command itself is too long."""

for _info in access_commands.access.registered_commands:
    assert _info.callback is not None
    _info.callback = with_context_option(_info.callback)
for _name, _command in _COMMANDS.items():
    app.command(_name, cls=KubectlCommand, short_help=_IN_SHORT.get(_name))(with_context_option(_command))

app.add_typer(access_commands.access, name="access")
app.add_typer(pki_commands.pki, name="pki")
app.add_typer(audit_command.audit, name="audit")
app.add_typer(etcd_command.etcd, name="etcd")


@app.callback()
def _about(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    verbosity: Annotated[
        int,
        typer.Option("--v", "-v", metavar="LEVEL", help="From 1 on errors name gRPC's codes. Also behind the command.", min=0),
    ] = 0,
) -> None:
    """A pod scheduler with kube-scheduler's semantics, without Kubernetes."""
    del verbosity  # short_options.py has taken it, wherever it stood
    if version:
        out(f"rayched {importlib.metadata.version('rayched')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        out(context.get_help())


def main() -> None:
    # What gRPC's native code logs repeats, in many words, what is told in one line; whoever wants it sets the variable.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextLine("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    try:
        code = app(prog_name="rayched", standalone_mode=False)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except typer.TyperException as error:
        note(f"error: {_usage_fault(error)}")
        raise SystemExit(error.exit_code) from None
    except Exception as error:
        # The last border before the user, who gets a line; the traceback is for whoever asks for it.
        if os.environ.get("RAYCHED_TRACEBACK"):
            raise
        note(f"error: {type(error).__name__}: {' '.join(str(error).split())} (RAYCHED_TRACEBACK=1 shows where)")
        raise SystemExit(1) from None
    raise SystemExit(code if isinstance(code, int) else 0)


_PLAIN_WORDS: Final = (
    ("Value error, ", ""),
    ("Input should be a valid integer, unable to parse string as an integer", "want a whole number"),
    ("Input should be a valid number, unable to parse string as a number", "want a number"),
    ("Input should be ", "must be "),
)
"""What the library of options says, and what people say."""


def _usage_fault(error: typer.TyperException) -> str:
    """What is wrong with the command line, and where it says how it should be."""
    text = " ".join(error.format_message().split()).removesuffix(".")
    for said, plain in _PLAIN_WORDS:
        text = text.replace(said, plain)
    context = getattr(error, "ctx", None)
    return text if context is None else f"{text}{' ' if text.endswith('?') else '; '}see {context.command_path} --help"


if __name__ == "__main__":
    main()
