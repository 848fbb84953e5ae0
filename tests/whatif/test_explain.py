"""Explanations: all that is said about every node, equal to what kube-scheduler 1.34.1 recorded."""

from __future__ import annotations

import pytest

from rayched.framework.plugin_calls import PluginError
from rayched.framework.status import Code
from rayched.whatif.explain import PodExplanation, explain
from tests.conformance.cases import SCHEDULE_TOPICS, Case, schedule_cases
from tests.conformance.comparisons import CODES, Setting, setting_of

EVERY = 5
"""Each fifth case is compared; the plugins themselves are held against all of them elsewhere."""


def explained(setting: Setting) -> PodExplanation:
    cluster = setting.cluster
    return explain(setting.engine, cluster.snapshot, setting.profile.weights, cluster.template, cluster.nominated)


@pytest.mark.slow
@pytest.mark.parametrize("topic", SCHEDULE_TOPICS)
def test_an_explanation_gives_the_recorded_verdicts_and_scores(topic: str) -> None:
    compared = 0
    for case in list(schedule_cases(topic))[::EVERY]:
        setting = setting_of(case, 0)
        try:
            found = explained(setting)
        except PluginError:
            assert "error" in case.expected
            continue
        compared += 1
        check(case, found)
    assert compared


def check(case: Case, found: PodExplanation) -> None:
    expected = case.expected
    nodes = {node.node_name: node for node in found.nodes}
    scores = {
        node: {
            one.plugin: {"weight": one.weight, "raw": one.raw, "normalized": one.normalized, "weighted": one.weighted}
            for one in verdict.scores
        }
        for node, verdict in nodes.items()
        if verdict.feasible
    }
    assert scores == (expected.get("scores") or {}), case
    assert {name: node.total for name, node in nodes.items() if node.feasible} == (expected.get("total") or {}), case
    assert sorted(found.best) == sorted(expected.get("best") or ()), case
    if found.rejected:
        assert expected["preFilter"]["code"] != "Success"
        return
    for name, status in (expected.get("filter") or {}).items():
        node = nodes[name]
        if status["code"] == "Success":
            assert node.feasible, (case, name)
            continue
        plugin = status.get("plugin", node.rejections[0].plugin)
        (rejection,) = (one for one in node.rejections if one.plugin == plugin)
        assert rejection.resolvable == (CODES[status["code"]] is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE), (case, name)
        if not case.scenario.get("nominatedPods"):
            # With nominated pods a filter may name more than without.
            assert list(rejection.reasons) == sorted(status["reasons"]), (case, name)


def test_every_filter_is_asked_about_every_node_not_the_first_one_alone() -> None:
    case = next(
        case
        for case in schedule_cases("mixed")
        if any(len(failing) > 1 for failing in case.expected.get("filterEach", {}).values()) and not case.expected.get("error")
    )
    nodes = {node.node_name: node for node in explained(setting_of(case, 0)).nodes}
    for name, failing in case.expected["filterEach"].items():
        assert {one.plugin for one in nodes[name].rejections} >= set(failing), name
