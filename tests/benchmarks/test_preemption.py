"""The benchmark of preemption in small: every pod gets its node, at the cost of exactly those who had to go."""

from __future__ import annotations

import json

import pytest

from benchmarks import preemption


@pytest.mark.row("K9.7", "K9.13", "F13")
def test_every_preemptor_on_full_nodes_is_bound_for_three_lower_pods() -> None:
    outcome = preemption.measure(nodes=40, preemptors=40)
    assert outcome.wrong == ()
    assert (outcome.bound, outcome.victims) == (40, 120)


def test_what_is_printed_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert preemption.main(["--nodes", "3", "--preemptors", "2"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["bound"], line["victims"]) == (2, 6) and line["pods_per_second"] > 0
