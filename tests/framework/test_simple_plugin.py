"""What an author's function of one pod and one node raises names the node."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.engine.engine import Engine
from rayched.framework.plugin_error import PluginError
from rayched.framework.simple_plugin import lift
from tests.engine.spies import a_snapshot, a_template
from tests.engine.toy_plugins import a_profile


class Filters:
    def filter_node(self, pod: Any, node: Any) -> bool:
        return node.metadata.name != "n2" or bool(int("cheap"))


class Scores:
    def score_node(self, pod: Any, node: Any) -> int:
        return int(node.metadata.labels["price"]) if node.metadata.name == "n1" else 1


class Silent:
    def score_node(self, pod: Any, node: Any) -> int:
        raise ValueError


@pytest.mark.parametrize(
    ("simple", "point", "told"),
    [
        (Filters(), "Filter", "ValueError: invalid literal for int() with base 10: 'cheap' (about node n2)"),
        (Scores(), "Score", "ValueError: invalid literal for int() with base 10: '' (about node n1)"),
        (Silent(), "Score", "ValueError (about node n0)"),
    ],
)
def test_what_a_function_raises_names_the_node(simple: Any, point: str, told: str) -> None:
    plugin: Any = lift("Cheap", simple)
    filters, scores = ((plugin,), ()) if point == "Filter" else ((), (plugin,))
    engine = Engine(a_snapshot(), a_profile(filters=filters, scores=scores))
    with pytest.raises(PluginError) as error:
        engine.evaluate(a_template())
    assert str(error.value) == f'plugin "Cheap", {point}: {told}'
