"""Which of the shim's children belong to which container."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim.container import ShimContainer
from rayched.nodes.agent.shim.execution import Execution


def orphans_of(
    container: ShimContainer, containers: Collection[ShimContainer], executions: Mapping[int, Execution]
) -> Iterator[int]:
    """Living processes of the container that do not descend from its main process any more."""
    own = os.getpid()
    mains = {one.child for one in containers if one.is_running}
    for child in proc_table.children_of(own):
        if child in mains or (child in executions and executions[child].container is not container):
            continue
        if proc_table.is_alive(child) and _belongs(child, container, containers, executions):
            yield from proc_table.tree_of(child)


def _belongs(
    pid: int, container: ShimContainer, containers: Collection[ShimContainer], executions: Mapping[int, Execution]
) -> bool:
    """By its cookie, by its engine, else by its session; whose is nobody's is the one's that asks."""
    if pid in executions:
        return executions[pid].container is container
    environment = proc_table.environment_of(pid)
    name = environment.get(proc_table.CONTAINER_VARIABLE)
    if name is not None:
        return (name, environment.get(proc_table.ATTEMPT_VARIABLE)) == (container.name, str(container.attempt))
    owner = next((one for one in containers if one.engine is not None and one.engine.owns(pid)), None)
    if owner is not None:
        return owner is container
    session = proc_table.session_of(pid)
    return not any(one.child == session and one is not container for one in containers if one.is_running)
