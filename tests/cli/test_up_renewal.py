"""`rayched up` issues certificates anew by itself, and a disk that takes none ends nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayched.cli.cluster.up_command import _renew
from rayched.replica.cluster.local_pki import LocalPki
from tests.pki.made import SetClock

NOW, DAY = 1_800_000_000.0, 86_400


def test_what_has_a_third_of_its_time_left_is_made_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = SetClock(NOW)
    pki = LocalPki(tmp_path / "pki", 1, clock)
    _renew(pki)
    assert capsys.readouterr().err == ""
    clock.now = NOW + 60 * DAY
    before = pki.admin.certificate.read_bytes()
    _renew(pki)
    told = capsys.readouterr().err
    assert told.count("has a new certificate") == 3 and "/user/admin has" in told
    assert pki.admin.certificate.read_bytes() != before


def test_what_cannot_be_written_is_told_and_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = SetClock(NOW)
    pki = LocalPki(tmp_path / "pki", 1, clock)
    clock.now = NOW + 60 * DAY
    key = tmp_path / "pki" / "ca.key"
    kept = key.read_bytes()
    key.write_bytes(b"half of a k")
    _renew(pki)
    assert "warning: certificates are not renewed, which is tried again in an hour: " in capsys.readouterr().err
    key.write_bytes(kept)
    _renew(pki)
    assert capsys.readouterr().err.count("has a new certificate") == 3
