"""Who keeps a template off how many nodes: as if every filter were asked about every row, and never long in one piece."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rayched.engine.engine import Engine
from rayched.engine.rejection_counts import ROWS_AT_ONCE
from rayched.framework.status import Code
from rayched.snapshot.columns import CodeColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.work_budget import AttemptOverBudget
from tests.engine.spies import SlowSpy, Spy, a_snapshot, a_template
from tests.engine.toy_plugins import a_profile

NODES = 3 * ROWS_AT_ONCE + 7


class Picky(Spy):
    """Rejects some rows, by number."""

    def __init__(self, name: str, rejected: set[int]) -> None:
        super().__init__(name)
        self.rejected = rejected

    def filter(self, state: object, rows: Rows) -> CodeColumn | None:
        self.asked.append(("filter", rows.index.tolist()))
        return np.array([Code.UNSCHEDULABLE if row in self.rejected else Code.SUCCESS for row in rows.index.tolist()], np.uint8)


class Silent(Spy):
    def filter(self, state: object, rows: Rows) -> None:
        self.asked.append(("filter", rows.index.tolist()))


@pytest.mark.parametrize("decided", [False, True], ids=["nothing kept", "codes kept"])
@pytest.mark.parametrize("seed", range(5))
def test_each_node_is_counted_for_the_first_filter_that_rejects_it(seed: int, decided: bool) -> None:
    random = Random(seed)
    sets = [{row for row in range(NODES) if random.random() < share} for share in (0.1, 0.5, 0.3)]
    filters = [Picky(f"p{place}", rejected) for place, rejected in enumerate(sets)]
    filters.insert(1, Silent("silent"))
    snapshot = a_snapshot(NODES)
    gone = random.sample(range(NODES), 20)
    for row in gone:
        snapshot.remove_node(f"n{row}")
    engine = Engine(snapshot, a_profile(filters=tuple(filters)))
    template = a_template()
    if decided:
        engine.evaluate(template)
    expected: dict[str, int] = {}
    for row in set(range(NODES)) - set(gone):
        first = next((f"p{place}" for place, rejected in enumerate(sets) if row in rejected), None)
        if first is not None:
            expected[first] = expected.get(first, 0) + 1
    for one in filters:
        one.asked.clear()
    assert engine.rejections(template) == expected
    asked = [rows for one in filters for _, rows in one.asked]
    assert (asked == []) is decided, "codes that decisions keep are not asked for again"
    assert max(map(len, asked), default=0) <= ROWS_AT_ONCE


def test_counting_gives_signs_of_life_and_ends_with_its_budget() -> None:
    snapshot, slow = a_snapshot(NODES), SlowSpy(20e-6)
    slow.code = Code.UNSCHEDULABLE
    signs: list[float] = []
    snapshot.work.use(lambda: slow.now, lambda: signs.append(slow.now))
    engine = Engine(snapshot, a_profile(filters=(slow,)))
    with snapshot.work.of(10.0):
        assert engine.rejections(a_template()) == {"Slow": NODES}
    assert signs == pytest.approx([0.0, 0.01024, 0.02048, 0.03072])
    with snapshot.work.of(0.03), pytest.raises(AttemptOverBudget):
        engine.rejections(a_template())
