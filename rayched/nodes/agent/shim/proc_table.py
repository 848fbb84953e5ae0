"""Processes as /proc shows them: who descends from whom, to which container one belongs, which is which over time.

A process is told apart by pid, start ticks and boot id together: pids are used again. A zombie is dead.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from typing import Final

POD_VARIABLE: Final = "RAYCHED_POD_UID"
CONTAINER_VARIABLE: Final = "RAYCHED_CONTAINER"
ATTEMPT_VARIABLE: Final = "RAYCHED_ATTEMPT"
RUN_VARIABLE: Final = "RAYCHED_RUN"
"""Tells what one further process in an engine's container has begun from all else in it."""
_MONITOR: Final = "conmon"
"""What an engine leaves beside each of its containers, as their parent, with the container's name among its arguments."""


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _stat(pid: int) -> list[str] | None:
    """The fields behind the name, from the state on; None: there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def start_ticks(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def state_of(pid: int) -> str | None:
    """A letter, as T of one that is stopped; None: there is no such process."""
    fields = _stat(pid)
    return None if fields is None else fields[0]


def is_alive(pid: int) -> bool:
    state = state_of(pid)
    return state is not None and state not in "ZX"


def session_of(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[3])


def cpu_ticks(pid: int) -> int:
    """Its own, and those of its children that have ended and were waited for; 0: there is no such process."""
    fields = _stat(pid)
    return 0 if fields is None else sum(map(int, fields[11:15]))


def children_of(pid: int) -> list[int]:
    """Children of all threads, zombies among them."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def tree_of(pid: int) -> list[int]:
    """The process and all that descend from it, parents first."""
    found = [pid]
    for one in found:
        found += children_of(one)
    return found


def environment_of(pid: int) -> dict[str, str]:
    """What it was started with; empty where that cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = file.read()
    except OSError:
        return {}
    pairs = (part.partition(b"=") for part in data.split(b"\0") if part)
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}


def command_of(pid: int) -> list[str]:
    """Its words; empty where that cannot be read."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [word.decode(errors="replace") for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def engine_name(uid: str, container: str, attempt: int) -> str:
    """What an engine knows an attempt by; no other node and no other attempt has it."""
    return f"rayched_{uid}_{container}_{attempt}"


def monitored(pid: int) -> list[str]:
    """The arguments of what an engine leaves beside a container; empty: it is something else."""
    words = command_of(pid)
    return words[1:] if words and os.path.basename(words[0]) == _MONITOR else []


def _ignored(_: int) -> None:
    pass


def processes_of_pod(uid: str, bare: Callable[[int], None] = _ignored) -> Iterator[int]:
    """Living processes that carry the pod's cookie in their environment, wherever they are, and what is below an engine's
    monitor of one of its containers. `bare` is told of each process whose environment is empty or cannot be read: those of
    shims are empty."""
    wanted = f"{POD_VARIABLE}={uid}".encode()
    # Neither names of containers nor numbers have the character that stands between them.
    engine_names = re.compile(rf"rayched_{re.escape(uid)}_[^_]+_[0-9]+")
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                data = file.read()
        except OSError:
            data = b""
        pid = int(name)
        if not data:
            bare(pid)
        elif wanted in data.split(b"\0"):
            if is_alive(pid):
                yield pid
        elif any(map(engine_names.fullmatch, monitored(pid))):
            yield from filter(is_alive, tree_of(pid))


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    """False: there is no such process any more."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
