"""Holes of etcd that are known, by version. Pure.

Source: etcd's security advisories (GHSA-rfx7-8w68-q57q, -q8m4-xhhv-38mg, -x35m-3gp4-4fh5, -xg4h-6gfc-h4m8), its changelogs, and
its announcement on 3.5.0 to 3.5.2. What became known later is not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EtcdVersion = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class EtcdHole:
    """One of them. `fixed`: in each series the first version without it."""

    id: str
    what: str
    fixed: tuple[EtcdVersion, ...]
    since: EtcdVersion = (0, 0, 0)
    needs_users: bool = False
    """It is one where etcd has users, who may not all do the same."""

    def is_in(self, version: EtcdVersion) -> bool:
        if version < self.since:
            return False
        for first in self.fixed:
            if first[:2] == version[:2]:
                return version < first
        # A series that was begun after the repair has it; an older one never got it.
        return version < max(self.fixed)

    def fixed_text(self) -> str:
        return ", ".join(".".join(map(str, one)) for one in self.fixed)


HOLES: Final = (
    EtcdHole(
        "lost writes",
        "loses acknowledged writes when it is killed under load",
        ((3, 5, 3),),
        since=(3, 5, 0),
    ),
    EtcdHole(
        "CVE-2026-33343",
        "a nested transaction passes all permissions by",
        ((3, 4, 42), (3, 5, 28), (3, 6, 9)),
        needs_users=True,
    ),
    EtcdHole(
        "CVE-2026-33413",
        "leases, compaction, alarms and the list of members ask for no permission",
        ((3, 4, 42), (3, 5, 28), (3, 6, 9)),
        needs_users=True,
    ),
    EtcdHole(
        "CVE-2026-44283",
        "a put within a transaction shows old values and takes leases without permission",
        ((3, 4, 44), (3, 5, 30), (3, 6, 11)),
        needs_users=True,
    ),
    EtcdHole(
        "CVE-2026-73499",
        "a watch without an end shows keys that its user may not read",
        ((3, 5, 33), (3, 6, 14), (3, 7, 1)),
        needs_users=True,
    ),
    EtcdHole(
        "CVE-2026-73500",
        "TLS handshakes that never end take memory without bound",
        ((3, 5, 33), (3, 6, 14), (3, 7, 1)),
    ),
)


def holes_of(version: EtcdVersion) -> list[EtcdHole]:
    return [hole for hole in HOLES if hole.is_in(version)]
