"""Lines of the audit log: who asked for what, and what came of it. Pure.

One JSON object a line, keys in a fixed order, only ASCII (all else is escaped): no line can be taken for two, and none shows on a
terminal what it should not. Each line has its number and the SHA-256 of the line before it, so a line that was changed, moved or
taken out shows (`verified`). Who can write the file can write all of it anew: whoever needs more keeps number and hash of a line
elsewhere and compares.

What a call carries is not in it: names of objects are, and nothing else of them. At the level `request` (audit_levels.py) the
request is, with secrets left out by whoever makes the entry.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

BEGINNING: Final = "0" * 64
"""In place of the hash where there is no line before."""
LINE_BYTES_MAX: Final = 64 << 10
TEXT_MAX: Final = 1_024
"""Characters of a text in a line; what is longer is cut."""


class AuditLevel(enum.StrEnum):
    """How much of a call is told."""

    NONE = "none"
    METADATA = "metadata"
    REQUEST = "request"


class AuditStage(enum.StrEnum):
    """When it is told."""

    REFUSED = "refused"
    STARTED = "started"
    COMPLETE = "complete"
    LOST = "lost"
    """No call: so many lines that should be here are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """What happened. Empty texts, zeros and False are left out of the line."""

    time: str
    """RFC 3339, UTC, microseconds."""
    id: str
    """Of the call; its stages share it."""
    stage: AuditStage
    replica: str
    peer: str
    """Address of the caller, as gRPC gives it."""
    uri: str = ""
    """The caller's identity; empty: it has none."""
    credential: str = ""
    """Serial number of the certificate, or id of the token."""
    """Serial of the certificate, or id of the token."""
    on_behalf_of: str = ""
    """The identity that a replica asks for, whose rights count."""
    claimed: str = ""
    """For whom a caller asked who is no replica, which was not believed."""
    call: str = ""
    """Service and method."""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    dry_run: bool = False
    code: str = ""
    reason: str = ""
    """Of a refusal."""
    roles: str = ""
    """Which allowed it."""
    binding: str = ""
    """Ids of those whose roles these are."""
    revision: int = 0
    """Of etcd, that the call wrote."""
    bytes: int = 0
    """Of the request."""
    ms: float = 0.0
    objects: Sequence[Mapping[str, Any]] = ()
    """Of a call on many: kind, namespace, name, code and revision of each."""
    times: int = 0
    """So many refusals of one caller are this line."""
    lost: int = 0
    """Lines before this one that there was no room for."""
    request: Mapping[str, Any] | None = None
    """At the level `request` alone."""


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """Where a log stands: the next line follows this one."""

    number: int = 0
    """Of the last line; 0: there is none."""
    digest: str = BEGINNING


@dataclass(frozen=True, slots=True)
class ChainFault:
    """A line that is not what followed the one before it."""

    place: str
    """File and line."""
    words: str


_NAMES: Final = tuple(field.name for field in fields(AuditEntry))


def line_of(entry: AuditEntry, end: ChainEnd) -> tuple[bytes, ChainEnd]:
    """The next line, with its line break, and where the log stands then."""
    found: dict[str, Any] = {"n": end.number + 1, "before": end.digest}
    for name in _NAMES:
        value = getattr(entry, name)
        if value:
            found[name] = value[:TEXT_MAX] if isinstance(value, str) else value
    text = _json(found)
    for name in ("request", "objects"):
        if len(text) >= LINE_BYTES_MAX and name in found:
            found[name] = {"left out": f"{len(text)} bytes, at most {LINE_BYTES_MAX} in a line"}
            text = _json(found)
    return text + b"\n", ChainEnd(end.number + 1, digest_of(text))


def digest_of(line: bytes) -> str:
    """Of a line without its line break; 64 hexadecimal digits."""
    return hashlib.sha256(line).hexdigest()


def end_of(line: bytes) -> ChainEnd | None:
    """Where a log stands whose last line this is, without its line break; None: it is no line of one."""
    found = _read(line)
    return None if found is None else ChainEnd(found["n"], digest_of(line))


def verified(lines: Iterable[tuple[str, bytes]], end: ChainEnd | None = None) -> Iterator[ChainFault | ChainEnd]:
    """Faults in lines of which each has its place, oldest first, and at the end where the log stands.

    `end`: where it stood before the first of them; None: whatever that one says, as older files may be gone.
    """
    for place, line in lines:
        found = _read(line)
        if found is None:
            yield ChainFault(place, "is no line of an audit log")
            end = None
            continue
        if end is not None:
            if found["n"] != end.number + 1:
                yield ChainFault(place, f"has number {found['n']}, {end.number + 1} should follow")
            elif found["before"] != end.digest:
                yield ChainFault(
                    place, f"does not follow the line before it, number {end.number}: that one, or this, was changed"
                )
        end = ChainEnd(found["n"], digest_of(line))
    yield end or ChainEnd()


def _json(found: Mapping[str, Any]) -> bytes:
    return json.dumps(found, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _read(line: bytes) -> dict[str, Any] | None:
    if len(line) > LINE_BYTES_MAX:
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    number, before = found.get("n"), found.get("before")
    is_line = type(number) is int and number > 0 and isinstance(before, str) and len(before) == len(BEGINNING)
    return found if is_line else None
