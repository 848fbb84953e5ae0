"""Rows with nominated pods: which of them filters reject then."""

from __future__ import annotations

import numpy as np

from rayched.engine.nominations import filter_nominated, rejected_with_nominated, with_nominated
from rayched.engine.prepared import PreparedPlugin
from tests.engine.spies import a_snapshot, a_template
from tests.engine.toy_plugins import Room


def prepared(cpu: int) -> list[PreparedPlugin]:
    return [PreparedPlugin("room", Room(), (cpu, 0), b"")]


def test_rows_have_the_pods_that_are_nominated_to_them() -> None:
    snapshot = a_snapshot(4)
    big, small = a_template("3"), a_template("250m")
    rows = with_nominated(snapshot, [(big, 2), (small, 0), (small, 2)])
    assert rows.index.tolist() == [0, 2] and rows.requested[0].tolist() == [250, 3250]
    assert snapshot.requested[0].tolist()[:4] == [0, 0, 0, 0], "the table stays as it is"
    some = with_nominated(snapshot, [(big, 2), (small, 0)], np.array([0], np.intp))
    assert some.index.tolist() == [0]


def test_rows_that_have_no_room_beside_nominated_pods_are_rejected() -> None:
    snapshot = a_snapshot(4)
    nominated = [(a_template("3"), 2), (a_template("1"), 1), (a_template("2900m"), 3)]
    assert rejected_with_nominated(snapshot, prepared(1_200), nominated).tolist() == [2, 3]
    rows, found = filter_nominated(snapshot, prepared(900), nominated)
    assert dict(zip(rows.index.tolist(), found.codes.tolist(), strict=True)) == {1: 0, 2: 0, 3: 0}
    snapshot.remove_node("n2")
    assert rejected_with_nominated(snapshot, prepared(1_200), nominated).tolist() == [3], "the node is gone"
