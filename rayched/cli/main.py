"""The `rayched` command. Each verb lives in a module with its like; this one puts them together.

A result goes to standard output, everything else to standard error. Exit codes: 0 done, 1 failed, 2 called with wrong options;
each error is one line, never a traceback.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
from typing import Annotated, Any, Final

import typer

from rayched.cli.lazy_commands import CommandPlace, CommandTable, missing_package
from rayched.cli.printing import note, out
from rayched.cli.short_options import KubectlCommand, KubectlGroup
from rayched.replica.log_lines import TextLine
from rayched.replica.source_commit import UNKNOWN, source_commit

_COMMANDS: dict[str, CommandPlace] = {
    "apply": CommandPlace("objects.apply_command", "apply", "Create or change objects as manifests say."),
    "diff": CommandPlace("objects.diff_command", "diff", "Show what `apply` would change, changing nothing."),
    "create": CommandPlace("objects.create_command", "create", "Create objects; one that is there already is an error."),
    "replace": CommandPlace("objects.diff_command", "replace", "Put objects in the place of those that are there, whole."),
    "get": CommandPlace("objects.get_command", "get", "Show objects."),
    "describe": CommandPlace("objects.object_commands", "describe", "Show objects with all that belongs to them."),
    "events": CommandPlace("objects.events_command", "events", "Show what happened, the latest last."),
    "logs": CommandPlace("work.logs_command", "logs", "Print what a container of a pod wrote."),
    "exec": CommandPlace("work.exec_command", "execute", "Run a program in a container."),
    "port-forward": CommandPlace("work.port_forward_command", "port_forward", "Make ports of a pod ports of this host."),
    "top": CommandPlace("work.top_command", "top", "Show what nodes and pods use."),
    "delete": CommandPlace("objects.delete_command", "delete", "Delete objects by name, selector or manifest."),
    "run": CommandPlace("work.run_command", "run", "Run a command as pods, and end as it ends."),
    "scale": CommandPlace("objects.scale_command", "scale", "Set how many pods a ReplicaSet is to have."),
    "wait": CommandPlace("objects.wait_command", "wait", "Wait until objects are as they should be."),
    "cordon": CommandPlace("nodes.node_commands", "cordon", "Keep new pods off nodes."),
    "uncordon": CommandPlace("nodes.node_commands", "uncordon", "Let new pods on nodes again."),
    "drain": CommandPlace("nodes.drain_command", "drain", "Cordon nodes and evict their pods."),
    "taint": CommandPlace("nodes.node_commands", "taint", "Set and remove taints of nodes."),
    "label": CommandPlace("objects.label_commands", "label", "Set and remove labels of objects."),
    "annotate": CommandPlace("objects.label_commands", "annotate", "Set and remove annotations of objects."),
    "patch": CommandPlace("objects.patch_command", "patch", "Change fields of objects."),
    "set": CommandPlace("objects.set_command", "set_fields", "Set images, resources or variables of containers."),
    "edit": CommandPlace("objects.patch_command", "edit", "Change an object in an editor."),
    "hold": CommandPlace("work.hold_commands", "hold", "Suspend jobs: their pods end, and no new ones are made."),
    "release": CommandPlace("work.hold_commands", "release", "Let held jobs and pods go."),
    "follow": CommandPlace("work.hold_commands", "follow", "Follow a pod or a job to its end, and end as it ended."),
    "history": CommandPlace("scheduling.history_command", "history", "Show pods and jobs that have ended, the latest last."),
    "status": CommandPlace("scheduling.status_command", "status", "Show how full the cluster is."),
    "api-resources": CommandPlace("objects.object_commands", "api_resources", "Show the kinds of objects that are served."),
    "explain": CommandPlace("scheduling.explain_command", "explain", "Show why a pod is where it is, or why it waits."),
    "plan": CommandPlace("scheduling.plan_command", "plan", "Show where pods would go, changing nothing."),
    "queue": CommandPlace("scheduling.queue_command", "queue", "Show pods that wait for a node."),
    "leader": CommandPlace("cluster.cluster_commands", "leader", "Show who leads."),
    "login": CommandPlace("access.login_command", "login", "Get a certificate with a token."),
    "whoami": CommandPlace("access.access_commands", "whoami", "Show who the cluster takes you for."),
    "can-i": CommandPlace("access.access_commands", "can_i", "Say whether something would be allowed."),
    "node": CommandPlace("nodes.node_command", "node", "Make this host a node: run the pods that are bound to it."),
    "hollow-nodes": CommandPlace("nodes.node_commands", "hollow", "Register nodes that run nothing, and answer for them."),
    "up": CommandPlace("cluster.up_command", "up", "Run an etcd and several replicas on this host."),
    "reset": CommandPlace("cluster.up_command", "reset", "Remove the nodes and pods that `rayched up` keeps."),
    "examples": CommandPlace("cluster.examples_command", "examples", "Write rayched's examples to a directory."),
    "demo": CommandPlace("cluster.demo_command", "demo", "Show it all in a minute."),
    "replica": CommandPlace("cluster.cluster_commands", "replica", "Run one replica in the foreground."),
    "gateway": CommandPlace("cluster.gateway_command", "gateway", "Serve the Kubernetes API, and a page to look at."),
    "kubeconfig": CommandPlace("cluster.gateway_command", "kubeconfig", "Print a kubeconfig for gateways."),
    "ui": CommandPlace("cluster.ui_command", "ui", "Open the page in a browser, signed in as you."),
    "access": CommandPlace("access.access_commands", "access", "Show and change who has which role, and who is refused."),
    "token": CommandPlace("access.token_commands", "token", "Make, show and revoke bearer tokens."),
    "pki": CommandPlace("access.pki_commands", "pki", "Issue and revoke certificates."),
    "etcd": CommandPlace("cluster.etcd_command", "etcd", "Look at the etcd of a cluster."),
    "completion": CommandPlace("shell.completion_command", "completion", "Print what completes the command in a shell."),
    "audit": CommandPlace("access.audit_command", "audit", "Read a replica's audit log."),
}


class RaychedGroup(KubectlGroup):
    """All commands. They are imported when they are called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = CommandTable(_COMMANDS, KubectlCommand)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.says) for name, place in _COMMANDS.items()])


app = typer.Typer(
    name="rayched",
    cls=RaychedGroup,
    help="A pod scheduler with kube-scheduler's semantics, without Kubernetes.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


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
        commit = source_commit()
        out(f"rayched {importlib.metadata.version('rayched')}{'' if commit == UNKNOWN else f', commit {commit}'}")
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
    except (KeyboardInterrupt, typer.Abort):
        # The second one where a question was asked. The terminal has written ^C, and its prompt begins a line.
        if sys.stderr.isatty():
            sys.stderr.write("\n")
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
        if isinstance(error, ImportError) and (package := missing_package(error)):
            note(
                f"error: this needs rayched's server packages, and {package} is not installed; install rayched with its extra "
                "`server`: in a copy of its repository, pip install '.[server]'"
            )
            raise SystemExit(1) from None
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


def _unknown_option(error: typer.TyperException) -> str:
    """What is said of an option that there is not, in the words that an unknown command gets; empty of any other error."""
    possible: list[str] | None = getattr(error, "possibilities", None)
    if not possible:
        return ""
    # Not at the top: most command lines are right.
    import difflib

    from rayched.api.errors import NEAR

    option = getattr(error, "option_name", "")
    near = ", ".join(difflib.get_close_matches(option, possible, cutoff=NEAR))
    return f"{error.message}. Did you mean {near}?" if near else error.message


def _usage_fault(error: typer.TyperException) -> str:
    """What is wrong with the command line, and where it says how it should be."""
    text = " ".join((_unknown_option(error) or error.format_message()).split()).removesuffix(".")
    for said, plain in _PLAIN_WORDS:
        text = text.replace(said, plain)
    context = getattr(error, "ctx", None)
    return text if context is None else f"{text}{' ' if text.endswith('?') else '; '}see {context.command_path} --help"


if __name__ == "__main__":
    main()
