"""Pod groups that are in no queue: they may not be tried before something else has come, as another member."""

from __future__ import annotations

from typing import NamedTuple

from rayched.api import kinds
from rayched.client.client import Client
from rayched.v1.services_pb2 import ListQueueResponse
from rayched.v1.workloads_pb2 import PodGroup

ENTRY_PREFIX = "podgroup:"
"""Of the name of a group in the queue."""
_CONDITION = "PodGroupInitiallyScheduled"


class HeldGroup(NamedTuple):
    """A group that is held back, and its own condition's words for it."""

    namespace: str
    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.namespace}/{ENTRY_PREFIX}{self.name} is held back: {self.message}"


def held_groups(client: Client, namespace: str, name: str, queued: ListQueueResponse) -> list[HeldGroup]:
    """Of one namespace or all, of one name in the queue or all. None where `queued` leaves out entries: it may be one of them."""
    if queued.total > len(queued.pods) or (name and not name.startswith(ENTRY_PREFIX)):
        return []
    there = {(pod.namespace, pod.name) for pod in queued.pods}
    found: list[HeldGroup] = []
    for group in client.list(kinds.POD_GROUP, namespace=namespace):
        assert isinstance(group, PodGroup)
        metadata, entry = group.metadata, f"{ENTRY_PREFIX}{group.metadata.name}"
        said = next((one for one in group.status.conditions if one.type == _CONDITION and one.status == "False"), None)
        if said is not None and name in ("", entry) and (metadata.namespace, entry) not in there:
            found.append(HeldGroup(metadata.namespace, metadata.name, said.message))
    return found
