"""The command that holds rayched against recorded cases: what it counts, what it tells, and that no case ends it."""

from __future__ import annotations

import copy
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cases import DIRECTORY, SCHEDULE_TOPICS, files, load, read, with_fixes
from tests.conformance.comparisons import setting_of
from tests.conformance.coverage import unknown_fields
from tests.conformance.judgement import Verdict, judge
from tests.conformance.run import main

SHARDED_EVERY = 4
"""Of the cases kept here; the command does them all."""


def a_record(topic: str = "resources", number: int = 0) -> dict[str, Any]:
    case = load(topic)[number]
    return copy.deepcopy({"scenario": case.scenario, "expected": case.expected})


def written(directory: Path, *records: dict[str, Any], name: str = "some.jsonl") -> list[str]:
    (directory / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return [str(directory)]


@pytest.mark.slow
@pytest.mark.row("F6")
@pytest.mark.parametrize("topic", SCHEDULE_TOPICS)
def test_cases_agree_with_every_column_taken_from_three_workers(topic: str) -> None:
    judged = [judge(case, 3) for case in load(topic)[::SHARDED_EVERY]]
    wrong = [(one.case.id, one.first_difference) for one in judged if one.verdict is Verdict.DIFFERS]
    assert wrong == []


def test_workers_that_are_forced_on_are_asked_however_few_rows_there_are() -> None:
    setting = setting_of(load("resources")[0], 3)
    assert setting.shards is not None
    setting.engine.evaluate(setting.cluster.template)
    assert setting.shards.asked


def test_cases_that_agree_give_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(written(tmp_path, a_record(), a_record("hints"), a_record("queue"), a_record("parse"))) == 0
    told = capsys.readouterr().out
    assert "NodeResourcesFit" in told and "4 │     4 │      0 │       0" in told


def test_compressed_files_are_read_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gzip.open(tmp_path / "some.jsonl.gz", "wt") as file:
        file.write(json.dumps(a_record()) + "\n")
    assert main([str(tmp_path)]) == 0
    assert "1 files" in capsys.readouterr().out


def test_a_case_that_differs_is_named_with_both_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = a_record("taints")
    record["expected"]["best"] = ["elsewhere"]
    assert main(written(tmp_path, record)) == 1
    told = capsys.readouterr().out
    assert record["scenario"]["id"] in told and "elsewhere" in told and "recorded" in told


def test_a_case_that_raises_differs_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken, unknown = a_record(), a_record("queue")
    broken["scenario"]["nodes"] = 7
    unknown["scenario"]["ops"][0] = {"op": "somethingNew"}
    unknown["expected"]["unknownField"] = {"nested": True}
    assert main(written(tmp_path, broken, unknown, a_record("taints"))) == 1
    told = capsys.readouterr().out
    assert "TypeError" in told and "unknown operation" in told
    assert "3 │     1 │      2 │       0" in told


def test_fields_that_nobody_knows_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = a_record()
    record["scenario"]["furtherField"] = [1]
    record["expected"]["furtherField"] = {"a": None}
    record["furtherField"] = "x"
    assert main(written(tmp_path, record, record)) == 0
    told = capsys.readouterr().out
    assert "not compared: scenario.furtherField of 2 resources" in told
    assert "not compared: expected.furtherField of 2 resources" in told


def test_every_field_of_the_cases_kept_here_is_known() -> None:
    cases = [case for path in files(DIRECTORY) for case in read(path)]
    assert {name for case in cases for name in unknown_fields(case)} == set()


BUGS = {"balanced": "podLevelScore", "interpod": "namespaceSelector", "mixed": "namespaceSelector", "resources": "podLevelScore"}


@pytest.mark.slow
@pytest.mark.parametrize("topic", BUGS)
def test_with_the_bugs_fixed_the_answers_are_those_of_a_scheduler_without_them(topic: str) -> None:
    affected = [case for case in load(topic) if case.expected_if_fixed is not None]
    assert affected and all(case.expected_if_fixed != case.expected for case in affected)
    assert {judge(case, 0).verdict for case in affected} == {Verdict.AGREES}
    assert {judge(with_fixes(case), 0).verdict for case in load(topic)} == {Verdict.AGREES}
    # Neither way passes for the other.
    crossed = [replace(case, expected=case.expected_if_fixed) for case in affected if case.expected_if_fixed is not None]
    assert {judge(case, 0).verdict for case in crossed} == {Verdict.DIFFERS}
    assert {judge(replace(with_fixes(case), expected=case.expected), 0).verdict for case in affected} == {Verdict.DIFFERS}


def test_the_option_for_fixed_bugs_compares_to_what_a_fixed_scheduler_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(case for case in load("balanced") if case.expected_if_fixed is not None)
    record = {"scenario": case.scenario, "expected": case.expected, "expectedIfFixed": case.expected_if_fixed}
    directory = written(tmp_path, record)
    assert main(directory) == 0
    assert main([*directory, "--fix-upstream-bugs"]) == 0
    del record["expectedIfFixed"]
    assert main([*written(tmp_path, record), "--fix-upstream-bugs"]) == 1
    assert "upstream bugs fixed" in capsys.readouterr().out


def test_kinds_that_nobody_knows_are_not_run_and_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = a_record()
    record["scenario"]["kind"] = "weather"
    assert main(written(tmp_path, record)) == 1
    told = capsys.readouterr().out
    assert "'weather' is not known" in told and "1 cases could not be judged, no case was run" in told
    # Beside others that agree it is no success either: nobody knows whether it would agree.
    assert main(written(tmp_path, record, a_record())) == 1


def test_a_case_of_an_unknown_topic_is_judged_by_its_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = a_record()
    record["scenario"]["topic"] = "weather"
    assert main(written(tmp_path, record)) == 0
    assert "weather" in capsys.readouterr().out


def test_a_directory_without_cases_is_no_success(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 1


@pytest.mark.parametrize("line", ["{", "[1]", '{"scenario": {}}'])
def test_a_file_that_holds_no_cases_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    (tmp_path / "some.jsonl").write_text(line + "\n")
    assert main([str(tmp_path)]) == 2
    assert f"{tmp_path / 'some.jsonl'}:1: " in capsys.readouterr().err
    # What is before it and beside it is judged all the same.
    (tmp_path / "some.jsonl").write_text(json.dumps(a_record()) + "\n" + line + "\n")
    written(tmp_path, a_record("taints"), name="other.jsonl")
    assert main([str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert f"{tmp_path / 'some.jsonl'}:2: " in told.err and "2 │     2 │      0 │       0" in told.out


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_number_of_workers_that_makes_no_sense_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--shards", value])
    assert "a number of workers from 1 up, or off" in capsys.readouterr().err
