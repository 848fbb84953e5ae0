"""The queue and the plugins' queueing hints against what kube-scheduler 1.34.1 recorded, with the hints of production."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.framework.queueing_hints import Hint
from rayched.plugins.node_resources.fit_hints import FitNodeHint
from tests.conformance import production_hints
from tests.conformance.cases import Case, load
from tests.conformance.comparisons import Comparison
from tests.conformance.hint_comparisons import compare_hints
from tests.conformance.queue_player import compare_queue

pytestmark = pytest.mark.slow


def differing(case: Case, compare: Any) -> list[Comparison]:
    return [one for one in compare(case) if not one.agrees]


@pytest.mark.row("Q29", "Q42", "Q31")
def test_the_queue_does_what_was_recorded_step_by_step() -> None:
    wrong = {case.id: found[0] for case in load("queue") if (found := differing(case, compare_queue))}
    assert not wrong, f"{len(wrong)} differ: {next(iter(wrong.items()))}"


@pytest.mark.row("Q53", "D1", "Q55")
def test_every_plugin_answers_every_recorded_event_as_recorded() -> None:
    wrong = {case.id: found[0] for case in load("hints") if (found := differing(case, compare_hints))}
    assert not wrong, f"{len(wrong)} differ: {next(iter(wrong.items()))}"


def test_every_plugin_with_a_recorded_hint_was_asked() -> None:
    recorded = {plugin for case in load("hints") for event in case.expected["events"] for plugin in event["hints"]}
    asked = {one.plugin for case in load("hints") for one in compare_hints(case)} - {""}
    assert asked == recorded
    assert all(sum(1 for _ in compare_hints(case)) >= 1 for case in load("hints"))


def test_a_hint_that_is_wrong_differs_in_both_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FitNodeHint, "__call__", lambda self, look: Hint.SKIP)
    production_hints.registrations.cache_clear()
    try:
        assert any(differing(case, compare_hints) for case in load("hints"))
        assert any(differing(case, compare_queue) for case in load("queue"))
    finally:
        production_hints.registrations.cache_clear()
