"""The recorded answers of kube-scheduler 1.34 to parsing, and its arithmetic of sampling."""

from __future__ import annotations

import pytest

from tests.conformance.cases import load
from tests.conformance.parse_comparisons import compare_parsing


def assert_agrees(what: str) -> None:
    cases = [case for case in load("parse") if case.scenario["parse"]["what"] == what]
    comparisons = [(case.id, one) for case in cases for one in compare_parsing(case)]
    wrong = [(case, one) for case, one in comparisons if not one.agrees]
    assert len(comparisons) >= len(cases) > 0
    assert not wrong, f"{len(wrong)} of {len(comparisons)} differ: {wrong[0]}"


@pytest.mark.parametrize("what", ["quantity", "labelSelector", "tolerations"])
def test_texts_are_read_as_recorded(what: str) -> None:
    assert_agrees(what)


@pytest.mark.row("K3.2")
def test_requests_of_pods_are_added_up_as_recorded() -> None:
    assert_agrees("podRequests")


@pytest.mark.row("K2.3")
def test_node_selectors_match_as_recorded() -> None:
    assert_agrees("nodeSelector")


@pytest.mark.row("K7.1", "K7.2")
def test_so_many_feasible_nodes_are_looked_for_as_recorded() -> None:
    assert_agrees("numFeasibleNodes")


@pytest.mark.row("K7.4")
def test_nodes_are_taken_from_the_zones_in_turn_as_recorded() -> None:
    assert_agrees("nodeOrder")
