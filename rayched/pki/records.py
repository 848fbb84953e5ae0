"""What was issued and what was revoked: two lists beside the authority, each line one certificate. Pure.

The list of what was issued is JSON lines, and only grows. The deny list is text that a replica reads as well: a serial number in
hexadecimal digits begins each line, and what follows is for people. Serial numbers alone are denied, never names: who lost a key
gets a new certificate in the same name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from rayched.api.moments import moment_text
from rayched.pki.errors import PkiError

DENY_LIST_HEAD: Final = "# Revoked certificates: serial number, identity, when. `rayched pki revoke` writes this file.\n"
_SERIAL: Final = re.compile(r"[0-9a-f]{2,64}")


@dataclass(frozen=True, slots=True)
class IssueRecord:
    """One certificate that was issued. Times are seconds since 1970."""

    serial: str
    """Hexadecimal."""
    uri: str
    issued_at: int
    not_after: int
    authority: str
    """The id of the key that signed it."""
    directory: str
    """Where it was written."""

    def line(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"


def read_records(text: str, what: str) -> list[IssueRecord]:
    """Oldest first. Raises PkiError."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found.append(IssueRecord(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise PkiError(f"{what}, line {number}: is no record of a certificate ({error})") from error
    return found


def latest(records: Iterable[IssueRecord]) -> list[IssueRecord]:
    """Those that no later one of the same identity in the same directory has replaced, oldest first."""
    last = {(one.uri, one.directory): one for one in records}
    return sorted(last.values(), key=lambda one: one.issued_at)


def deny_line(record: IssueRecord, now: float) -> str:
    return f"{record.serial} {record.uri} {moment_text(now)}\n"


def read_deny_list(text: str, what: str) -> frozenset[int]:
    """The serial numbers. Raises PkiError."""
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        word = line.split("#")[0].split()
        if not word:
            continue
        if not _SERIAL.fullmatch(word[0]):
            raise PkiError(f"{what}, line {number}: begins with {word[0][:80]!r}, want a serial number in hexadecimal digits")
        found.add(int(word[0], 16))
    return frozenset(found)


def chosen(records: Sequence[IssueRecord], text: str) -> list[IssueRecord]:
    """The records of a serial number, or of all certificates of a URI. Raises PkiError where there are none."""
    wanted = text.lower().removeprefix("0x").replace(":", "")
    found = [one for one in records if one.uri == text or one.serial == wanted or one.serial == wanted.zfill(len(wanted) + 1)]
    if not found:
        raise PkiError(f"{text}: no certificate of this serial number or URI was issued here; `rayched pki list` shows them")
    return found
