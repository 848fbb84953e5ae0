"""Rows of a few named nodes that no filter rejects are those that the naive cluster finds, whatever was kept of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rayched.engine import prefiltered_rows
from rayched.engine.domain_state import DomainState
from rayched.engine.free_resources import FreeResources as RoomOf
from rayched.engine.plugin_facts import VOLATILE
from rayched.engine.prefiltered_rows import PrefilteredRows
from rayched.engine.prepared import PreparedPlugin
from rayched.framework.resource_needs import ResourceNeed, ResourceNeeds
from rayched.snapshot.columns import CodeColumn, RowIndex
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Pod
from tests.engine.test_counting_against_naive import a_world
from tests.engine.toy_clusters import World
from tests.engine.toy_counting import Zones
from tests.engine.toy_plugins import Cordon, Ports, Rank, Room, Taints

NAMES = [f"n{number}" for number in range(1, 16, 2)]


class WatchedCordon(Cordon):
    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def filter(self, state: Any, rows: Rows) -> CodeColumn:
        self.asked.append(rows.index.tolist())
        return super().filter(state, rows)


class Bench:
    def __init__(self, world: World, pod: Pod, *, in_numbers: bool) -> None:
        self.world, self.pod, self.cordon = world, pod, WatchedCordon()
        snapshot, self.n_looked = world.snapshot, 0
        self.asked: list[PreparedPlugin] = []
        for plugin in (self.cordon, Taints(), Rank(), Ports(), Room(), Zones()):
            key = plugin.key(pod)
            if key is None:
                continue
            kind = DomainState if isinstance(plugin, Zones) else PreparedPlugin
            more = (snapshot,) if isinstance(plugin, Zones) else ()
            self.asked.append(kind(plugin.name, plugin, plugin.prepare(pod), b"", *more))  # type: ignore[arg-type]
        cpu = world.naive.cpu(pod)
        room = RoomOf(snapshot, ResourceNeeds([ResourceNeed("cpu", cpu, "no room", False)])) if in_numbers else None
        self.rows = PrefilteredRows(snapshot, self.asked, self.looked_at, VOLATILE, room)

    def looked_at(self) -> RowIndex:
        self.n_looked += 1
        rows = [row for row in map(self.world.snapshot.row_of, NAMES) if row is not None]
        return np.array(sorted(rows), np.intp)

    def check(self, what: str) -> None:
        naive, snapshot = self.world.naive, self.world.snapshot
        there = [node for name, node in naive.nodes.items() if name in NAMES]
        expected = sorted(snapshot.row_of(node.metadata.name) or 0 for node in there if naive.rejecting(self.pod, node) is None)
        assert self.rows.feasible().tolist() == expected, what


@pytest.mark.parametrize("rows_max", [0, 3, 16])
@pytest.mark.parametrize("in_numbers", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_they_are_those_that_the_naive_cluster_finds(
    seed: int, in_numbers: bool, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefiltered_rows, "FEW", rows_max)
    world = a_world(seed)
    benches = []
    for pod in world.pending:
        if in_numbers:
            # Room is all that the filters come down to which bindings change, apart from counting ones.
            del pod.spec.containers[0].ports[:]
            pod.spec.containers[0].resources.requests.pop("x/gpu", None)
        benches.append(Bench(world, pod, in_numbers=in_numbers))
    for step in range(60):
        for _ in range(world.random.choice((0, 1, 2, 5))):
            world.step()
        for number, bench in enumerate(benches):
            bench.check(f"seed {seed}, step {step}, pod {number}")


def test_filters_that_read_node_objects_are_asked_again_only_when_one_changed() -> None:
    world = a_world(1)
    bench = Bench(world, world.pending[0], in_numbers=False)
    bench.check("first")
    for number in range(5):
        world.bind()
        bench.check(f"binding {number}")
    assert bench.n_looked == len(bench.cordon.asked) == 1
    name = next(name for name in world.naive.nodes if name in NAMES)
    for unschedulable in (True, False):
        world.naive.nodes[name].spec.unschedulable = unschedulable
        world.snapshot.add_node(world.naive.nodes[name])
        bench.check(f"cordoned: {unschedulable}")
    assert bench.n_looked == len(bench.cordon.asked) <= 3
