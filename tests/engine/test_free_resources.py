"""Room on single rows and in columns: the same amounts, with and without pods that come or go."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rayched.engine import free_resources
from rayched.engine.free_resources import FreeResources
from rayched.framework.resource_needs import ResourceNeed, ResourceNeeds
from rayched.framework.status import Code
from rayched.snapshot.snapshot import Snapshot
from tests.engine.spies import TEMPLATES, a_snapshot, a_template
from tests.snapshot.objects import a_pod

NEEDS = ResourceNeeds(
    [
        ResourceNeed("pods", 1, "too many", False),
        ResourceNeed("cpu", 1000, "cpu", True),
        ResourceNeed("memory", 1 << 30, "memory", True),
    ]
)


def a_room(seed: int) -> tuple[Random, Snapshot, FreeResources]:
    random, snapshot = Random(seed), a_snapshot(8)
    for number in range(30):
        pod = a_pod({"cpu": f"{random.randrange(100, 1500)}m", "memory": f"{random.randrange(2048)}Mi"})
        snapshot.bind(f"u{number}", TEMPLATES.intern(pod), f"n{random.randrange(8)}")
    return random, snapshot, FreeResources(snapshot, NEEDS)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_is_what_is_offered_less_what_pods_request(seed: int) -> None:
    random, snapshot, room = a_room(seed)
    coming = [(a_template(f"{random.randrange(200, 900)}m"), random.randrange(8)) for _ in range(5)]
    found = room.left_of(slice(0, 8), coming)
    for row in range(8):
        there = [template for template, at in coming if at == row]
        bound = list(snapshot.pods_on(f"n{row}").values())
        amounts = [sum(column) for column in zip((1, 1000, 1 << 30), *map(room.amounts, [*bound, *there]), strict=True)]
        expected = [free - taken for free, taken in zip((10, 4000, 8 << 30), amounts, strict=True)]
        assert room.left(row, there) == expected == found[:, row].tolist()
        assert room.fits(row, there) == (min(expected) >= 0)
        bits = sum(1 << place for place, left in enumerate(expected) if left < 0)
        assert room.short(row, there) == (bits, Code.UNSCHEDULABLE if bits else Code.SUCCESS)


@pytest.mark.parametrize("seed", range(4))
def test_pods_stay_in_their_order_as_long_as_there_is_room(seed: int) -> None:
    _, snapshot, room = a_room(seed)
    for row in range(8):
        pods = list(snapshot.pods_on(f"n{row}").values())
        left = [4000 - 1000, (8 << 30) - (1 << 30), 10 - 1]
        expected = []
        for one in pods:
            n_pods, cpu, memory = room.amounts(one)
            after = [left[0] - cpu, left[1] - memory, left[2] - n_pods]
            expected.append(min(after) >= 0)
            left = after if expected[-1] else left
        assert room.stay(row, pods) == tuple(expected)
    assert room.stay(0, [], [a_template("4")] * 2) is None, "not even without any"


def test_a_row_that_never_had_room_says_so() -> None:
    snapshot = a_snapshot(2, cpu="500m")
    room = FreeResources(snapshot, NEEDS)
    assert room.short(1) == (0b010, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
    assert room.final_of(slice(0, 2)).tolist() == [True, True]


def test_amounts_are_kept_of_so_many_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_resources, "VECTORS_MAX", 2)
    room = FreeResources(a_snapshot(1), NEEDS)
    for number in (1, 2, 3, 1):
        assert room.amounts(a_template(f"{number}"))[1] == 1000 * number
        assert len(room._vectors) <= 2
    assert room.amounts_of(np.zeros((0,), np.intp)).shape == (3, 0)
