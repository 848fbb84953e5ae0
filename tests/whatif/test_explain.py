"""Explanations: all that is said about every node. They are held against every recorded case in tests/conformance."""

from __future__ import annotations

from rayched.whatif.explain import explain
from tests.conformance.cases import schedule_cases
from tests.conformance.comparisons import setting_of


def test_every_filter_is_asked_about_every_node_not_the_first_one_alone() -> None:
    case = next(
        case
        for case in schedule_cases("mixed")
        if any(len(failing) > 1 for failing in case.expected.get("filterEach", {}).values()) and not case.expected.get("error")
    )
    setting = setting_of(case, 0)
    cluster = setting.cluster
    found = explain(setting.engine, cluster.snapshot, setting.profile.weights, cluster.template, cluster.nominated)
    nodes = {node.node_name: node for node in found.nodes}
    for name, failing in case.expected["filterEach"].items():
        assert {one.plugin for one in nodes[name].rejections} >= set(failing), name
