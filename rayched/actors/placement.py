"""Where actors run: queue and scheduler on the host of the replica that creates them; only workers may leave it."""

from __future__ import annotations

from typing import Any


def on_this_host() -> Any:
    """Ray's scheduling strategy for an actor beside its creator."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
