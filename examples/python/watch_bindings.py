"""Submits fifty pods and, beside it, prints each binding as it happens. The watch goes on through the death of any replica."""

import asyncio

from rayched.client import AsyncClient
from rayched.v1.core_pb2 import Pod

COUNT = 50


def a_pod(number: int) -> Pod:
    pod = Pod()
    pod.metadata.name = f"worker-{number}"
    pod.metadata.labels["app"] = "worker"
    container = pod.spec.containers.add(name="main", image="registry.example/worker:1")
    container.resources.requests["cpu"].string = "10m"
    return pod


async def print_bindings(client: AsyncClient) -> None:
    bound = set()
    async with client.watch("pods", label_selector="app=worker") as events:
        async for event in events:
            pod = event.object
            if isinstance(pod, Pod) and pod.spec.node_name and pod.metadata.name not in bound:
                bound.add(pod.metadata.name)
                print(f"revision {event.revision}: {pod.metadata.name} to {pod.spec.node_name}")
            if len(bound) == COUNT:
                return


async def main() -> None:
    async with AsyncClient() as client:
        watching = asyncio.create_task(print_bindings(client))
        await client.submit([a_pod(number) for number in range(COUNT)])
        async with asyncio.timeout(30):
            await watching
        async for pod in client.list("pods", label_selector="app=worker"):
            await client.delete("pod", pod.metadata.name, grace_period_seconds=0)


asyncio.run(main())
