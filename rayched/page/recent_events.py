"""The latest Events of the cluster, each once as it is now. Pure."""

from __future__ import annotations

from typing import Any, Final

from rayched.api.columns import event_time
from rayched.v1.core_pb2 import Event

KEPT_MAX: Final = 500
NEWS_MAX: Final = 200
"""Told at once; of more than these only the latest are."""
_MESSAGE_CHARACTERS_MAX: Final = 1_000


class RecentEvents:
    """Keeps those that changed last. `sequence` grows with each."""

    def __init__(self) -> None:
        self.sequence = 0
        self._kept: dict[str, tuple[int, dict[str, Any]]] = {}

    def see(self, event: Event) -> None:
        """An Event as it is now; one that counted further takes the place of what it was."""
        uid = event.metadata.uid
        self.sequence += 1
        self._kept.pop(uid, None)
        self._kept[uid] = (self.sequence, plain_event(event))
        if len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]

    def since(self, sequence: int) -> list[dict[str, Any]]:
        """What changed after `sequence`, the latest last."""
        found: list[dict[str, Any]] = []
        for at, plain in reversed(self._kept.values()):
            if at <= sequence or len(found) == NEWS_MAX:
                break
            found.append(plain)
        return found[::-1]


def plain_event(event: Event) -> dict[str, Any]:
    about = event.involved_object
    return {
        "uid": event.metadata.uid,
        "revision": int(event.metadata.resource_version or 0),
        "type": event.type,
        "reason": event.reason,
        "kind": about.kind,
        "namespace": about.namespace,
        "name": about.name,
        "message": event.message[:_MESSAGE_CHARACTERS_MAX],
        "count": max(1, event.count),
        "at": event_time(event),
    }
