"""Statuses of pods on their way out: each is told once, and none of a pod whose object is gone. The agent's loop owns it.

Of a pod only what is told last is on its way, so a removal waits for the answer to the status before it: whoever watches sees how
the pod ended.
"""

from __future__ import annotations

from rayched.nodes.agent.pod_runner import PodRunner
from rayched.nodes.agent.reports import Reporter
from rayched.v1.core_pb2 import Pod, PodStatus
from rayched.v1.services_pb2 import PodStatusUpdate


class PodReports:
    """What was told last, by pod."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._told: dict[str, bytes] = {}
        self._unanswered: dict[str, PodStatusUpdate] = {}
        """The status of a pod that was told last, until somebody has answered it for good."""
        self._to_remove: dict[str, Pod] = {}
        """Pods that are removed once that has happened."""
        self.gone: set[str] = set()
        """Pods whose object is gone while something of them lives."""

    def tell(self, runner: PodRunner) -> None:
        """The pod's status, where it says something new and its object is there."""
        if runner.is_held or runner.is_unsure or runner.uid in self.gone:
            return
        status = runner.status()
        said = status.SerializeToString(deterministic=True)
        if self._told.get(runner.uid) != said:
            self._told[runner.uid] = said
            self.report(runner.life.pod, status)

    def report(self, pod: Pod, status: PodStatus) -> None:
        update = _update_of(pod)
        update.status.CopyFrom(status)
        self._unanswered[pod.metadata.uid] = update
        self._reporter.pod(update)

    def remove(self, pod: Pod) -> None:
        """Nothing of it lives: its object may go, once its last status is there."""
        uid = pod.metadata.uid
        if uid in self._unanswered:
            self._to_remove[uid] = pod
            return
        update = _update_of(pod)
        update.remove = True
        self._reporter.pod(update)

    def answered(self, update: PodStatusUpdate) -> None:
        """For good: it was taken, or is refused."""
        if self._unanswered.get(update.uid) is not update:
            return
        del self._unanswered[update.uid]
        pod = self._to_remove.pop(update.uid, None)
        if pod is not None:
            self.remove(pod)

    def forget(self, uid: str) -> None:
        self._told.pop(uid, None)
        self._unanswered.pop(uid, None)
        self._to_remove.pop(uid, None)
        self.gone.discard(uid)
        self._reporter.forget(uid)


def _update_of(pod: Pod) -> PodStatusUpdate:
    metadata = pod.metadata
    return PodStatusUpdate(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)
