"""What is said, by a thread of its own, while somebody waits for a pod to run: why it does not, and again when that changes."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Final, Self

from rayched.api import kinds
from rayched.api.columns import node_status
from rayched.cli.printing import note
from rayched.cli.scheduling.schedulers import missing_scheduler
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Node, Pod

QUIET_SECONDS: Final = 2.0
"""Most pods run by then, and nobody wants to read of them."""
LOOK_SECONDS: Final = 1.0


class PodPatience:
    """Says why one pod does not run. Owner: the thread that waits for the pod, which shows each state that it sees."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._what = f"pod {namespace}/{name}"
        self._pod: Pod | None = None
        self._told = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="patience", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()

    def see(self, pod: Pod) -> None:
        """That a scheduler has tried it in vain is said at once: it may have to wait for long."""
        self._pod = pod
        if _has_begun(pod):
            self._over.set()
        elif why := _unscheduled(pod):
            self._tell(why)

    def _look(self) -> None:
        seconds = QUIET_SECONDS
        while not self._over.wait(seconds):
            seconds = LOOK_SECONDS
            pod = self._pod
            # What `see` tells by itself is not told twice where both are at it.
            if pod is None or _unscheduled(pod):
                continue
            try:
                why = why_waiting(self._client, pod)
            except ApiError:
                # A change of leaders, or somebody who may read no nodes: the next look may know more.
                continue
            if not self._over.is_set() and pod is self._pod:
                self._tell(why)

    def _tell(self, why: str) -> None:
        if why != self._told:
            self._told = why
            note(f"waiting for {self._what}: {why}")


def why_waiting(client: Client, pod: Pod) -> str:
    """Why a pod that has not begun does not run, in words. Raises ApiError."""
    node = pod.spec.node_name
    if not node:
        if missing := missing_scheduler(client, pod):
            return f'its scheduler "{pod.spec.scheduler_name}" is {missing}'
        return _unscheduled(pod) or "Pending, no node is chosen yet"
    try:
        found = client.get(kinds.NODE, node)
    except ApiError as error:
        if error.code.name != "NOT_FOUND":
            raise
        return f"it is bound to node {node}, which is not there any more"
    status = node_status(found) if isinstance(found, Node) else ""
    if not status.startswith("Ready"):
        return f"it is bound to node {node}, which is not Ready"
    waiting = next((one.state.waiting for one in pod.status.container_statuses if one.state.HasField("waiting")), None)
    said = ": ".join(part for part in (waiting.reason, waiting.message) if part) if waiting is not None else ""
    return f"it is bound to node {node}, which has not started it yet{f' ({said})' if said else ''}"


def _unscheduled(pod: Pod) -> str:
    """What the condition says of a pod that has no node."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and not pod.spec.node_name:
            return ": ".join(part for part in (condition.reason, condition.message) if part)
    return ""


def _has_begun(pod: Pod) -> bool:
    states = [status.state for status in pod.status.container_statuses]
    return pod.status.phase not in ("", "Pending") or any(one.HasField("running") or one.HasField("terminated") for one in states)
