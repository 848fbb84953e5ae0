"""A score outside 0..100 ends an evaluation exactly where its row is one of several feasible ones."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from rayched.engine.engine import Engine
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.columns import Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from tests.engine.spies import Spy, a_template
from tests.engine.toy_plugins import Cordon, Room, a_profile
from tests.snapshot.objects import a_node

N_NODES = 5


class Ranked(Spy):
    """The label "rank" as it is."""

    def score(self, state: Any, rows: Rows) -> ScoreColumn | None:
        return rows.label_int("rank")[0]


class Doubled(Ranked):
    """Twice as much, once it is normalised."""

    def normalize(self, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:
        return 2 * raw


KINDS = {
    "kept": (Ranked("Kept", Log.LABELS), 1),
    "with usage": (Ranked("With usage", Log.LABELS | Log.USAGE), 1),
    "normalised": (Doubled("Normalised", Log.LABELS), 2),
    "normalised with usage": (Doubled("Normalised with usage", Log.LABELS | Log.USAGE), 2),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_a_score_outside_counts_where_several_rows_are_feasible_and_its_own_is_one(kind: str, seed: int) -> None:
    plugin, factor = KINDS[kind]
    random, snapshot = Random(seed), Snapshot()
    ranks, cordoned, full = [1] * N_NODES, [False] * N_NODES, [False] * N_NODES

    def put(number: int) -> None:
        labels = {"rank": str(ranks[number])}
        snapshot.add_node(a_node(f"n{number}", {"cpu": "4", "pods": "10"}, labels=labels, unschedulable=cordoned[number]))

    for number in range(N_NODES):
        put(number)
    engine = Engine(snapshot, a_profile(filters=(Cordon(), Room()), scores=(plugin, Room())))
    told: list[str] = []
    for step in range(120):
        number = random.randrange(N_NODES)
        match random.randrange(3):
            case 0:
                ranks[number] = random.choice((-1, 0, 30, 50, 51, 101, 260))
                put(number)
            case 1:
                cordoned[number] = not cordoned[number]
                put(number)
            case 2:
                full[number] = not full[number]
                if full[number]:
                    snapshot.bind(f"u{number}", a_template("3950m"), f"n{number}")
                else:
                    snapshot.unbind(f"u{number}")
        feasible = [row for row in range(N_NODES) if not cordoned[row] and not full[row]]
        outside = [factor * ranks[row] for row in feasible if not 0 <= factor * ranks[row] <= 100]
        if len(feasible) > 1 and outside:
            with pytest.raises(PluginError, match=rf'plugin "{plugin.name}", \w+: score -?\d+ lies outside 0\.\.100') as caught:
                engine.evaluate(a_template())
            told.append(caught.value.args[0] if caught.value.args else str(caught.value))
            assert int(str(caught.value).split("score ")[1].split()[0]) in outside, f"step {step}"
        else:
            evaluation = engine.evaluate(a_template())
            assert evaluation.feasible.nonzero()[0].tolist() == feasible, f"step {step}"
            if len(feasible) > 1:
                expected = {row: factor * ranks[row] + 97 for row in feasible}
                found = {row: int(evaluation.total[row]) for row in feasible}
                assert found == expected, f"step {step}"
    assert len(told) > 10 and np.mean(full) < 1
