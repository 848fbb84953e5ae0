"""Rows: the same columns through a slice and through row numbers, and as they would be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rayched.snapshot.rows import Rows, WhatIfRows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import read_int64
from rayched.snapshot.templates import TemplateTable
from tests.snapshot.objects import a_node, a_pod

TEMPLATES = TemplateTable()


@pytest.fixture
def snapshot() -> Snapshot:
    snapshot = Snapshot()
    for number, text in enumerate(("5", "-7", "many", "9223372036854775808", "+3")):
        snapshot.add_node(a_node(f"n{number}", labels={"size": text} if text else {}))
    snapshot.add_node(a_node("bare"))
    snapshot.bind("u", TEMPLATES.intern(a_pod({"cpu": "1", "x/gpu": "1"}, ports=[("TCP", 80, "")])), "n1")
    return snapshot


def test_a_slice_and_row_numbers_show_the_same(snapshot: Snapshot) -> None:
    by_slice, by_number = Rows(snapshot, slice(1, 5)), Rows(snapshot, np.array([1, 2, 3, 4], np.intp))
    for name in ("index", "alive", "allocatable", "requested", "non_zero_requested", "unschedulable", "taint_set", "image_set"):
        assert np.array_equal(getattr(by_slice, name), getattr(by_number, name)), name
    assert by_slice.n == by_number.n == 4
    assert np.array_equal(by_slice.label("size"), by_number.label("size"))
    assert (
        by_slice.port_users("TCP", 80, "0.0.0.0").tolist() == by_number.port_users("TCP", 80, "0.0.0.0").tolist() == [1, 0, 0, 0]
    )


def test_labels_are_read_as_integers_where_they_are_some(snapshot: Snapshot) -> None:
    numbers, valid = Rows(snapshot, slice(0, 6)).label_int("size")
    assert valid.tolist() == [True, True, False, False, True, False]
    assert numbers[valid].tolist() == [5, -7, 3]
    assert Rows(snapshot, slice(0, 2)).label("nobody has this").tolist() == [-1, -1]
    assert not Rows(Snapshot(), slice(0, 0)).label_int("size")[1].any()


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("007", 7), ("-1", -1), ("9223372036854775807", 2**63 - 1), ("9223372036854775808", None), ("1_0", None)]
    + [(text, None) for text in ("", "-", "1.0", " 1", "0x1", "１", "9" * 70)],
)
def test_integers_are_read_as_strictly_as_in_go(text: str, number: int | None) -> None:
    assert read_int64(text) == number


def test_what_if_rows_are_the_rows_after_the_change(snapshot: Snapshot) -> None:
    gone = TEMPLATES.intern(a_pod({"cpu": "1", "x/gpu": "1"}, ports=[("TCP", 80, "")]))
    come = TEMPLATES.intern(a_pod({"cpu": "500m", "x/disk": "3"}, ports=[("TCP", 81, "10.0.0.1")]))
    asked = WhatIfRows(snapshot, np.array([1, 2], np.intp), (gone, np.array([-1, 0])), (come, 2))
    found: dict[str, Any] = {
        "requested": asked.requested.copy(),
        "non_zero": asked.non_zero_requested.copy(),
        "one row": asked.only(np.array([1], np.intp)).requested.copy(),
        "ports": [asked.port_users("TCP", port, ip).tolist() for port, ip in ((80, "0.0.0.0"), (81, "10.0.0.1"))],
        "ips": (asked.port_ips("TCP", 80), asked.port_ips("TCP", 81)),
    }
    before = Rows(snapshot, slice(0, 3)).requested.copy()
    assert np.array_equal(before, Rows(snapshot, slice(0, 3)).requested), "the table itself does not change"
    snapshot.unbind("u")
    for row, name in enumerate(("n1", "n2")):
        snapshot.bind(f"first-{row}", come, name)
        snapshot.bind(f"second-{row}", come, name)
    after = Rows(snapshot, np.array([1, 2], np.intp))
    assert np.array_equal(found["requested"], after.requested)
    assert np.array_equal(found["non_zero"], after.non_zero_requested)
    assert np.array_equal(found["one row"], after.requested[:, 1:])
    assert found["ports"] == [[0, 0], [2, 2]]
    assert found["ips"] == (("0.0.0.0",), ("10.0.0.1",))
