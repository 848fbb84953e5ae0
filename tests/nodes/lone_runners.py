"""Runners of pods with real shims and a real loop, and no cluster: what they tell is kept for the test."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rayched.nodes.agent.actions import PodEvent
from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.agent_settings import boottime_of, steady_clock
from rayched.nodes.agent.disk import NodeDirectory
from rayched.nodes.agent.drivers.container_driver import ContainerDriver
from rayched.nodes.agent.drivers.node_drivers import NodeDrivers
from rayched.nodes.agent.drivers.podman_client import PodmanClient
from rayched.nodes.agent.drivers.podman_driver import PODMAN, PodmanDriver
from rayched.nodes.agent.drivers.process_driver import PROCESS, ProcessDriver
from rayched.nodes.agent.fence_guard import FenceGuard
from rayched.nodes.agent.leftovers import Leftovers, shims_of
from rayched.nodes.agent.loop import AgentLoop
from rayched.nodes.agent.pod_runner import PodRunner
from rayched.nodes.agent.runner_context import RunnerContext
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.workers import Workers
from rayched.v1.core_pb2 import Pod, PodStatus
from rayched.v1.workloads_pb2 import RuntimeClass
from tests.nodes.bare_shim import until
from tests.nodes.real_node import AgentThread, a_pod, settings

NOWHERE = "127.0.0.1:1"
T = TypeVar("T")


class LoneRunners:
    """Of one node's directory. `events`: (pod, reason). What is asked of a runner is asked in its loop, by `ask`. `podman`: the
    program of that driver, which pods of any RuntimeClass have."""

    def __init__(self, root: Path, cgroups: Path | None = None, podman: Path | None = None) -> None:
        chosen = settings(root, "alone")
        self.loop = AgentLoop(steady_clock)
        self.directory = NodeDirectory(root, traversable=True)
        self.directory.open("alone")
        self.events: list[tuple[str, str]] = []
        self.runners: dict[str, PodRunner] = {}
        self.begun: set[str] = set()
        """Those that go on by themselves."""
        self.guard = FenceGuard(cgroups)
        self._pools = [ThreadPoolExecutor(2) for _ in range(2)]
        metrics = AgentMetrics("alone", "tree")
        workers = Workers(self._pools[0], self.loop.post)
        self.leftovers = Leftovers(Workers(self._pools[1], self.loop.post), self.loop.later, cgroups, metrics)
        drivers: list[ContainerDriver] = [ProcessDriver(chosen.policy, cgroups)]
        if podman is not None:
            drivers.append(PodmanDriver(PodmanClient(str(podman)), chosen.policy, root))
        self.context = RunnerContext(
            node="alone",
            address="127.0.0.1",
            memory_capacity=1 << 30,
            drivers=NodeDrivers(drivers, PROCESS, root / "pods", lambda _: RuntimeClass(handler=PODMAN), metrics),
            restart_cap=1.0,
            clock=steady_clock,
            boottime_of=boottime_of,
            random=random.Random(1),
            post=self.loop.post,
            post_later=self.loop.later,
            workers=workers,
            probers=self._pools[0],
            leftovers=self.leftovers,
            guard=self.guard,
            incarnation=lambda: 7,
            watch_link=self.loop.look_after,
            event=self._told,
            metrics=metrics,
            cgroups=cgroups,
        )
        self._thread = threading.Thread(target=self.loop.run, args=(self._wakes_at, self._turn), daemon=True)

    def _told(self, pod: Pod, event: PodEvent) -> None:
        self.events.append((pod.metadata.name, event.reason))

    def _wakes_at(self) -> float:
        return min((one.wakes_at() for one in self.runners.values()), default=float("inf"))

    def _turn(self) -> None:
        for one in list(self.runners.values()):
            if one.uid in self.begun:
                one.step()

    def begin(self) -> None:
        self.guard.start()
        self._thread.start()

    def end(self) -> None:
        if self._thread.is_alive():
            self.loop.post(self.loop.stop)
            self._thread.join(30.0)
        self.guard.stop(5.0)
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)
        self.directory.close()

    def ask(self, call: Callable[[], T]) -> T:
        return self.loop.ask(call, 60.0)

    def run(
        self, name: str, *command: str, policy: str = "Always", grace: int = 1, image: str = "", **annotations: str
    ) -> PodRunner:
        """A pod that is accepted now, and that nobody has begun with; its uid is its name. `image`: it is one of an engine."""
        pod = a_pod("alone", name, *command, policy=policy, grace=grace)
        if image:
            pod.spec.runtime_class_name, pod.spec.containers[0].image = "boxed", image
        pod.metadata.uid, pod.metadata.namespace = name, "default"
        for key, text in annotations.items():
            pod.metadata.annotations[key] = text
        directory = self.directory.pod(name)
        directory.make()
        directory.save_object(pod)
        directory.accept(steady_clock())

        def accept() -> PodRunner:
            runner = self.runners[name] = PodRunner(self.context, directory, pod, steady_clock())
            return runner

        return self.ask(accept)

    def started(self, name: str, *command: str, **options: Any) -> PodRunner:
        """One whose container runs."""
        runner = self.run(name, *command, **options)
        self.begin_with(runner)
        self.runs(runner)
        return runner

    def begin_with(self, runner: PodRunner) -> None:
        def begin() -> None:
            self.begun.add(runner.uid)
            runner.step()

        self.ask(begin)

    def status(self, runner: PodRunner) -> PodStatus:
        return self.ask(runner.status)

    def runs(self, runner: PodRunner, restarts: int = 0) -> None:
        def holds() -> bool:
            (one,) = self.status(runner).container_statuses or (None,)
            return one is not None and one.state.HasField("running") and one.restart_count == restarts

        until(holds, f"{runner.uid} runs, restarted {restarts} times")


@contextmanager
def lone_runners(root: Path, cgroups: Path | None = None, podman: Path | None = None) -> Iterator[LoneRunners]:
    """All shims of it are killed at the end, with what they run."""
    found = LoneRunners(root, cgroups, podman)
    found.begin()
    try:
        yield found
    finally:
        found.end()
        for uid in found.runners:
            for shim in shims_of(uid):
                for pid in reversed(proc_table.tree_of(shim)):
                    proc_table.kill(pid)


@contextmanager
def lone_agent(root: Path) -> Iterator[AgentThread]:
    """An agent that reaches no cluster; the test tells it what the cluster would."""
    found = AgentThread(settings(root, "alone"), NOWHERE)
    until(lambda: (root / "agent.lock").exists() and found.agent._loop.ask(lambda: True, 30.0), "it runs")
    try:
        yield found
    finally:
        found.stop()
        assert found.error is None
