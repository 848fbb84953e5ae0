"""Change logs: a reader misses nothing, or is told that it did."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rayched.snapshot import change_log
from rayched.snapshot.change_log import ChangeLog


@given(st.lists(st.one_of(st.integers(0, 9), st.just("cut"), st.just("read")), max_size=80), st.integers(1, 8))
def test_a_reader_gets_what_came_after_its_position_or_none(steps: list[int | str], kept: int) -> None:
    original = change_log.ENTRIES_MAX
    change_log.ENTRIES_MAX = kept  # type: ignore[misc]
    try:
        log = ChangeLog()
        position = 0
        expected: list[int] | None = []
        for step in steps:
            if step == "cut":
                log.cut()
                expected = None
            elif step == "read":
                found = log.since(position)
                if found is None:
                    assert expected is None or len(expected) > kept, "entries may go only when there are more than are kept"
                else:
                    assert found == expected
                position, expected = log.end, []
            else:
                assert isinstance(step, int)
                log.append(step)
                if expected is not None:
                    expected.append(step)
            assert log.end - log.start <= 2 * kept + 1
            assert log.since(log.end) == []
    finally:
        change_log.ENTRIES_MAX = original  # type: ignore[misc]
