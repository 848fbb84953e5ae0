"""The waiting list: pods that hold their reservation while Permit plugins make up their minds.

A waiting pod leaves the list decided: allowed by every plugin that asked to wait, rejected by one, or timed out at one. The list
only decides; whoever owns the attempts acts on what `take_decided` returns.

Owner: the Scheduler. Plugins reach it through `PermitHandle`.
Source: waitingPodsMap and waitingPod of kube-scheduler 1.34.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rayched.framework.status import SUCCESS, Code, Status


class PermitHandle(Protocol):
    """What a Permit plugin may do to pods that wait, its own or others' (a pod group's last member allows the first ones)."""

    def waiting(self) -> Iterator[WaitingPod]: ...

    def allow(self, uid: str, plugin: str) -> bool:
        """One plugin gives its consent. False: the pod does not wait."""

    def reject(self, uid: str, plugin: str, message: str) -> bool:
        """Ends the wait with a rejection. False: the pod does not wait."""


@runtime_checkable
class UsesPermitHandle(Protocol):
    """A plugin that wants the handle; it is given once, before the first attempt."""

    def use_permit_handle(self, handle: PermitHandle) -> None: ...


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """One pod of the list, as people and plugins see it. Times in seconds."""

    uid: str
    key: str
    node_name: str
    since: float
    pending: Mapping[str, float]
    """Plugins still waited for, with the time at which each gives up."""


@dataclass(frozen=True, slots=True)
class PermitDecision:
    uid: str
    status: Status


@dataclass(slots=True)
class _Entry:
    key: str
    node_name: str
    since: float
    pending: dict[str, float]


class WaitingPods:
    """The list, its timeouts and the decisions not yet acted upon."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._decided: list[PermitDecision] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def add(self, uid: str, key: str, node_name: str, timeouts: Mapping[str, float], now: float) -> None:
        """`timeouts`: seconds by plugin."""
        pending = {plugin: now + seconds for plugin, seconds in timeouts.items()}
        self._entries[uid] = _Entry(key, node_name, now, pending)

    def waiting(self) -> Iterator[WaitingPod]:
        for uid, entry in list(self._entries.items()):
            yield WaitingPod(uid, entry.key, entry.node_name, entry.since, dict(entry.pending))

    def allow(self, uid: str, plugin: str) -> bool:
        entry = self._entries.get(uid)
        if entry is None:
            return False
        entry.pending.pop(plugin, None)
        if not entry.pending:
            self._decide(uid, SUCCESS)
        return True

    def reject(self, uid: str, plugin: str, message: str) -> bool:
        if uid not in self._entries:
            return False
        self._decide(uid, Status(Code.UNSCHEDULABLE, (message,), plugin))
        return True

    def remove(self, uid: str) -> bool:
        """Drops the pod undecided, also where a decision about it was not yet taken."""
        self._decided = [decided for decided in self._decided if decided.uid != uid]
        return self._entries.pop(uid, None) is not None

    def next_deadline(self) -> float | None:
        """When the next wait times out; a time in the past where decisions wait to be taken."""
        if self._decided:
            return float("-inf")
        return min((deadline for entry in self._entries.values() for deadline in entry.pending.values()), default=None)

    def take_decided(self, now: float) -> list[PermitDecision]:
        """Decisions since the last call, those of waits that have timed out by now included."""
        for uid, entry in list(self._entries.items()):
            plugin, deadline = min(entry.pending.items(), key=lambda item: item[1])
            if deadline <= now:
                waited = deadline - entry.since
                self.reject(uid, plugin, f"rejected due to timeout after waiting {waited:g}s at plugin {plugin}")
        decided, self._decided = self._decided, []
        return decided

    def _decide(self, uid: str, status: Status) -> None:
        del self._entries[uid]
        self._decided.append(PermitDecision(uid, status))
