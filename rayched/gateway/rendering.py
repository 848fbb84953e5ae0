"""Objects as clients of Kubernetes want them: whole, as metadata alone, or as rows of a Table. Pure: the time comes in.

Columns are those of `rayched get`, and Kubernetes' where it has more. Each table has all of them; kubectl shows those of
priority 1 with -o wide only.

Source: the printers of Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rayched.api import columns, kinds
from rayched.api.columns import NONE, UNKNOWN, Column, columns_of
from rayched.api.kinds import AnyObject, Kind
from rayched.api.manifest import write_object
from rayched.gateway.queries import INCLUDE_NONE, INCLUDE_OBJECT, AcceptedForm
from rayched.gateway.required_fields import fill
from rayched.v1.core_pb2 import Node

Document = dict[str, Any]

META: Final = "meta.k8s.io/v1"


def _address(kind: str) -> Callable[[Any, float], str]:
    def text(node: Node, _now: float) -> str:
        return next((one.address for one in node.status.addresses if one.type == kind), NONE)

    return text


def _node_info(field: str) -> Callable[[Any, float], str]:
    return lambda node, _: getattr(node.status.node_info, field) or UNKNOWN


_MORE: Final[Mapping[str, tuple[tuple[str, Column], ...]]] = {
    kinds.POD.name: (("", Column("READINESS GATES", lambda _pod, _now: NONE, wide=True)),),
    kinds.NODE.name: (
        ("ZONE", Column("INTERNAL-IP", _address("InternalIP"), wide=True)),
        ("ZONE", Column("EXTERNAL-IP", _address("ExternalIP"), wide=True)),
        ("ZONE", Column("OS-IMAGE", _node_info("os_image"), wide=True)),
        ("ZONE", Column("KERNEL-VERSION", _node_info("kernel_version"), wide=True)),
    ),
}
"""Further columns by kind, each with the heading of the one that it comes before; "": at the end."""


def table_columns(kind: Kind) -> list[Column]:
    found = columns_of(kind, wide=True)
    for before, column in _MORE.get(kind.name, ()):
        place = next((at for at, one in enumerate(found) if one.heading == before), len(found))
        found.insert(place, column)
    return found


def document(item: AnyObject) -> Document:
    """As it is shown."""
    return fill(stored_document(item))


def stored_document(item: AnyObject) -> Document:
    """As it is changed and put back: what is not set is not there."""
    return write_object(kinds.wrap(item))


def partial(item: Document) -> Document:
    """The metadata of a document, as an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": item["metadata"]}


def table(
    kind: Kind, items: Sequence[AnyObject], now: float, include: str, metadata: Document, *, headings: bool = True
) -> Document:
    """`headings`: of a watch only the first table has them."""
    shown = table_columns(kind)
    rows = []
    for item in items:
        row: Document = {"cells": columns.cells(item, shown, now)}
        if include != INCLUDE_NONE:
            whole = document(item)
            row["object"] = whole if include == INCLUDE_OBJECT else partial(whole)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": META,
        "metadata": metadata,
        "columnDefinitions": [definition(column.heading, column.wide) for column in shown] if headings else None,
        "rows": rows,
    }


def one(kind: Kind, item: AnyObject, form: AcceptedForm, now: float, include: str, *, headings: bool = True) -> Document:
    """One object in the form that was asked for."""
    if form.table:
        metadata = {"resourceVersion": item.metadata.resource_version}
        return table(kind, [item], now, include, metadata, headings=headings)
    whole = document(item)
    return partial(whole) if form.metadata_only else whole


def many(kind: Kind, items: Sequence[AnyObject], form: AcceptedForm, now: float, include: str, metadata: Document) -> Document:
    """A list in the form that was asked for."""
    if form.table:
        return table(kind, items, now, include, metadata)
    documents = [document(item) for item in items]
    if form.metadata_only:
        entries = [partial(item) for item in documents]
        return {"kind": "PartialObjectMetadataList", "apiVersion": META, "metadata": metadata, "items": entries}
    for item in documents:
        # The API leaves out what the list says of all of them.
        del item["kind"], item["apiVersion"]
    return {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata, "items": documents}


def definition(heading: str, wide: bool = False) -> Document:
    """A column of a Table. `heading`: as `rayched get` has it."""
    return {
        "name": heading.title(),
        "type": "string",
        "format": "name" if heading == columns.NAME.heading else "",
        "description": "",
        "priority": int(wide),
    }
