"""Manifests: Kubernetes' YAML and JSON to objects and back.

    text --read_documents--> plain documents --read_object--> Object --write_object--> plain document --write_text--> text

Reading what was written gives an equal object, so `get -o yaml | apply -f -` changes nothing. Everything that is wrong with
a document is reported at once: where its structure already has errors, the rules of validation are tried on the rest too.
Fields that Kubernetes has and rayched does not use are left out with a warning.

Cost: about 70 µs for each kilobyte of plain data, and 400 µs for each of YAML text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rayched.api import kinds
from rayched.api.defaulting import default
from rayched.api.errors import FieldError, ManifestErrors, one_of, quoted
from rayched.api.message_tables import ReadFindings, fill, plain, shown
from rayched.api.validation import validate
from rayched.api.yaml_text import TextError, dump_all, load_all
from rayched.v1.workloads_pb2 import Object

__all__ = [
    "ManifestErrors",
    "ReadResult",
    "TextError",
    "read_documents",
    "read_object",
    "read_text",
    "write_json",
    "write_object",
    "write_text",
]

Document = dict[str, Any]

_LISTS: Final = frozenset(f"{kind.name}List" for kind in kinds.KINDS) | {"List"}


@dataclass(frozen=True, slots=True)
class ReadResult:
    """An object as its manifest says, neither defaulted nor validated, and the fields that were left out."""

    object: Object
    warnings: tuple[FieldError, ...] = ()
    source: str = field(default="", compare=False)
    """Where its text stands: a file, as a rule."""


def read_documents(text: str, source: str) -> list[Document]:
    """The documents of a text, Lists taken apart. Raises TextError (no YAML or JSON) and ManifestErrors (no object)."""
    documents, errors = _documents(text, source)
    if errors:
        raise ManifestErrors(errors, source)
    return documents


def read_text(text: str, source: str) -> list[ReadResult]:
    """The objects of a text. The errors of all its documents are raised together, each path with the object's name."""
    results: list[ReadResult] = []
    documents, errors = _documents(text, source)
    for document in documents:
        try:
            results.append(replace(read_object(document), source=source))
        except ManifestErrors as found:
            name = name_of(document)
            errors.extend(FieldError(f"{name}: {error.path}" if error.path else name, error.message) for error in found.errors)
    if errors:
        raise ManifestErrors(errors, source)
    return results


def read_object(document: Document) -> ReadResult:
    """The object that a document describes; raises ManifestErrors with all of its errors."""
    kind = _kind_of(document)
    findings = ReadFindings()
    message = kind.message()
    fill(message, document, findings)
    if findings.errors:
        # The rest is judged as well: whoever mends a manifest wants to do so once.
        rest = kind.message()
        rest.MergeFrom(message)  # type: ignore[arg-type]
        default(rest)
        known = tuple(error.path for error in findings.errors)
        raise ManifestErrors([*findings.errors, *(error for error in validate(rest) if not _follows(error.path, known))])
    return ReadResult(kinds.wrap(message), tuple(findings.warnings))


def write_object(item: Object) -> Document:
    """The document of an object, as kubectl shows it."""
    kind = kinds.of(item)
    document: Document = plain(kinds.unwrap(item))
    return dict(sorted({**document, "apiVersion": kind.api_version, "kind": kind.name}.items()))


def write_text(items: Iterable[Object]) -> str:
    """The objects as YAML; several as one List, as `kubectl get -o yaml` gives them."""
    documents = [write_object(item) for item in items]
    return dump_all([documents[0] if len(documents) == 1 else _list(documents)])


def write_json(items: Iterable[Object]) -> str:
    """The objects as JSON; several as one List."""
    documents = [write_object(item) for item in items]
    return json.dumps(documents[0] if len(documents) == 1 else _list(documents), indent=4, ensure_ascii=False) + "\n"


def name_of(document: Document) -> str:
    """What a person would call the object of a document: `Pod web`."""
    metadata = document.get("metadata")
    name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else None
    kind = document.get("kind")
    words = f"{kind if isinstance(kind, str) else 'object'} {name if isinstance(name, str) else 'without a name'}"
    return quoted(words)[1:-1]


def _list(documents: list[Document]) -> Document:
    return {"apiVersion": "v1", "items": documents, "kind": "List", "metadata": {"resourceVersion": ""}}


def _documents(text: str, source: str) -> tuple[list[Document], list[FieldError]]:
    """The documents of a text that are objects, and what is wrong with the others. Raises TextError."""
    documents: list[Document] = []
    errors: list[FieldError] = []
    for number, found in enumerate(load_all(text, source), start=1):
        documents.extend(_items(found, f"{source}, document {number}", errors))
    return documents, errors


def _items(found: Any, source: str, errors: list[FieldError]) -> Iterator[Document]:
    """The document itself or, of a List, its items; what is no object goes to the errors."""
    if not isinstance(found, dict):
        errors.append(FieldError("", f"{source}: must be an object, not {shown(found)}"))
        return
    kind = found.get("kind")
    # Of a client: it may be anything, also what no set can be asked for.
    if not isinstance(kind, str) or kind not in _LISTS:
        yield found
        return
    items = found.get("items") or []
    if not isinstance(items, list):
        errors.append(FieldError("items", f"{source}: must be a list, not {shown(items)}"))
        return
    kind = kind.removesuffix("List")
    for position, item in enumerate(items):
        if not isinstance(item, dict):
            errors.append(FieldError(f"items[{position}]", f"{source}: must be an object, not {shown(item)}"))
            continue
        # The API leaves out the kind of a typed list's items.
        yield {"kind": kind, "apiVersion": found.get("apiVersion"), **item} if kind else item


def _kind_of(document: Document) -> kinds.Kind:
    errors: list[FieldError] = []
    name, version = document.get("kind"), document.get("apiVersion")
    kind = None
    if not isinstance(name, str) or not name:
        errors.append(FieldError("kind", f"{_lacking(name)}; allowed are {', '.join(one.name for one in kinds.KINDS)}"))
    else:
        try:
            kind = kinds.by_name(name)
        except kinds.UnknownKind as error:
            errors.append(FieldError("kind", str(error)))
    if not isinstance(version, str) or not version:
        allowed = [kind.api_version] if kind is not None else sorted({one.api_version for one in kinds.KINDS})
        errors.append(FieldError("apiVersion", f"{_lacking(version)}; allowed is {one_of(allowed)}"))
    elif kind is not None and version != kind.api_version:
        sentence = f"{quoted(version)} is not known for {kind.name}; allowed is {quoted(kind.api_version)}"
        errors.append(FieldError("apiVersion", sentence))
    if errors or kind is None:
        raise ManifestErrors(errors)
    return kind


def _lacking(value: Any) -> str:
    """What to say of a document that has this where a text has to be."""
    return "is required" if value is None or value == "" else f"must be a string, not {shown(value)}"


def _follows(path: str, known: tuple[str, ...]) -> bool:
    """Whether an error is about a place that already has one, or about something inside of it."""
    return any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in known)
