"""The runners of a node as node-pressure eviction sees them: where they are, who could go, what can be freed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.container_life import ContainerStep
from rayched.nodes.agent.disk import remove_or_log
from rayched.nodes.agent.eviction.signals import OF_MEMORY, Signal
from rayched.nodes.agent.pod_life import PodEnding, PodLife
from rayched.nodes.agent.pod_runner import PodRunner
from rayched.nodes.agent.pressure import PressurePorts
from rayched.nodes.agent.stats import PodPlace


class RunningPods:
    """Used in the agent's loop; the runners are the agent's own."""

    def __init__(self, runners: Mapping[str, PodRunner]) -> None:
        self._runners = runners

    def ports(
        self,
        post: Callable[[Callable[[], None]], None],
        clock: Callable[[], float],
        pressures: Callable[[Iterable[str]], None],
        node_event: Callable[[PodEvent], None],
        metrics: AgentMetrics,
        remove_images: Callable[[], int],
    ) -> PressurePorts:
        """Of whoever looks after the node's pressure."""
        return PressurePorts(
            *(post, clock, self.places, self.lives, self.evict, pressures, self.kill, self.reclaim, node_event, metrics),
            remove_images,
        )

    def places(self) -> list[PodPlace]:
        return [
            PodPlace(uid, runner.directory.path, runner.directory.logs_of(runner.life.pod), runner.shim_pid)
            for uid, runner in self._runners.items()
        ]

    def lives(self) -> list[PodLife]:
        """Of pods of which something may run, those that end included."""
        return [runner.life for runner in self._runners.values() if any(one.is_present for one in runner.life.containers)]

    def evict(self, uid: str, ending: PodEnding) -> None:
        runner = self._runners[uid]
        runner.life.tell(PodEvent("Warning", ending.reason, ending.message))
        runner.life.end(ending)
        runner.step()

    def kill(self, uid: str, container: str) -> None:
        """For want of memory: it is restarted by policy."""
        self._runners[uid].out_of_memory(container)

    def reclaim(self, signal: Signal) -> bool:
        """Removes what ended containers have on disk: their directories, and the logs of pods that have ended."""
        if signal in OF_MEMORY or signal is Signal.PID:
            return False
        found = False
        for runner in self._runners.values():
            for one in runner.life.containers:
                for attempt in runner.directory.attempts(one.name):
                    if attempt == one.attempt and one.step is not ContainerStep.ENDED:
                        continue
                    work = runner.directory.attempt_path(one.name, attempt) / "work"
                    found = found or work.exists()
                    remove_or_log(work)
            if runner.life.has_ended:
                logs = runner.directory.logs_of(runner.life.pod)
                found = found or logs.exists()
                remove_or_log(logs)
        return found
