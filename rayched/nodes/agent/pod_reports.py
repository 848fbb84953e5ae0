"""Statuses of pods on their way out: each is told once, and none of a pod whose object is gone. The agent's loop owns it."""

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

    def report(self, pod: Pod, status: PodStatus | None) -> None:
        """None: it is to be removed."""
        metadata = pod.metadata
        update = PodStatusUpdate(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid, remove=status is None)
        if status is not None:
            update.status.CopyFrom(status)
        self._reporter.pod(update)

    def forget(self, uid: str) -> None:
        self._told.pop(uid, None)
        self.gone.discard(uid)
        self._reporter.forget(uid)
