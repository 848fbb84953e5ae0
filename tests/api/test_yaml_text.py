"""YAML and JSON as plain data: what is read, what is refused and with which line, and that writing is read back."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rayched.api.yaml_text import MAX_DEPTH, TextError, dump_all, load_all

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
).filter(lambda value: value is not None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", "a"),
        ("12", 12),
        ("0x10", 16),
        ("010", 8),
        ("0b11", 3),
        ("-017", -15),
        ("1_000", 1000),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("yes", True),
        ("off", False),
        ("2024-01-31", "2024-01-31"),
        ("2024-01-31T00:00:00Z", "2024-01-31T00:00:00Z"),
        ("12:30:45", "12:30:45"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("128Mi", "128Mi"),
        ("<<", "<<"),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_scalars_are_what_kubernetes_tools_take_them_for(text: str, value: Any) -> None:
    assert load_all(f"a: {text}", "f")[0]["a"] == value


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("", []),
        ("---\n---\n", []),
        ("# only a comment", []),
        ("a: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("1: a\ntrue: b\n~: c\n", [{"1": "a", "true": "b", "null": "c"}]),
        ("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\n", [{"x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 3}}]),
        ('{\n\t"a": [1, "x"]\n}', [{"a": [1, "x"]}]),
        ("{a: 1}", [{"a": 1}]),
    ],
)
def test_documents_are_taken_apart(text: str, documents: list[Any]) -> None:
    assert load_all(text, "f") == documents


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [x\nc: 2", "f, line 3: not YAML"),
        ("a:\n  b: 1\n c: 2", "f, line 3: not YAML"),
        ("a: 1\nb: 2\na: 3", 'f, line 3: key "a" occurs twice; the mapping begins in line 1'),
        ('{"a": 1, "a": 2}', 'f: key "a" occurs twice in one object'),
        ("a: *b", 'f, line 1: alias "b" stands for nothing'),
        ("a: &a [*a]", 'f, line 1: alias "a" stands for nothing'),
        ("a: !!python/object:os.system x", "is not allowed"),
        ("a: !!int b", 'f, line 1: "b" is no int'),
        ("? [1]\n: 2", "f, line 1: a key must be a string"),
        ("<<: 1", "f, line 1: <<: needs a mapping"),
        ("a: \x01", "not YAML"),
        ("a:\n\tb: 1", "f, line 2: not YAML: a tab stands where YAML allows blanks alone"),
        ('{"a": 1,\n"b" "c"}', "f, line 2: not JSON: Expecting ':' delimiter"),
        ("a: \udc80", "f: not UTF-8 text"),
        ("[" * 200, f"f, line 1: values are nested more than {MAX_DEPTH} levels deep"),
        ("[" * 100_000 + "]" * 100_000, f"values are nested more than {MAX_DEPTH} levels deep"),
        ('{"a":' * 60 + "1" + "}" * 60, f"values are nested more than {MAX_DEPTH} levels deep"),
        ("a: " + "9" * 5_000, "is no int"),
    ],
)
def test_faults_are_one_line_with_the_place(text: str, message: str) -> None:
    with pytest.raises(TextError) as caught:
        load_all(text, "f")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_aliases_cannot_multiply_without_bound() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 12)]
    with pytest.raises(TextError, match="line 7: more than 2000000 values, aliases counted in full"):
        load_all("\n".join(lines), "f")


@given(plain)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert load_all(dump_all([value]), "f") == [value]


@given(st.dictionaries(st.text(), st.text(), min_size=1, max_size=5))
def test_a_plain_yaml_reader_sees_the_same_strings(value: dict[str, str]) -> None:
    assert yaml.safe_load(dump_all([value])) == value


@given(st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=5))
def test_json_is_read_as_json(value: dict[str, Any]) -> None:
    assert load_all(json.dumps(value), "f") == [value]


@given(st.text(alphabet=st.sampled_from("a1: -[]{},&*!|>'\"%#?\n\t<~.e\x85\u2028\ufeff"), max_size=40) | st.text(max_size=20))
def test_no_text_makes_reading_fail_in_another_way(text: str) -> None:
    try:
        load_all(text, "f")
    except TextError as error:
        assert "\n" not in str(error)
