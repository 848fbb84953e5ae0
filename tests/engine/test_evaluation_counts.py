"""Every evaluation counts once for each plugin that the template does not skip, also when its plan is long gone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rayched.engine import plans
from rayched.engine.engine import Engine
from rayched.v1.core_pb2 import Pod
from tests.engine.spies import Spy, a_snapshot, a_template
from tests.engine.toy_plugins import Named, Room, a_profile


class Picky(Spy):
    """Skips pods without the label "picky"."""

    def key(self, pod: Pod) -> Any:
        return pod.metadata.labels.get("picky")


@pytest.mark.parametrize("templates_max", [1, 100])
def test_evaluations_are_counted_by_plugin_and_extension_point(templates_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "TEMPLATES_MAX", templates_max)
    picky = Picky("Picky")
    profile = a_profile(pre_filter=(Named(),), filters=(Room(), picky), scores=(picky, Room()))
    engine = Engine(a_snapshot(), profile)
    expected: Counter[tuple[str, str]] = Counter()
    for number in range(60):
        labels = {"picky": "yes"} if number % 3 == 0 else {}
        if number % 5 == 0:
            labels["only"] = "n1.n2"
        engine.evaluate(a_template(f"{number % 4}00m", **labels))
        expected.update([("Room", "Filter"), ("Room", "Score")])
        expected.update([("Picky", "Filter"), ("Picky", "Score")] if "picky" in labels else [])
        expected.update([("Named", "PreFilter")] if "only" in labels else [])
    assert engine.evaluations() == expected
