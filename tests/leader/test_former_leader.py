"""When the former leader ended, as a candidate sees it: what a failover's duration counts from."""

from __future__ import annotations

import pytest

from leader.clock import Instant
from leader.observation import Observation, Vacated
from leader.record import LeaderRecord, StoredRecord

Seen = tuple[int, str | None]
"""At a second, a record with this holder; None: no record."""

CASES: dict[str, tuple[list[Seen], Vacated | None]] = {
    "nobody was seen yet": ([(5, None)], None),
    "the first one is still there": ([(5, "a"), (6, "a")], None),
    "an old release tells nothing": ([(5, ""), (6, "me")], None),
    "vanished with its lease": ([(5, "a"), (6, "a"), (8, None), (9, "me")], Vacated(False, 6)),
    "its lease was taken": ([(5, "a"), (6, "a"), (9, "me")], Vacated(False, 6)),
    "gave the lease back": ([(5, "a"), (6, "a"), (8, ""), (9, "me")], Vacated(True, 8)),
    "the last one counts": ([(5, "a"), (6, ""), (7, "b"), (9, "me")], Vacated(False, 7)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_end_of_the_holder_before_is_known(case: str) -> None:
    seen, expected = CASES[case]
    observation = Observation()
    for revision, (second, holder) in enumerate(seen, 10):
        at = Instant(second, second)
        record = None if holder is None else StoredRecord(LeaderRecord(holder, f"i-{holder}", 2000, 0, 0, "", ""), revision)
        observation.see_record(record, revision, at)
        # What was known already changes nothing.
        observation.see_record(None, revision - 1, Instant(99, 99))
    assert observation.vacated == expected
