"""What `ray start` has no flag for. It calls the function named in RAY_START_HOOK with its parameters before all else.

* The server for drivers from elsewhere: 45 MB and a second of CPU, for nobody.
* The raylet's two agents, for metrics of a dashboard and for environments that actors bring along: 130 MB and 1.5 s of CPU. The
  raylet insists on them: it starts both, ends with them, and waits for the ports that they write into files. A shell takes their
  places, which says that no service is there, as Ray's own agents do where a service is off.
* All that `ray start` has loaded, once it only waits for the processes that it has started: 55 MB. Another program waits in the
  same process.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

HOOK: Final = "rayched.replica.ray.ray_start_hook.leave_out_what_nobody_uses"

_AGENTS: Final = {
    "--dashboard_agent_command=": ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port"),
    "--runtime_env_agent_command=": ("runtime_env_agent_port",),
}
"""The raylet's flags, and the ports it waits for."""
_NO_SERVICE: Final = -1

# Ends when one of the processes does, or with SIGTERM, and then ends all of them, as `ray start --block` would.
_WAITER: Final = """
import os, signal, sys
pids = [int(pid) for pid in sys.argv[1:]]
def end(code):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os._exit(code)
signal.signal(signal.SIGTERM, lambda *_: end(0))
while os.wait()[0] not in pids:
    pass
end(1)
"""


def leave_out_what_nobody_uses(parameters: Any, _head: bool) -> None:
    from ray._private import services
    from ray._private.node import Node

    parameters.ray_client_server_port = None
    services.start_ray_process = without_agents(services.start_ray_process)
    # It looks for dead processes first of all when it has nothing left to do, and then every second.
    Node.dead_processes = lambda node: wait_for(_pids_of(node))


def wait_for(pids: Sequence[int]) -> NoReturn:
    """This process is another program from here on, whose children these are still."""
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", _WAITER, *map(str, pids)])


def _pids_of(node: Any) -> list[int]:
    return [one.process.pid for some in node.all_processes.values() for one in some]


def without_agents(start: Callable[..., Any]) -> Callable[..., Any]:
    """Ray's function that starts a process, given a command as a list of arguments."""

    @functools.wraps(start)
    def started(command: list[str], *arguments: Any, **named: Any) -> Any:
        return start([_without_agent(argument, command) for argument in command], *arguments, **named)

    return started


def _without_agent(argument: str, command: list[str]) -> str:
    for flag, ports in _AGENTS.items():
        if argument.startswith(flag):
            directory, node = (_value(command, f"--{name}=") for name in ("session_dir", "node_id"))
            files = [shlex.quote(f"{directory}/{port}_{node}") for port in ports]
            # The raylet looks for the files again and again, and ends when it finds one that is still empty.
            written = "".join(f"printf %s {_NO_SERVICE} > {file}.new && mv {file}.new {file}; " for file in files)
            return flag + shlex.join(["/bin/sh", "-c", f"{written}exec sleep infinity"])
    return argument


def _value(command: list[str], flag: str) -> str:
    return next(argument.removeprefix(flag) for argument in command if argument.startswith(flag))
