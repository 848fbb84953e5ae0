"""Sums beyond what an int64 holds: a node that is overfull never looks free, and is as it was when the pods are gone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rayched.engine.free_resources import FreeResources
from rayched.framework.resource_needs import ResourceNeed, ResourceNeeds
from rayched.snapshot.rows import Rows, WhatIfRows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import MEMORY
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.snapshot.transfer import TableCopy, export_rows
from rayched.snapshot.verification import verify
from rayched.snapshot.wide_sums import INT64_MAX, LARGE
from tests.snapshot.objects import a_node, a_pod

HUGE = 7 << 60
AMOUNTS = [0, 1 << 20, LARGE - 1, LARGE, 3 << 60, HUGE, INT64_MAX]
OFFERED = {"cpu": "4", "memory": "7Ei", "pods": "110"}


def asking(templates: TemplateTable, amount: int) -> PodTemplate:
    return templates.intern(a_pod({"memory": str(amount)}))


def needing(amount: int) -> ResourceNeeds:
    return ResourceNeeds([ResourceNeed("memory", amount, "Insufficient memory", False)])


@given(st.lists(st.tuples(st.sampled_from(AMOUNTS), st.booleans(), st.integers(0, 9)), max_size=20))
@example([(INT64_MAX, False, 0), (1 << 20, False, 0)])
def test_sums_are_exact_whatever_comes_and_goes_and_the_greatest_number_beyond(steps: list[tuple[int, bool, int]]) -> None:
    snapshot, templates = Snapshot(), TemplateTable()
    for name in ("a", "b"):
        snapshot.add_node(a_node(name, OFFERED))
    here = list[tuple[str, str]]()
    for number, (amount, goes, which) in enumerate(steps):
        if goes and here:
            snapshot.unbind(here.pop(which % len(here))[0])
        else:
            uid, node = f"u{number}", "ab"[which % 2]
            snapshot.bind(uid, asking(templates, amount), node)
            here.append((uid, node))
        verify(snapshot)
    # A new resource makes the tables longer; a node that goes leaves its row to another.
    snapshot.add_node(a_node("c", {**OFFERED, "example.com/gpu": "8"}))
    for uid, _ in here:
        snapshot.unbind(uid)
        verify(snapshot)
    assert not snapshot.wide_sums.rows and not snapshot.requested.any()


def test_the_row_of_a_node_that_is_gone_is_free_of_its_sums() -> None:
    snapshot, templates = Snapshot(), TemplateTable()
    snapshot.add_node(a_node("a", OFFERED))
    for uid in ("u1", "u2"):
        snapshot.bind(uid, asking(templates, HUGE), "a")
    snapshot.remove_node("a")
    snapshot.add_node(a_node("b", OFFERED))
    snapshot.bind("u3", asking(templates, 5), "b")
    verify(snapshot)
    assert snapshot.requested[MEMORY, 0] == 5


@pytest.mark.parametrize("amount", [1, HUGE, INT64_MAX])
@pytest.mark.parametrize("coming", [0, 1, 2])
@pytest.mark.parametrize("bound", [0, 1, 2, 3])
def test_an_overfull_node_has_room_for_nobody_however_it_is_asked(bound: int, coming: int, amount: int) -> None:
    snapshot, templates = Snapshot(), TemplateTable()
    for name in ("a", "b", "c"):
        snapshot.add_node(a_node(name, OFFERED))
    huge = asking(templates, HUGE)
    for number in range(bound):
        snapshot.bind(f"u{number}", huge, "b")
    left = [min(HUGE, INT64_MAX) - amount, HUGE - (bound + coming) * HUGE - amount, HUGE - amount]
    nominated = [(huge, 1)] * coming
    needs, rows = needing(amount), np.arange(3)
    fits = [one >= 0 for one in left]
    copy = TableCopy()
    copy.import_rows(export_rows(snapshot, slice(0, 3)))
    for table in (snapshot, copy):
        free = FreeResources(table, needs)
        assert (free.left_of(rows, nominated)[0] >= 0).tolist() == fits
        assert (free.left_of(slice(0, 3), nominated)[0] >= 0).tolist() == fits
    if not coming:
        assert (~needs.short(Rows(snapshot, rows))[0]).tolist() == fits
    counts = np.array([0, coming, 0])
    assert (~needs.short(WhatIfRows(snapshot, rows, (huge, counts)))[0]).tolist() == fits
