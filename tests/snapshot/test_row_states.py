"""States of rows: equal numbers for equal amounts, whatever changed in between."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rayched.snapshot import usage_states as row_states
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.snapshot.usage_states import UsageStates
from tests.snapshot.objects import a_node, a_pod

N_NODES = 30
TEMPLATES = TemplateTable()


def a_cluster() -> Snapshot:
    snapshot = Snapshot()
    for number in range(N_NODES):
        snapshot.add_node(a_node(f"n{number}"))
    return snapshot


def a_template(milli_cpu: int) -> PodTemplate:
    return TEMPLATES.intern(a_pod({"cpu": f"{milli_cpu}m"}))


def assert_right(states: UsageStates, snapshot: Snapshot, rows: list[int] | None) -> None:
    """Rows have equal numbers where all their amounts are equal, and each number stands for the amounts of its rows."""
    numbers = states.numbers(None if rows is None else np.array(rows, np.intp))
    assert numbers is not None
    asked = list(range(snapshot.n_rows)) if rows is None else rows
    amounts = [tuple(snapshot.amounts[:, row].tolist()) for row in asked]
    assert len(set(numbers.tolist())) == len(set(amounts)) == len(set(zip(numbers.tolist(), amounts, strict=True)))
    there = states.rows(0, len(states))
    for number, row in zip(numbers.tolist(), asked, strict=True):
        alone = Rows(snapshot, slice(row, row + 1))
        for found in (there, states.rows(number, number + 1)):
            place = number if found is there else 0
            assert found.requested[:, place].tolist() == alone.requested[:, 0].tolist()
            assert found.allocatable[:, place].tolist() == alone.allocatable[:, 0].tolist()
            assert found.non_zero_requested[:, place].tolist() == alone.non_zero_requested[:, 0].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_numbers_are_those_of_the_amounts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_states, "CHANGED_MAX", 12)
    random, snapshot = Random(seed), a_cluster()
    states, position, changed = UsageStates(snapshot), snapshot.usage_log.end, set[int]()
    for step in range(150):
        for number in range(random.choice((0, 1, 1, 2, 5, 9))):
            row = random.randrange(N_NODES)
            if random.random() < 0.1 and (node := snapshot.node(f"n{row}")) is not None:
                snapshot.remove_node(node.metadata.name)
            else:
                snapshot.bind(f"u{step}-{number}", a_template(random.randrange(1, 4)), f"n{row}")
            changed.add(row)
        states.advance()
        assert states.end == snapshot.usage_log.end
        known = states.changed_since(position)
        assert known is None or set(known.tolist()) <= changed
        if known is not None and snapshot.n_nodes == N_NODES:
            assert set(known.tolist()) == changed
        if random.random() < 0.3:
            position, changed = states.end, set()
        if random.random() < 0.5:
            assert_right(states, snapshot, None if random.random() < 0.5 else random.sample(range(N_NODES), 7))
        if random.random() < 0.1:
            n_before = len(states)
            staying = states.keep_used()
            assert len(states) == len(staying) <= n_before and staying.tolist() == sorted(set(staying.tolist()))


def test_states_that_nobody_is_in_are_let_go_when_that_is_asked_for() -> None:
    snapshot = a_cluster()
    states = UsageStates(snapshot)
    assert states.numbers(None) is not None and len(states) == 1
    for number in range(6):
        snapshot.bind(f"u{number}", a_template(number + 1), "n3")
        states.advance()
    assert len(states) == 7
    assert states.keep_used().tolist() == [0, 6]
    assert_right(states, snapshot, None)
    assert len(states) == 2


def test_of_very_many_rows_some_are_looked_up_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_states, "NUMBERED_MAX", 12)
    snapshot = a_cluster()
    states = UsageStates(snapshot)
    assert states.numbers(None) is None
    assert states.numbers(None) is None
    assert_right(states, snapshot, None)


def test_whoever_reads_more_than_usage_of_a_state_is_told_and_new_resources_make_states_void() -> None:
    snapshot = a_cluster()
    states = UsageStates(snapshot)
    states.numbers(None)
    rows = states.rows(0, 1)
    assert rows.n == 1 and len(rows.alive) == 0 and len(rows.taint_set) == 0
    assert not states.is_void
    snapshot.resource_place("example.com/new")
    assert states.is_void
