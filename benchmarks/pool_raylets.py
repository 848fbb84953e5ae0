"""A pool on a Ray cluster of several nodes, one of which dies under load: the second part of `make pool`.

Three raylets on this host with two CPUs each, a replica that runs `--workers 6` on them by `--ray-address`, and plugins in the
simple form, so that each new template is work for all of them. After a third of the time one raylet is killed. Demanded:

* nothing is lost, bound twice or over capacity, and no pod lies where its filter forbids it,
* bindings come at the rate of submissions again within 5 s, for as long as the load lasts,
* the pool has six workers before, and those of the other raylets after the kill.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.load import SteadyLoad, small_pods
from benchmarks.pool_plugins import SimpleFilter, SimpleScore, is_liked
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import Rehearsal, RehearsalFailed, scratch_directory
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.testing.plugins import configuration_with, python_path_with
from rayched.testing.raylets import RayletCluster
from rayched.v1.core_pb2 import Pod

RAYLETS: Final = 3
CPUS: Final = 2
BACK_SECONDS_MAX: Final = 5.0
_NODES: Final = 2_000
_PODS_A_TEMPLATE: Final = 10
_BACK_SHARE: Final = 0.9
"""Of the rate of submissions; over a second, in which bindings come in batches."""
_POOL_SECONDS_MAX: Final = 120.0
_LAST_SECONDS_MAX: Final = 60.0


@dataclass(slots=True)
class RayletKill:
    """What was seen."""

    rate: float
    """Submissions a second."""
    before: float
    """Bindings a second before the kill."""
    back_seconds: float | None
    """From the kill until bindings keep up again; None: never."""
    workers: tuple[int, int]
    """Before and after."""
    local_evaluations: int
    bound: int
    acknowledged: int
    forbidden: int
    """Pods on nodes that the filter forbids."""
    words: list[str]
    """Of the auditor; empty: nothing wrong."""

    @property
    def is_met(self) -> bool:
        return (
            not self.words
            and not self.forbidden
            and self.bound == self.acknowledged
            and self.workers == (RAYLETS * CPUS, (RAYLETS - 1) * CPUS)
            and self.back_seconds is not None
            and self.back_seconds <= BACK_SECONDS_MAX
        )


def _pods() -> Iterator[Pod]:
    """Each ten of a template that nobody has seen before."""
    for number, pod in enumerate(small_pods("pool")):
        pod.metadata.labels["template"] = str(number // _PODS_A_TEMPLATE)
        yield pod


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """For processes that start meanwhile."""
    before = {name: os.environ.get(name) for name in more}
    os.environ |= more
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def killed_raylet(seconds: float, rate: float) -> RayletKill:
    """One run under load of so many seconds and pods a second. Raises RehearsalFailed, ReplicaFailed, RayletsFailed, ApiError."""
    plugins = {"SimpleFilter": SimpleFilter, "SimpleScore": SimpleScore}
    nodes = hollow_nodes(_NODES, 3, NodeShape({"cpu": "64", "memory": "256Gi", "pods": "250"}))
    with (
        scratch_directory("pool") as directory,
        _environment({"PYTHONPATH": python_path_with(plugins, directory / "plugins")}),
        RayletCluster(RAYLETS, CPUS) as raylets,
    ):
        config = directory / "config.yaml"
        config.write_text(configuration_with(plugins), encoding="utf-8")
        options = ["--workers", str(RAYLETS * CPUS), "--ray-address", raylets.address, "--config", str(config)]
        with (
            _environment(raylets.environment),
            Rehearsal(directory / "cluster", nodes, 1, options=options, agents=False) as rehearsal,
        ):
            return _under_load(rehearsal, raylets, seconds, rate)


def _under_load(rehearsal: Rehearsal, raylets: RayletCluster, seconds: float, rate: float) -> RayletKill:
    def workers() -> int:
        return sum(1 for one in rehearsal.client.scheduler_status().pool if one.ray_node)

    _wait(lambda: workers() == RAYLETS * CPUS, "the pool is not complete")
    load = SteadyLoad(rehearsal.client, _pods(), rate).start()
    try:
        time.sleep(seconds / 3)
        before, killed_at = workers(), time.monotonic()
        raylets.kill(RAYLETS - 1)
        time.sleep(2 * seconds / 3)
    finally:
        load.stop()
    ended_at = time.monotonic()
    if load.refused:
        raise RehearsalFailed(f"a submission was refused: {load.refused[0]}")
    rehearsal.acknowledged += load.acknowledged
    rehearsal.wait_until_bound(len(load.acknowledged), _LAST_SECONDS_MAX)
    _wait(lambda: workers() == (RAYLETS - 1) * CPUS, "workers of a dead raylet count")
    status = rehearsal.client.scheduler_status()
    verdict = rehearsal.verdict()
    times = [one.seconds for one in rehearsal.follower.ask(lambda auditor: list(auditor.bindings))]
    pods = [one for one in rehearsal.client.list_all("pods").objects if isinstance(one, Pod)]
    return RayletKill(
        rate=load.achieved,
        before=sum(killed_at - seconds / 6 <= at < killed_at for at in times) / (seconds / 6),
        back_seconds=back_after(times, killed_at, ended_at, load.achieved),
        workers=(before, workers()),
        local_evaluations=status.worker_local_evaluations,
        bound=verdict.bound,
        acknowledged=len(load.acknowledged),
        forbidden=sum(not is_liked(pod, pod.spec.node_name) for pod in pods),
        words=verdict.words,
    )


def back_after(times: Sequence[float], killed_at: float, ended_at: float, rate: float) -> float | None:
    """Seconds from the kill until the backlog that it left is gone: from then on bindings keep up with submissions.

    Bound between the kill and a moment is what was submitted meanwhile, less a second's worth under way.
    """
    bound = sorted(at - killed_at for at in times if at >= killed_at)
    for place, at in enumerate(bound):
        # All later moments, too: who is behind again was not back.
        if all(place + more + 1 >= _BACK_SHARE * rate * (later - 1.0) for more, later in enumerate(bound[place:])):
            return at if bound[-1] >= ended_at - killed_at - 1.0 else None
    return None


def _wait(condition: Any, failure: str) -> None:
    deadline = time.monotonic() + _POOL_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise RehearsalFailed(failure)
        time.sleep(0.2)


def tell(found: RayletKill) -> None:
    rows = [
        ("pods submitted a second", f"{found.rate:.0f}"),
        ("bound a second before the kill", f"{found.before:.0f}"),
        ("bindings keep up again after", "never" if found.back_seconds is None else f"{found.back_seconds:.1f} s"),
        ("workers before, after", f"{found.workers[0]}, {found.workers[1]}"),
        ("evaluations in the place of workers", str(found.local_evaluations)),
        ("acknowledged, bound", f"{found.acknowledged}, {found.bound}"),
        ("on nodes that their filter forbids", str(found.forbidden)),
        ("lost, twice, over capacity", "; ".join(found.words) or "none"),
        ("", "met" if found.is_met else "missed"),
    ]
    printing.plain_table(("one of three raylets killed", ""), rows)
