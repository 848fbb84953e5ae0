"""The short ones of the attacks that `make probe` makes, against a real replica: each shows what is demanded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe import attacks_on_rights
from tests.probe.run import ATTACKS, main, probe

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def test_what_is_anothers_is_refused_and_nothing_gets_out(tmp_path: Path) -> None:
    quick = [attack for attack in ATTACKS if attack.finding in ("F9", "F14", "F17", "F18") or attack in attacks_on_rights.ATTACKS]
    found = probe(tmp_path, quick)
    assert len(found) == len(quick) == 13
    assert [(one.attack.finding, one.shown) for one in found if not one.met] == []
    assert all(one.cpu_seconds < 60 and one.grown_bytes < 1 << 30 for one in found)


def test_a_finding_that_there_is_not_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "F99"])
    assert "--only F99: known are F1, F2" in capsys.readouterr().err
