"""Where a replica's audit log is, by its settings."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from rayched.replica.audit_opening import AuditOpenError, open_audit_log
from rayched.replica.settings import ReplicaSettings
from rayched.server.audit_log import AuditLog, AuditLogTaken
from tests.access.test_audit_line import an_entry


def settings(directory: Path, **more: Any) -> ReplicaSettings:
    return ReplicaSettings(listen="127.0.0.1:7431", data_dir=directory, identity="replica-0", **more)


def test_it_is_in_the_data_directory_where_nothing_is_said(tmp_path: Path) -> None:
    first, second = open_audit_log(settings(tmp_path / "data")), open_audit_log(settings(tmp_path / "data"))
    assert first is not None and second is not None
    for writer in (first, second):
        writer.put(an_entry())
        writer.close()
    assert (tmp_path / "data" / "audit.jsonl").read_text().count("\n") == 1
    assert (tmp_path / "data" / "audit-7431.jsonl").read_text().count("\n") == 1


def test_what_is_named_is_taken_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer = open_audit_log(settings(tmp_path, audit_log=str(path), audit_strict=True))
    assert writer is not None and writer.strict
    with pytest.raises(AuditOpenError, match=f"--audit-log: {path}: another replica writes it; name another file"):
        open_audit_log(settings(tmp_path, audit_log=str(path)))
    with pytest.raises(AuditLogTaken):
        AuditLog(path)
    writer.close()
    nowhere = path / "below" / "a file"
    with pytest.raises(AuditOpenError, match=f"--audit-log {nowhere}: Not a directory; name a file that can be written"):
        open_audit_log(settings(tmp_path, audit_log=str(nowhere)))
    assert open_audit_log(settings(tmp_path, audit_log="off")) is None


def test_where_there_is_no_place_for_files_the_lines_come_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        for chosen in (settings(tmp_path / "file"), settings(tmp_path, audit_log="-")):
            writer = open_audit_log(chosen)
            assert writer is not None
            writer.put(an_entry())
            writer.close()
    assert capfd.readouterr().out.count('"stage":"complete"') == 2
    assert len(caplog.records) == 1 and "the audit log goes to the standard output" in caplog.text
