"""The rows that come next: kept over changes, they are those that sorting all totals gives."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rayched.configuration.profile_building import default_profile
from rayched.engine import runners_up as ranking
from rayched.engine import top_rows as leaders
from rayched.engine.engine import Engine
from rayched.engine.evaluation import Evaluation
from rayched.engine.runners_up import RunnersUp, rank_of, row_of, total_of
from rayched.plugins.in_tree import IN_TREE
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.testing import a_node, a_pod
from rayched.v1.core_pb2 import Node


def in_order(totals: list[int]) -> list[tuple[int, int]]:
    """(row, total) of all feasible rows, by plain sorting."""
    return sorted(((row, total) for row, total in enumerate(totals) if total >= 0), key=lambda one: (-one[1], one[0]))


def decoded(ranks: list[int]) -> list[tuple[int, int]]:
    return [(row_of(rank), total_of(rank)) for rank in ranks]


def test_a_rank_tells_row_and_total_and_the_better_one_is_lower() -> None:
    ones = [(row, total) for row in (0, 1, 70_000) for total in (0, 1, 99, 1 << 40)]
    assert decoded([rank_of(*one) for one in ones]) == ones
    assert sorted(ones, key=lambda one: rank_of(*one)) == sorted(ones, key=lambda one: (-one[1], one[0]))


@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_is_the_beginning_of_the_order_without_gaps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "KEPT", 6)
    random = Random(seed)
    values = random.choice((range(-2, 5), range(-20, 200)))
    totals = np.array([random.choice(values) for _ in range(random.randrange(2, 60))], np.int16)
    known = taken = 0
    following: RunnersUp | None = None
    ties: list[int] = []
    for _ in range(300):
        if following is None or not ties:
            found = following.take_best() if following is not None else None
            taken += found is not None
            best, ties = (int(totals.max()), []) if found is None else found
            plain = (totals == totals.max()).nonzero()[0].tolist()
            assert best == totals.max() and ties in ([], plain)
            if found is None:
                ties = plain
                following = RunnersUp(totals, best, len(ties)) if best >= 0 else None
        if following is not None:
            rest = in_order(totals.tolist())[len(ties) :]
            first = following.first(4)
            known += first is not None
            assert first is None or decoded(first) == rest[:4], f"seed {seed}"
        # Mostly a row that ties gets worse, as after a binding; sometimes any row changes, also to one of those that tie.
        row = random.choice(ties) if ties and random.random() < 0.7 else random.randrange(len(totals))
        old, new = int(totals[row]), random.choice(values)
        totals[row] = new
        if following is None:
            continue
        if row in ties:
            ties.remove(row)
            old = -1
        if new > best:
            following.add_front(ties, best)
            best, ties, new = new, [row], -1
        elif new == best:
            ties, new = sorted([*ties, row]), -1
        following.move(row, old, new)
    assert known > 60 and taken > 10


@pytest.mark.parametrize("seed", range(4))
def test_runs_of_equal_pods_know_the_next_best_as_an_engine_does_that_keeps_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "KEPT", 16)
    monkeypatch.setattr(leaders, "PASSES", 0)
    asked: list[list[int] | None] = []
    first = RunnersUp.first

    def noted(self: RunnersUp, n: int) -> list[int] | None:
        asked.append(first(self, n))
        return asked[-1]

    monkeypatch.setattr(RunnersUp, "first", noted)
    random = Random(seed)
    snapshot, templates, profile = Snapshot(), TemplateTable(), default_profile(IN_TREE)
    for number in range(40):
        snapshot.add_node(a_random_node(random, number, diverse=seed % 4 > 0))
    engine = Engine(snapshot, profile)
    usual, other = (templates.intern(a_pod(cpu=cpu, memory="64Mi")) for cpu in ("20m", "350m"))
    bound: list[str] = []
    for step in range(120):
        kind = random.random()
        if kind < 0.02:
            snapshot.add_node(a_random_node(random, random.randrange(44), diverse=True))
        elif kind < 0.1 and bound:
            snapshot.unbind(bound.pop(random.randrange(len(bound))))
        elif kind < 0.15:
            bind(snapshot, other, snapshot.names[random.randrange(40)], bound, step)
        evaluation = engine.evaluate(usual)
        rest = assert_plain(evaluation, Engine(snapshot, profile).evaluate(usual), f"seed {seed}, step {step}")
        if not rest:
            continue
        bind(snapshot, usual, snapshot.name_of(random.choice(list(evaluation.ties))), bound, step + 1_000)
    assert sum(found is not None for found in asked) > (20 if seed % 4 else -1)


def assert_plain(evaluation: Evaluation, plain: Evaluation, what: str) -> list[tuple[int, int]]:
    """Ties and those who follow are those of the plain evaluation; all of them, in their order."""
    everything = in_order(plain.total.tolist())
    ties = [row for row, total in everything if total == plain.best]
    assert evaluation.best == plain.best and list(evaluation.ties) == ties, what
    before = evaluation.total.copy()
    for n in (1, 4, 5):
        assert decoded(evaluation.runners_up(evaluation.ties, n)) == everything[len(ties) :][:n], what
    assert (evaluation.total == before).all(), what
    return everything


def a_random_node(random: Random, number: int, *, diverse: bool) -> Node:
    cpu, memory = (random.randrange(400, 4000), random.randrange(500, 4000)) if diverse else (4000, 4000)
    return a_node(f"n{number}", cpu=f"{cpu}m", memory=f"{memory}Mi", unschedulable=random.random() < 0.1)


def bind(snapshot: Snapshot, template: PodTemplate, node_name: str, bound: list[str], number: int) -> None:
    if node_name:
        bound.append(f"uid-{number}")
        snapshot.bind(bound[-1], template, node_name)
