"""What pods take up, as followed through positions, against the table itself."""

from __future__ import annotations

import numpy as np
import pytest

from rayched.snapshot import change_log, unused_values
from rayched.snapshot.allocated_rows import AllocatedRows, allocated_rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import CPU, MEMORY, PODS, NodeTable
from rayched.snapshot.templates import TemplateTable
from tests.engine.toy_clusters import World
from tests.snapshot.objects import a_node, a_pod

GI = 1 << 30
OWN = "5f0e"
TEMPLATES = TemplateTable()


class Follower:
    """Whoever keeps what it is told."""

    def __init__(self) -> None:
        self.position = ""
        self.known: dict[str, tuple[int, ...]] = {}
        self.answers: list[AllocatedRows] = []

    def follow(self, table: NodeTable, rows_max: int = 100, between: object = None) -> None:
        """Until there is no more; `between` is called after each answer that is not the last one."""
        while True:
            found = allocated_rows(table, OWN, self.position, rows_max=rows_max)
            assert len(found.names) <= rows_max and found.amounts.shape == (3, len(found.names))
            if found.begins_anew:
                self.known.clear()
            self.known.update(zip(found.names, map(tuple, found.amounts.T.tolist()), strict=True))
            self.position = found.position
            self.answers.append(found)
            if not found.more:
                return
            if callable(between):
                between()


def taken(table: NodeTable) -> dict[str, tuple[int, ...]]:
    return {name: tuple(table.requested[[CPU, MEMORY, PODS], row].tolist()) for name, row in table.rows_by_name.items()}


@pytest.mark.parametrize("rows_max", [1, 3, 100])
@pytest.mark.parametrize("seed", range(3))
def test_whoever_follows_knows_what_the_table_has(seed: int, rows_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "ENTRIES_MAX", 12)
    monkeypatch.setattr(unused_values, "INTERNED_MIN", 10)
    monkeypatch.setattr(unused_values, "INTERNED_PER_PLACE_MAX", 1)
    world, follower = World(seed), Follower()
    for _ in range(150):
        for _ in range(world.random.choice((1, 1, 5, 40))):
            world.step()
        follower.follow(world.snapshot, rows_max, between=world.step)
        # What changed between the parts of one answer comes with the next one.
        follower.follow(world.snapshot, max(rows_max, 100))
        there = taken(world.snapshot)
        assert {name: follower.known[name] for name in there} == there
    assert any(not one.begins_anew for one in follower.answers) and any(one.begins_anew for one in follower.answers)


@pytest.fixture
def snapshot() -> Snapshot:
    """Three nodes, and a pod on the second one."""
    found = Snapshot()
    for number in range(3):
        found.add_node(a_node(f"node-{number}"))
    bind(found, "first", "node-1")
    return found


def bind(snapshot: Snapshot, uid: str, node: str) -> None:
    snapshot.bind(uid, TEMPLATES.intern(a_pod({"cpu": "500m", "memory": "1Gi"})), node)


def test_only_what_changed_comes_to_whoever_knows_the_rest(snapshot: Snapshot) -> None:
    follower = Follower()
    follower.follow(snapshot)
    assert follower.known == {"node-0": (0, 0, 0), "node-1": (500, GI, 1), "node-2": (0, 0, 0)}
    follower.follow(snapshot)
    assert follower.answers[-1].names == () and not follower.answers[-1].begins_anew
    bind(snapshot, "second", "node-2")
    bind(snapshot, "third", "node-2")
    follower.follow(snapshot)
    assert follower.answers[-1].names == ("node-2",) and follower.known["node-2"] == (1_000, 2 * GI, 2)
    # A row that is free has no name, and what comes into it has its own.
    snapshot.remove_node("node-1")
    follower.follow(snapshot)
    assert follower.answers[-1].names == ()
    snapshot.add_node(a_node("node-9"))
    follower.follow(snapshot)
    assert follower.answers[-1].names == ("node-9",) and follower.known["node-9"] == (0, 0, 0)


def test_no_nodes_are_a_whole_answer() -> None:
    found = allocated_rows(Snapshot(), OWN, "")
    assert (found.begins_anew, found.more, found.names) == (True, False, ())
    assert not allocated_rows(Snapshot(), OWN, found.position).begins_anew


def test_a_position_tells_of_what_has_been_given_and_of_nothing_else(snapshot: Snapshot) -> None:
    first = allocated_rows(snapshot, OWN, "", rows_max=2)
    assert (first.begins_anew, first.more, first.names) == (True, True, ("node-0", "node-1"))
    second = allocated_rows(snapshot, OWN, first.position, rows_max=2)
    assert (second.begins_anew, second.more, second.names) == (False, False, ("node-2",))
    # Whoever asks again gets the same again.
    again = allocated_rows(snapshot, OWN, first.position, rows_max=2)
    assert (again.names, again.position) == (second.names, second.position)
    assert np.array_equal(again.amounts, second.amounts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "...",
        "other.0.4.-",
        f"{OWN}.0.4",
        f"{OWN}.1.4.-",
        f"{OWN}.0.-1.-",
        f"{OWN}.0.999.-",
        f"{OWN}.0.4.x",
        f"{OWN}.0.4.--",
        f"{OWN}.0.٣.-",
        f"{OWN}.0.4.-\n",
        f"{OWN}.0.{'9' * 5_000}.-",
        f"{OWN}.0.4." + "0" * 21,
        f"{OWN}.0.4.4",
        f"{OWN}.0.4.{10**19}",
        "\x1b[31m" * 100_000,
    ],
)
def test_of_what_is_no_position_all_nodes_come(snapshot: Snapshot, text: str) -> None:
    found = allocated_rows(snapshot, OWN, text)
    assert (found.begins_anew, found.more, len(found.names)) == (True, False, 3)
    assert len(found.position) < 64


def test_resources_that_are_asked_for_come_behind_the_others() -> None:
    table = Snapshot()
    for name in ("a", "b"):
        table.add_node(a_node(name, {"cpu": "4", "pods": "9", "example.com/gpu": "8"}))
    table.bind("first", TEMPLATES.intern(a_pod({"cpu": "1", "example.com/gpu": "3"})), "b")
    found = allocated_rows(table, OWN, "", ("nobody.io/has-it", "example.com/gpu", "memory"))
    assert found.amounts.T.tolist() == [[0, 0, 0, 0, 0, 0], [1_000, 0, 1, 0, 3, 0]]
    assert allocated_rows(table, OWN, found.position, ("example.com/gpu",)).amounts.shape == (4, 0)
