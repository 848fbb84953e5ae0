"""What `make starts` reads of logs and tells."""

from __future__ import annotations

import pytest

from benchmarks.starts import STAGES, Start, StartFailed, first_seen, told

LOG = """\
etcd: said before there was a log
2026-12-01 00:10:00,250 INFO the API listens at 127.0.0.1:7420
2026-12-01 00:10:02,500 INFO Ray is there, after 2.1 s
2026-12-01 00:10:09,000 INFO Ray is there, after 0.1 s
"""


@pytest.mark.parametrize(("words", "seconds"), [("", 0.0), ("Ray is there", 2.25)])
def test_a_stage_is_reached_with_its_first_line(words: str, seconds: float) -> None:
    assert first_seen(LOG, words) - first_seen(LOG, "") == pytest.approx(seconds)


def test_a_stage_that_was_not_reached_is_named() -> None:
    with pytest.raises(StartFailed, match="'the scheduler has read the cluster'"):
        first_seen(LOG, "the scheduler has read the cluster")


def test_medians_and_each_start_are_told() -> None:
    rows = dict(told([Start((1.0, 2.0, 3.0, 4.0), 9.0), Start((1.5, 2.5, 3.5, 9.0), 8.0), Start((1.2, 2.2, 3.2, 5.0), 7.0)]))
    assert list(rows) == [*STAGES, "processors' time"]
    assert rows["is up"] == "5.0 s of 4.0, 9.0, 5.0" and rows["processors' time"] == "8.0 s until then"
