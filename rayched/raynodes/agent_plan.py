"""What is started on a node of Ray. A value that travels from the driver to the actor there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """`arguments` stand behind `rayched node NAME`, without the directory. `shutdown_seconds`: what pods have when it ends."""

    name: str
    servers: str
    """HOST:PORT,... of the replicas, which are in the arguments too."""
    root_dir: str
    """Below it the node has a directory of its name; empty: the agent's default on that host."""
    arguments: tuple[str, ...]
    shutdown_seconds: float
    is_certified: bool = False
    """It reaches the replicas with a certificate, and does not start before it has one."""
