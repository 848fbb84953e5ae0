"""-o jsonpath, -o custom-columns and --sort-by, as kubectl has them."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.cli.output.json_path import PathFault
from rayched.cli.output.templates import custom_columns, custom_columns_of_lines, sorted_by, template

PODS = {
    "kind": "List",
    "items": [
        {"metadata": {"name": "web-10", "labels": {"app": "web"}}, "spec": {"priority": 5, "memory": "1Gi"}},
        {"metadata": {"name": "web-9"}, "spec": {"priority": 100, "memory": "900Mi"}},
        {"metadata": {"name": "db"}, "spec": {"memory": "2G"}},
    ],
}


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("{.items[*].metadata.name}", "web-10 web-9 db"),
        (".items[0].metadata.name", "web-10"),
        ("{.items[0].metadata.labels}", '{"app":"web"}'),
        ("{.items[2].spec.priority}", ""),
        ('{range .items[*]}{.metadata.name}{"\\t"}{.spec.priority}{"\\n"}{end}', "web-10\t5\nweb-9\t100\ndb\t\n"),
        ("{range .items[?(@.spec.priority>10)]}[{.metadata.name}]{end}", "[web-9]"),
        ("names: {.items[0:2].metadata.name};", "names: web-10 web-9;"),
        ("{range .items[0:1]}{range .metadata.labels}{@.app}{end}{end}!", "web!"),
        ('{.kind}{\'-\'}{"x\\"y"}', 'List-x"y'),
        ("{$.kind}", "List"),
    ],
)
def test_a_template_prints_what_kubectl_prints(text: str, printed: str) -> None:
    assert template(text).text(PODS) == printed


def test_a_column_may_be_without_a_heading() -> None:
    columns = custom_columns(":.metadata.name,N:.spec.priority")
    assert columns.headings == ("", "N") and columns.cells(PODS["items"][0]) == ["web-10", "5"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{range .items[*]}{.a}", "a {range} has no {end}"),
        ("{end}", "{end} stands where it means nothing"),
        ("{.a", "a \"}\" is missing behind '{.a'"),
        ("{}", "{} stands where it means nothing"),
        ("{.a[}", "cannot be read from"),
    ],
)
def test_a_template_that_is_none_is_told(text: str, said: str) -> None:
    with pytest.raises(PathFault) as fault:
        template(text)
    assert said in str(fault.value)


def test_custom_columns_have_headings_cells_and_a_word_for_nothing() -> None:
    columns = custom_columns("NAME:.metadata.name,PRIORITY:.spec.priority,BOTH:.metadata['name','uid']")
    assert columns.headings == ("NAME", "PRIORITY", "BOTH")
    assert [columns.cells(item) for item in PODS["items"]] == [
        ["web-10", "5", "web-10"],
        ["web-9", "100", "web-9"],
        ["db", "<none>", "db"],
    ]
    of_file = custom_columns_of_lines("A    B\n.metadata.name {.spec.priority}\n")
    assert (of_file.headings, of_file.cells(PODS["items"][0])) == (("A", "B"), ["web-10", "5"])


@pytest.mark.parametrize("text", ["NAME", "NAME:", "A:.b,", "A:.b[", ""])
def test_columns_that_are_none_are_told(text: str) -> None:
    with pytest.raises(PathFault):
        custom_columns(text)
    with pytest.raises(PathFault):
        custom_columns_of_lines(f"A B\n{text}")


@pytest.mark.parametrize(
    ("path", "order"),
    [
        (".metadata.name", ["db", "web-9", "web-10"]),
        ("{.spec.priority}", ["db", "web-10", "web-9"]),
        (".spec.memory", ["web-9", "web-10", "db"]),
    ],
)
def test_sorting_is_by_number_quantity_or_text_with_its_numbers(path: str, order: list[str]) -> None:
    items: list[dict[str, Any]] = PODS["items"]  # type: ignore[assignment]
    assert [items[place]["metadata"]["name"] for place in sorted_by(path, items)] == order


def test_sorting_by_what_no_object_has_is_told() -> None:
    with pytest.raises(PathFault, match="couldn't find any field with path"):
        sorted_by(".spec.nothing", PODS["items"])
    assert sorted_by(".spec.nothing", []) == []
