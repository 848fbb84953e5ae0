"""Lines of a description: names with what belongs to them, lists, tables. What `describe` is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rayched.api.columns import NONE
from rayched.api.names import LAST_APPLIED
from rayched.cli import printing
from rayched.cli.printing import folded, shown
from rayched.v1.core_pb2 import Container, ContainerPort
from rayched.v1.meta_pb2 import ObjectMeta, Quantity

_WIDTH = 18


def container(found: Container) -> list[str]:
    lines = [f"  {shown(found.name)}:", "    " + field("Image", found.image or NONE)]
    if found.restart_policy:
        lines.append("    " + field("Restart Policy", found.restart_policy))
    if found.command or found.args:
        lines.append("    " + field("Command", " ".join([*found.command, *found.args])))
    if found.ports:
        lines.append("    " + field("Ports", ", ".join(map(_port, found.ports))))
    for name, amounts in (("Limits", found.resources.limits), ("Requests", found.resources.requests)):
        lines += [f"    {line}" for line in quantities(name, amounts)]
    return lines


def _port(port: ContainerPort) -> str:
    host = f" (host {port.host_port})" if port.host_port else ""
    return f"{port.container_port}/{port.protocol or 'TCP'}{host}"


def field(name: str, text: str) -> str:
    return folded(f"{name}:".ljust(_WIDTH) + shown(text), _WIDTH)


def controlled_by(metadata: ObjectMeta) -> list[str]:
    owner = next((one for one in metadata.owner_references if one.controller), None)
    return [] if owner is None else [field("Controlled By", f"{owner.kind}/{owner.name}")]


def listed(name: str, texts: Iterable[str]) -> list[str]:
    found = list(texts) or [NONE]
    return [field(name, found[0]), *(folded(" " * _WIDTH + shown(text), _WIDTH) for text in found[1:])]


def shown_annotations(metadata: ObjectMeta) -> dict[str, str]:
    """Without the note of `apply`, which is no person's concern."""
    return {key: text for key, text in metadata.annotations.items() if key != LAST_APPLIED}


def mapping(name: str, found: Mapping[str, str]) -> list[str]:
    return listed(name, (f"{key}={text}" for key, text in sorted(found.items())))


def quantities(name: str, found: Mapping[str, Quantity]) -> list[str]:
    if not found:
        return []
    return [
        f"{name}:",
        *(f"  {shown(key)}:".ljust(_WIDTH + 2) + shown(quantity.string) for key, quantity in sorted(found.items())),
    ]


def table(headings: list[str], rows: list[list[str]]) -> list[str]:
    if not rows:
        return [f"  {NONE}"]
    lines = [headings, ["-" * len(heading) for heading in headings], *rows]
    column_widths = printing.widths(headings, rows)
    return [printing.line(row, column_widths, "  ").rstrip() for row in lines]
