"""The commands of an engine about one attempt of a container, as its specification has them."""

from __future__ import annotations

from dataclasses import dataclass

from rayched.nodes.agent.shim import proc_table


@dataclass(frozen=True, slots=True)
class EngineCommands:
    """`name`: what the engine knows the attempt by. Each but `exec` is a whole command."""

    name: str
    state: list[str]
    """Prints an object with Status, Pid, ExitCode, OOMKilled, StartedAt."""
    remove: list[str]
    """Kills what there is of it, too."""
    exec: list[str]
    """Followed by options, the name and the words of the program."""

    def exec_argv(self, argv: list[str], cookie: str, *, stdin: bool, terminal: bool) -> list[str]:
        """For a further process in it; what that begins has the cookie in its environment."""
        options = [*(["--interactive"] if stdin else []), *(["--tty"] if terminal else [])]
        return [*self.exec, *options, "--env", f"{proc_table.RUN_VARIABLE}={cookie}", self.name, *argv]

    def owns(self, pid: int) -> bool:
        """Whether that is what the engine has left beside the attempt."""
        return self.name in proc_table.monitored(pid)
