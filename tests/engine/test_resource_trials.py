"""Rows that are tried together find what rows that are tried one by one do."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rayched.engine.free_resources import FreeResources
from rayched.engine.resource_trials import PodsOfRows, tried_together
from rayched.snapshot.templates import PodTemplate
from tests.engine.spies import TEMPLATES, a_snapshot, a_template
from tests.engine.test_free_resources import NEEDS
from tests.snapshot.objects import a_pod


@pytest.mark.parametrize("seed", range(6))
def test_together_is_row_by_row(seed: int) -> None:
    random, snapshot = Random(seed), a_snapshot(9)
    for number in range(40):
        pod = a_pod({"cpu": f"{random.randrange(200, 1800)}m", "memory": f"{random.randrange(2048)}Mi"})
        snapshot.bind(f"u{number}", TEMPLATES.intern(pod), f"n{random.randrange(8)}")
    rows = random.sample(range(9), 7)
    pods: list[list[PodTemplate]] = [list(snapshot.pods_on(f"n{row}").values()) for row in rows]
    for there in pods:
        random.shuffle(there)
    coming = {row: [a_template(f"{random.randrange(500, 4500)}m")] for row in random.sample(rows, 3)}
    width = max(map(len, pods))
    there = np.arange(width) < np.array([len(of_row) for of_row in pods])[:, None]
    numbers = np.zeros(there.shape, np.intp)
    numbers[there] = snapshot.template_amounts.numbers([template for of_row in pods for template in of_row])
    room = FreeResources(snapshot, NEEDS)
    found = tried_together(room, rows, PodsOfRows(there, numbers), coming)
    for place, row in enumerate(rows):
        expected = room.stay(row, pods[place], coming.get(row, ()))
        assert found.fits.item(place) == (expected is not None)
        stays = (~found.gone[place, : len(pods[place])]).tolist()
        assert expected is None or stays == list(expected)
        assert not found.gone[place, len(pods[place]) :].any(), "nobody is there"
    assert not found.gone[~found.fits].any()
