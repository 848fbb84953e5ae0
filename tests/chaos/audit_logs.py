"""S11: what the replicas' audit logs say of a session, held against what the API acknowledged.

Each log follows on from line to line, through every kill and start. Each submission that was acknowledged has a line that says it
was made, and by which role. A deletion is acknowledged as well where an attempt without an answer had made it, whose replica may
have been killed before it could say so: it has no line then, and is counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rayched.access.audit_line import ChainFault, verified

_SUBMITS: Final = ("Submission.SubmitMany", "Submission.Submit")
_DELETES: Final = ("Submission.Delete",)


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """What is wrong with the logs of all replicas, and what they could not say."""

    faults: tuple[str, ...]
    untold: tuple[str, ...]
    """Names of pods whose submission was acknowledged and has no line."""
    untold_deletions: int
    lines: int

    @property
    def violations(self) -> list[str]:
        found = [f"{len(self.faults)} faults of audit logs, first {self.faults[0]}"] if self.faults else []
        if self.untold:
            found.append(f"{len(self.untold)} acknowledged submissions have no line in an audit log, first {self.untold[0]}")
        return found

    @property
    def tolerated(self) -> dict[str, int]:
        return {"S11, deletions without a line": self.untold_deletions} if self.untold_deletions else {}


def judge(directory: Path, submitted: Sequence[str], deleted: Sequence[str]) -> AuditVerdict:
    """`directory`: of the cluster; names of pods whose submission and deletion were acknowledged."""
    faults: list[str] = []
    told: dict[tuple[str, ...], set[str]] = {_SUBMITS: set(), _DELETES: set()}
    count = 0
    for log in sorted(directory.glob("replica-*/audit*.jsonl")):
        lines = list(_lines(log))
        count += len(lines)
        faults += [f"{one.place}: {one.words}" for one in verified(lines) if isinstance(one, ChainFault)]
        for _, line in lines:
            found = json.loads(line)
            for calls, names in told.items():
                if found.get("call") in calls and found.get("roles"):
                    names.update(_made(found))
    untold = tuple(sorted(set(submitted) - told[_SUBMITS]))
    return AuditVerdict(tuple(faults), untold, len(set(deleted) - told[_DELETES]), count)


def _lines(log: Path) -> Iterator[tuple[str, bytes]]:
    """Whole ones, of the older files first. The last one may be half written where its replica was killed."""
    rotated = [path for path in log.parent.glob(f"{log.name}.*") if path.suffix[1:].isdigit()]
    older = sorted(rotated, key=lambda path: -int(path.suffix[1:]))
    for path in (*older, log):
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
            yield f"{path}:{number}", line


def _made(line: Mapping[str, Any]) -> Iterator[str]:
    """Names of what a line says was done."""
    objects = line.get("objects")
    if isinstance(objects, list):
        yield from (str(one["name"]) for one in objects if one.get("code") == "OK" and "name" in one)
    elif line.get("code") == "OK" and "name" in line:
        yield str(line["name"])
