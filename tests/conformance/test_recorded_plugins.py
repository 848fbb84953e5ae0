"""The in-tree plugins, alone and in the engine, against what kube-scheduler 1.34.1 recorded."""

from __future__ import annotations

import pytest

from tests.conformance.cases import SCHEDULE_TOPICS
from tests.conformance.tally import tallies

pytestmark = pytest.mark.slow


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
    assert tally.compared and not tally.differing, tally


@pytest.mark.parametrize("topic", SCHEDULE_TOPICS)
def test_explanations_give_the_recorded_verdicts_and_scores_of_every_node(topic: str) -> None:
    tally = tallies(topic)["explanations"]
    assert tally.compared and not tally.differing, tally
