"""The engine and plugins that read counters: when they are asked, by whom, and what becomes of their mistakes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from rayched.engine.engine import Engine
from rayched.engine.shards import ColumnRequest
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.pod_selection import PodSelector
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.transfer import TableCopy
from rayched.v1.core_pb2 import Pod
from tests.engine.spies import a_snapshot, a_template
from tests.engine.toy_plugins import NO, Cordon, Rank, a_profile
from tests.snapshot.objects import a_node

EVERYBODY = (PodSelector(None, ()),)


@dataclass
class Counted:
    pods: list[int]
    n_bytes: int = 8
    adds_nothing: bool = False

    @property
    def revision(self) -> tuple[int, ...]:
        return tuple(self.pods)

    verdict = revision


class Loner:
    """Wants nodes without pods, and of these one from the middle of the feasible ones."""

    name = "Loner"
    reads = Log.LABELS

    def __init__(self) -> None:
        self.counted: list[Counted | None] = []
        self.broken = ""
        self.factor = 1

    def key(self, pod: Pod) -> Hashable | None:
        return "all"

    def prepare(self, pod: Pod) -> Any:
        return None

    def count(self, state: None, cluster: Snapshot, last: Counted | None) -> Counted:
        self.counted.append(last)
        if self.broken == "count":
            raise ValueError("lost count")
        return Counted(cluster.pod_counts.counter(EVERYBODY).column.tolist())

    def filter(self, state: Counted, rows: Rows) -> CodeColumn:
        return np.array([NO if state.pods[row] else 0 for row in rows.index.tolist()], np.uint8)

    def reasons(self, state: Counted, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:
        return (("not alone", codes != 0),)

    def score(self, state: Counted, rows: Rows) -> ScoreColumn:
        return np.arange(rows.n, dtype=np.int64)

    def normalize_rows(self, state: Counted, rows: Rows, raw: ScoreColumn) -> ScoreColumn:
        return (100 - abs(raw - rows.n // 2)) * self.factor


class NoShards:
    """Answers nothing, and remembers who was asked for."""

    always = True

    def __init__(self) -> None:
        self.plugins: set[str] = set()

    def pays(self, seconds: float) -> bool:
        return True

    def begin(self, requests: Sequence[ColumnRequest], n_rows: int, seconds: float, *, ahead: bool) -> None:
        self.plugins |= {request.plugin for request in requests}


def loner() -> tuple[Loner, Snapshot, Engine]:
    plugin, snapshot = Loner(), a_snapshot()
    return plugin, snapshot, Engine(snapshot, a_profile(filters=(Cordon(), plugin), scores=(plugin,)))


def test_it_counts_once_until_something_changes_and_gets_back_what_it_said() -> None:
    plugin, snapshot, engine = loner()
    template = a_template()
    for _ in range(3):
        assert engine.evaluate(template).feasible.all()
    assert plugin.counted == [None]
    snapshot.bind("1", template, "n3")
    for _ in range(3):
        engine.evaluate(template)
    engine.diagnose(template)
    engine.explain(template)
    assert len(plugin.counted) == 2
    assert plugin.counted[1] is not None and not any(plugin.counted[1].pods)
    snapshot.update_node(a_node("n5", {"cpu": "9", "pods": "10"}, labels={"rank": "1", "zone": "y"}))
    engine.evaluate(template)
    assert len(plugin.counted) == 2, "it reads no usage"


def test_its_filter_hides_rows_and_its_score_is_asked_about_exactly_the_others() -> None:
    _, snapshot, engine = loner()
    template = a_template()
    snapshot.update_node(a_node("n0", {"cpu": "4", "pods": "10"}, unschedulable=True))
    for number in (4, 7):
        snapshot.bind(str(number), template, f"n{number}")
    evaluation = engine.evaluate(template)
    assert evaluation.feasible.nonzero()[0].tolist() == [1, 2, 3, 5, 6, 8, 9]
    assert evaluation.total[evaluation.feasible].tolist() == [97, 98, 99, 100, 99, 98, 97]
    rows = engine.explain(template).rows
    assert rows.total[rows.feasible].tolist() == [97, 98, 99, 100, 99, 98, 97]
    left_out = engine.evaluate(template, without=np.array([1, 2, 9], np.intp))
    assert left_out.best_rows.tolist() == [6]
    assert engine.diagnose(template).reasons == {"not alone": 2, Cordon.reason: 1}


def test_workers_are_never_asked_for_it() -> None:
    plugin, workers = Loner(), NoShards()
    engine = Engine(a_snapshot(), a_profile(filters=(Cordon(), plugin), scores=(Rank(), plugin)), workers)
    engine.evaluate(a_template())
    engine.diagnose(a_template())
    assert workers.plugins == {"Cordon", "Rank"}
    with pytest.raises(TypeError, match=r"Loner.*only a whole Snapshot"):
        Engine(TableCopy(), a_profile(filters=(plugin,))).evaluate(a_template())


def test_what_it_raises_and_scores_out_of_range_end_the_attempt_and_leave_nothing_behind() -> None:
    plugin, snapshot, engine = loner()
    template = a_template()
    engine.evaluate(template)
    plugin.broken = "count"
    snapshot.bind("1", template, "n3")
    for _ in range(2):
        with pytest.raises(PluginError, match='plugin "Loner", PreFilter: ValueError: lost count'):
            engine.evaluate(template)
    plugin.broken, plugin.factor = "", 2
    with pytest.raises(PluginError, match=r'plugin "Loner", NormalizeScore: score \d+ lies outside 0..100'):
        engine.evaluate(template)
    assert plugin.counted[-1] is None, "what it said before its mistake is not relied on"
    plugin.factor = 1
    assert engine.evaluate(template).feasible.tolist() == [True] * 3 + [False] + [True] * 6
