"""Who could have to go on a row: its pods of lower priority in the order of their importance, after any change."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from rayched.scheduler.candidates import Victim, candidate, lowest
from rayched.scheduler.potential_victims import PotentialVictims
from rayched.snapshot import change_log
from rayched.snapshot.pod_facts import PodFacts
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.template_amounts import TemplateAmounts
from rayched.snapshot.templates import PodTemplate, TemplateTable
from tests.core.builders import a_node, a_pod

N_NODES = 6


class World:
    def __init__(self, seed: int) -> None:
        self.random, self.snapshot, templates = Random(seed), Snapshot(), TemplateTable()
        for number in range(N_NODES):
            self.snapshot.add_node(a_node(f"n{number}"))
        self.templates = [
            templates.intern(a_pod("one", cpu=cpu, priority=priority)) for cpu in ("1", "2") for priority in (-1, 0, 3, 10)
        ]
        self.bound: dict[str, tuple[int, PodTemplate, float]] = {}

    def step(self) -> None:
        random = self.random
        uid = f"u{random.randrange(30)}"
        if uid in self.bound and random.random() < 0.5:
            del self.bound[uid]
            self.snapshot.unbind(uid)
            return
        row, template = random.randrange(N_NODES), random.choice(self.templates)
        if uid in self.bound and random.random() < 0.5:
            # Nothing but its facts changes.
            row, template, _ = self.bound[uid]
        self.bound[uid] = row, template, random.choice((1.0, 5.0, 5.0, math.inf))
        self.snapshot.bind(uid, template, f"n{row}", facts=PodFacts(started=self.bound[uid][2]))

    def below(self, row: int, priority: int) -> list[tuple[int, float, str]]:
        """Priority and start of the row's pods, the most important first; those that tie in their order on the node."""
        there = [(uid, *self.bound[uid][1:]) for uid in self.snapshot.pods_on(f"n{row}")]
        lower = [(template.priority, started, uid) for uid, template, started in there if template.priority < priority]
        return sorted(lower, key=lambda one: (-one[0], one[1]))


@pytest.mark.parametrize("entries", [3, 1 << 16])
@pytest.mark.parametrize("seed", range(4))
def test_they_are_the_pods_of_lower_priority_by_importance(seed: int, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "ENTRIES_MAX", entries)
    world = World(seed)
    snapshot, random = world.snapshot, world.random
    # Few numbers, so that they begin anew every now and then.
    snapshot.template_amounts = TemplateAmounts(lambda template: snapshot.vectors_of(template)[0], limit=4)
    potential = PotentialVictims(snapshot)
    for step in range(120):
        for _ in range(random.choice((0, 1, 2, 9))):
            world.step()
        potential.refresh()
        priority, what = random.choice((-5, 0, 3, 4, 99)), f"seed {seed}, step {step}"
        rows = random.sample(range(N_NODES), random.randint(1, N_NODES))
        expected = {row: world.below(row, priority) for row in rows}
        for row in rows if random.random() < 0.7 else ():
            found = [(one.pod.template.priority, one.pod.facts.started, one.uid) for one in potential.below(row, priority)]
            assert found == expected[row], what
        pods, priorities, started = potential.below_together(rows, priority)
        assert pods.there.shape == priorities.shape == started.shape == (len(rows), max(map(len, expected.values()))), what
        for place, row in enumerate(rows):
            there = pods.there[place]
            assert there.tolist() == [slot < len(expected[row]) for slot in range(len(there))], "those of a row come first"
            assert list(zip(priorities[place][there], started[place][there], strict=True)) == [one[:2] for one in expected[row]]
            numbers = snapshot.template_amounts.numbers([world.bound[uid][1] for _, _, uid in expected[row]])
            assert pods.numbers[place][there].tolist() == numbers, what


def test_a_row_is_looked_at_again_only_where_its_pods_changed() -> None:
    world = World(0)
    for _ in range(60):
        world.step()
    potential = PotentialVictims(world.snapshot)
    before = [potential.below(row, 5) for row in range(N_NODES)]
    potential.refresh()
    uid, (row, template, _) = next(iter(world.bound.items()))
    world.snapshot.bind(uid, template, f"n{row}", facts=PodFacts(started=7.0))
    potential.refresh()
    every = [potential._rows.get(other) is not None for other in range(N_NODES)]
    assert every == [other != row for other in range(N_NODES)] and before


# ------------------------------------------------------------------------------------------------------------ candidates


@pytest.mark.parametrize("seed", range(5))
def test_the_lowest_ranks_are_those_that_comparing_all_criteria_in_turn_finds(seed: int) -> None:
    """Fewer violations, a lower priority, a lower sum of priorities, fewer victims, a later start."""
    random, world = Random(seed), World(seed)
    for _ in range(60):
        world.step()
    victims = [Victim(uid, world.snapshot.known(uid)) for uid in world.bound]
    for _ in range(50):
        found = []
        for row in range(random.randint(1, 7)):
            some = sorted(random.sample(victims, random.randint(1, 3)), key=lambda one: one.importance)
            found.append(candidate(row, some, random.choice((0, 0, 1))))
        ranks = []
        for one in found:
            pods = [victim.pod for victim in one.victims]
            most = max(pod.template.priority for pod in pods)
            started = min(pod.facts.started for pod in pods if pod.template.priority == most)
            ranks.append((one.n_violating, most, sum(pod.template.priority + 2**31 for pod in pods), len(pods), -started))
        assert [one.rank for one in found] == ranks
        ties = lowest(np.array(ranks, np.float64)).tolist()
        assert ties == [place for place, rank in enumerate(ranks) if rank == min(ranks)]
