"""Tables of text: cells never touch, the last column is not padded, a table that grows keeps its width."""

from __future__ import annotations

import io

import pytest

from rayched.cli.printing import GrowingTable, counted, note, out_sentence, plain_table


def test_columns_are_as_wide_as_what_is_in_them_and_three_apart(capsys: pytest.CaptureFixture[str]) -> None:
    plain_table(["NAME", "STATUS"], [["a", "Ready,SchedulingDisabled"], ["a-long-name", "Ready"]])
    assert capsys.readouterr().out.splitlines() == [
        "NAME          STATUS",
        "a             Ready,SchedulingDisabled",
        "a-long-name   Ready",
    ]


def test_rows_alone_are_measured_alone(capsys: pytest.CaptureFixture[str]) -> None:
    plain_table(["A VERY LONG HEADING", "B"], [["a", "b"]], show_headings=False)
    assert capsys.readouterr().out == "a   b\n"


def test_an_empty_table_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    plain_table(["A"], [], show_headings=False)
    assert capsys.readouterr().out == ""


def test_a_growing_table_widens_and_never_shrinks(capsys: pytest.CaptureFixture[str]) -> None:
    table = GrowingTable(2)
    table.print([["NAME", "AGE"], ["a", "1s"]])
    table.print([["a-long-name", "2s"]])
    table.print([["b", "3s"]])
    assert capsys.readouterr().out.splitlines() == ["NAME   AGE", "a      1s", "a-long-name   2s", "b             3s"]


def test_a_word_between_colons_is_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    note("error: taint a:b:NoSchedule of image x:bug:1 [red]is[/red] none")
    assert capsys.readouterr().err == "error: taint a:b:NoSchedule of image x:bug:1 [red]is[/red] none\n"


@pytest.mark.parametrize(("count", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_one_is_no_plural(count: int, text: str) -> None:
    assert counted(count, "node") == text


class Terminal(io.StringIO):
    """An output that somebody looks at."""

    def isatty(self) -> bool:
        return True


LONG = "pods web-0-of-a-rather-long-name: no node of 12 has room for so many, and none will have in time"


@pytest.mark.parametrize("before", ["error: ", "warning: ", "Warning: ", ""])
def test_notes_break_between_words_on_a_terminal(monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    note(before + LONG)
    lines = terminal.getvalue().splitlines()
    assert len(lines) > 2 and max(map(len, lines)) <= 40
    assert " ".join(lines) == before + LONG
    assert not any(line.startswith(" ") for line in lines)


def test_a_name_longer_than_the_terminal_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    note("error: web-0-of-a-rather-long-name not found")
    assert terminal.getvalue().splitlines() == ["error:", "web-0-of-a-rather-long-name", "not found"]


def test_in_a_pipe_an_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    note(f"error: {LONG}")
    assert capsys.readouterr().err == f"error: {LONG}\n"


def test_a_sentence_breaks_between_words_on_a_terminal_behind_its_indent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    out_sentence(LONG, "  ")
    lines = terminal.getvalue().splitlines()
    assert len(lines) > 2 and max(map(len, lines)) <= 40
    assert all(line.startswith("  ") and not line.startswith("   ") for line in lines)
    assert " ".join(line.strip() for line in lines) == LONG


ROWS = [["pod/web-0", LONG], ["pod/a", "short"]]


def test_the_last_column_of_a_table_is_folded_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    plain_table(["OBJECT", "MESSAGE"], ROWS)
    GrowingTable(2).print([["OBJECT", "MESSAGE"], *ROWS])
    lines = terminal.getvalue().splitlines()
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :] and max(map(len, lines)) <= 40
    heading, first, *more, last = lines[: len(lines) // 2]
    assert (heading, last) == ("OBJECT      MESSAGE", "pod/a       short")
    assert len(more) > 2 and all(line.startswith(" " * 12) for line in more)
    assert " ".join([first[12:], *(line.strip() for line in more)]) == LONG


def test_a_last_column_without_room_stands_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    plain_table(["OBJECT", "MESSAGE"], [["pod/web-0", "no room on it"], ["pod/a", "short"]])
    assert terminal.getvalue().splitlines() == [
        "OBJECT      MESSAGE",
        "pod/web-0",
        "    no room on it",
        "pod/a       short",
    ]


@pytest.mark.parametrize("columns", ["8", "1000"])
def test_a_table_stays_as_it_is_where_its_last_column_has_no_room_or_all_of_it(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    plain_table(["OBJECT", "MESSAGE"], ROWS)
    assert terminal.getvalue().splitlines()[1] == f"pod/web-0   {LONG}"


def test_in_a_pipe_a_sentence_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out_sentence(f"{LONG}\x1b[31m\nred", "  ")
    assert capsys.readouterr().out == f"  {LONG}\\u001b[31m\\nred\n"
