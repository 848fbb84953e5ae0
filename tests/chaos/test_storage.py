"""The plays of `make storage`, short: what they demand is met; and a demand that is missed is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayched.replica.etcd_binary import find_etcd
from tests.chaos import storage
from tests.chaos.demands import Demands, table
from tests.chaos.etcd_members import EtcdDown
from tests.chaos.stage import Stage
from tests.chaos.storage_history import CPU, restore, wipe
from tests.chaos.storage_slow import slow


@pytest.mark.cluster
def test_replicas_stand_a_slow_a_wiped_and_a_restored_etcd(tmp_path: Path) -> None:
    told: list[str] = []
    demands = Demands("short", told.append)
    with Stage(tmp_path / "up", find_etcd(), members=1, replicas=2, cpu=CPU) as stage:
        slow(stage, "fast", demands, delays=(0.2,), seconds=3.0)
        wipe(stage, demands, paused=True)
        restore(stage, demands, tmp_path / "snapshot.db", paused=True)
    assert len(demands.found) > 15
    assert [one for one in demands.found if not one.met] == []


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
