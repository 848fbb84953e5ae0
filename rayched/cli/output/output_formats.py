"""kubectl's `-o`: what an option names, and objects in that form."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.api.manifest import Document, write_object
from rayched.api.yaml_text import dump_all
from rayched.cli.output.go_templates import GoTemplate, go_template
from rayched.cli.output.json_path import PathFault
from rayched.cli.output.templates import (
    CustomColumns,
    Template,
    custom_columns,
    custom_columns_of_lines,
    sorted_by,
    template,
)
from rayched.cli.printing import fail, out, out_json, out_text, plain_table, wrong
from rayched.cli.references import label_of

FORMATS: Final = "wide|yaml|json|name|jsonpath=...|custom-columns=...|go-template=..."

_SHORT_FORMATS: Final = FORMATS.replace("=...", "=")
"""What stands in the help of an option, which has to fit into 80 columns."""

OutputOption = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar=_SHORT_FORMATS, help="Format; also jsonpath-file=FILE and the like.", show_default=False
    ),
]
SortBy = Annotated[
    str, typer.Option("--sort-by", metavar="JSONPATH", help="Sort by a field, as in .spec.priority.", show_default=False)
]

_WITH_TEXT: Final = {
    "jsonpath": "'{.metadata.name}'",
    "jsonpath-file": "FILE",
    "custom-columns": "NAME:.metadata.name",
    "custom-columns-file": "FILE",
    "go-template": "'{{.metadata.name}}'",
    "go-template-file": "FILE",
}

R = TypeVar("R")


class OutputForm(enum.StrEnum):
    """The forms of documents and tables."""

    table = ""
    wide = "wide"
    yaml = "yaml"
    json = "json"
    name = "name"
    jsonpath = "jsonpath"
    columns = "custom-columns"
    go_template = "go-template"


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """What `-o` says."""

    form: OutputForm
    template: Template | GoTemplate | None = None
    columns: CustomColumns | None = None

    @property
    def is_table(self) -> bool:
        return self.form in (OutputForm.table, OutputForm.wide)

    def print(self, items: Sequence[AnyObject], *, one: bool, show_headings: bool = True) -> None:
        """In a form that is no table of the command's own. `one`: the object by itself, not a List of it."""
        if self.form is OutputForm.name:
            for item in items:
                out(label_of(kinds.of_message(item), item.metadata.name))
            return
        documents = [write_object(kinds.wrap(item)) for item in items]
        # A List also where one object or none was found: what a script reads does not depend on how many there are.
        whole = (
            documents[0] if one else {"apiVersion": "v1", "items": documents, "kind": "List", "metadata": {"resourceVersion": ""}}
        )
        self.print_documents(documents, whole, show_headings=show_headings)

    def print_documents(self, items: Sequence[Document], whole: Document, *, show_headings: bool = True) -> None:
        """Plain data: each item as a row of columns, or all of it."""
        if self.columns is not None:
            plain_table(self.columns.headings, [self.columns.cells(found) for found in items], show_headings=show_headings)
        elif self.template is not None:
            out_text(self._filled(self.template, whole))
        elif self.form is OutputForm.yaml:
            out(dump_all([whole]))
        else:
            out_json(json.dumps(whole, indent=4, ensure_ascii=False))

    def _filled(self, template: Template | GoTemplate, whole: Document) -> str:
        try:
            return template.text(whole)
        except PathFault as error:
            fail(f"--output {self.form.value}: {error}")


def output_format(text: str) -> OutputFormat:
    """Ends the command where the text names no form."""
    found = _format_of(*text.partition("="))
    if found is None:
        name = text.partition("=")[0]
        if name in _WITH_TEXT:
            wrong(f"--output {name}: has nothing behind an equals sign, as in -o {name}={_WITH_TEXT[name]}")
        wrong(f"--output {name!r}: want one of {FORMATS.replace('|', ', ')}")
    return found


def _format_of(name: str, equals: str, rest: str) -> OutputFormat | None:
    match name:
        case "jsonpath" if rest:
            return OutputFormat(OutputForm.jsonpath, template=_understood(name, template, rest))
        case "jsonpath-file" if rest:
            return OutputFormat(OutputForm.jsonpath, template=_understood(name, template, _text_of(name, rest).rstrip("\n")))
        case "custom-columns" if rest:
            return OutputFormat(OutputForm.columns, columns=_understood(name, custom_columns, rest))
        case "custom-columns-file" if rest:
            return OutputFormat(OutputForm.columns, columns=_understood(name, custom_columns_of_lines, _text_of(name, rest)))
        case "go-template" if rest:
            return OutputFormat(OutputForm.go_template, template=_understood(name, go_template, rest))
        case "go-template-file" if rest:
            text = _text_of(name, rest).rstrip("\n")
            return OutputFormat(OutputForm.go_template, template=_understood(name, go_template, text))
        case "" | "wide" | "yaml" | "json" | "name" if not equals:
            return OutputFormat(OutputForm(name))
    return None


def sort(items: Sequence[AnyObject], path: str) -> list[AnyObject]:
    """By the value that a path leads to; ends the command where it leads nowhere."""
    return [items[place] for place in order([write_object(kinds.wrap(item)) for item in items], path)]


def order(documents: Sequence[Document], path: str) -> list[int]:
    """The places of the documents, by the value that a path leads to; ends the command where it leads nowhere."""
    return _understood("--sort-by", lambda one: sorted_by(one, documents), path)


def _understood(what: str, read: Callable[[str], R], text: str) -> R:
    option = what if what.startswith("--") else f"--output {what}"
    try:
        return read(text)
    except PathFault as error:
        wrong(f"{option}: {error}")


def _text_of(name: str, file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        wrong(f"--output {name}: {file}: not a text in UTF-8")
    except OSError as error:
        wrong(f"--output {name}: {file}: {error.strerror}")
