"""States of rows: equal numbers for equal amounts, whatever changed in between."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rayched.snapshot import usage_states
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
    """Rows have equal numbers where all their amounts are equal, and a row that is said to be in a state is."""
    numbers = states.numbers(None if rows is None else np.array(rows, np.intp))
    asked = list(range(snapshot.n_rows)) if rows is None else rows
    amounts = [tuple(snapshot.amounts[:, row].tolist()) for row in asked]
    assert len(set(numbers.tolist())) == len(set(amounts)) == len(set(zip(numbers.tolist(), amounts, strict=True)))
    for number, row in zip(numbers.tolist(), asked, strict=True):
        assert states.of(row) == number
        there = states.row_in(number)
        assert there is None or snapshot.amounts[:, there].tolist() == snapshot.amounts[:, row].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_numbers_are_those_of_the_amounts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a resource comes up, of which all have nothing."""
    monkeypatch.setattr(usage_states, "CHANGED_MAX", 12)
    monkeypatch.setattr(usage_states, "STATES_MIN", 5)
    monkeypatch.setattr(usage_states, "FEW", 16 if seed % 2 else 2)
    random, snapshot = Random(seed), a_cluster()
    states, position, changed = UsageStates(snapshot), snapshot.usage_log.end, set[int]()
    for step in range(150):
        if step == 100:
            snapshot.resource_place("example.com/new")
            for row in range(N_NODES):
                snapshot.usage_log.append(row)
                changed.add(row)
        for number in range(random.choice((0, 1, 1, 2, 5, 9))):
            row = random.randrange(N_NODES)
            if random.random() < 0.1 and (node := snapshot.node(f"n{row}")) is not None:
                snapshot.remove_node(node.metadata.name)
            else:
                snapshot.bind(f"u{step}-{number}", a_template(random.randrange(1, 4)), f"n{row}")
            changed.add(row)
        generation, n_before = states.generation, states.n_states
        states.advance()
        if states.generation != generation:
            assert states.generation == generation + 1
            assert states.staying.tolist() == sorted(set(states.staying.tolist()) & set(range(n_before)))
            assert states.n_states >= len(states.staying)
        assert states.end == snapshot.usage_log.end
        known = states.changed_since(position)
        assert known is None or set(known.tolist()) <= changed
        if known is not None and snapshot.n_nodes == N_NODES:
            assert set(known.tolist()) == changed
        if random.random() < 0.3:
            position, changed = states.end, set()
        if random.random() < 0.5:
            assert_right(states, snapshot, None if random.random() < 0.5 else random.sample(range(N_NODES), 7))
    assert states.generation > 3


def test_a_row_that_did_not_change_keeps_its_state_when_a_resource_comes_up() -> None:
    snapshot = a_cluster()
    states = UsageStates(snapshot)
    assert set(states.numbers(None).tolist()) == {0}
    snapshot.resource_place("example.com/new")
    snapshot.bind("u", a_template(1), "n3")
    states.advance()
    assert states.of(3) == 1 and states.of(4) == 0


def test_states_that_nobody_is_in_are_let_go_of_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_states, "STATES_MIN", 6)
    snapshot = a_cluster()
    states = UsageStates(snapshot)
    states.numbers(None)
    for number in range(6):
        snapshot.bind(f"u{number}", a_template(number + 1), "n3")
        states.advance()
    assert states.n_states == 7 and states.generation == 0
    snapshot.unbind("u5")
    states.advance()
    assert states.generation == 1 and states.staying.tolist() == [0, 6], "no node, n3 with its last pod until now"
    assert states.n_states == 3 and states.room == 8
    assert_right(states, snapshot, None)


def test_where_each_binding_leads_to_a_new_state_there_are_no_more_than_rows_and_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_states, "STATES_MIN", 20)
    random, snapshot = Random(1), a_cluster()
    states = UsageStates(snapshot)
    most = 0
    for number in range(400):
        snapshot.bind(f"u{number}", a_template(number + 1), f"n{random.randrange(N_NODES)}")
        if number > 100:
            snapshot.unbind(f"u{number - 100}")
        if random.random() < 0.7:
            states.advance()
        if random.random() < 0.1:
            states.numbers(None)
        most = max(most, states.n_states)
        assert states.n_states <= 9 * N_NODES / 4 + 20
    assert most > N_NODES and states.generation > 5
