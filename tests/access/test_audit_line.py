"""Lines of the audit log: what is in them, what never is, and that a changed log shows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.access.audit_line import (
    BEGINNING,
    LINE_BYTES_MAX,
    TEXT_MAX,
    AuditEntry,
    AuditStage,
    ChainEnd,
    ChainFault,
    digest_of,
    end_of,
    line_of,
    verified,
)


def an_entry(**changes: object) -> AuditEntry:
    found = {
        "time": "2026-01-02T03:04:05.000006Z",
        "id": "7",
        "stage": AuditStage.COMPLETE,
        "replica": "replica-0",
        "peer": "ipv4:127.0.0.1:5",
    }
    return AuditEntry(**{**found, **changes})  # type: ignore[arg-type]


def lines_of(count: int) -> list[bytes]:
    found, end = [], ChainEnd()
    for number in range(count):
        line, end = line_of(an_entry(id=str(number)), end)
        found.append(line.removesuffix(b"\n"))
    return found


def faults(lines: list[bytes], end: ChainEnd | None = None) -> list[str]:
    placed = ((f"log:{number}", line) for number, line in enumerate(lines, 1))
    return [f"{one.place}: {one.words}" for one in verified(placed, end) if isinstance(one, ChainFault)]


def test_a_line_has_what_there_is_in_a_fixed_order_and_says_what_came_before() -> None:
    first, end = line_of(an_entry(call="Submission.Get", name="web"), ChainEnd())
    assert first == (
        b'{"n":1,"before":"' + BEGINNING.encode() + b'","time":"2026-01-02T03:04:05.000006Z","id":"7","stage":"complete",'
        b'"replica":"replica-0","peer":"ipv4:127.0.0.1:5","call":"Submission.Get","name":"web"}\n'
    )
    second, after = line_of(an_entry(), end)
    assert json.loads(second)["before"] == digest_of(first[:-1]) and after.number == 2
    assert end_of(second[:-1]) == after


@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_no_text_of_a_client_breaks_a_line_or_shows_raw(text: str, request: dict[str, str]) -> None:
    line, _ = line_of(an_entry(name=text, request=request or None), ChainEnd())
    assert line.count(b"\n") == 1 and all(0x20 <= byte < 0x7F for byte in line[:-1])
    found = json.loads(line)
    assert found.get("name", "") == text[:TEXT_MAX] and found.get("request", {}) == request


def test_what_is_too_large_is_left_out_and_said() -> None:
    line, end = line_of(an_entry(name="a" * 5_000, request={"text": "b" * LINE_BYTES_MAX}), ChainEnd())
    found = json.loads(line)
    assert len(line) < 3_000 and len(found["name"]) == TEXT_MAX
    assert found["request"]["left out"].endswith(f"bytes, at most {LINE_BYTES_MAX} in a line")
    assert end_of(line[:-1]) == end


def test_a_log_as_it_was_written_has_no_fault() -> None:
    lines = lines_of(5)
    assert faults(lines) == faults(lines, ChainEnd()) == []
    assert list(verified([("log:1", lines[0])])) == [ChainEnd(1, digest_of(lines[0]))]
    # Older files may be gone.
    assert faults(lines[2:]) == []
    assert list(verified([])) == [ChainEnd()]


@pytest.mark.row("B110")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [*lines[:2], *lines[3:]], ["log:3: has number 4, 3 should follow"]),
        (
            lambda lines: [lines[1], lines[0], *lines[2:]],
            ["log:2: has number 1, 3 should follow", "log:3: has number 3, 2 should follow"],
        ),
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], ["log:4: has number 3, 4 should follow"]),
        (
            lambda lines: [lines[0], lines[1].replace(b"complete", b"refused"), *lines[2:]],
            ["log:3: does not follow the line before it, number 2: that one, or this, was changed"],
        ),
        (lambda lines: [lines[0], b"{}", *lines[2:]], ["log:2: is no line of an audit log"]),
        (lambda lines: [lines[0], b"not json", *lines[2:]], ["log:2: is no line of an audit log"]),
        (lambda lines: [lines[0], b"a" * (LINE_BYTES_MAX + 1), *lines[2:]], ["log:2: is no line of an audit log"]),
    ],
    ids=["taken out", "moved", "twice", "changed", "another object", "another text", "very long"],
)
def test_a_changed_log_shows(change: object, words: list[str]) -> None:
    assert faults(change(lines_of(5))) == words  # type: ignore[operator]


def test_lines_before_the_first_that_were_taken_out_show_where_it_is_known_what_came_before() -> None:
    lines = lines_of(3)
    assert faults(lines[1:], ChainEnd()) == ["log:1: has number 2, 1 should follow"]
    other, _ = line_of(an_entry(id="other"), ChainEnd())
    assert faults(lines[1:], end_of(other[:-1])) == [
        "log:1: does not follow the line before it, number 1: that one, or this, was changed"
    ]
