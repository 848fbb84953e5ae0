"""The plays of `make storage`, short: what they demand is met; and a demand that is missed is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayched.replica.etcd.etcd_binary import find_etcd
from tests.chaos import storage
from tests.chaos.demands import Demands, table
from tests.chaos.etcd_members import EtcdDown
from tests.chaos.plan import STORAGE, Numbers, Session, make_plan
from tests.chaos.report import write_report
from tests.chaos.session import SessionReport
from tests.chaos.storage_session import play_storage


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.parametrize("plays", STORAGE, ids=" ".join)
def test_replicas_stand_what_befalls_etcds_storage(plays: tuple[str, ...], tmp_path: Path) -> None:
    told: list[str] = []
    report = play_storage(Session(0, 1, 1, (), (), plays=plays), tmp_path, find_etcd(), told.append)
    assert {one["play"] for one in report.demands} == set(plays)
    assert [one for one in report.demands if not one["met"]] == []


def test_what_is_missed_is_told_in_the_table_and_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(given: object, directory: Path, binary: object, demands: Demands) -> None:
        demands.at_most("seconds", 2, 3.14159, " s")
        demands.at_least("pods", 5, 5)
        demands.none("bindings", [])
        raise EtcdDown("no member answers")

    monkeypatch.setitem(storage.PLAYS, "wipe", missing)
    assert storage.main(["--only", "wipe", "--logs", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "error: wipe: seconds: 3.14 s, demanded is at most 2 s" in shown.err
    assert "error: wipe: it can be played to its end: no member answers" in shown.err
    assert "pods" in shown.out and "error: wipe: pods" not in shown.err


def test_the_table_has_a_line_for_each_demand(capsys: pytest.CaptureFixture[str]) -> None:
    demands = Demands("slow", lambda line: None)
    demands.none("pods lost", ["a", "b", "c", "d"])
    demands.holds("it goes on", True)
    table(demands.found)
    _, lost, goes_on = capsys.readouterr().out.splitlines()
    assert "4: a, b, c" in lost and lost.endswith("NO")
    assert goes_on.split()[-3:] == ["yes", "yes", "yes"]


def test_plays_are_sessions_of_a_plan_and_what_they_miss_is_in_its_report(tmp_path: Path) -> None:
    numbers = Numbers(kills=0, stops=0, pauses=0, actors=0, etcd=0, storage=True)
    plan = make_plan(1, numbers, rate=50.0, members=3, etcd_kills_allowed=True)
    assert [session.words for session in plan.sessions] == ["slow, wipe, restore", "quota"]
    demands = Demands("quota", lambda line: None)
    demands.at_most("seconds until then", 60, 61.5, " s")
    demands.none("alarms", ["NOSPACE"])
    session = SessionReport(0, "3.5.6", 1, (), demands=demands.as_data()).as_data() | {"commit": "now"}
    summary = write_report(tmp_path, plan, [session])
    missed = {one["what"]: one["seconds"] for one in summary["demands"] if not one["met"]}
    assert missed == {"quota: seconds until then": True, "quota: alarms": False}
    assert "| quota: alarms | none | 1: NOSPACE | **no** |" in (tmp_path / "report.md").read_text()
