"""Selectors of labels, nodes and fields: tables of the rules, and properties against the rules spelled out in plain Python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.api import fields, kinds
from rayched.api.selectors import (
    LabelSelectorMatcher,
    NodeSelectorMatcher,
    NodeTermMatcher,
    SelectorError,
    matches_all,
    parse_field_selector,
    parse_label_selector,
)
from rayched.v1.core_pb2 import Node, NodeSelector, NodeSelectorTerm, Pod
from rayched.v1.meta_pb2 import LabelSelector

KEYS = st.sampled_from(["a", "b", "x/c"])
VALUES = st.sampled_from(["", "1", "2", "10", "-3", "v", "9223372036854775808"])
LABELS = st.dictionaries(KEYS, VALUES)
SET_CONDITIONS = st.tuples(
    KEYS, st.sampled_from(["In", "NotIn"]), st.lists(VALUES.filter(lambda v: v != "-3"), min_size=1, max_size=3)
)
PRESENCE_CONDITIONS = st.tuples(KEYS, st.sampled_from(["Exists", "DoesNotExist"]), st.just([]))
NUMBER_CONDITIONS = st.tuples(KEYS, st.sampled_from(["Gt", "Lt"]), st.sampled_from([["1"], ["2"], ["10"]]))


def holds(labels: dict[str, str], key: str, operator: str, values: list[str]) -> bool:
    """One condition, as the documentation words it."""
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return not (key in labels and labels[key] in values)
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    try:
        number = int(labels[key])
    except (KeyError, ValueError):
        return False
    if abs(number) > 2**63 - 1:
        return False
    return number > int(values[0]) if operator == "Gt" else number < int(values[0])


def node_term(*conditions: tuple[str, str, list[str]], fields: tuple[tuple[str, str, list[str]], ...] = ()) -> NodeSelectorTerm:
    term = NodeSelectorTerm()
    for key, operator, values in conditions:
        term.match_expressions.add(key=key, operator=operator, values=values)
    for key, operator, values in fields:
        term.match_fields.add(key=key, operator=operator, values=values)
    return term


@given(LABELS, LABELS, st.lists(SET_CONDITIONS | PRESENCE_CONDITIONS, max_size=3))
def test_a_label_selector_matches_where_all_of_its_conditions_hold(
    labels: dict[str, str], wanted: dict[str, str], conditions: list[tuple[str, str, list[str]]]
) -> None:
    wanted = {key: value for key, value in wanted.items() if value != "-3"}
    selector = LabelSelector(match_labels=wanted)
    for key, operator, values in conditions:
        selector.match_expressions.add(key=key, operator=operator, values=values)
    expected = all(labels.get(key) == value for key, value in wanted.items()) and all(holds(labels, *one) for one in conditions)
    assert LabelSelectorMatcher(selector).matches(labels) is expected
    assert matches_all(wanted, labels) is all(labels.get(key) == value for key, value in wanted.items())


def test_no_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert not LabelSelectorMatcher(None).matches({})
    assert not LabelSelectorMatcher(None).matches({"a": "b"})
    assert LabelSelectorMatcher(LabelSelector()).matches({})
    assert LabelSelectorMatcher(LabelSelector()).empty
    assert not LabelSelectorMatcher(None).empty


@pytest.mark.row("K2.3")
@given(LABELS, st.lists(st.lists(SET_CONDITIONS | PRESENCE_CONDITIONS | NUMBER_CONDITIONS, max_size=3), max_size=3))
def test_node_selector_terms_are_ored_and_their_expressions_anded(
    labels: dict[str, str], terms: list[list[tuple[str, str, list[str]]]]
) -> None:
    selector = NodeSelector(node_selector_terms=[node_term(*conditions) for conditions in terms])
    expected = any(bool(conditions) and all(holds(labels, *one) for one in conditions) for conditions in terms)
    assert NodeSelectorMatcher(selector).matches("n", labels) is expected


@pytest.mark.row("K2.3")
@pytest.mark.parametrize(
    ("operator", "values", "labels", "expected"),
    [
        ("In", ["a", "b"], {"k": "b"}, True),
        ("In", ["a", "b"], {"k": "c"}, False),
        ("In", ["a"], {}, False),
        ("NotIn", ["a"], {"k": "b"}, True),
        ("NotIn", ["a"], {"k": "a"}, False),
        ("NotIn", ["a"], {}, True),
        ("Exists", [], {"k": ""}, True),
        ("Exists", [], {}, False),
        ("DoesNotExist", [], {}, True),
        ("DoesNotExist", [], {"k": ""}, False),
        ("Gt", ["5"], {"k": "6"}, True),
        ("Gt", ["5"], {"k": "5"}, False),
        ("Gt", ["5"], {"k": "x"}, False),
        ("Gt", ["5"], {}, False),
        ("Lt", ["5"], {"k": "-6"}, True),
        ("Lt", ["5"], {"k": "4.0"}, False),
        ("Lt", ["5"], {"k": "+4"}, True),
        ("Lt", ["5"], {"k": " 4"}, False),
        ("Lt", ["9"], {"k": "9223372036854775808"}, False),
    ],
)
def test_operators_of_node_affinity(operator: str, values: list[str], labels: dict[str, str], expected: bool) -> None:
    assert NodeTermMatcher(node_term(("k", operator, values))).matches("n", labels) is expected


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        (("metadata.name", "In", ["n"]), True),
        (("metadata.name", "In", ["m"]), False),
        (("metadata.name", "NotIn", ["n"]), False),
        (("metadata.name", "NotIn", ["m"]), True),
        (("metadata.uid", "In", ["n"]), False),
    ],
)
def test_conditions_on_the_name_of_a_node(condition: tuple[str, str, list[str]], matches: bool) -> None:
    assert NodeTermMatcher(node_term(fields=(condition,))).matches("n", {}) is matches


@pytest.mark.parametrize(
    "term",
    [
        node_term(("k", "Gt", ["-1"])),
        node_term(("k", "Gt", ["x"])),
        node_term(("k", "Gt", ["1", "2"])),
        node_term(("k", "In", [])),
        node_term(("k", "Exists", ["a"])),
        node_term(("k", "Near", ["a"])),
        node_term(("a b", "Exists", [])),
        node_term(fields=(("metadata.name", "In", ["a", "b"]),)),
        node_term(fields=(("metadata.name", "Exists", []),)),
    ],
)
def test_a_term_that_does_not_parse_matches_no_node_and_the_others_still_do(term: NodeSelectorTerm) -> None:
    selector = NodeSelectorMatcher(NodeSelector(node_selector_terms=[term, node_term(("z", "Exists", []))]))
    assert len(selector.faults) == 1
    assert not selector.matches("a", {"k": "5"})
    assert selector.matches("a", {"k": "5", "z": ""})


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("", {"a": "b"}, True),
        ("app=web", {"app": "web"}, True),
        ("app==web", {"app": "db"}, False),
        ("app!=web", {}, True),
        ("app = web , tier != db", {"app": "web", "tier": "x"}, True),
        ("env in (a, b)", {"env": "b"}, True),
        ("env in (a,b)", {"env": "c"}, False),
        ("env notin (a,b)", {"env": "c"}, True),
        ("env notin (a,b),app=web", {"env": "c", "app": "db"}, False),
        ("env in ()", {"env": ""}, True),
        ("canary", {"canary": ""}, True),
        ("!canary", {"canary": ""}, False),
        ("cores>4", {"cores": "5"}, True),
        ("cores<4", {"cores": "5"}, False),
        ("example.com/team=a", {"example.com/team": "a"}, True),
        ("app=", {"app": ""}, True),
    ],
)
def test_label_selectors_as_commands_write_them(text: str, labels: dict[str, str], expected: bool) -> None:
    assert parse_label_selector(text).matches(labels) is expected


@pytest.mark.parametrize(
    "text", ["a b", "=x", "a in (b", "a in b)", "a=b c", ",", "a,,b", "a>x", "in (a)", "a near (b)", "((a))", "a=b,!", "a/b/c"]
)
def test_a_text_that_is_no_label_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_label_selector(text)


@given(st.text(max_size=30))
def test_no_text_makes_reading_a_selector_fail_in_another_way(text: str) -> None:
    for read in (parse_label_selector, parse_field_selector):
        try:
            read(text)  # type: ignore[operator]
        except SelectorError:
            continue


@pytest.mark.parametrize(
    ("text", "item", "expected"),
    [
        ("", Pod(), True),
        ("metadata.name=a", Pod(metadata={"name": "a"}), True),
        ("metadata.name!=a", Pod(metadata={"name": "a"}), False),
        ("spec.nodeName=n,status.phase==Running", Pod(spec={"node_name": "n"}, status={"phase": "Running"}), True),
        ("spec.nodeName=", Pod(), True),
        ("spec.nodeName!=", Pod(), False),
        ("spec.unschedulable=true", Node(spec={"unschedulable": True}), True),
        ("spec.unschedulable=false", Node(spec={"unschedulable": True}), False),
    ],
)
def test_field_selectors(text: str, item: Any, expected: bool) -> None:
    selector = parse_field_selector(text)
    fields.check(selector, kinds.of_message(item))
    assert fields.matches(selector, item) is expected


@pytest.mark.parametrize("text", ["spec.nodeName", "=n", "a>b"])
def test_a_text_that_is_no_field_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_field_selector(text)


def test_a_field_that_cannot_be_selected_by_is_refused_with_those_that_can() -> None:
    with pytest.raises(SelectorError, match=r'field "spec\.image" of pods cannot be selected by; allowed are metadata\.name'):
        fields.check(parse_field_selector("spec.image=x"), kinds.POD)
