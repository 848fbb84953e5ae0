"""The in-tree plugins, alone and in the engine, against what kube-scheduler 1.34.1 recorded."""

from __future__ import annotations

import pytest

from tests.conformance.cases import SCHEDULE_TOPICS, schedule_cases
from tests.conformance.comparisons import is_decided, tallies

DECIDED_WHOLLY = ("resources", "fitscore", "balanced", "nodename", "nodeaffinity", "taints", "ports", "images", "gates")


@pytest.mark.row("K2.2", "K2.3", "K5.2")
@pytest.mark.parametrize("topic", SCHEDULE_TOPICS)
def test_filter_plugins_agree_with_every_recorded_verdict(topic: str) -> None:
    tally = tallies(topic)["verdicts"]
    assert tally.compared and not tally.differing, tally


@pytest.mark.row("K2.4", "K6.4", "K8.1")
@pytest.mark.parametrize("topic", SCHEDULE_TOPICS)
def test_score_plugins_agree_with_every_recorded_score(topic: str) -> None:
    tally = tallies(topic)["scores"]
    assert tally.compared and not tally.differing, tally


@pytest.mark.parametrize("topic", SCHEDULE_TOPICS)
def test_prefilter_narrows_to_the_recorded_nodes(topic: str) -> None:
    tally = tallies(topic)["narrowing"]
    assert tally.compared and not tally.differing, tally


@pytest.mark.parametrize("topic", SCHEDULE_TOPICS)
def test_preenqueue_holds_back_the_recorded_pods(topic: str) -> None:
    tally = tallies(topic)["gates"]
    assert tally.compared and not tally.differing, tally


@pytest.mark.parametrize("topic", SCHEDULE_TOPICS)
def test_the_engine_gives_the_recorded_nodes_totals_and_messages(topic: str) -> None:
    tally = tallies(topic)["attempts"]
    assert not tally.differing, tally


@pytest.mark.parametrize("topic", DECIDED_WHOLLY)
def test_every_case_of_the_topic_is_decided(topic: str) -> None:
    assert all(is_decided(case) for case in schedule_cases(topic))
