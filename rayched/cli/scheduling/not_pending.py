"""What is said where `queue` finds nothing: of a pod that was named, whether it is there, and where."""

from __future__ import annotations

from rayched.api import kinds
from rayched.cli.printing import fail
from rayched.cli.scheduling.held_groups import ENTRY_PREFIX
from rayched.client.client import Client
from rayched.v1.core_pb2 import Pod

_NOTHING = "No pending pods found"


def nothing_pending(client: Client, namespace: str, name: str) -> list[str]:
    """Lines. Ends the command where no pod, or no group, has the name; without a namespace it is looked for in all."""
    if not name:
        return [_NOTHING]
    is_group = name.startswith(ENTRY_PREFIX)
    kind, plain_name = (kinds.POD_GROUP, name.removeprefix(ENTRY_PREFIX)) if is_group else (kinds.POD, name)
    found = list(client.list(kind, namespace=namespace, field_selector=f"metadata.name={plain_name}"))
    if not found:
        place = f"{namespace}/{plain_name} not found" if namespace else f"{plain_name} not found in any namespace"
        fail(f"{kind.name} {place}")
    places = [f"pod {one.metadata.namespace}/{plain_name} is not pending: {_place(one)}" for one in found if _is_placed(one)]
    return places or [_NOTHING]


def _is_placed(item: object) -> bool:
    return isinstance(item, Pod) and (bool(item.spec.node_name) or item.status.phase not in ("", "Pending"))


def _place(item: object) -> str:
    assert isinstance(item, Pod)
    phase = item.status.phase or "Pending"
    return f"it is on node {item.spec.node_name} ({phase})" if item.spec.node_name else f"it has ended ({phase})"
