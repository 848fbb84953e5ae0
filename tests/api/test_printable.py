"""Text of clients on a terminal: nothing but printable characters, and documents that stay what they were."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rayched.api import printable
from rayched.api.yaml_text import dump_all, load_all


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, größer, 日本, 🚀", "plain, größer, 日本, 🚀"),
        ("\x1b[2J\x1b]0;owned\x07", "\\u001b[2J\\u001b]0;owned\\u0007"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\u202eabc\u2066\u200f\u2028", "\\u202eabc\\u2066\\u200f\\u2028"),
        ("\x9b31m\x85", "\\u009b31m\\u0085"),
        ("\U000e0041\u200b\ufeff", "\\U000e0041\\u200b\\ufeff"),
    ],
)
def test_what_is_not_printable_is_written_as_its_escape(text: str, shown: str) -> None:
    assert printable.one_line(text) == shown


def test_tabs_stay_where_a_template_writes_them() -> None:
    assert printable.tabbed_lines("a\tb\x1b\nc\t\r") == "a\tb\\u001b\nc\t\\r"
    assert printable.lines("a\tb") == "a\\tb"


def test_lines_keep_their_breaks_alone() -> None:
    assert printable.lines("a\x1b\nb\u202e\r\n") == "a\\u001b\nb\\u202e\\r\n"


TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)


@given(st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS, max_size=3), max_size=4))
def test_a_document_is_printable_and_reads_back_as_it_was(document: dict[str, str | list[str]]) -> None:
    text = printable.json_text(json.dumps(document, indent=4, ensure_ascii=False))
    assert text.replace("\n", "").isprintable() and json.loads(text) == document
    text = dump_all([document])
    assert text.replace("\n", "").isprintable()
    assert yaml.safe_load(text) == document
    if document:
        assert load_all(text, "test") == [document]
