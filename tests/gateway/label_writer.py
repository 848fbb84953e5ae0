"""A program that changes a label of each of several pods again and again: the changes of a long watch.

    python -m tests.gateway.label_writer SERVER NAMESPACE PODS CHANGES

Pods are `web-0` and so on. The label `number` goes up from 0, one change after the other for a pod, for all pods at once.
"""

from __future__ import annotations

import asyncio
import sys

from rayched.client import AsyncClient

LABEL = "number"


def pod_name(number: int) -> str:
    return f"web-{number}"


async def _write(server: str, namespace: str, pods: int, changes: int) -> None:
    async with AsyncClient(server, timeout_seconds=60.0) as client:

        async def one(name: str) -> None:
            for number in range(changes):
                await client.label("pods", name, namespace, add={LABEL: str(number)}, overwrite=True)

        await asyncio.gather(*(one(pod_name(number)) for number in range(pods)))


if __name__ == "__main__":
    _, where, place, n_pods, n_changes = sys.argv
    asyncio.run(_write(where, place, int(n_pods), int(n_changes)))
