"""`benchmarks.pairs`: which rows it makes, what it allows, and what it says of runs that fail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import pairs, workloads
from benchmarks.pairs import Row


def test_a_row_has_the_median_of_its_rounds_and_not_the_ratio_of_medians() -> None:
    assert Row("w", (10.0, 30.0, 20.0), (10.0, 15.0, 40.0)).ratio == 1.0


@pytest.mark.parametrize(
    ("ratios", "wrong"),
    [
        ((1.0, 1.0), []),
        ((0.95, 1.2), []),
        ((0.94, 1.2), ["row 0: 0.94 of what it was, 0.95 are allowed"]),
        ((0.96, 0.98), ["the geometric mean of all rows is 0.970, 1.0 are allowed"]),
        ((), ["no row was measured"]),
    ],
)
def test_slow_rows_and_a_slow_mean_are_failures(ratios: tuple[float, ...], wrong: list[str]) -> None:
    rows = [Row(f"row {number}", (100.0 * ratio,), (100.0,)) for number, ratio in enumerate(ratios)]
    assert pairs.failures(rows) == wrong


def test_a_workload_that_is_made_smaller_keeps_its_share_of_pods() -> None:
    (large,) = [found for found in workloads.chosen("SchedulingBasic") if found.nodes == 5000][:1]
    small = pairs.smaller(large, 1000)
    assert (small.nodes, small.init_pods) == (1000, large.init_pods // 5)
    assert small.measured_pods == max(pairs.PODS_MIN, large.measured_pods // 5)
    assert pairs.smaller(large, 5000) is large


def test_the_published_workloads_are_all_but_our_own() -> None:
    names = {workload.name for workload in workloads.published()}
    ours = {workload.name for workload in workloads.WORKLOADS} - names
    assert "SchedulingBasic" in names
    assert ours and all(name.startswith(("OwnLabels", "HostPorts")) for name in ours)


def test_those_that_kube_scheduler_was_measured_with_are_the_rows_of_the_published_table() -> None:
    measured = pairs.measured(workloads.published())
    assert len(measured) == 31
    recorded = json.loads((pairs.HERE / "benchmarks" / "published.json").read_text())
    rows = [f"one_thread {pairs.label(one)} {templates} templates" for one in measured for templates in (1, 1_000)]
    assert list(recorded) == rows, "a row without a threshold, or a threshold without a row"
    assert ("SchedulingBasic", 500, 500, 1000) in [(one.name, one.nodes, one.init_pods, one.measured_pods) for one in measured]


def test_a_checkout_that_is_none_is_an_error_that_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(tmp_path / "none"), "--workloads", "SchedulingBasic", "--nodes-max", "5", "--rounds", "1"]
    assert pairs.main(arguments) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_two_checkouts_run_one_workload_in_turns() -> None:
    (workload,) = [found for found in workloads.chosen("SchedulingBasic") if found.nodes == 5000][:1]
    (row,) = pairs.rows([workload.sized(5, 0, pairs.PODS_MIN)], [1], 1, pairs.HERE)
    assert row.name == f"SchedulingBasic 5/0/{pairs.PODS_MIN}, 1 templates"
    assert min(row.before + row.after) > 0.0


def test_a_side_that_ends_early_says_its_last_line() -> None:
    (workload,) = [found for found in workloads.chosen("SchedulingBasic") if found.nodes == 5000][:1]
    with pytest.raises(pairs.RunFailed, match="ended early: ValueError: --workloads Unknown: no such workload"):
        list(pairs.rows([replace(workload, name="Unknown")], [1], 1, pairs.HERE))
