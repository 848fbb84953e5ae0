"""What an agent finds in its directory when it begins: pods of the one before, each taken over, or left to the cluster's word."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping

from rayched.nodes.agent.disk import NodeDirectory, PodDirectory
from rayched.nodes.agent.pod_runner import PodRunner
from rayched.nodes.agent.runner_context import RunnerContext
from rayched.v1.core_pb2 import Pod

log = logging.getLogger(__name__)


def adopt(
    directory: NodeDirectory, context: RunnerContext, runners: MutableMapping[str, PodRunner], hold: Callable[[Pod], None]
) -> None:
    """Puts a runner into `runners` for each pod that was accepted; none of them starts anything yet. `hold` gets those that have
    not ended. What cannot be taken over is swept when the cluster has said what is to become of it."""
    for one in directory.pods_there():
        try:
            _adopt(one, context, runners, hold)
        except Exception:
            # The others are none the worse for it.
            log.exception("%s cannot be taken over", one.path)
            runners.pop(one.uid, None)


def _adopt(
    directory: PodDirectory, context: RunnerContext, runners: MutableMapping[str, PodRunner], hold: Callable[[Pod], None]
) -> None:
    pod, accepted_at = directory.load_object(), directory.accepted_at()
    if pod is None or accepted_at is None:
        # It was not accepted, so nothing was started.
        directory.remove()
        return
    runner = runners[directory.uid] = PodRunner(context, directory, pod, accepted_at)
    runner.is_held = True
    runner.recover()
    if not runner.has_ended:
        hold(pod)
