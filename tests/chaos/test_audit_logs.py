"""S11 as chaos judges it: a log that was cut, a submission without a line, and nothing of a log that is as it should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rayched.access.audit_line import AuditEntry, AuditStage, ChainEnd, line_of
from tests.chaos import audit_logs


def an_entry(call: str, **more: Any) -> AuditEntry:
    given = {"kind": "Pod", "roles": "admin", "code": "OK", "stage": AuditStage.COMPLETE, **more}
    return AuditEntry(time="2026-11-28T10:00:00.000000Z", id="1", replica="r", peer="p", call=call, **given)


ENTRIES = (
    an_entry("Submission.SubmitMany", objects=[{"name": name, "code": "OK", "revision": 7} for name in "ab"]),
    an_entry("Submission.Submit", name="c", revision=9),
    an_entry("Submission.Submit", name="refused", code="PERMISSION_DENIED", roles=""),
    an_entry("Submission.Delete", name="a", revision=10),
)


def written(directory: Path, *, without: int | None = None, half: bool = False) -> Path:
    """A cluster's directory, whose log has turned over after two lines."""
    place = directory / "replica-0"
    place.mkdir()
    lines, end = [], ChainEnd()
    for entry in ENTRIES:
        line, end = line_of(entry, end)
        lines.append(line)
    kept = [line for number, line in enumerate(lines) if number != without]
    (place / "audit.jsonl.lock").touch()
    (place / "audit.jsonl.1").write_bytes(b"".join(kept[:2]))
    (place / "audit.jsonl").write_bytes(b"".join(kept[2:]) + (b'{"n":5,"before":"' if half else b""))
    return directory


@pytest.mark.parametrize("half", [False, True])
def test_a_log_that_tells_all_is_whole(tmp_path: Path, half: bool) -> None:
    found = audit_logs.judge(written(tmp_path, half=half), ["a", "b", "c"], ["a"])
    assert found == audit_logs.AuditVerdict((), (), 0, 4)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_line_that_is_gone_shows(tmp_path: Path, number: int) -> None:
    found = audit_logs.judge(written(tmp_path, without=number), [], [])
    # Of the first line nobody can tell, as older files may be gone.
    assert len(found.faults) == (1 if number else 0), found.faults


def test_what_has_no_line_or_one_that_lets_nobody_is_told(tmp_path: Path) -> None:
    found = audit_logs.judge(written(tmp_path), ["a", "d", "refused"], ["b", "a"])
    assert found.untold == ("d", "refused") and found.untold_deletions == 1 and not found.faults
