"""How a pod is told of that waits for a scheduler that is not there: its `schedulerName` is no profile's."""

from __future__ import annotations

from collections.abc import Iterable


def not_served(scheduler_name: str, served: Iterable[str], *, several: bool = False) -> str:
    """Behind the name of a pod, or of several: what it waits for, and which schedulers there are."""
    waits = "wait" if several else "waits"
    return f'{waits} for the scheduler "{scheduler_name}", which is not served here; served: {", ".join(sorted(served))}'
