"""Rows on trial are rows of a table on which the same pods really came and went."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rayched.engine.trial_rows import TrialRows, numbers_of
from tests.engine.spies import TEMPLATES, a_snapshot
from tests.snapshot.objects import a_pod


@pytest.mark.parametrize("seed", range(5))
def test_pods_that_are_put_count_as_if_they_were_bound(seed: int) -> None:
    random = Random(seed)
    snapshot, real = a_snapshot(6), a_snapshot(6)
    pods = [a_pod({"cpu": f"{100 * (n + 1)}m"}, ports=[("TCP", 80 + n % 2, "")] if n % 3 else ()) for n in range(5)]
    templates = [TEMPLATES.intern(pod) for pod in pods]
    index = np.array(sorted(random.sample(range(6), 4)), np.intp)
    there: list[tuple[int, int]] = []
    trial = TrialRows.begin(snapshot, index, templates)
    for step in range(40):
        places = [random.randrange(4) for _ in range(random.choice((0, 1, 3)))]
        numbers = [random.randrange(5) for _ in places]
        sign = 1
        if there and random.random() < 0.4:
            places, numbers = ([one] for one in there.pop(random.randrange(len(there))))
            sign = -1
            real.unbind(f"u{places[0]}-{numbers[0]}-{sum(1 for one in there if one == (places[0], numbers[0]))}")
        else:
            for place, number in zip(places, numbers, strict=True):
                count = sum(1 for one in there if one == (place, number))
                real.bind(f"u{place}-{number}-{count}", templates[number], f"n{index[place]}")
                there.append((place, number))
        trial.put(numbers_of(places), numbers_of(numbers), sign)
        where = f"seed {seed}, step {step}"
        assert (trial.requested[0] == real.requested[0, index]).all(), where
        for port in (80, 81):
            users = trial.port_users("TCP", port, templates[1].host_ports[0][2])
            expected = [
                sum(1 for place, number in there if place == at and any(used[1] == port for used in templates[number].host_ports))
                for at in range(4)
            ]
            assert users.tolist() == expected, where
        changes = {template.id: column.tolist() for template, column in trial.changes}
        for number, template in enumerate(templates):
            counts = [sum(1 for one in there if one == (place, number)) for place in range(4)]
            assert changes.get(template.id, [0] * 4) == counts, where
    assert (snapshot.requested[0, :6] == 0).all(), "the table stays as it is"


def test_a_copy_of_some_rows_goes_its_own_way() -> None:
    snapshot = a_snapshot(4)
    template = TEMPLATES.intern(a_pod({"cpu": "300m"}))
    trial = TrialRows.begin(snapshot, np.array([0, 2, 3], np.intp), [template])
    trial.put(numbers_of([0, 2]), numbers_of([0, 0]), 1)
    some = trial.only(np.array([2, 1], np.intp))
    assert some.index.tolist() == [3, 2] and some.requested[0].tolist() == [300, 0]
    some.put(numbers_of([1]), numbers_of([0]), 1)
    assert some.requested[0].tolist() == [300, 300] and trial.requested[0].tolist() == [300, 0, 300]
    assert trial.would_be and some.changes[0][1].tolist() == [1, 1]
    trial.put(numbers_of([]), numbers_of([]), 1)
    assert len(trial.changes) == 1
