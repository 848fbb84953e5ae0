"""A diagnosis counts each node's first failing filter and its reasons."""

from __future__ import annotations

import numpy as np

from rayched.engine.diagnosing import diagnose_rows, rejected_outright, row_reasons
from rayched.engine.prepared import PreparedPlugin
from rayched.engine.row_evaluation import filter_rows
from rayched.framework.status import Code, Status, unresolvable
from rayched.snapshot.rows import Rows
from tests.engine.spies import a_snapshot
from tests.engine.toy_plugins import Cordon, Room
from tests.snapshot.objects import a_node

TOO_MUCH = 10_000


def prepared(cpu: int = TOO_MUCH) -> list[PreparedPlugin]:
    return [PreparedPlugin("cordon", Cordon(), None, b""), PreparedPlugin("room", Room(), (cpu, 0), b"")]


def test_prefilters_word_is_every_nodes() -> None:
    found = rejected_outright(7, 9, unresolvable("no such volume").by("Volumes"), ["Names"])
    assert found.codes.tolist() == [Code.UNSCHEDULABLE_AND_UNRESOLVABLE] * 9 and found.failing.tolist() == [-1] * 9
    assert (found.unschedulable_plugins, found.pending_plugins) == ({"Names", "Volumes"}, frozenset())
    assert found.rejections == {"Volumes": 7}
    waiting = rejected_outright(7, 9, Status(Code.PENDING, ("not yet",), "Gate"), [])
    assert (waiting.unschedulable_plugins, waiting.pending_plugins) == (frozenset(), {"Gate"})


def test_the_first_failing_filter_of_a_row_counts_and_no_later_one() -> None:
    snapshot = a_snapshot(4)
    snapshot.update_node(a_node("n1", {"cpu": "4"}, unschedulable=True))
    rows = Rows(snapshot, slice(0, 4))
    filters = prepared()
    columns = [one.codes for one in filter_rows(filters, rows).columns]
    found = diagnose_rows(rows, filters, columns, ())
    assert found.failing.tolist() == [1, 0, 1, 1]
    assert found.rejections == {"Cordon": 1, "Room": 3} and sum(found.reasons.values()) >= 4
    assert found.filters == ("Cordon", "Room") and found.unschedulable_plugins == {"Cordon", "Room"}


def test_nodes_that_prefilter_leaves_out_are_counted_as_its_own() -> None:
    snapshot = a_snapshot(4)
    filters = prepared()
    rows = Rows(snapshot, np.array([2], np.intp))
    column = np.zeros(4, np.uint8)
    column[2] = Code.UNSCHEDULABLE
    found = diagnose_rows(rows, filters, [None, column], ["Names"])
    assert found.codes.tolist() == [3, 3, Code.UNSCHEDULABLE, 3]
    assert found.rejections == {"Room": 1, "Names": 3}
    # As kube-scheduler counts: all nodes but those that a filter rejected.
    free = diagnose_rows(rows, filters, [None, None], ["Names"])
    assert free.rejections == {"Names": 4} and free.codes.tolist() == [3, 3, 0, 3]


def test_reasons_are_told_of_every_filter_for_every_row_that_it_rejects() -> None:
    snapshot = a_snapshot(3)
    snapshot.update_node(a_node("n1", {"cpu": "4"}, unschedulable=True))
    rows, filters = Rows(snapshot, slice(0, 3)), prepared()
    told = row_reasons(filters, rows, filter_rows(filters, rows).columns, nominated=True)
    assert {(one.plugin, *one.rows.tolist()) for one in told} == {("Cordon", 1), ("Room", 0, 1, 2)}
    assert all(one.nominated and one.codes.all() for one in told)
    none = prepared(cpu=0)[1:]
    assert row_reasons(none, rows, filter_rows(none, rows).columns) == []
