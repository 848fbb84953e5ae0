"""The plot of rates over nodes: which lines it has, what it refuses, and that a PNG comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import plot


def a_row(**others: Any) -> dict[str, Any]:
    row = {"workload": "SchedulingBasic", "nodes": 500, "init_pods": 0, "measured_pods": 10, "depth": "engine"}
    return row | {"pods_per_second": 100.0} | others


def test_each_workload_is_a_line_of_its_depth_with_the_best_run_of_each_size() -> None:
    rows = [
        a_row(depth="scheduler", nodes=5000, pods_per_second=50.0),
        a_row(depth="scheduler", pods_per_second=80.0),
        a_row(depth="scheduler", pods_per_second=90.0),
        a_row(depth="scheduler", templates=1000, pods_per_second=30.0),
        a_row(),
    ]
    assert plot.curves(rows) == {
        "engine": {"SchedulingBasic": [(500, 100.0)]},
        "scheduler": {"SchedulingBasic": [(500, 90.0), (5000, 50.0)], "SchedulingBasic, 1000 templates": [(500, 30.0)]},
    }


def test_a_png_lies_beside_the_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "rates.json"
    lines.write_text("".join(json.dumps(a_row(nodes=nodes)) + "\n" for nodes in (500, 5000)))
    assert plot.main([str(lines)]) == 0
    assert (tmp_path / "rates.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert capsys.readouterr().out == f"{tmp_path / 'rates.png'}: 1 lines\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("workload nodes\n", ":1: found 'workload nodes', a JSON object is wanted"),
        (json.dumps(a_row()) + '\n{"nodes": 1}\n', ":2: workload, init_pods, measured_pods, depth, pods_per_second is missing"),
        ("", ": there are no lines"),
    ],
)
def test_what_is_no_line_of_a_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str) -> None:
    lines = tmp_path / "rates.json"
    lines.write_text(text)
    assert plot.main([str(lines)]) == 1
    assert f"error: {lines}{expected}" in capsys.readouterr().err
